"""A replica in memory: a trial under one seed, with its slices, its curve and its checkpoints."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from sweep import stats
from sweep.history.events import (
    FINISHED,
    Goal,
    Metrics,
    ParentCheckpoint,
    Row,
    Saved,
    Scalar,
    Status,
    Sums,
    UserHold,
)
from sweep.history.objective import Objective
from sweep.history.results import number
from sweep.spec.stopping import COUNTERS


class Point(NamedTuple):
    """One iteration on a curve; `time` is the value of ``time_attr``; None: not reported there."""

    iteration: int
    time: float
    value: float | None
    others: tuple[float | None, ...] = ()
    """The results that `Objective.also` names, then those of the constraints."""
    seconds: float = 0.0
    """What the iteration took."""
    steps: float = 0.0
    """Environment steps of the iteration."""

    @classmethod
    def of(cls, row: Row, objective: Objective) -> "Point":
        """What of a result is compared."""
        found, others = row.metrics.get, objective.other_results
        time = number(found(objective.time_attr))
        return cls(
            row.iteration,
            float(row.iteration) if time is None else time,
            number(found(objective.metric)),
            tuple([number(found(path)) for path in others]) if others else (),
            _amount(found("time_this_iter_s")),
            _amount(found("timesteps_this_iter")),
        )


@dataclass
class Replica:
    """A trial under one seed and everything that happened to it."""

    trial: int
    index: int
    objective: Objective
    birth: ParentCheckpoint | None = None
    """The parent's checkpoint that it began from; None: from the beginning."""
    joined_at: Goal | None = None
    """Where its trial stood when this seed was added to it; None: it was there from the first."""
    status: Status = Status.WAITING
    reason: str = ""
    waited: bool = False
    """Whether it was pruned only because the sweep ended while it waited."""
    held: UserHold = UserHold.NONE
    """What a person wants of it; it is not run while it is held."""
    goal: Goal = field(default_factory=Goal)
    curve: list[Point] = field(default_factory=list)
    sums: Sums | None = None
    """What its results come to, where they were not read; None: its `curve` is there."""
    last: Metrics = field(default_factory=dict)
    """The newest result, all its keys, of `sums` those that count; to look at, nothing is decided
    by it."""
    checkpoints: dict[str, Saved] = field(default_factory=dict)
    """Digest → checkpoint, oldest first; only those that are still kept."""
    slices: int = 0
    since: int = 0
    """The event since which it waits for a slot or has one; an interruption does not count."""
    lost: int = 0
    """Slices lost to a dead worker since the last one that ended well."""
    crashes: list[int] = field(default_factory=list)
    """Iterations ahead at which the trainable raised, in order."""
    error: str = ""
    """The newest traceback."""
    exactness: str = ""
    reported: bool = False
    """Whether a result ever had the metric; one that was lost again counts too."""
    names: tuple[str, ...] = ()
    """Under which names its results had numbers, while none was the metric; sorted."""
    instead: str = ""
    """What stood in its results where the metric is looked for, if that was no number."""
    started_at: float | None = None
    ended_at: float | None = None
    seconds: float = 0.0
    """Training so far; iterations that were lost and done again count once."""
    steps: float = 0.0
    """Environment steps so far."""

    @property
    def ended_early(self) -> bool:
        """Whether this replica failed or diverged, which ends its whole trial."""
        return self.status in (Status.FAILED, Status.PRUNED) and not self.waited

    @property
    def catching_up(self) -> bool:
        """Whether this replica was added later and has not caught up with its trial."""
        if self.joined_at is None or (self.status in FINISHED and not self.waited):
            return False
        return self.joined_at.at is None or not self.reached(self.joined_at.at)

    @property
    def name(self) -> str:
        """The name that the trainable is given."""
        return f"{self.trial:05d}_{self.index}"

    @property
    def iteration(self) -> int:
        """Iterations finished, those of its ancestors included."""
        if self.sums is not None:
            return self.sums.iteration
        born_at = self.birth.saved.iteration if self.birth else 0
        return self.curve[-1].iteration if self.curve else born_at

    @property
    def time(self) -> float:
        """The newest value of ``time_attr``."""
        if self.sums is not None:
            return self.sums.time
        born_at = self.birth.time if self.birth else 0.0
        return self.curve[-1].time if self.curve else born_at

    @property
    def value(self) -> float | None:
        """The newest value of the metric."""
        if self.sums is not None:
            return self.sums.value
        return next((p.value for p in reversed(self.curve) if p.value is not None), None)

    @property
    def begun(self) -> bool:
        """Whether it has finished an iteration of its own."""
        born_at = self.birth.saved.iteration if self.birth else 0
        return bool(self.curve) or self.iteration > born_at

    def sums_after(self, source: int, rows: Sequence[Row]) -> Sums:
        """What its results come to once those after iteration `source` are replaced by `rows`."""
        after = replace(self, curve=[p for p in self.curve if p.iteration <= source])
        after.curve += [Point.of(row, self.objective) for row in rows]
        last = rows[-1].metrics if rows else self.last
        return Sums(
            after.iteration,
            after.time,
            after.value,
            after.score_at(),
            tuple(after.other(index) for index in range(len(self.objective.other_results))),
            stats.total(point.seconds for point in after.curve),
            stats.total(point.steps for point in after.curve),
            {key: last[key] for key in COUNTERS if key in last},
        )

    def forget_after(self, iteration: int) -> None:
        """Drop the curve behind an iteration from which it is trained again."""
        self.curve[:] = [point for point in self.curve if point.iteration <= iteration]

    def value_anew(self) -> None:
        """Read off the curve, which may be of another metric now, what checkpoints are worth."""
        values = {point.iteration: point.value for point in self.curve}
        for digest, saved in self.checkpoints.items():
            value = values.get(saved.iteration)
            finite = value if value is not None and math.isfinite(value) else None
            self.checkpoints[digest] = replace(saved, value=finite)
        self.instead = ""

    def reached(self, level: float) -> bool:
        """Whether ``time_attr`` has been at least `level`."""
        return self.time >= level

    def score_at(self, level: float = math.inf) -> float | None:
        """The score over the curve up to the first iteration at or past `level`; None: none yet."""
        if self.sums is not None:
            if level <= self.sums.time:
                raise ValueError(f"trial {self.trial}: a score at {level:g} needs its curve")
            return self.sums.score
        values: list[float] = []
        for point in self.curve:
            if point.value is not None:
                values.append(point.value)
            if point.time >= level:
                break
        return self.objective.score.reduce(values, self.objective.mode)

    def scores_at(self, levels: Sequence[float]) -> list[float | None]:
        """`score_at` each of some ascending levels, reading the curve once."""
        scores, values, points = [], list[float](), iter(self.curve)
        past = -math.inf
        for level in levels:
            while past < level and (point := next(points, None)) is not None:
                past = point.time
                if point.value is not None:
                    values.append(point.value)
            scores.append(self.objective.score.reduce(values, self.objective.mode))
        return scores

    @property
    def unfinished(self) -> bool:
        """Whether this replica was interrupted before its goal; False if a person holds the trial.

        A clone may begin past its first goal; it is there when it has trained at all.
        """
        on_the_way = self.goal.at is None or not self.reached(self.goal.at) or not self.begun
        return self.status is Status.PAUSED and on_the_way and not self.held

    @property
    def newest(self) -> Saved | None:
        """The newest checkpoint that is kept."""
        return max(self.checkpoints.values(), key=lambda saved: saved.iteration, default=None)

    @property
    def best_checkpoint(self) -> Saved | None:
        """The checkpoint with the best value; of equals the newest; without values the newest."""
        valued = [saved for saved in self.checkpoints.values() if saved.value is not None]
        sign = self.objective.sign
        return max(
            valued, key=lambda s: (sign * (s.value or 0.0), s.iteration), default=self.newest
        )

    @property
    def files(self) -> set[str]:
        """The names of its checkpoints' files."""
        return {saved.file for saved in self.checkpoints.values()}

    def other(self, index: int) -> float | None:
        """The score in a further objective, or the newest value of what a constraint bounds."""
        if self.sums is not None:
            return self.sums.others[index]
        found, objectives = self.series(index), self.objective.objectives
        if index < len(objectives):
            return self.objective.score.reduce(found, objectives[index][1])
        return found[-1] if found else None

    def series(self, index: int) -> list[float]:
        """The values of one of `Point.others`, oldest first; iterations without one left out."""
        values = (point.others[index] for point in self.curve if point.others)
        return [value for value in values if value is not None]

    def value_at(self, iteration: int) -> Point | None:
        """The point of one iteration; None: its curve has none."""
        return next((point for point in self.curve if point.iteration == iteration), None)


def _amount(value: Scalar | None) -> float:
    """What adds up over iterations; nothing, where it is not a finite number."""
    found = number(value)
    return found if found is not None and math.isfinite(found) else 0.0
