"""Views of a sweep as plain data, for the command line and for Python.

overview     sweeps, trials and seeds as data
final_evaluation  scores of the best trials under test seeds
comparison   several sweeps side by side: what each found, and with which settings
explanation  the decisions about a trial; the lineage of a population
first_result warns about results of the spec that the first result lacks
progress     the progress of a sweep, and the time left
lookup       reads a sweep, its state and its logs
reading      reads spec and history from a ledger, importing nothing that it names
formatting   numbers, durations and settings as short texts
"""
