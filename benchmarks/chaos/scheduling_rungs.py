"""What must be true of ASHA: who went on was among the first of its rung, or the best at the end.

Who is trained to the top at the end was the best of those that rested, when nobody was on the way
to a lower rung and no trial was still to begin.
"""

from collections.abc import Iterator

from benchmarks.chaos.scheduling_world import claim
from sweep.history.events import Goal, Status
from sweep.history.history import History
from sweep.schedulers import Scheduler, asha
from sweep.schedulers._shared.rungs import ranked_at


class Rungs:
    """Who was among the first of each rung once; of other schedulers nothing is claimed."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._levels: tuple[float, ...] = ()
        if isinstance(scheduler, asha.Scheduler) and scheduler.pauses:
            self._levels, self._factor = scheduler.levels, scheduler.eta
            self._finish_best = scheduler.finish_best
        self._first: dict[float, set[int]] = {level: set() for level in self._levels}
        """Rung → trials that were among the first of it once: one in `reduction_factor`."""
        self._finished: set[int] = set()
        """Trials that could be sent to the top at the end."""

    def rank(self, history: History) -> None:
        """Who is among the first of each rung, now that somebody may have come to one."""
        for level in self._levels:
            there = [trial for trial in history.trials if trial.reached(level)]
            best = ranked_at(there, level)[: len(there) // self._factor]
            self._first[level].update(trial.number for trial, _ in best)
        if self._levels and not history.to_create:
            self._finished.update(self._at_the_end(history.for_scheduler()))

    def _at_the_end(self, history: History) -> Iterator[int]:
        """The best of those that rest, as many as are to be finished; none while others climb."""
        climbing = (t for t in history.trials if t.status is Status.RUNNING or t.unfinished)
        if any(trial.goal.at != self._levels[-1] for trial in climbing):
            return
        resting = (Status.PAUSED, Status.COMPLETED)
        ranked = history.ranked([t for t in history.of(*resting) if not t.unfinished])
        yield from (trial.number for trial in ranked[: self._finish_best])

    def check(self, history: History) -> None:
        """Who went on from a rung was among the first of those that had come to it."""
        if any(trial.clone_of is not None for trial in history.trials):
            return
        for level, first in self._first.items():
            on = {t.number for t in history.trials if t.slices and _beyond(t.goal, level)}
            may = first | self._finished
            claim(on <= may, f"{sorted(on - may)} went on from rung {level:g}")


def _beyond(goal: Goal, level: float) -> bool:
    return goal.at is None or goal.at > level
