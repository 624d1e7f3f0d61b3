"""Rollouts with several agents: one batched decision per policy and tick.

mapping      the policy of an agent
transitions  decisions of one policy's agents and their consequences, as fragments
episodes     plans of policies, running episodes, collected fragments
sampler      steps environments whose agents appear and end at any time
worker       a worker of several policies
"""
