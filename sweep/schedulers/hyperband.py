"""Hyperband: `sweep.schedulers._shared.brackets` of synchronous successive halving."""

from sweep.schedulers._shared.brackets import Brackets


class Scheduler(Brackets):
    """Halves brackets of trials at their rungs, each when all of it is there."""
