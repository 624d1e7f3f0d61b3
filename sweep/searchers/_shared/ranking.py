"""The order of finished trials from good to bad, kept while trials change."""

import math
from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence

from optuna.trial import FrozenTrial, TrialState

from sweep.history import fronts
from sweep.history.trial import Trial

#: Sort key: 0 complete, 1 pruned, 2 infeasible; two values of which less is better; the index.
_Rank = tuple[int, float, float, int]


class Ranking:
    """Finished trials in the order in which Optuna's estimator considers them good."""

    def __init__(self) -> None:
        self._ranks: list[_Rank | None] = []
        """Sort key of each trial, by index; None for one that runs or has failed."""
        self._sorted: list[_Rank] = []

    def update(self, frozen: Sequence[FrozenTrial], changed: Iterable[int], sign: float) -> None:
        """Rank the trials at the indices `changed` of `frozen` again; `frozen` are all trials.

        `sign` is +1 if the metric is maximised, -1 if it is minimised. Trials beyond the end of
        `frozen` are removed; running and failed ones have no rank.
        """
        while len(self._ranks) > len(frozen):
            self._remove(self._ranks.pop())
        for place in changed:
            rank = _rank(frozen[place], place, sign)
            if place < len(self._ranks):
                self._remove(self._ranks[place])
            self._ranks[place : place + 1] = [rank]
            if rank is not None:
                insort(self._sorted, rank)

    def __len__(self) -> int:
        return len(self._sorted)

    def best(self, count: int) -> list[int]:
        """Return the indices of the best `count` finished trials, or of all if there are fewer."""
        return [rank[-1] for rank in self._sorted[:count]]

    def _remove(self, rank: _Rank | None) -> None:
        """Remove a trial's sort key from the sorted list; None does nothing."""
        if rank is not None:
            del self._sorted[bisect_left(self._sorted, rank)]


def _rank(trial: FrozenTrial, place: int, sign: float) -> _Rank | None:
    """Return a key that sorts trials, best first; None for a trial that runs or has failed.

    Complete trials come first, by score, then pruned ones, by the last rung and the score there,
    then those that violate a constraint, by the amount. `place` is the trial's index; `sign` is +1
    if the metric is maximised, -1 if it is minimised.
    """
    if trial.state not in (TrialState.COMPLETE, TrialState.PRUNED):
        return None
    violation = sum(v for v in trial.constraints.values() if v > 0)
    if violation > 0:
        return 2, violation, 0.0, place
    if trial.state is TrialState.COMPLETE:
        return 0, -sign * trial.values[0], 0.0, place
    if not trial.intermediate_values:
        return 1, 1.0, 0.0, place
    step, value = max(trial.intermediate_values.items())
    return 1, -step, math.inf if math.isnan(value) else -sign * value, place


def front_order(ranked: Sequence[Trial], level: float) -> list[int]:
    """Return the numbers of trials, ordered by fronts at `level` (`fronts.arrange`).

    `ranked` are these trials; the first of a front in it comes first.
    """
    return [one.number for one in fronts.arrange([fronts.compare(t, level) for t in ranked])]
