"""Ends of a slice that follow from its results: a stopping criterion, a limit or its goal."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sweep.history.curve import Divergence, is_known
from sweep.history.events import End, Goal, Metrics
from sweep.history.results import to_number
from trainables.errors import TrainableError

if TYPE_CHECKING:
    from sweep.spec import Stop

#: Ends after which a trial does not continue, so that saving may be skipped.
FINAL = frozenset({End.DONE, End.DIVERGED, End.LIMIT})


@dataclass(frozen=True)
class Plateau:
    """Criterion `stop.plateau` of a spec: ends a trial whose metric no longer improves."""

    metric: str
    """Name of the result that must improve."""
    mode: str
    """Direction of an improvement: ``max`` or ``min``."""
    patience: int
    """Number of successive values without an improvement after which the trial ends."""
    min_delta: float
    """Difference to the best value that a value must exceed to count as an improvement."""
    grace: int
    """Number of the first iteration at which the trial may end."""


@dataclass(frozen=True)
class Criteria:
    """Criteria in a spec's `stop` section, as plain data."""

    at_least: Mapping[str, float] = field(default_factory=dict)
    """Name of a result → value; the trial ends once the result is at least that."""
    at_most: Mapping[str, float] = field(default_factory=dict)
    """Name of a result → value; the trial ends once the result is at most that."""
    plateau: Plateau | None = None
    """Plateau that ends the trial; None without one."""
    consecutive: Mapping[str, int] = field(default_factory=dict)
    """Name of a result → number of consecutive values that must meet its bound; 1 if missing."""

    @classmethod
    def from_spec(cls, stop: "Stop") -> "Criteria":
        """Return the criteria of a spec's section as plain data, since workers import no specs."""
        plateau = None if stop.plateau is None else Plateau(**stop.plateau.model_dump())
        return cls(dict(stop), stop.at_most, plateau, stop.consecutive)

    def without_targets(self, modes: Mapping[str, str]) -> "Criteria":
        """Return the criteria without those that a good value of an objective meets.

        `modes` maps each objective to ``max`` or ``min``.
        """
        at_least = {key: v for key, v in self.at_least.items() if modes.get(key) != "max"}
        at_most = {key: v for key, v in self.at_most.items() if modes.get(key) != "min"}
        left = {key: n for key, n in self.consecutive.items() if key in {*at_least, *at_most}}
        return Criteria(at_least, at_most, self.plateau, left)

    @property
    def watched(self) -> frozenset[str]:
        """Names of the results whose past values decide, too: of the plateau and `consecutive`."""
        plateau = () if self.plateau is None else (self.plateau.metric,)
        return frozenset((*plateau, *self.consecutive))


@dataclass
class Streaks:
    """Numbers of consecutive values that met the bounds of `Criteria.consecutive` so far."""

    stop: Criteria
    """Stopping criteria of the spec."""
    at_least: dict[str, int] = field(default_factory=dict)
    """Name of a result → number of its newest values in a row that were at least the bound."""
    at_most: dict[str, int] = field(default_factory=dict)
    """Name of a result → number of its newest values in a row that were at most the bound."""

    def add(self, key: str, value: float | None) -> None:
        """Add the next value of a result; None and NaN, which are no measurement, are skipped."""
        if value is None or math.isnan(value):
            return
        if key in self.stop.at_least:
            meets = value >= self.stop.at_least[key]
            self.at_least[key] = self.at_least.get(key, 0) + 1 if meets else 0
        if key in self.stop.at_most:
            meets = value <= self.stop.at_most[key]
            self.at_most[key] = self.at_most.get(key, 0) + 1 if meets else 0

    def add_past(self, past: Mapping[str, Sequence[tuple[int, float | None]]], source: int) -> None:
        """Add the values of iterations up to `source`.

        Args:
            past: name of a result → pairs of iteration and value, oldest first.
        """
        for key in self.stop.consecutive:
            for iteration, value in past.get(key, ()):
                if iteration <= source:
                    self.add(key, value)

    def met_criterion(self, metrics: Metrics) -> str:
        """Return the first criterion that the newest result meets.

        An example is ``loss is 0.05, at most 0.1``. Lower bounds come first; the plateau is not
        looked at. The values of `consecutive` results must have been added before. Returns an
        empty text if the result meets none.
        """
        for side, bounds, streaks in (
            ("least", self.stop.at_least, self.at_least),
            ("most", self.stop.at_most, self.at_most),
        ):
            for key, bound in bounds.items():
                value = to_number(metrics.get(key))
                if value is None or not (value >= bound if side == "least" else value <= bound):
                    continue
                needed = self.stop.consecutive.get(key, 1)
                if needed == 1:
                    return f"{key} is {value:g}, at {side} {bound:g}"
                if streaks.get(key, 0) >= needed:
                    return (
                        f"{key} is {value:g}, and was at {side} {bound:g} in {needed} consecutive "
                        f"results"
                    )
        return ""


