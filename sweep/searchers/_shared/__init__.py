"""Parts that several searchers share.

changes    the trials that have changed since the last proposal
ranking    finished trials from good to bad
study      the history as an Optuna study in memory
points     the points of a finite space that have no trial yet
evolution  generations of NSGA-II and NSGA-III, replayed
kernels    kernel densities over a space
prior      proposals from results on other games
"""
