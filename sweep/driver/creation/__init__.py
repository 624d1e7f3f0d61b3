"""From a spec to a new sweep: its plugins found, its settings checked, its folder made.

resolving     finds the plugins of a spec, and every mistake in it
samples       points of its space, shown to the trainable before anything runs
result_names  the results that a spec names: known, unknown, or not known yet
creating      makes the folder and the ledger of a new sweep
provenance    what results depend on beside the spec
learning      results of earlier sweeps, copied in
"""
