"""The history of a sweep in memory; nothing here touches a disk.

events        everything that can happen to a sweep, numbered
history       the fold over all events
trial         one choice of settings, with its replicas
order         trials in orders, and sums over them, that are kept up while events come in
replica       a trial under one seed: slices, curve, checkpoints
objective     the score that trials are compared by
ranking       the order of trials where one number does not decide
results       results as one level of scalars
seeds         which seed belongs to which replica
optuna_terms  objective and space as Optuna calls them
"""
