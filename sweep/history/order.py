"""Trials in an order that is kept up while events come in, so that none of them is looked at twice.

    history.order(key)       → the keys of all trials that have one, ascending

A key is a function of one trial: None where the trial is not in the order, else a tuple that ends
with the trial's number. An order is kept for the next call with the same key: a function at the top
of a module, or what a cached function returns.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from sweep.history.events import FINISHED, Status
from sweep.history.trial import Trial, rank_key

Entry = tuple[Any, ...]
Key = Callable[[Trial], Entry | None]
#: So many trials that have changed are sorted at once; fewer are put in their places one by one.
_MANY = 100


@cache
def at_level(level: float) -> Key:
    """Trials that have reached a level of ``time_attr``, by their score there, best first."""
    return lambda trial: rank_key(trial, trial.score_at(level)) if trial.reached(level) else None


def scored(trial: Trial) -> Entry | None:
    """Trials with a score, best first."""
    score = trial.score
    return None if score is None else rank_key(trial, score)


def bred(trial: Trial) -> Entry | None:
    """Trials with a parent, by its number."""
    return None if trial.parent is None else (trial.parent, trial.number)


def _torn(trial: Trial) -> bool:
    ended = any(replica.ended_early for replica in trial.replicas)
    return ended and any(replica.status not in FINISHED for replica in trial.replicas)


def _by_number(belongs: Callable[[Trial], bool]) -> Key:
    return lambda trial: (trial.number,) if belongs(trial) else None


@cache
def of_status(status: Status) -> Key:
    """Trials of one status, by number."""
    return _by_number(lambda trial: trial.status is status)


def by_status(trial: Trial) -> Entry:
    """All trials, status by status."""
    return (trial.status.value, trial.number)


@cache
def having(status: Status) -> Key:
    """Trials with a replica of one status, by number."""
    return _by_number(lambda trial: any(replica.status is status for replica in trial.replicas))


counted = _by_number(lambda trial: trial.counts)
"""Trials whose settings were searched."""
living = _by_number(lambda trial: trial.status not in FINISHED)
"""Trials that have not ended."""
held = _by_number(lambda trial: bool(trial.held))
"""Trials of which a person wants something."""
torn = _by_number(_torn)
"""Trials of which a replica has ended early and another has not."""
unfinished = _by_number(lambda trial: trial.unfinished)
"""Trials with a replica that was interrupted on its way to its goal."""
reported = _by_number(lambda trial: any(replica.reported for replica in trial.replicas))
"""Trials of which a result ever had the metric."""
tested = _by_number(lambda trial: bool(trial.tests))
"""Trials that were trained under test seeds."""


@dataclass
class Order:
    """The entries of one key, ascending."""

    key: Key
    entries: list[Entry] = field(default_factory=list)
    _of: dict[int, Entry] = field(default_factory=dict)
    """Trial → its entry."""
    _known: int = 0
    """How many trials were looked at when they came."""
    _read: int = 0
    """How much of what was touched has been taken in."""

    def bring_up(self, trials: Sequence[Trial], touched: Sequence[int]) -> list[Entry]:
        """The entries as they are now; `touched` are the numbers of trials that have changed."""
        if self._read == len(touched) and self._known == len(trials):
            return self.entries
        changed = dict.fromkeys([*touched[self._read :], *range(self._known, len(trials))])
        self._read, self._known = len(touched), len(trials)
        for number in changed:
            self._put(number, self.key(trials[number]), sort=len(changed) > _MANY)
        if len(changed) > _MANY:
            self.entries[:] = sorted(self._of.values())
        return self.entries

    def _put(self, number: int, entry: Entry | None, sort: bool) -> None:
        old = self._of.pop(number, None)
        if entry is not None:
            self._of[number] = entry
        if old == entry or sort:
            return
        if old is not None:
            del self.entries[bisect_left(self.entries, old)]
        if entry is not None:
            insort(self.entries, entry)
