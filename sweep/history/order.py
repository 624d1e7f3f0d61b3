"""Sorted lists of trials and sums over trials, updated incrementally as events arrive.

    history.order(key)               → the keys of all trials that have one, ascending
    history.total(amounts)           → the sum of some numbers of all trials
    history.summary(name, make)      → any other summary of all trials, a `Summary`

A key is a function of one trial. It returns None if the trial is not in the list, else a tuple that
ends with the trial's number. A list is stored for the next call with the same key object, so use a
module-level function, or the result of a cached function.
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

#: Sort key of a trial; its last item is the trial's number.
Entry = tuple[Any, ...]
#: Function that returns the entry by which a trial is sorted, or None to leave the trial out.
Key = Callable[[Trial], Entry | None]
#: Function that returns a trial's numbers in a `Total`.
Amounts = Callable[[Trial], tuple[float, ...]]
#: Number of changed trials above which the list is sorted again instead of moving each of them.
_SORT_ABOVE = 100


@cache
def level_key(level: float) -> Key:
    """Return a key that sorts the trials that reached `level` by their score there, best first.

    Trials that ended without the metric were compared with no other, and are left out.
    """
    return lambda trial: (
        rank_key(trial, trial.score_at(level)) if trial.reached(level) and trial.is_known else None
    )


def score_key(trial: Trial) -> Entry | None:
    """Return an entry that sorts trials by their present score, best first.

    Returns None without a score.
    """
    score = trial.score
    return None if score is None else rank_key(trial, score)


def parent_key(trial: Trial) -> Entry | None:
    """Return an entry that sorts offspring by the parent's number; None for other trials."""
    return None if trial.parent is None else (trial.parent, trial.number)


def _is_torn(trial: Trial) -> bool:
    """Return whether a replica of a trial failed or was pruned while another has not finished."""
    ended = any(replica.ended_early for replica in trial.replicas)
    return ended and any(replica.status not in FINISHED for replica in trial.replicas)


def _by_number(belongs: Callable[[Trial], bool]) -> Key:
    """Return a key that sorts by number the trials that `belongs` accepts."""
    return lambda trial: (trial.number,) if belongs(trial) else None


@cache
def trial_status_key(status: Status) -> Key:
    """Return a key that sorts the trials with this status by number."""
    return _by_number(lambda trial: trial.status is status)


def status_entry(trial: Trial) -> Entry:
    """Return an entry that sorts all trials by status, then by number."""
    return (trial.status.value, trial.number)


@cache
def replica_status_key(status: Status) -> Key:
    """Return a key that sorts the trials with at least one replica of this status by number."""
    return _by_number(lambda trial: any(replica.status is status for replica in trial.replicas))


counted = _by_number(lambda trial: trial.has_searched_settings)
"""Key for `History.order`: keeps trials whose settings were searched (counted by ``--trials``)."""
living = _by_number(lambda trial: trial.status not in FINISHED)
"""Key for `History.order`: keeps WAITING, RUNNING and PAUSED trials, by number."""
held = _by_number(lambda trial: bool(trial.hold))
"""Key for `History.order`: keeps trials that a user paused or stopped, by number."""
torn = _by_number(_is_torn)
"""Key for `History.order`: keeps trials of which one replica failed or was pruned while another
has not finished, by number."""
interrupted = _by_number(lambda trial: trial.is_interrupted)
"""Key for `History.order`: keeps trials with a replica that is PAUSED before its goal or with lost
results and that no user holds, by number."""
reported = _by_number(lambda trial: any(replica.reported for replica in trial.replicas))
"""Key for `History.order`: keeps trials of which any result ever had the metric, by number."""
tested = _by_number(lambda trial: bool(trial.test_replicas))
"""Key for `History.order`: keeps trials that have test replicas (held-out seeds), by number."""


@dataclass
class Summary:
    """Something computed from all trials of a history, updated from those that change."""

    _seen_trials: int = field(default=0, init=False)
    """Number of trials at the last update."""
    _read: int = field(default=0, init=False)
    """Number of entries of `History.touched` that were processed."""

    def update(self, trials: Sequence[Trial], touched: Sequence[int]) -> None:
        """Bring the summary up to date with the trials that changed since the last call.

        Subclasses define it. `trials` are all trials, by number; `touched` lists the numbers of all
        trials changed so far, in the order of the changes.
        """
        raise NotImplementedError

    def changed(self, trials: Sequence[Trial], touched: Sequence[int]) -> Collection[int]:
        """Return the numbers of the trials that are new or changed since the last call.

        `touched` lists the numbers of all trials changed so far. The trials returned then count as
        read.
        """
        if self._read == len(touched) and self._seen_trials == len(trials):
            return ()
        changed = dict.fromkeys([*touched[self._read :], *range(self._seen_trials, len(trials))])
        self._read, self._seen_trials = len(touched), len(trials)
        return changed


