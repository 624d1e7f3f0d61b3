"""Rollout workers, in the trainer's process or in children.

worker       environments, actor, filters and streams of one worker
worker_spec  specification of a worker
worker_set   all workers of a trainer behind one interface
make         makes the workers that the settings describe
access       functions that are sent to a worker, and policy names
remote       workers in child processes
ranks        workers that also learn
"""
