"""Parts that several searchers share.

study      the history as an Optuna study in memory
points     the points of a finite space that have no trial yet
evolution  generations of NSGA-II and NSGA-III, replayed
kernels    kernel densities over a space
prior      proposals from results on other games
"""
