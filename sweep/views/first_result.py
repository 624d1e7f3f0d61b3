"""One line about names that the first result of a sweep lacks, as a misspelt one is noticed late.

Results come with the outcome of a slice; before that its note of progress says as much.
"""

import time
from collections.abc import Collection, Mapping, Sequence

from sweep.history.events import Closed, Recorded
from sweep.history.history import History
from sweep.history.results import numbers
from sweep.ledger.folder import Folder
from sweep.views import progress
from trainables.core.legacy_names import nearest_results
from trainables.errors import printable, shorten

#: Seconds between two looks at the notes of what runs.
LOOK_S = 1.0
#: Names of results that a line lists.
_SHOWN = 12
#: The case in which such a name is right all the same.
LATER = "; right if it comes later, as an evaluation does"


def missing(key: str, name: str, known: Collection[str], seen: str, has: str) -> str:
    """A line about the result `name`, at `key` of the spec, that is not among the `known` ones.

    It says that what was `seen` lacks it, and which results it `has`, both with their verb.
    """
    names = sorted(known)
    shown = ", ".join(map(printable, names[:_SHOWN])) + (", …" if len(names) > _SHOWN else "")
    near = nearest_results(name, names)
    hint = f"; did you mean {' or '.join(map(shorten, near))}?" if near else ""
    return f"{key}: {seen} no {printable(name)}; {has} {shown or 'no numbers'}{hint}"


class FirstResult:
    """Looks at what a driver takes in until there is a result.

    `unsure` are the results that may not come → the key of the spec that names them.
    """

    def __init__(self, unsure: Mapping[str, str], folder: Folder, history: History) -> None:
        self._unsure = unsure
        self._folder = folder
        self._history = history
        self._over = not unsure or any(trial.iteration for trial in history.trials)
        self._look_at = 0.0

    def lines(self, records: Sequence[Recorded]) -> list[str]:
        """Return the lines to print now; mostly none."""
        if self._over:
            return []
        for record in records:
            if isinstance(record.event, Closed) and record.event.rows:
                first = record.event.rows[0].metrics
                return self._said(record.event.trial, first, numbers([first]))
        if time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + LOOK_S
            return self._noted()
        return []

    def _noted(self) -> list[str]:
        for replica in progress.running(self._history):
            if found := progress.read_lack(self._folder, replica):
                lacks, has = found
                return self._said(replica.trial, self._unsure.keys() - lacks, has)
        return []

    def _said(self, trial: int, there: Collection[str], has: Collection[str]) -> list[str]:
        self._over = True
        seen = f"the first result of trial {trial} has"
        return [
            missing(key, name, has, seen, "it has") + LATER
            for name, key in self._unsure.items()
            if name not in there
        ]
