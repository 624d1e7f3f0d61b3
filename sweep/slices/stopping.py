"""Where a slice ends by what its results say: at a stopping criterion, a limit or its goal."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sweep.history.events import End, Goal, Metrics
from sweep.history.results import number
from trainables.errors import TrainableError

if TYPE_CHECKING:
    from sweep.spec import Stop

#: Ends after which a trial does not go on, so that its last state need not be saved.
FINAL = frozenset({End.DONE, End.DIVERGED, End.LIMIT})


@dataclass(frozen=True)
class Plateau:
    """What ends a trial whose curve has become flat, as the spec's `stop.plateau` says it."""

    metric: str
    mode: str
    patience: int
    min_delta: float
    grace: int


@dataclass(frozen=True)
class Criteria:
    """When a trial ends by its results: the key `stop` of a spec, in plain data."""

    reached: Mapping[str, float] = field(default_factory=dict)
    """Result → value at which a trial ends, reached or passed."""
    fallen: Mapping[str, float] = field(default_factory=dict)
    """Result → value at which a trial ends when it falls so far."""
    plateau: Plateau | None = None

    @classmethod
    def of(cls, stop: "Stop") -> "Criteria":
        """What a spec says, without the spec's own types, which a worker need not import."""
        plateau = None if stop.plateau is None else Plateau(**stop.plateau.model_dump())
        return cls(dict(stop), stop.fallen, plateau)


def ending(metrics: Metrics, goal: Goal, time_attr: str, stop: Criteria) -> End | None:
    """How the slice ends at this result; None: it need not.

    Raises:
        TrainableError: the result has no ``time_attr``, in which the goal is counted.
    """
    if metrics.get("done") is True or met(metrics, stop):
        return End.DONE
    if goal.at is None:
        return None
    time = number(metrics.get(time_attr))
    if time is None:
        raise TrainableError(
            f"scheduler.time_attr: the results have no '{time_attr}'; "
            f"they have {', '.join(sorted(metrics))}"
        )
    if time < goal.at:
        return None
    return End.DONE if goal.top is not None and time >= goal.top else End.GOAL


def met(metrics: Metrics, stop: Criteria) -> str:
    """The stopping criterion that this result meets, in words; empty: none."""
    for key, at in stop.reached.items():
        value = number(metrics.get(key))
        if value is not None and value >= at:
            return f"{key} is {value:g}, at least {at:g}"
    for key, at in stop.fallen.items():
        value = number(metrics.get(key))
        if value is not None and value <= at:
            return f"{key} is {value:g}, at most {at:g}"
    return ""


@dataclass
class Flatness:
    """Whether a curve has become flat, by one value after the other."""

    plateau: Plateau
    best: float | None = None
    since: int = 0
    """Values after the best one that were no better."""

    def add(self, value: float | None) -> None:
        """One more result; NaN or infinity is no better than any, a missing value is no result."""
        if value is None:
            return
        sign = 1.0 if self.plateau.mode == "max" else -1.0
        better = self.best is None or sign * (value - self.best) > self.plateau.min_delta
        if math.isfinite(value) and better:
            self.best, self.since = value, 0
        elif self.best is not None:
            self.since += 1

    def flat(self, iteration: int) -> bool:
        """Whether the trial ends at `iteration`."""
        return self.since >= self.plateau.patience and iteration >= self.plateau.grace


@dataclass
class Bounds:
    """What ends a slice by its trial's whole past: a flat curve, a time limit, a bad number."""

    metric: str
    not_finite_ends: bool
    seconds_left: float | None
    """Training that the trial has left before its limit."""
    flatness: Flatness | None
    seconds: float = field(default=0.0, init=False)
    why: str = field(default="", init=False)
    """In words, after one of them was passed."""

    def ending(self, metrics: Metrics, iteration: int) -> End | None:
        """How the slice ends at this result; None: it need not."""
        value = number(metrics.get(self.metric))
        if self.not_finite_ends and value is not None and not math.isfinite(value):
            self.why = f"{self.metric} is {value} at iteration {iteration}"
            return End.DIVERGED
        self.seconds += number(metrics.get("time_this_iter_s")) or 0.0
        if self.seconds_left is not None and self.seconds >= self.seconds_left:
            self.why = "limits.trial_s: its seconds of training are over"
            return End.LIMIT
        return self._flat(metrics, iteration)

    def _flat(self, metrics: Metrics, iteration: int) -> End | None:
        flatness = self.flatness
        if flatness is None:
            return None
        plateau = flatness.plateau
        flatness.add(number(metrics.get(plateau.metric)))
        if not flatness.flat(iteration):
            return None
        self.why = (
            f"{plateau.metric} was no better than {flatness.best:g} for {flatness.since} results"
        )
        return End.DONE
