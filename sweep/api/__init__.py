"""Start, resume and read sweeps from Python, in a script or a notebook.

    found = sweep.run(train, space={...}, metric="loss", mode="min", trials=20, name="first")
    found.results()                          # a pandas DataFrame, one row per trial, best first
    found.best().settings
    sweep.load("first").resume(trials=30)

It uses the files, checks and driver of the command line, so each can resume the other's sweeps.
Every call reads the ledger again, so the results are current.

sweeps     run, resume, load, and a sweep in its folder
trials     a trial and its checkpoints
arguments  types and checks of arguments, and the spec that they give
"""

from sweep.api.arguments import SpecKeys
from sweep.api.sweeps import Sweep, load, resume, run
from sweep.api.trials import Checkpoint, Policy, Trial
from sweep.operations.comparison import Comparison

__all__ = [
    "Checkpoint",
    "Comparison",
    "Policy",
    "SpecKeys",
    "Sweep",
    "Trial",
    "load",
    "resume",
    "run",
]
