"""Parts that several searchers share.

study      the history as an Optuna study in memory
points     the points of a finite space that no trial has yet
evolution  generations of NSGA-II and NSGA-III, replayed
kernels    kernel densities over a space
prior      proposals from what other games have shown
"""
