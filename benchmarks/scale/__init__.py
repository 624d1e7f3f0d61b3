"""Limits of one driver, and of the drivers that one database serves.

drivers   several drivers of several sweeps on one PostgreSQL server, for an hour
simulate  one driver over a simulated pool of many slots: its cost of a slice, and its limit
"""
