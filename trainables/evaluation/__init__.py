"""Evaluation: exactly N fresh episodes, filters frozen, in any number of processes.

config   when, how many episodes, and what differs from training
play     plays exactly these episodes
agents   plays with several policies, one for each agent
workers  plays them in child processes
"""
