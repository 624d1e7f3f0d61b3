"""Drives a sweep: history → plan → slices → history.

session           one term of a driver: signals, trackers, display
start             from a spec or the folder of a sweep to a driver's parts
driver            the loop: resume, plan, submit, record
context           the parts of a driver, and the messages that it sends to workers
decisions         plans and outcomes as events
proposals         new trials: searched, offspring or clones
control           decides on users' requests
limits            budgets of the sweep, its disk, and hard limits of slices
capacity          number of trials that fit on the machine
tracking          sends events to the trackers, also without a driver
final_evaluation  retrains the best trials under held-out seeds
"""
