"""Learning curves, thin to the resolution of a picture, with intervals over seeds."""

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from sweep.core import stats
from sweep.history.curve import Point as RowPoint
from sweep.history.events import FINISHED, Closed, Reported, Status
from sweep.history.history import History
from sweep.history.replica import Replica, joint_curve
from sweep.history.seeds import is_test
from sweep.history.trial import Trial
from sweep.views import overview
from sweep.views.lookup import Sweep

#: Number of best trials whose curves are drawn in full colour.
BEST = 6
#: Maximum number of curves drawn, and of their points in total.
MOST_CURVES, MOST_POINTS = 800, 60_000
#: Maximum number of points in a best trial's curve.
FINE = 400

#: Step and value of a curve.
Point = tuple[float, float]
#: Replica → the place on the axis of time for each point of its curve.
Times = Callable[[Replica], Sequence[float]]


@dataclass(frozen=True)
class Curve:
    """The learning curve of one trial; the mean of its seeds if it has several."""

    trial: int
    """Number of the trial."""
    points: list[Point]
    """Pairs of time, in units of `time_attr` or of another axis, and value of the metric."""
    low: list[float] = field(default_factory=list)
    """Lower end of the 95 % interval over seeds at each point; empty with one seed."""
    high: list[float] = field(default_factory=list)
    """Upper end of the 95 % interval over seeds at each point; empty with one seed."""
    seeds: int = 1
    """Number of seeds that the curve averages."""
    place: int | None = None
    """Rank among the best, from 0; None for other trials."""
    ended_early: bool = False
    """True if the trial is paused, or ended without being completed, also by a failure."""


@dataclass(frozen=True)
class Curves:
    """The curves in a picture, and how many trials and points there are in all."""

    drawn: list[Curve]
    """Curves to draw, the best last."""
    trials: int
    """Number of trials that have a curve, drawn or not."""
    points: int
    """Number of points of the drawn trials under all their seeds, before curves are thinned."""
    shown: int
    """Number of points of the drawn curves after they are thinned, times the seeds of each."""