@dataclass
class Flatness:
    """State of a plateau test, to which values are added one after another."""

    plateau: Plateau
    """Criterion of the spec."""
    best: float | None = None
    """Last value that improved by more than ``min_delta``; None before the first finite one."""
    stale: int = 0
    """Number of values since `best` that did not improve on it by more than ``min_delta``."""

    def add(self, value: float | None) -> None:
        """Add the value of the next result.

        NaN and infinity never count as an improvement, and None changes nothing.
        """
        if value is None:
            return
        sign = 1.0 if self.plateau.mode == "max" else -1.0
        better = self.best is None or sign * (value - self.best) > self.plateau.min_delta
        if math.isfinite(value) and better:
            self.best, self.stale = value, 0
        elif self.best is not None:
            self.stale += 1

    def flat(self, iteration: int) -> bool:
        """Return whether the trial ends at `iteration`, as it did not improve for too long.

        The result is always False within the grace period.
        """
        return self.stale >= self.plateau.patience and iteration >= self.plateau.grace


@dataclass
class Bounds:
    """Conditions that end a slice: its goal, a stopping criterion, or a limit of its trial.

    A plateau, consecutive results, the training time and divergence are counted over the trial's
    whole past.
    """

    metric: str
    """Name of the result by which trials are compared."""
    goal: Goal
    """Point up to which the slice trains."""
    time_attr: str
    """Name of the result in whose values goals are counted."""
    streaks: Streaks
    """Stopping criteria of the spec, with the state of those that need consecutive results."""
    ends_if_not_finite: bool
    """True if a metric that is NaN or infinite ends the trial."""
    seconds_left: float | None
    """Seconds of training that the trial had left when the slice started; None for no limit."""
    flatness: Flatness | None
    """State of the plateau test; None if the spec has no plateau."""
    divergence: Divergence
    """Count of NaN values of the metric so far, in the trial's whole past."""
    metric_deadline: float | None
    """Value of `time_attr` at which the slice ends if the metric was never reported; None if
    unlimited."""
    seconds: float = field(default=0.0, init=False)
    """Seconds of training in this slice so far."""
    has_metric: bool = field(default=False, init=False)
    """True once a result had the metric."""
    can_rest: bool = field(default=False, init=False)
    """True since the first result at or past the goal at which the trial can be compared."""
    end_reason: str = field(default="", init=False)
    """Text about the limit, the criterion or the value that is not finite which ended the slice;
    empty before, and for other ends."""

    def find_end(self, metrics: Metrics, iteration: int) -> End | None:
        """Return the end of the slice at this result, or None if it continues; count the result.

        The first that applies counts: divergence, plateau, stopping criterion, training time, goal.
        Raises TrainableError if there is a goal and the result lacks `time_attr`, or it is not
        finite.
        """
        value = to_number(metrics.get(self.metric))
        self.divergence.add(value)
        self.has_metric |= value is not None
        for key in self.streaks.stop.consecutive:
            self.streaks.add(key, to_number(metrics.get(key)))
        if self.ends_if_not_finite and value is not None and not math.isfinite(value):
            self.end_reason = f"{self.metric} is {value} at iteration {iteration}"
            return End.DIVERGED
        self.seconds += to_number(metrics.get("time_this_iter_s")) or 0.0
        end = self._check_plateau(metrics, iteration) or self._check_goal(
            metrics, iteration, is_known(value)
        )
        is_out_of_time = self.seconds_left is not None and self.seconds >= self.seconds_left
        if is_out_of_time and end is not End.DONE:
            self.end_reason = "limits.trial_s: the trial has used up its training time"
            return End.LIMIT
        return end

    def _check_goal(self, metrics: Metrics, iteration: int, is_known: bool) -> End | None:
        """Return the end at a stopping criterion or at the goal; None if the slice continues.

        `is_known` is True if the result has a number for the metric; only then, or once the metric
        has diverged, is the goal reached. At `metric_deadline` a slice without any value of the
        metric ends as unmeasured. Raises TrainableError if there is a goal and the result lacks
        `time_attr`, or it is not finite.
        """
        goal = self.goal
        self.end_reason = self.streaks.met_criterion(metrics)
        if self.end_reason or metrics.get("done") is True:
            return End.DONE
        if goal.until is None:
            return None
        time = to_number(metrics.get(self.time_attr))
        if time is None:
            raise TrainableError(
                f"scheduler.time_attr: the results have no '{self.time_attr}'; expected one "
                f"of {', '.join(sorted(metrics))}"
            )
        if not math.isfinite(time):
            raise TrainableError(
                f"scheduler.time_attr: '{self.time_attr}' is {time:g} at iteration {iteration}; "
                f"expected a finite number that grows with training"
            )
        if goal.top is not None and time >= goal.top:
            return End.DONE
        self.can_rest |= time >= goal.until and (is_known or self.divergence.is_permanent)
        if self.can_rest:
            return End.GOAL
        asks = self.metric_deadline is not None and time >= self.metric_deadline
        return End.UNMEASURED if asks and not self.has_metric else None

    def _check_plateau(self, metrics: Metrics, iteration: int) -> End | None:
        """Add the result to the plateau test; return the end by it, None if the slice continues.

        At the end, `end_reason` is set.
        """
        flatness = self.flatness
        if flatness is None:
            return None
        plateau = flatness.plateau
        flatness.add(to_number(metrics.get(plateau.metric)))
        if not flatness.flat(iteration):
            return None
        self.end_reason = (
            f"{plateau.metric} was no better than {flatness.best:g} for {flatness.stale} results"
        )
        return End.DONE
