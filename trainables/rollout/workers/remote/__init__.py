"""Rollout workers in child processes.

worker_set  workers in children, and what becomes of one that fails
asynchronous  workers that sample on while the trainer learns
server      what a child answers, and how its samples travel
recovery    a child that is replaced from its last state
"""
