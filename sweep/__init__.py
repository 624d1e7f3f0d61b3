"""Searches, schedules and resumes trials of reinforcement-learning trainers.

errors      every error of a sweep, by who can act on it; where a setting was written
plugins     a name, a dotted path or an entry point → a class
stats       what a few noisy scores say
cli         arguments in, text out; the only place that prints
operations  what is done with a sweep beside driving it: validate, verify, repair, export
report      a sweep as a page to look at and to send
testing     a simulated pool and clock, for people who write a scheduler
driver      history → plan → slices → history
views       what a sweep says, as plain data
pools       run slices in slots; one file each
slices      one stretch of a trial's training, in a worker process
trackers    copy the history to where people look at it; one file each
schedulers  decide which trials run, and up to where; one file each
searchers   propose settings; one file each
ledger      the history on disk, its lock and its tables
history     the history in memory: events, trials, replicas
spec        the YAML file as typed data
space       the language of search spaces
"""

__version__ = "0.1.0"
