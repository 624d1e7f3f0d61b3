"""Searches, schedules and resumes trials of reinforcement-learning trainers.

    import sweep

    found = sweep.run(train, space={"lr": {"loguniform": [1e-4, 1e-1]}}, metric="loss", mode="min")
    found.best().settings


errors      every error of a sweep, by who can act on it; where a setting was written
plugins     a name, a dotted path or an entry point → a class
stats       what a few noisy scores say
version     which one this is
pickled     the trainable of a script or a notebook, as a signed file
__main__    where the program `sweep` starts
api         the same from Python: run, resume, load
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

import contextlib
import sys
import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

from sweep.version import __version__

if TYPE_CHECKING:
    from sweep.api import Sweep, Trial, load, resume, run

_OF_PYTHON = ("Sweep", "Trial", "load", "resume", "run")


def __getattr__(name: str) -> Any:
    """Imported when it is first asked for: the command line needs none of it."""
    if name not in _OF_PYTHON:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from trainables.core.importing import large_import

    with large_import():
        _import_progress_bars()
        return getattr(import_module("sweep.api"), name)


def _import_progress_bars() -> None:
    """Import tqdm, as optuna and MLflow do, without its advice in notebooks to install widgets.

    None of their bars is ever shown.
    """
    if "ipykernel.zmqshell" in sys.modules:
        with warnings.catch_warnings(), contextlib.suppress(ImportError):
            warnings.simplefilter("ignore")
            import_module("tqdm.auto")


__all__ = ["Sweep", "Trial", "__version__", "load", "resume", "run"]
