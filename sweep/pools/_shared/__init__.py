"""Pools on a cluster: the parts that do not depend on its engine.

cluster  the driver's side: which worker runs what, who fits, what becomes of a slice
worker   the side of a worker: its one slot, and what is asked of it
"""
