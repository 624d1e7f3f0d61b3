"""The trainer that every algorithm completes, and its parts.

base           what `Trainer` extends: an algorithm's settings, collecting, iterations
trainer        the trainer, with the methods for its users
families       base classes of algorithms that learn in a similar way, and their training steps
multi_agent    the trainer of several policies
config         all settings, one section for each reader
config_checks  checks of settings before a trainer is made
agreement      settings in which a checkpoint and its trainer must agree
policy_files   the policy as files
evaluation     a trainer's evaluations and their videos
classic        results in the form of classic RLlib trainers
reporting      callbacks, log and episode record
"""
