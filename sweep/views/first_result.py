"""Warnings about results named in the spec that the first result of a sweep lacks.

They may be misspelt, which would be noticed late. Results arrive with the outcome of a slice;
before that its progress file is used.
"""

import time
from collections.abc import Collection, Mapping, Sequence

from sweep.history.events import Closed, End, Recorded
from sweep.history.history import History
from sweep.history.results import numeric_names
from sweep.ledger.folder import Folder
from sweep.views import progress
from trainables.core.legacy_names import nearest_results
from trainables.errors import printable, shorten

#: Seconds between two reads of the progress files.
LOOK_S = 1.0
#: Ends of slices at which a view or the driver itself says that the metric is missing.
COMPARED = (End.GOAL, End.UNMEASURED, End.DONE)
#: Maximum number of result names in a line.
_SHOWN = 12
#: Addition for names that may be right all the same.
LATER = " (no mistake if it appears only later, as results of evaluations do)"


def missing_result_text(
    key: str, name: str, results: Collection[str], clause: str, has: str
) -> str:
    """Return the line ``KEY: CLAUSE no NAME; HAS RESULTS``, with similar names as a suggestion.

    It says that the result `name`, used at the spec's `key`, is not among the existing `results`,
    of which up to twelve are listed. `clause` and `has` are, for example, ``the first result has``
    and ``it has``.
    """
    names = sorted(results)
    shown = ", ".join(map(printable, names[:_SHOWN])) + (", …" if len(names) > _SHOWN else "")
    near = nearest_results(name, names)
    hint = f"; did you mean {' or '.join(map(shorten, near))}?" if near else ""
    return f"{key}: {clause} no {printable(name)}; {has} {shown or 'no numbers'}{hint}"


class FirstResult:
    """Finds results named in the spec that the first result of a sweep lacks.

    `unsure` maps each result that may be missing to the key of the spec that names it.
    """

    def __init__(self, unsure: Mapping[str, str], folder: Folder, history: History) -> None:
        self._unsure = unsure
        self._folder = folder
        self._history = history
        self._over = not unsure or any(trial.iteration for trial in history.trials)
        self._look_at = 0.0

    def lines(self, records: Sequence[Recorded]) -> list[str]:
        """Return the warnings after new events; there are some at most once in a sweep.

        Reads the progress files of running slices, at most every `LOOK_S` seconds, until the first
        result is known.
        """
        if self._over:
            return []
        for record in records:
            if isinstance(record.event, Closed) and record.event.rows:
                first, known = record.event.rows[0].metrics, set(record.event.rows[0].metrics)
                if record.event.end in COMPARED:
                    known.add(self._history.objective.metric)
                return self._warnings(record.event.trial, known, numeric_names([first]))
        if time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + LOOK_S
            return self._check_progress_files()
        return []

    def _check_progress_files(self) -> list[str]:
        """Return the warnings that follow from the first progress file that lists its results.

        The list is empty if no running trial has such a file.
        """
        for replica in progress.running(self._history):
            if found := progress.read_missing_names(self._folder, replica):
                lacks, has = found
                return self._warnings(replica.trial, self._unsure.keys() - lacks, has)
        return []

    def _warnings(self, trial: int, names: Collection[str], has: Collection[str]) -> list[str]:
        """Return a warning for each key of `unsure` that is not in `names`, and stop checking.

        `has` are the names that the warning lists.
        """
        self._over = True
        seen = f"the first result of trial {trial} has"
        return [
            missing_result_text(key, name, has, seen, "it has") + LATER
            for name, key in self._unsure.items()
            if name not in names
        ]
