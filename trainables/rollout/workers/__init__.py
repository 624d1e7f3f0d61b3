"""Rollout workers, in the trainer's process or in children.

worker       environments, actor, filters and streams of one worker
worker_spec  what a worker is made from
worker_set   all workers of a trainer behind one interface
make         the workers that the settings ask for
access       functions that travel to a worker, and the policy's name
remote       workers in child processes
ranks        workers that also learn
"""