@dataclass
class Order(Summary):
    """Sorted entries that a key gives trials."""

    key: Key
    """Function from a trial to its entry, or None to leave the trial out."""
    entries: list[Entry] = field(default_factory=list)
    """Entries in ascending order; each ends with the number of its trial."""
    changed_from: int = 0
    """Lowest index of `entries` that may have changed since a reader last set this attribute."""
    _of: dict[int, Entry] = field(default_factory=dict)
    """Number of a trial → the trial's entry in `entries`."""

    def update(self, trials: Sequence[Trial], touched: Sequence[int]) -> None:
        """Replace in `entries` those of the trials that changed since the last call.

        Lowers `changed_from` to the first index that may have changed. `touched` lists the numbers
        of all trials changed so far, in the order of the changes.
        """
        changed = self.changed(trials, touched)
        for number in changed:
            self._put(number, self.key(trials[number]), sort=len(changed) > _SORT_ABOVE)
        if len(changed) > _SORT_ABOVE:
            self.entries[:] = sorted(self._of.values())
            self.changed_from = 0

    def _put(self, number: int, entry: Entry | None, sort: bool) -> None:
        """Replace the entry of a trial in `_of` and `entries`; None removes the entry.

        With `sort`, only `_of` is changed, since the caller sorts the list afterwards.
        """
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
        """Return the index of an entry in `entries`, or at which it would be inserted.

        Lowers `changed_from` to it.
        """
        place = bisect_left(self.entries, entry)
        self.changed_from = min(self.changed_from, place)
        return place


@dataclass
class Total(Summary):
    """Sum of the numbers that a function returns for each trial, exact and rounded once."""

    amounts: Amounts
    """Function from a trial to the numbers that it adds to the sum."""
    _of: dict[int, tuple[float, ...]] = field(default_factory=dict)
    """Number of a trial → its numbers in the sum."""
    _finite: Fraction = Fraction(0)
    """Exact sum of all finite numbers."""
    _infinite: int = 0
    """Number of numbers that are infinite."""

    def update(self, trials: Sequence[Trial], touched: Sequence[int]) -> None:
        """Replace in the sum the numbers of the trials that changed since the last call.

        `touched` lists the numbers of all trials changed so far, in the order of the changes.
        """
        for number in self.changed(trials, touched):
            old, new = self._of.get(number, ()), self.amounts(trials[number])
            if old != new:
                self._of[number] = new
                self._infinite += sum(map(math.isinf, new)) - sum(map(math.isinf, old))
                self._finite += _exact_sum(new) - _exact_sum(old)

    @property
    def sum(self) -> float:
        """Current sum without NaN; infinite if a number is, or if it exceeds a float's range."""
        try:
            return math.inf if self._infinite else float(self._finite)
        except OverflowError:
            return math.inf


def _exact_sum(amounts: Sequence[float]) -> Fraction:
    """Return the exact sum of those amounts that are finite."""
    return sum((Fraction(amount) for amount in amounts if math.isfinite(amount)), Fraction(0))


class Overlay:
    """Trials of a history with some of them replaced, and summaries of these.

    A scheduler's view differs from the history in a few trials; only trials whose replacement or
    state changed are processed again.
    """

    def __init__(self) -> None:
        self.trials: list[Trial] = []
        self.touched: list[int] = []
        self.orders: dict[Hashable, Summary] = {}
        self._source_touched: list[int] | None = None
        """The list `History.touched` of the underlying history; another list object means another
        history."""
        self._read = 0
        self._replaced: Set[int] = frozenset()

    def update(
        self,
        trials: Sequence[Trial],
        touched: list[int],
        replaced: Set[int],
        shown: Callable[[Trial], Trial],
    ) -> None:
        """Bring the trials up to date, and add the numbers of changed ones to `self.touched`.

        A trial whose number is in `replaced` is replaced by ``shown(trial)``. `touched` lists the
        numbers of all trials changed so far, in the order of the changes; another list object than
        at the last call means another history, and everything is built anew.
        """
        if self._source_touched is not touched:
            self.trials, self.touched, self.orders = [], [], {}
            self._source_touched, self._read, self._replaced = touched, 0, frozenset()
        new = range(len(self.trials), len(trials))
        changed = dict.fromkeys([*touched[self._read :], *(self._replaced ^ replaced)])
        self._read, self._replaced = len(touched), replaced
        self.trials += trials[len(self.trials) :]
        for number in changed | dict.fromkeys(new):
            trial = trials[number]
            self.trials[number] = shown(trial) if number in replaced else trial
        self.touched += [number for number in changed if number < new.start]
