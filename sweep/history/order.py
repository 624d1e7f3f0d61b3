"""Trials in an order that is kept up while events come in, so that none of them is looked at twice.

    history.order(key)               → the keys of all trials that have one, ascending
    history.total(amounts)           → the sum of some numbers of all trials
    history.following(name, make)    → anything else that is made of all trials, a `Kept`

A key is a function of one trial: None where the trial is not in the order, else a tuple that ends
with the trial's number. An order is kept for the next call with the same key: a function at the top
of a module, or what a cached function returns.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Collection, Hashable, Sequence, Set
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from typing import Any

from sweep.history.events import FINISHED, Status
from sweep.history.trial import Trial, rank_key

Entry = tuple[Any, ...]
Key = Callable[[Trial], Entry | None]
Amounts = Callable[[Trial], tuple[float, ...]]
#: So many trials that have changed are sorted at once; fewer are put in their places one by one.
_MANY = 100


@cache
def at_level(level: float) -> Key:
    """Trials that have reached a level of ``time_attr``, by their score there, best first.

    One that ended without the metric was compared with nobody, and has no place.
    """
    return lambda trial: (
        rank_key(trial, trial.score_at(level)) if trial.reached(level) and trial.is_known else None
    )


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
class Kept:
    """A summary of all trials, updated while these change."""

    _known: int = field(default=0, init=False)
    """The number of trials that were looked at when they were created."""
    _read: int = field(default=0, init=False)
    """The number of touched trials that have been taken in."""

    def bring_up(self, trials: Sequence[Trial], touched: Sequence[int]) -> None:
        """Take in what has changed; `touched` are the numbers of trials that have changed."""
        raise NotImplementedError

    def changed(self, trials: Sequence[Trial], touched: Sequence[int]) -> Collection[int]:
        """The numbers of trials that are to be looked at; `touched` are those that have changed."""
        if self._read == len(touched) and self._known == len(trials):
            return ()
        changed = dict.fromkeys([*touched[self._read :], *range(self._known, len(trials))])
        self._read, self._known = len(touched), len(trials)
        return changed


@dataclass
class Order(Kept):
    """The entries of one key, ascending."""

    key: Key
    entries: list[Entry] = field(default_factory=list)
    changed_from: int = 0
    """The first place that may have changed since a reader who follows the entries set it."""
    _of: dict[int, Entry] = field(default_factory=dict)
    """Trial → its entry."""

    def bring_up(self, trials: Sequence[Trial], touched: Sequence[int]) -> None:
        """Take in what has changed; `touched` are the numbers of trials that have changed."""
        changed = self.changed(trials, touched)
        for number in changed:
            self._put(number, self.key(trials[number]), sort=len(changed) > _MANY)
        if len(changed) > _MANY:
            self.entries[:] = sorted(self._of.values())
            self.changed_from = 0

    def _put(self, number: int, entry: Entry | None, sort: bool) -> None:
        old = self._of.pop(number, None)
        if entry is not None:
            self._of[number] = entry
        if old == entry or sort:
            return
        if old is not None:
            del self.entries[self._place(old)]
        if entry is not None:
            self.entries.insert(self._place(entry), entry)

    def _place(self, entry: Entry) -> int:
        place = bisect_left(self.entries, entry)
        self.changed_from = min(self.changed_from, place)
        return place


@dataclass
class Total(Kept):
    """The sum of what some amounts of every trial are, rounded once."""

    amounts: Amounts
    _of: dict[int, tuple[float, ...]] = field(default_factory=dict)
    _finite: Fraction = Fraction(0)
    _infinite: int = 0

    def bring_up(self, trials: Sequence[Trial], touched: Sequence[int]) -> None:
        """Take in what has changed; `touched` are the numbers of trials that have changed."""
        for number in self.changed(trials, touched):
            old, new = self._of.get(number, ()), self.amounts(trials[number])
            if old != new:
                self._of[number] = new
                self._infinite += sum(map(math.isinf, new)) - sum(map(math.isinf, old))
                self._finite += _exact(new) - _exact(old)

    @property
    def sum(self) -> float:
        """The sum as it is now; infinite where it is more than a float can be."""
        try:
            return math.inf if self._infinite else float(self._finite)
        except OverflowError:
            return math.inf


def _exact(amounts: Sequence[float]) -> Fraction:
    return sum((Fraction(amount) for amount in amounts if math.isfinite(amount)), Fraction(0))


class Overlay:
    """Orders of a history in which some trials stand otherwise, kept up like its own.

    What a scheduler is shown differs from the history in a few trials; only those that are shown
    otherwise than before, and those that have changed, are looked at again.
    """

    def __init__(self) -> None:
        self.trials: list[Trial] = []
        self.touched: list[int] = []
        self.orders: dict[Hashable, Kept] = {}
        self._below: list[int] | None = None
        """The touched trials of the history below, which is another one where this is another."""
        self._read = 0
        self._otherwise: Set[int] = frozenset()

    def bring_up(
        self,
        trials: Sequence[Trial],
        touched: list[int],
        otherwise: Set[int],
        shown: Callable[[Trial], Trial],
    ) -> None:
        """Take in what has changed; the trials `otherwise` stand as they are `shown`."""
        if self._below is not touched:
            self.trials, self.touched, self.orders = [], [], {}
            self._below, self._read, self._otherwise = touched, 0, frozenset()
        new = range(len(self.trials), len(trials))
        changed = dict.fromkeys([*touched[self._read :], *(self._otherwise ^ otherwise)])
        self._read, self._otherwise = len(touched), otherwise
        self.trials += trials[len(self.trials) :]
        for number in changed | dict.fromkeys(new):
            trial = trials[number]
            self.trials[number] = shown(trial) if number in otherwise else trial
        self.touched += [number for number in changed if number < new.start]
