"""The trainer that every algorithm fills in, and its parts.

trainer        sample, learn, synchronise, evaluate, result
config         everything that can be set, one section for each reader
config_checks  whether settings can work, before a trainer is made
agreement      which settings a checkpoint and its trainer must share
policy_api     actions, weights, gradients and files for callers
evaluation     when the trainer evaluates, and what is recorded
reporting      callbacks, log and episode record
data_parallel  learning in the rollout workers, seen from the trainer
"""
