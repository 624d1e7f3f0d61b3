"""What the pools on a cluster share, whatever its engine is.

cluster  the driver's side: which worker runs what, who fits, what becomes of a slice
worker   the side of a worker: its one slot, and what is asked of it
"""
