"""What was known when each trial was proposed, worked out again from the history.

Evolutionary searchers move on in generations. Which generation a trial belongs to, and what that
generation came from, follows from what had come to rest when the trial was proposed
(`Trial.seen`): replaying this leads to the same generations at any time, in any process.
"""

import math
from collections.abc import Callable, Sequence

from sweep.events import Status
from sweep.history import Rest, Trial


def seen_by(trials: Sequence[Trial], number: int) -> float:
    """The last event that the proposal of trial `number` was made after."""
    return trials[number].seen if number < len(trials) else math.inf


def rest_of(trial: Trial, k: float) -> Rest | None:
    """Where the trial last came to rest with a score, as known at event `k`; None: nowhere."""
    last = next((rest for rest in reversed(trial.rests) if rest.k <= k), None)
    if last is None or last.status is Status.FAILED or not _is_scored(last):
        return None
    return last


def first_score(trial: Trial) -> float:
    """The event from which the trial has a score; infinite: it has none."""
    scored = (rest.k for rest in trial.rests if _is_scored(rest))
    return next(scored, math.inf)


class Arrivals:
    """Searched trials in the order in which they first had a score; bred ones never arrive."""

    def __init__(self, trials: Sequence[Trial]) -> None:
        self._waiting = sorted(
            ((first_score(t), t.number) for t in trials if t.parent is None), reverse=True
        )

    def upto(self, k: float, take: Callable[[int], None]) -> None:
        """Hand over the numbers of those that arrived by event `k` and were not handed over."""
        while self._waiting and self._waiting[-1][0] <= k and self._waiting[-1][0] < math.inf:
            take(self._waiting.pop()[1])


def _is_scored(rest: Rest) -> bool:
    """Whether there was a score in every objective."""
    return all(v is not None and not math.isnan(v) for v in (rest.score, *rest.others))
