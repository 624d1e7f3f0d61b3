"""Foundations of all other rooms.

settings       a flat dict becomes frozen, typed sections
legacy_names   keys of other trainers, and today's
rng            named random streams of one seed
rounding       whether two processes round equally
results        the usual keys of a result, a person's own logger
logs           what is logged of the data that flow through
processes      child processes: how they begin, what is asked of them, how they end
devices        the device that JAX uses: its name and its errors
resources      CPUs, GPUs, memory and variables of a trial
importing      what a dotted path stands for
torch_import   changes to torch that wait until torch is imported
failpoints     places at which a test ends a process
strict_json    JSON from outside
"""
