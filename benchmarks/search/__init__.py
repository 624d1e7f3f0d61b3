"""Whole searches on tables of learning curves, beside their peers.

game         a table as something to search: a look costs nothing, seeds that judge are never shown
ours         our searches: the project's scheduler, searcher and pick on the simulated pool
peers        what drives a peer's search, and which peers there are
peer_optuna  Optuna's pruners and its TPE
peer_ray     Ray Tune's ASHA
peer_syne    Syne Tune's ASHA, ASHACQR and ASHABORE
peer_smac    SMAC3's multi-fidelity facade
log          files in which what is done stands at once
plays        what is played; progress, and going on
figures      what came of it: medians over paired plays, with intervals
report       the page docs/search.md and its picture
trained      tables of our own trainers' learning curves
"""
