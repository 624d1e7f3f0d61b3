"""How far one driver goes, and how many drivers one database serves.

drivers   several drivers of several sweeps on one PostgreSQL server, for an hour
simulate  one driver over a simulated pool of many slots: what a slice costs it, and where it ends
"""
