"""The trainer that every algorithm fills in, and its parts.

trainer        sample, learn, synchronise, evaluate, result
multi_agent    the trainer of several policies
agents         which policies these are, whom they serve, and their settings
actor_critic   the base of methods that learn from what was just sampled
policy_gradient  of these, those that take one step of the policy's gradient on each batch
config         everything that can be set, one section for each reader
config_checks  whether settings can work, before a trainer is made
agreement      which settings a checkpoint and its trainer must share
policy_files   the policy as files
steps          what one training step does, for each family of algorithms
off_policy     what actor-critics that learn from a replay share
evaluation     how a trainer evaluates, and what is recorded
classic        a policy by its name, as classic trainers hand it out
reporting      callbacks, log and episode record
"""
