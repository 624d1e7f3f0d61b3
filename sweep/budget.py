"""Whether a sweep has used up what it may cost: a function of its history.

Training time and steps are what the results say, each iteration once, so that a sweep that was
killed and resumed ends where the other would have. Only ``time_s`` looks at a clock: seconds of
earlier drivers stand in the ledger, those of this one are counted by it. Times are seconds.
"""

import math
import time
from collections.abc import Iterator

from sweep import estimates
from sweep.events import FINISHED
from sweep.history import History
from sweep.spec import Budget, SweepSpec


def in_force(spec: SweepSpec, history: History) -> Budget:
    """The spec's budget with what was changed since."""
    return spec.budget.changed(history.changed) if history.changed else spec.budget


class Purse:
    """The budget of a sweep as its driver sees it; judged anew when the history has grown.

    Args:
        spec: the sweep's.
        began: when this driver began, on the monotonic clock.
    """

    def __init__(self, spec: SweepSpec, began: float) -> None:
        self._spec = spec
        self._began = began
        self._k = -1
        self._why = ""

    def used_up(self, history: History) -> str:
        """What is used up, in words; empty: nothing is."""
        budget = in_force(self._spec, history)
        if not budget.is_set:
            return ""
        spent = history.spent_s + time.monotonic() - self._began
        if budget.time_s is not None and spent >= budget.time_s:
            return f"budget.time_s: {budget.time_s:g} seconds are over"
        if self._k != history.k:
            self._k = history.k
            self._why = next(_used_up(history, budget, self._spec.resources.cpu), "")
        return self._why


def _used_up(history: History, budget: Budget, cores: float) -> Iterator[str]:
    replicas = [replica for trial in history.trials for replica in trial.replicas]
    if budget.cpu_hours is not None:
        hours = estimates.total(r.seconds for r in replicas) * cores / 3600
        if hours >= budget.cpu_hours:
            yield f"budget.cpu_hours: {hours:.3g} of {budget.cpu_hours:g} hours are used up"
    if budget.timesteps is not None:
        steps = estimates.total(r.steps for r in replicas)
        if steps >= budget.timesteps:
            yield f"budget.timesteps: {steps:,.0f} of {budget.timesteps:,.0f} steps are used up"
    if budget.target is not None:
        yield from _on_target(history, budget.target)
    if budget.patience is not None:
        yield from _stagnant(history, budget.patience, budget.min_delta)


def _on_target(history: History, target: float) -> Iterator[str]:
    best, sign = next(iter(history.ranked()), None), history.objective.sign
    score = None if best is None else best.score
    if best is not None and score is not None and sign * (score - target) >= 0:
        yield f"budget.target: trial {best.number} has {score:.6g}, {target:g} was wanted"


def _stagnant(history: History, patience: int, min_delta: float) -> Iterator[str]:
    """Trials that ended, in the order of their numbers, since the last that was better."""
    sign, best, since = history.objective.sign, -math.inf, 0
    for trial in history.trials:
        if trial.status not in FINISHED:
            continue
        score = trial.score
        value = -math.inf if score is None or math.isnan(score) else sign * score
        if value > best + (min_delta if math.isfinite(best) else 0.0):
            best, since = value, 0
        else:
            since += 1
    if since >= patience and math.isfinite(best):
        yield f"budget.patience: {since} trials in a row were no better than {sign * best:.6g}"
