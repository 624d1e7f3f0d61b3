"""Hyperband: `sweep.schedulers._shared.brackets` of synchronous successive halving."""

from sweep.schedulers._shared.brackets import Brackets


class Scheduler(Brackets):
    """Hyperband: halves each bracket of trials at its rungs once all its trials have arrived."""