def curves(sweep: Sweep, best: int = BEST) -> Curves:
    """Return the curves of the `best` best trials, and of as many others as a picture can show.

    The others are chosen evenly and come first, at most `MOST_CURVES` curves in all. The best are
    thinned to about `FINE` points each, the others to about `MOST_POINTS` together.
    """
    history = sweep.history
    places = {trial.number: place for place, trial in enumerate(history.ranked()[:best])}
    with_curve = [trial for trial in history.trials if any(_values(r) for r in trial.replicas)]
    others = [trial for trial in with_curve if trial.number not in places]
    room = MOST_CURVES - len(places)
    if len(others) > room:
        others = [others[place * len(others) // room] for place in range(room)]
    most = max(12, MOST_POINTS // max(1, len(others)))
    leading = [history.trials[number] for number in reversed(places)]
    drawn = [curve_of(trial, min(most, FINE)) for trial in others]
    drawn += [curve_of(trial, FINE, places[trial.number]) for trial in leading]
    points = sum(len(_values(r)) for trial in with_curve for r in trial.replicas)
    shown = sum(len(curve.points) * curve.seeds for curve in drawn)
    return Curves([curve for curve in drawn if curve.points], len(with_curve), points, shown)


def curve_times(replica: Replica) -> Sequence[float]:
    """Return the value of `time_attr` at each point of a replica's curve."""
    return [point.time for point in replica.curve]


def curve_of(
    trial: Trial, count: int, place: int | None = None, times: Times = curve_times
) -> Curve:
    """Return the curve of a trial, thinned to about `count` points; without any if it has no value.

    With several seeds, it is their mean with its interval. With the score ``mean_last``, each value
    is the mean of the newest ones up to it, so the curve ends at the score. `place` is the trial's
    rank among the best, from 0; `times` returns a replica's places on the horizontal axis.
    """
    early = trial.status in (FINISHED | {Status.PAUSED}) - {Status.COMPLETED}
    timed = [_timed(replica, times) for replica in trial.compared_replicas if _values(replica)]
    seeds = [_averaged(replica) for replica in timed]
    if len(seeds) < 2:
        points = thin(_values(seeds[0]) if seeds else [], count)
        return Curve(trial.number, points, place=place, ended_early=early)
    joint = joint_curve(seeds)
    means = [(row.time, stats.mean(row.values)) for row in joint]
    kept = thin_indices(means, count)
    intervals = [stats.mean_interval(joint[row].values) for row in kept]
    low, high = [i.low for i in intervals], [i.high for i in intervals]
    return Curve(trial.number, [means[row] for row in kept], low, high, len(seeds), place, early)


def _timed(replica: Replica, times: Times) -> Replica:
    """Return the replica with the results of `times` in place of the times of its curve."""
    pairs = zip(replica.curve, times(replica), strict=True)
    return replace(replica, curve=[point._replace(time=time) for point, time in pairs])


def _averaged(replica: Replica) -> Replica:
    """Return the replica with means of the newest values in its curve if its score is such a mean.

    Values that are not finite remain, and are left out of the means.
    """
    score = replica.objective.score
    if score.kind != "mean_last":
        return replica
    newest = deque[float](maxlen=score.k)
    points: list[RowPoint] = []
    for point in replica.curve:
        if point.value is None or not math.isfinite(point.value):
            points.append(point)
            continue
        newest.append(point.value)
        points.append(point._replace(value=stats.mean(list(newest))))
    return replace(replica, curve=points)


def _values(replica: Replica) -> list[Point]:
    """Return (time, value) of a replica's curve where the value is finite."""
    return [(p.time, p.value) for p in replica.curve if p.value is not None and is_finite(p.value)]


def is_finite(value: float | None) -> bool:
    """Return whether a value is a finite number, which can be drawn; None is not."""
    return value is not None and math.isfinite(value)


def thin(points: Sequence[Point], count: int) -> list[Point]:
    """Return about `count` points: least and greatest value of each stretch, and both ends.

    All are returned if there are at most `count`.
    """
    return [points[place] for place in thin_indices(points, count)]


def thin_indices(points: Sequence[Point], count: int) -> list[int]:
    """Return the indices of the points that `thin` keeps."""
    if len(points) <= count:
        return list(range(len(points)))
    stretches = max(1, (count - 2) // 2)
    inner = len(points) - 2
    kept = {0, len(points) - 1}
    for stretch in range(stretches):
        places = range(1 + stretch * inner // stretches, 1 + (stretch + 1) * inner // stretches)
        if places:
            kept.add(min(places, key=lambda place: points[place][1]))
            kept.add(max(places, key=lambda place: points[place][1]))
    return sorted(kept)


def training_axis(sweeps: Sequence[Sweep]) -> tuple[str, Callable[[Trial], float]]:
    """Return the label of an axis of training so far, and a function that returns a trial's amount.

    The amount is in environment steps if all sweeps report them, else in seconds.
    """
    if all(overview.steps(sweep.history) for sweep in sweeps):
        return "environment steps of all trials", lambda trial: trial.steps
    return "seconds of training of all trials", lambda trial: trial.seconds


def replay_results(
    sweep: Sweep, training_of: Callable[[Trial], float]
) -> Iterator[tuple[Trial, float]]:
    """Yield a trial at each report and end of its slices, with the training of all up to then.

    The trial is in its state of that moment, which the next step of the iteration changes.
    `training_of` returns a trial's amount of training. Results of test seeds are left out.
    """
    now = sweep.history
    past = History(now.objective, now.summed, now.shows_unsaved)
    trained: dict[int, float] = {}
    total = 0.0
    for record in sweep.records:
        past.extend([record])
        event = record.event
        if isinstance(event, Reported | Closed) and not is_test(event.replica):
            trial = past.trials[event.trial]
            total += training_of(trial) - trained.get(trial.number, 0.0)
            trained[trial.number] = training_of(trial)
            yield trial, total
