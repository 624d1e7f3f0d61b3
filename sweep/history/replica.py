"""A replica in memory: a trial under one seed, with its slices, curve and checkpoints."""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from sweep.core import stats
from sweep.history.curve import CurveSummary, Divergence, Point, Reading, is_known, readings
from sweep.history.events import (
    FINISHED,
    Goal,
    Metrics,
    ParentCheckpoint,
    Row,
    Saved,
    Status,
    Sums,
    UserHold,
)
from sweep.history.objective import Objective
from sweep.spec.stopping import COUNTERS

#: Number of values of a curve from which the noise between neighbours is estimated.
NEWEST = 8
#: Share of a training whose results `Replica.late_mean` averages.
LATE = 0.25


@dataclass
class Replica:
    """A trial under one seed: its curve, checkpoints, status and failures."""

    trial: int
    """Number of the trial."""
    index: int
    """Index of the replica in the trial, from 0; held-out test seeds count from `FIRST_TEST`."""
    objective: Objective
    """Objective by which trials are compared."""
    birth: ParentCheckpoint | None = None
    """Checkpoint of a parent trial that the replica started from; None if it started from
    scratch."""
    joined_at: Goal | None = None
    """Goal of the trial when this seed was added; None if the seed was there from the start."""
    status: Status = Status.WAITING
    """Present status of the replica."""
    reason: str = ""
    """Reason for the status, as a text for people."""
    was_waiting: bool = False
    """True if the replica was PRUNED only because the sweep ended while it waited to be
    promoted."""
    hold: UserHold = UserHold.NONE
    """State in which a user keeps the replica, whatever the scheduler decides; NONE if no user
    does."""
    goal: Goal = field(default_factory=Goal)
    """Point up to which the replica trains before the scheduler decides again."""
    curve: list[Point] = field(default_factory=list)
    """Results that decisions use, oldest first; with `History.shows_unsaved`, all of `attempt`."""
    tail: list[Point] = field(default_factory=list)
    """Results of the newest attempt that do not count yet: of a running slice, or lost with one
    that ended and to be computed again."""
    tail_after: int | None = None
    """Number of the iteration after which `tail` replaces the curve; None if there is no tail."""
    saved_to: int | None = None
    """Last iteration before the results that were lost with their slice; None if none was lost."""
    reported_to: int | None = None
    """Last iteration reported by the running slice; None if it has reported nothing, or no slice
    runs."""
    sums: Sums | None = None
    """Totals over the results, in a history without curves; None if `curve` is filled."""
    last_metrics: Metrics = field(default_factory=dict)
    """Newest result with all its keys, or the counters in `sums`; for display, and to find by which
    criterion the replica has ended."""
    checkpoints: dict[str, Saved] = field(default_factory=dict)
    """Digest → checkpoint that is still kept, oldest first."""
    log: int = 0
    """Size of the log file in bytes when the newest slice ended."""
    log_deleted: bool = False
    """True if the log was deleted and nothing has been printed since."""
    slices: int = 0
    """Number of slices opened so far."""
    queued_at: int = 0
    """Number of the event since which the replica waits for a slot or has one. An interruption by
    the driver's end does not change the number."""
    lost_slices: int = 0
    """Number of successive slices whose processes died, since the last slice that ended
    otherwise."""
    crashes: list[int] = field(default_factory=list)
    """Number of the iteration of each exception of the trainable, oldest first; without those in
    iterations that were finished since."""
    error: str = ""
    """Newest traceback, or message of a disk that refused a checkpoint; empty without one."""
    exactness: str = ""
    """Text that says how exactly the replica's checkpoints can be resumed; empty before the first
    slice ended."""
    is_random: bool | None = None
    """True if the replica's results may depend on random numbers, False if they do not; None if
    unknown."""
    reported: bool = False
    """True if a result ever had the metric, even as NaN or in a lost result. Results of a running
    slice count only with `History.shows_unsaved`."""
    names: tuple[str, ...] = ()
    """Names, sorted, under which results had numbers, as long as none had the metric; for an error
    message."""
    value_found: str = ""
    """Description of the value found in place of the metric, if that was not a number; else
    empty."""
    started_at: float | None = None
    """Time at which the first slice was opened, in seconds since 1970; None before."""
    ended_at: float | None = None
    """Time at which the replica finished, in seconds since 1970; None unless it is finished."""
    seconds: float = 0.0
    """Seconds of training so far; iterations computed twice count once."""
    steps: float = 0.0
    """Number of environment steps so far; iterations computed twice count once."""
    _summary: CurveSummary = field(
        default_factory=CurveSummary, init=False, repr=False, compare=False
    )
    """First and newest value of the curve; brought up to date by each property that reads it."""

    @property
    def ended_early(self) -> bool:
        """True if this replica failed or was pruned by a decision, which ends its whole trial."""
        return self.status in (Status.FAILED, Status.PRUNED) and not self.was_waiting

    @property
    def completed_early(self) -> bool | None:
        """True if it completed before the top rung, as at a target; False if it completed there.

        None if it has not completed, or there is no top rung.
        """
        top = self.goal.top
        return None if self.status is not Status.COMPLETED or top is None else self.time < top

    @property
    def is_early(self) -> bool | None:
        """True if it was there from the start and completed before the top rung, as at a target.

        False if it was added later and trained to the top rung, and None in all other cases.
        """
        is_first = self.joined_at is None
        return is_first if self.completed_early is is_first else None

    @property
    def is_catching_up(self) -> bool:
        """True if the replica joined its trial later and has not reached the goal of that time yet.

        The replica's score is not compared before. If that goal has no limit, the replica catches
        up until it has finished. A finished replica never does, unless it was only pruned as the
        sweep ended.
        """
        if self.joined_at is None or (self.status in FINISHED and not self.was_waiting):
            return False
        return self.joined_at.until is None or not self.reached(self.joined_at.until)

    @property
    def name(self) -> str:
        """Name passed to the trainable: number of the trial and index, such as ``00012_0``."""
        return f"{self.trial:05d}_{self.index}"

    @property
    def iteration(self) -> int:
        """Number of the last finished iteration that counts.

        It includes the iterations of its ancestors.
        """
        if self.sums is not None:
            return self.sums.iteration
        born_at = self.birth.saved.iteration if self.birth else 0
        return self.curve[-1].iteration if self.curve else born_at

    @property
    def time(self) -> float:
        """Newest value of `time_attr` in the curve.

        At first it is that of the parent's checkpoint, or 0.
        """
        if self.sums is not None:
            return self.sums.time
        born_at = self.birth.time if self.birth else 0.0
        return self.curve[-1].time if self.curve else born_at

    @property
    def known_until(self) -> float:
        """Value of `time_attr` up to which the replica can be compared.

        It is that of the newest result with a number for the metric, or of the newest result at all
        if the metric diverged. Before the first number it is that of the parent's checkpoint, or 0.
        """
        if self.sums is not None:
            return self.sums.known_until
        seen = self._summary.update(self.curve)
        if seen.divergence.is_permanent or (self.birth and not self.curve):
            return self.time
        if seen.newest is not None:
            return seen.newest.time
        return self.birth.time if self.birth else 0.0

    @property
    def known_from(self) -> float:
        """Value of `time_attr` at the first number of the metric; infinite without one.

        It is always infinite in a history without curves.
        """
        first = self._summary.update(self.curve).first
        return math.inf if first is None else first.time

    @property
    def is_known(self) -> bool:
        """True if a result of the curve has a number for the metric.

        It is always False in a history without curves.
        """
        return self._summary.update(self.curve).newest is not None

    def divergence_at(self, iterations: Iterable[int]) -> Iterator[tuple[int, Divergence]]:
        """Yield each of these iterations, ascending, with the counts of NaN and numbers up to it.

        Iterations given twice are yielded once.
        """
        points, divergence = iter(self.curve), Divergence()
        point = next(points, None)
        for iteration in sorted({*iterations}):
            while point is not None and point.iteration <= iteration:
                divergence.add(point.value)
                point = next(points, None)
            yield iteration, replace(divergence)

    @property
    def has_diverged(self) -> bool:
        """True if the metric stays NaN (`Divergence.is_permanent`).

        It is always False in a history without curves.
        """
        return self._summary.update(self.curve).divergence.is_permanent

    @property
    def value(self) -> float | None:
        """Newest number of the metric; NaN if the metric diverged, None without a number."""
        if self.sums is not None:
            return self.sums.value
        if self.has_diverged:
            return math.nan
        newest = self._summary.newest
        return None if newest is None else newest.value

    @property
    def has_begun(self) -> bool:
        """True if the replica has finished an iteration of its own, not only inherited ones."""
        born_at = self.birth.saved.iteration if self.birth else 0
        return bool(self.curve) or self.iteration > born_at

    @property
    def noise(self) -> float | None:
        """Variance of the score that is due to the episodes of an evaluation; None if unknown.

        It is unknown with fewer than `NEWEST` values, and for scores other than the last value or
        the mean of the last ones. It is computed from second differences of the curve's newest
        values, which contain little of its trend (Gasser, Sroka and Jennen-Steinmetz, Residual
        Variance and Residual Pattern in Nonlinear Regression, 1986).
        """
        if self.sums is not None:
            return self.sums.noise
        score = self.objective.score
        if score.kind not in ("last", "mean_last"):
            return None
        newest = (p.value for p in reversed(self.curve) if p.value is not None)
        values = list(itertools.islice(newest, NEWEST))
        if len(values) < NEWEST:
            return None
        bends = [a / 2 + c / 2 - b for a, b, c in zip(values, values[1:], values[2:], strict=False)]
        found = stats.mean([bend * bend * 2 / 3 for bend in bends]) / score.k
        return found if math.isfinite(found) else None

    @property
    def curve_mean(self) -> float | None:
        """Weighted mean of the metric over the curve: the i-th number counts i times.

        It is None if there is no number, if one is infinite, or if the metric diverged.
        """
        if self.sums is not None:
            return self.sums.curve_mean
        values = [point.value or 0.0 for point in self.curve if is_known(point.value)]
        if self.has_diverged or not all(map(math.isfinite, values)):
            return None
        count = len(values)
        whole = count * (count + 1) / 2
        found = stats.total((n / whole) * value for n, value in enumerate(values, 1))
        return found if count and math.isfinite(found) else None

    @property
    def late_mean(self) -> float | None:
        """Mean of the metric over the last quarter of training, in units of `time_attr`.

        It covers at least as many values as the score does. It is None for scores other than the
        last value or the mean of the last ones, without a value, if a value that counts is
        infinite, or if the metric diverged.
        """
        if self.sums is not None:
            return self.sums.late_mean
        score = self.objective.score
        if score.kind not in ("last", "mean_last") or self.has_diverged:
            return None
        known = [point for point in self.curve if is_known(point.value)]
        late = sum(point.time > (1 - LATE) * self.time for point in known)
        values = [point.value or 0.0 for point in known[-max(late, score.k) :]]
        if not values or not all(map(math.isfinite, values)):
            return None
        found = stats.mean(values)
        return found if math.isfinite(found) else None

    def mean_until(self, level: float) -> float | None:
        """Return the mean of the metric up to `level`, a value of `time_attr`.

        A curve that ends before the level counts as if its last value had lasted until then. So the
        mean is high if the curve rose early and stayed high. Returns None if the curve has no
        number up to the level or an infinite one, or the metric diverged. Raises ValueError if the
        history has no curves.
        """
        if self.sums is not None:
            raise ValueError(f"trial {self.trial}: a mean until {level:g} needs its curve")
        points = [
            (point.time, point.value)
            for point in self.curve
            if point.time <= level and point.value is not None and is_known(point.value)
        ]
        if not points or self.has_diverged:
            return None
        time, last = points[-1]
        mean = stats.mean([value for _, value in points])
        found = last + (mean - last) * time / level
        return found if math.isfinite(found) else None

    @property
    def attempt(self) -> list[Point]:
        """All results of the newest attempt, oldest first, even those that do not count yet."""
        after = self.tail_after
        if after is None:
            return self.curve
        return [*(point for point in self.curve if point.iteration <= after), *self.tail]

    @property
    def last_attempted(self) -> int:
        """Number of the last iteration in `attempt`."""
        return self.tail[-1].iteration if self.tail else self.iteration

    @property
    def lost_results(self) -> int:
        """Number of results that were lost with their slice and will be computed again."""
        if self.saved_to is None:
            return 0
        return max(0, self.last_attempted - self.saved_to)

    def has_lost(self, iteration: int) -> bool:
        """Return whether the result of this iteration was lost with its slice.

        Such an iteration will be computed again.
        """
        return self.saved_to is not None and iteration > self.saved_to

    def add_results(self, source: int, rows: Sequence[Row]) -> list[Point]:
        """Add results of a slice that started after iteration `source` to the tail.

        Returns their points. They replace the results after `source` that the newest attempt had
        before, and do not count before `count_results` is called.
        """
        points = [Point.from_row(row, self.objective) for row in rows]
        if self.tail_after is None:
            self.tail, self.tail_after = points, source
        else:
            self.tail = [*(p for p in self.tail if p.iteration <= source), *points]
            self.tail_after = min(self.tail_after, source)
        return points

    def count_results(self, upto: int | None = None) -> None:
        """Move the results of the newest attempt up to iteration `upto` into the curve.

        None moves all of them. Those after `upto` stay in the tail.
        """
        self.curve, self.tail, self.tail_after = self.attempt, [], None
        if upto is not None and self.curve and self.curve[-1].iteration > upto:
            both = self.curve
            self.curve = [point for point in both if point.iteration <= upto]
            self.tail, self.tail_after = both[len(self.curve) :], upto

    def sums_after(self, source: int, rows: Sequence[Row]) -> Sums:
        """Return the sums if `rows` replaced the results after iteration `source`.

        The replica stays as it is.
        """
        after = replace(self)
        after.add_results(source, rows)
        after.count_results()
        last = rows[-1].metrics if rows else self.last_metrics
        return Sums(
            after.iteration,
            after.time,
            after.known_until,
            after.value,
            after.score_at(),
            tuple(after.other_score(index) for index in range(len(self.objective.other_results))),
            stats.total(point.seconds for point in after.curve),
            stats.total(point.steps for point in after.curve),
            {key: last[key] for key in COUNTERS if key in last},
            after.noise,
            after.curve_mean,
            after.late_mean,
        )

    def reset_values(self) -> None:
        """Set the metric's value of each checkpoint from the curve, for a new metric.

        It becomes None where the curve has no finite value. `value_found` is cleared.
        """
        values = {point.iteration: point.value for point in self.curve}
        for digest, saved in self.checkpoints.items():
            value = values.get(saved.iteration)
            finite = value if value is not None and math.isfinite(value) else None
            self.checkpoints[digest] = replace(saved, value=finite)
        self.value_found = ""

    def reached(self, level: float) -> bool:
        """Return whether the replica can be compared at `level`, a value of `time_attr`.

        It can if a result at or past the level has the metric, if it started there from a parent's
        checkpoint, or if it has finished or its metric has diverged at or past the level.
        """
        return (self.time if self.status in FINISHED else self.known_until) >= level

    def is_past(self, goal: Goal) -> bool:
        """Return whether the replica has trained up to a goal, with or without the metric.

        Returns False for a goal whose `until` is None.
        """
        return goal.until is not None and self.time >= goal.until

    @property
    def is_unmeasured(self) -> bool:
        """True if the replica is PAUSED past its goal without ever having had the metric.

        It is False if a user holds it.
        """
        return self.is_interrupted and not self.reported and self.is_past(self.goal)

    def score_at(self, level: float = math.inf) -> float | None:
        """Return the score of the curve up to `level`, a value of `time_attr`.

        By default the whole curve is scored. Returns None without a value, if a value that counts
        is infinite, or if the metric diverged before the level; if the score is the best value,
        only finite ones count instead. Raises ValueError if the history has no curves and `level`
        is not past the newest result.
        """
        if self.sums is not None:
            self._check_past(level)
            return self.sums.score
        return self.scores_at((level,))[0]

    def _check_past(self, level: float) -> None:
        """Raise ValueError if there is no curve and `level` is not past the newest result."""
        if self.sums is not None and level <= self.sums.time:
            raise ValueError(f"trial {self.trial}: a score at {level:g} needs its curve")

    def scores_at(self, levels: Sequence[float]) -> list[float | None]:
        """Return the score up to each of some ascending levels, reading the curve once.

        Each is the result of `score_at`; in a history without curves, all are None.
        """
        score, mode = self.objective.score, self.objective.mode
        now = [math.nan] if self.has_diverged else []
        return [
            score.reduce(values if has_passed else [*values, *now], mode)
            for values, _, has_passed in readings(self.curve, levels)
        ]

    def step_at(self, level: float) -> float | None:
        """Return the `time_attr` at which the curve is read for `level`.

        It is `level` itself, or that of the nearest result if nothing can be interpolated. Returns
        None if there is no value.
        """
        reading = self.reading_at(level)
        return None if reading is None else reading.step

    def reading_at(self, level: float) -> Reading | None:
        """Return the value of the curve at `level`, the newest of those that `score_at` combines.

        Returns None if there is no value.
        """
        return next(readings(self.curve, (level,)))[1]

    @property
    def is_interrupted(self) -> bool:
        """True if the replica is PAUSED before its goal or with lost results, and no user holds it.

        It must then continue. A clone may start past its first goal; it reaches that goal with its
        first own iteration.
        """
        on_the_way = (
            self.goal.until is None or not self.reached(self.goal.until) or not self.has_begun
        )
        on_the_way = on_the_way or self.lost_results > 0
        return self.status is Status.PAUSED and on_the_way and not self.hold

    @property
    def newest_checkpoint(self) -> Saved | None:
        """Kept checkpoint of the highest iteration; None if there is none."""
        return max(self.checkpoints.values(), key=lambda saved: saved.iteration, default=None)

    @property
    def best_checkpoint(self) -> Saved | None:
        """Kept checkpoint with the best value of the metric, the newest of equals.

        It is the newest checkpoint if none has a value, and None if there is no checkpoint.
        """
        valued = [saved for saved in self.checkpoints.values() if saved.value is not None]
        sign = self.objective.sign
        return max(
            valued,
            key=lambda s: (sign * (s.value or 0.0), s.iteration),
            default=self.newest_checkpoint,
        )

    @property
    def files(self) -> set[str]:
        """Paths of the kept checkpoints, relative to the trial's folder."""
        return {saved.file for saved in self.checkpoints.values()}

    def other_score(self, index: int, level: float = math.inf) -> float | None:
        """Return the score in a further objective, or a constraint's newest value, up to `level`.

        `index` counts in `Objective.other_results`: objectives, then constraints. Returns None
        without a value. If the result diverged, it is NaN for a constraint and as in `score_at` for
        an objective. Raises ValueError if the history has no curves and `level` is not past the
        newest result.
        """
        if self.sums is not None:
            self._check_past(level)
            return self.sums.others[index]
        points = [point._replace(value=point.others[index]) for point in self.curve if point.others]
        values, _, has_passed = next(readings(points, (level,)))
        divergence = Divergence()
        for point in points:
            divergence.add(point.value)
        if divergence.is_permanent and not has_passed:
            values = [*values, math.nan]
        objectives = self.objective.objectives
        if index < len(objectives):
            return self.objective.score.reduce(values, objectives[index][1])
        return values[-1] if values else None

    def value_at(self, iteration: int) -> Point | None:
        """Return the point of the curve for an iteration; None if the curve has none."""
        return next((point for point in self.curve if point.iteration == iteration), None)


