"""A scheduler that is not a plugin of ours: it is named by its path."""

from sweep.schedulers import asha


class Own(asha.Scheduler):
    """ASHA under another name."""
