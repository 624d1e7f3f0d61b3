"""Evaluation: exactly N new episodes with frozen filters, in any number of processes.

config   times, number of episodes, and differences from training
play     plays the requested episodes
agents   player of several policies
workers  child processes that play episodes
"""
