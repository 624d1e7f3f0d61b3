"""Hyperband: brackets of synchronous successive halving; see `sweep.schedulers._brackets`."""

from sweep.schedulers._brackets import Brackets


class Scheduler(Brackets):
    """Halves brackets of trials at their rungs, each when all of it is there."""
