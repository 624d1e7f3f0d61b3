"""Whole searches on tables of learning curves, compared with other libraries.

game         a table of learning curves that can be searched; half of the seeds judge the result
ours         our searches: the project's scheduler, searcher and pick on the simulated pool
peers        the loop of a peer's search, and the list of peers
peer_optuna  Optuna's pruners and its TPE
peer_ray     Ray Tune's ASHA
peer_syne    Syne Tune's ASHA, ASHACQR and ASHABORE
peer_smac    SMAC3's multi-fidelity facade
log          files of results, a line each, appended at once
plays        the list of plays; an interrupted command continues
figures      results of the plays: medians over paired plays, with intervals
report       the page docs/search.md and its picture
trained      tables of learning curves of our own trainers
populations  populations and the default on environments, docs/schedulers.md
fronts       searches with several objectives beside a known front, docs/schedulers.md
"""
