"""Half of BOHB: Hyperband's brackets, for a searcher that models the highest rung.

Falkner et al., BOHB: Robust and Efficient Hyperparameter Optimization at Scale, 2018, section 3.1:
trials are halved exactly as in Hyperband, and proposed by ``searcher: bohb``.
"""

from sweep.schedulers._shared.brackets import Brackets


class Scheduler(Brackets):
    """Hyperband's brackets, for use with the searcher `bohb`."""
