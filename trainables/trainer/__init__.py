"""The trainer that every algorithm completes, and its parts.

base           what `Trainer` extends: an algorithm's settings, collecting, iterations
trainer        the trainer, with the methods for its users
multi_agent    the trainer of several policies
agents         the policies of several agents, their mapping and their settings
actor_critic   the base of methods that learn from the latest samples
policy_gradient  the base of those that take one step of the policy gradient on each batch
config         all settings, one section for each reader
config_checks  checks of settings before a trainer is made
agreement      settings in which a checkpoint and its trainer must agree
policy_files   the policy as files
steps          one training step, for each family of algorithms
off_policy     the base of actor-critics that learn from a replay
evaluation     a trainer's evaluations and their videos
classic        results in the form of classic RLlib trainers
reporting      callbacks, log and episode record
"""
