"""Drives a sweep: history → plan → slices → history.

session           one driver's term: signals, trackers, what a person sees
prepare           from what a person typed to a checked spec
creation          from a spec to a new sweep: its plugins, its checks, its folder
launch            from a sweep's name to the parts of a driver
driver            the loop: resume, plan, submit, record
context           what a driver is made of, and what it sends to a worker
decisions         plans and outcomes as events
proposals         new trials: searched, bred or cloned
control           what becomes of a person's request
limits            budgets of the sweep, its disk, and hard limits of slices
capacity          how many trials fit on the machine
outbox            events to the trackers, each once and in order
sync              where runs are tracked; sends what is missing without a driver
final_evaluation  the best trials trained anew under held-out seeds
"""
