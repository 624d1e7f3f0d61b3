"""Rollout workers in child processes.

worker_set  workers in children, which may be left out when they fail
asynchronous  workers that sample while the trainer learns
server      answers of a child, and how it sends samples
recovery    replaces a child that failed from its last state
"""
