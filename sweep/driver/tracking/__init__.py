"""Sends the events of a sweep to its trackers.

outbox  sends events to the trackers, each once and in order
sync    tracking of a sweep; sends missing rows without a driver
"""
