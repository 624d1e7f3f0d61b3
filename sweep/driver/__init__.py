"""Drives a sweep: history → plan → slices → history.

session           one term of a driver: signals, trackers, display
prepare           reads and checks a spec, and prepares the launch of a driver
creation          creates a new sweep from a spec: plugins, checks, folder
launch            opens an existing sweep and assembles its driver's parts
changing          another space or later stopping criteria: which ended trials continue
driver            the loop: resume, plan, submit, record
context           the parts of a driver, and the messages that it sends to workers
decisions         plans and outcomes as events
proposals         new trials: searched, offspring or clones
control           decides on users' requests
limits            budgets of the sweep, its disk, and hard limits of slices
capacity          number of trials that fit on the machine
outbox            sends events to the trackers, each once and in order
sync              tracking of a sweep; sends missing rows without a driver
final_evaluation  retrains the best trials under held-out seeds
"""
