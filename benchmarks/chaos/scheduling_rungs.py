"""What must be true of ASHA's promotions: only who was among the first of a rung went on."""

from benchmarks.chaos.scheduling_world import claim
from sweep.events import Goal
from sweep.history import History
from sweep.schedulers import Scheduler, asha
from sweep.schedulers._rungs import ranked_at


class Rungs:
    """Who was among the first of each rung once; of other schedulers nothing is claimed."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._levels: tuple[float, ...] = ()
        if isinstance(scheduler, asha.Scheduler) and scheduler.pauses:
            self._levels, self._factor = scheduler.levels, scheduler.eta
        self._first: dict[float, set[int]] = {level: set() for level in self._levels}
        """Rung → trials that were among the first of it once: one in `reduction_factor`."""

    def rank(self, history: History) -> None:
        """Who is among the first of each rung, now that somebody may have come to one."""
        for level in self._levels:
            there = [trial for trial in history.trials if trial.reached(level)]
            best = ranked_at(there, level)[: len(there) // self._factor]
            self._first[level].update(trial.number for trial, _ in best)

    def check(self, history: History) -> None:
        """Who went on from a rung was among the first of those that had come to it."""
        if any(trial.clone_of is not None for trial in history.trials):
            return
        for level, first in self._first.items():
            on = {t.number for t in history.trials if t.slices and _beyond(t.goal, level)}
            claim(on <= first, f"{sorted(on - first)} went on from rung {level:g}")


def _beyond(goal: Goal, level: float) -> bool:
    return goal.at is None or goal.at > level
