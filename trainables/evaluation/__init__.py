"""Evaluation: exactly N fresh episodes, filters frozen, in any number of processes.

config   when, how many episodes, and what differs from training
play     plays exactly these episodes
workers  plays them in child processes
"""
