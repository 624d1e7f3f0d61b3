"""The history of a sweep in memory; nothing here touches a disk.

events        everything that can happen to a sweep, numbered
history       the fold over all events
trial         one choice of settings, with its replicas
order         trials in orders, and sums over them, that are kept up while events come in
replica       a trial under one seed: slices, curve, checkpoints
curve         a learning curve, read at steps between its results
objective     the score that trials are compared by
expectation   the pick: what settings are expected to score under a new seed
posterior     the model behind it, on arrays
ranking       the order of trials: by expectation, several objectives, constraints
failing       whether the first trials all failed with one error
results       results as one level of scalars
seeds         which seed belongs to which replica
optuna_terms  objective and space as Optuna calls them
"""
