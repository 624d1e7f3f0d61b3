"""Rollout workers in child processes.

worker_set  workers in children, and what becomes of one that fails
process     the parent's end of a child process
server      the child's end
build       a worker made from its spec, in the child
transport   metrics sent after their sample; rows compressed
recovery    a child that is replaced from its last state
"""
