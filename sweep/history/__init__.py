"""The history of a sweep in memory; nothing here touches a disk.

events        all events of a sweep, numbered
history       the fold over all events
trial         one choice of settings, with its replicas
order         sorted lists and sums over all trials, updated incrementally
replica       a trial under one seed: slices, curve, checkpoints
curve         a learning curve, interpolated between its results
objective     the score that trials are compared by
expectation   the pick: expected scores of settings under a new seed
posterior     the statistical model behind it, on arrays
fronts        non-dominated sorting of several objectives, and the spread of a front
ranking       the order of trials: by expectation, several objectives, constraints
failing       detects that the first trials all failed with one error
results       results as one level of scalars
seeds         the seeds of replicas
optuna_terms  objective and space in Optuna's classes
"""
