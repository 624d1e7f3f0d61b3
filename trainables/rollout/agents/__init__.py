"""Rollouts with several agents: one batched decision per policy and tick.

mapping      which policy an agent has
transitions  what the agents of one policy did, and fragments of it
sampler      environments stepped, agents that come and go
worker       a worker of several policies
"""
