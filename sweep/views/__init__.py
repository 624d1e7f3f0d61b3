"""Views of a sweep as plain data, for the command line and for Python alike.

overview     sweeps, trials, seeds and final evaluations as data
explanation  why a trial is where it is; the lineage of a population
first_result what the first result lacks of those that the spec names
progress     how far a sweep is, and how long the rest takes
lookup       finds a sweep, says who drives it, watches it
reading      what a ledger says of its sweep, importing nothing that it names
formatting   numbers, durations and settings in few characters
"""
