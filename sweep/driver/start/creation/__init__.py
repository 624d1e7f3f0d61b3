"""Creation of a sweep from a spec: its plugins are found, its settings checked, its folder made.

resolving     finds the plugins of a spec, and every mistake in it
suggested     the parameters that an objective of Optuna's asks for
samples       draws random points of the space, which the trainable checks before anything runs
result_names  checks the results that a spec names
creating      makes the folder and the ledger of a new sweep
provenance    conditions of the results other than the spec
learning      copies results of earlier sweeps
"""