class SeedValues(NamedTuple):
    """Values of the metric of several seeds after one iteration."""

    iteration: int
    time: float
    """Mean `time_attr` of the seeds that trained this iteration; never less than in the row
    before."""
    values: list[float]
    """Value of each seed, in the order of the seeds."""


def joint_curve(seeds: Sequence[Replica]) -> list[SeedValues]:
    """Return one row for each iteration after which every seed has a finite value of the metric.

    A completed seed keeps its last value, since it would not be trained further.
    """
    points_by_seed = [
        {p.iteration: p for p in seed.curve if p.value is not None and math.isfinite(p.value)}
        for seed in seeds
    ]
    rows: list[SeedValues] = []
    for iteration in sorted(set[int]().union(*points_by_seed)):
        pairs = zip(seeds, points_by_seed, strict=True)
        values = [_value_after(iteration, seed, points) for seed, points in pairs]
        known = [value for value in values if value is not None]
        if len(known) == len(seeds):
            times = [points[iteration].time for points in points_by_seed if iteration in points]
            mean = math.fsum(times) / len(times)  # which falls where a seed ahead of others ends
            rows.append(SeedValues(iteration, max([mean, *(row.time for row in rows[-1:])]), known))
    return rows


def _value_after(iteration: int, seed: Replica, points: Mapping[int, Point]) -> float | None:
    """Return the metric of a seed after an iteration; None if unknown.

    `points` maps its iterations to points. A completed seed keeps its last value.
    """
    if iteration in points:
        return points[iteration].value
    last = max(points, default=iteration)
    return points[last].value if seed.status is Status.COMPLETED and last < iteration else None
