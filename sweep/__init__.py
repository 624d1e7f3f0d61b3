"""Search, schedule and resume trials of reinforcement-learning trainers.

    import sweep

    found = sweep.run(train, space={"lr": {"loguniform": [1e-4, 1e-1]}}, metric="loss", mode="min")
    found.best().settings

__main__    entry point of the program `sweep`
api         the Python interface: run, resume, load
cli         the commands: parses arguments and prints; the only package that prints
operations  operations on a sweep other than driving it: validate, repair, export, report
testing     a simulated pool and clock, for authors of schedulers
driver      history → plan → slices → history
views       the state of a sweep as plain data
pools       run slices in slots; one file each
slices      run one stretch of a trial's training in a worker process
trackers    copy the history to MLflow and other tools; one file each
schedulers  decide which trials run, and how far; one file each
searchers   propose settings; one file each
ledger      the history on disk: its tables, lock and folder
history     the history in memory: events, trials, replicas
spec        the YAML file as typed data, and the language of search spaces
core        errors, plugins, statistics, functions of scripts as files
"""

import contextlib
import sys
import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

from sweep.core.version import __version__

if TYPE_CHECKING:
    from sweep.api import Sweep, Trial, load, resume, run
    from sweep.operations.comparison import Comparison

#: Names that are imported from `sweep.api` when they are first used.
_API_NAMES = ("Comparison", "Sweep", "Trial", "load", "resume", "run")


def __getattr__(name: str) -> Any:
    """Return `name`, one of `_API_NAMES`, from `sweep.api`, which is imported only now.

    The command line needs none of them. Raises AttributeError for all other names.
    """
    if name not in _API_NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from trainables.core.importing import large_import

    with large_import():
        _import_progress_bars()
        return getattr(import_module("sweep.api"), name)


def _import_progress_bars() -> None:
    """Import tqdm, which optuna and MLflow need, without its warning about notebook widgets.

    Does nothing outside a notebook, or if tqdm is not installed.
    """
    if "ipykernel.zmqshell" in sys.modules:
        with warnings.catch_warnings(), contextlib.suppress(ImportError):
            warnings.simplefilter("ignore")
            import_module("tqdm.auto")


__all__ = ["Comparison", "Sweep", "Trial", "__version__", "load", "resume", "run"]
