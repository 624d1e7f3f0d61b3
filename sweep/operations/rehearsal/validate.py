"""Forecast a sweep before anything is written: `sweep validate`, `sweep run --dry-run`."""

import contextlib
import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from sweep import pools
from sweep.core.errors import BadSpace
from sweep.driver.start import prepare
from sweep.driver.start.creation import samples
from sweep.driver.start.creation.resolving import Resolved
from sweep.history.history import History
from sweep.operations.rehearsal.smoke_test import SmokeTest, smoke_test
from sweep.schedulers._shared import building, seeding
from sweep.spec.space import Settings, Space
from sweep.spec.space.domains import choice_key
from sweep.spec.space.enumeration import Points
from sweep.views import first_result, formatting, overview
from trainables.core import rng
from trainables.core.results import VOLATILE_KEYS, WHOSE
from trainables.errors import printable, shorten

# -------------------------------------------------------------------------------------------------
# Warnings from a smoke test: names that no result had, rungs that have no effect.
#
# They may be wrong, since an evaluation may report the metric after the smoke test has ended.


def result_warnings(resolved: Resolved, smoke: SmokeTest) -> list[str]:
    """Return warnings about names that no result had, and about rungs that have no effect.

    Each is one line; there are none if nothing was measured.
    """
    if not smoke.keys:
        return []
    spec, scheduler = resolved.spec, resolved.scheduler
    keys = {"metric": spec.metric, "scheduler.time_attr": scheduler.time_attr}
    keys |= {f"stop.{name}": name for name in (*spec.stop, *spec.stop.at_most)}
    if spec.stop.plateau is not None and spec.stop.plateau.metric != spec.metric:
        keys["stop.plateau.metric"] = spec.stop.plateau.metric
    found = [_missing(key, name, smoke) for key, name in keys.items() if name not in smoke.keys]
    return found + _low_rungs(resolved, smoke) + _before_metric(resolved, smoke)


def _missing(key: str, name: str, smoke: SmokeTest) -> str:
    """Return the warning that no result has `name`, which the spec uses as `key`."""
    known = [key for key in smoke.keys if key.split("/")[0] not in VOLATILE_KEYS | WHOSE]
    later = "" if key == "scheduler.time_attr" else first_result.LATER
    seen = f"the first {smoke.results} results have"
    return first_result.missing_result_text(key, name, known, seen, "they have") + later


def _low_rungs(resolved: Resolved, smoke: SmokeTest) -> list[str]:
    """Return a warning if one iteration passes rungs, so that trials are not compared there.

    The list is empty otherwise.
    """
    scheduler = resolved.scheduler
    step = (smoke.advance or {}).get(scheduler.time_attr)
    below = [level for level in scheduler.levels if step is not None and level < step]
    if step is None or not below:
        return []
    names = ", ".join(formatting.number(level) for level in below)
    return [
        f"scheduler.grace_period: one iteration brings {scheduler.time_attr} to "
        f"{formatting.number(step)}; the rungs {names} are below it, so trials are not compared "
        f"there before their first result"
    ]


def _before_metric(resolved: Resolved, smoke: SmokeTest) -> list[str]:
    """Return a warning if trials reach rungs before their first result with the metric.

    The list is empty otherwise, and if `result_warnings` says that no result has the metric.
    """
    scheduler, metric, lack = resolved.scheduler, resolved.spec.metric, smoke.lack
    if lack is None or not (early := [at for at in scheduler.levels if at <= lack.last_without]):
        return []
    if lack.first_with is None and metric not in smoke.keys and not metric.startswith("episode_"):
        return []  # another warning says that no result has it
    names = ", ".join(formatting.number(level) for level in early)
    several = len(early) > 1
    rungs = f"the rung{'s' * several} {names} of {scheduler.time_attr} lie{'s' * (not several)}"
    if lack.first_with is None:
        came = f"the first {smoke.results} results have no number in {printable(metric)}"
        return [
            (
                f"metric: {came}; {rungs} within them, so trials train on to the first result that "
                "has one"
            )
        ]
    when = f"iteration {lack.iteration}"
    if scheduler.time_attr != "training_iteration":
        when += f", at {scheduler.time_attr} {formatting.number(lack.first_with)}"
    if lack.episode_len is not None and metric.startswith("episode_"):
        when += f", with episodes of {formatting.number(lack.episode_len)} steps"
    return [
        (
            f"metric: {printable(metric)} first appeared in {when}; {rungs} before it and "
            f"{'are' if several else 'is'} evaluated only then"
        )
    ]


# -------------------------------------------------------------------------------------------------
# Warnings about the space: parameters that are never used, points that are repeated.

#: The largest number of points that are all checked; from larger spaces this number is drawn.
MOST_POINTS = 2000


def count_points(space: Space) -> int | None:
    """Return the number of points in the space, without those that are forbidden.

    Returns None if there are infinitely many, or 2**63 and more, or counting them is too costly.
    """
    try:
        found = Points(space).count
    except BadSpace:
        return None
    return found if found < 2**63 else None


def space_warnings(space: Space, trials: int) -> list[str]:
    """Return warnings, one line each, about points and parameters of the space.

    They are about too few points for `trials`, parameters that are never used, and points that give
    equal settings. All points are tried if there are at most `MOST_POINTS`. From a larger space,
    that many are drawn with a fixed seed if it has conditions, and equal settings are not sought.
    """
    number = count_points(space)
    warnings = []
    if number is not None and number < trials:
        warnings.append(f"{trials} trials are requested, but the space has only {number} points")
    if number is not None and number <= MOST_POINTS:
        points, everything = Points(space), []
        for index in range(number):
            with contextlib.suppress(BadSpace):  # an expression has no value at this point
                everything.append(points.at_index(index))
        return [
            *warnings,
            *_unused_parameters(space, everything, "at any point"),
            *_repeated_points(everything),
        ]
    if not any(parameter.needs for parameter in space.parameters.values()):
        return warnings
    drawn = [space.draw(rng.integer(0, "doubts", index)) for index in range(MOST_POINTS)]
    return [*warnings, *_unused_parameters(space, drawn, f"at any of {MOST_POINTS} random points")]


def _unused_parameters(space: Space, points: list[Settings], description: str) -> list[str]:
    """Return a warning for each parameter that none of `points` has.

    Unsearched ones with a leading underscore are left out, since points do not show them.
    `description` says which points these are.
    """
    there = {name for point in points for name in (*point.searched, *point.settings)}
    lines = []
    for name, parameter in space.parameters.items():
        if name in there or (parameter.hidden and name not in space.searched):
            continue
        when = " and ".join(condition.describe() for condition in parameter.when)
        cause = f"{when} never holds" if when else "a parameter that it needs is not used either"
        lines.append(f"{name} is not used {description}: {cause}")
    return lines


def _repeated_points(points: list[Settings]) -> list[str]:
    """Return one warning if several points give the trainable the same settings, else none."""
    keys = [choice_key(point.settings) for point in points]
    counts = Counter(keys)
    repeated = sum(number - 1 for number in counts.values())
    if not repeated:
        return []
    key = next(key for key in keys if counts[key] > 1)
    same = [point.searched for point, own in zip(points, keys, strict=True) if own == key]
    first, other = (shorten(point) for point in same[:2])
    return [
        (
            f"{repeated} of {len(points)} points give the same settings as another point, such "
            f"as {first} and {other}"
        )
    ]


# -------------------------------------------------------------------------------------------------
# The largest and the expected costs of a sweep, from two measured iterations of its trainable.
#
# The largest costs assume that every trial runs to its end; the expected costs assume successive
# halving at each rung. Durations are in seconds, sizes in bytes.


#: Trials that are tested together if the pool trains trials as lanes of one program.
LANES = 2


def estimate_costs(
    resolved: Resolved, smoke: SmokeTest, jobs: int, lanes: int | None = None
) -> dict[str, Any] | None:
    """Return largest and expected costs of the sweep as plain data; None if nothing was measured.

    Of one trial it has ``iteration_s``, ``steps_per_iteration``, ``checkpoint_bytes`` and
    ``iterations_per_trial``; of the sweep with `jobs` trials at once ``most_steps``, ``most_s`` and
    ``most_bytes`` if all trials run to their end, and ``about_steps`` and ``about_s`` as expected.
    A value is None if nothing bounds a trial or its results do not count it. If `lanes` trials were
    measured together, the duration of an iteration is scaled to `jobs` lanes, as on a CPU.
    """
    spec, scheduler = resolved.spec, resolved.scheduler
    if smoke.seconds is None:
        return None
    seconds = smoke.seconds * (1.0 if lanes is None else max(1.0, jobs / lanes))
    advance = {"training_iteration": 1.0, **(smoke.advance or {})}
    advance["time_total_s"] = seconds
    runs = spec.trials * seeding.most_seeds(spec.seed_plan)
    longest = _iterations(spec.stop, scheduler.time_attr, scheduler.levels, advance)
    share = _share_of_plan(resolved, runs) if spec.has_seed_plan else None
    if share is None:
        share = _halving_share(spec.trials, scheduler.levels)
    steps = advance.get(overview.STEPS)
    kept = spec.checkpoint.keep_last + spec.checkpoint.keep_best
    return {
        "iteration_s": seconds,
        "steps_per_iteration": steps,
        "checkpoint_bytes": smoke.size,
        "iterations_per_trial": longest,
        "most_steps": _product(longest, runs, steps),
        "most_s": _product(longest, math.ceil(runs / jobs), seconds),
        "most_bytes": None if smoke.size is None else runs * (kept + 1) * smoke.size,
        "about_steps": _product(longest, runs, steps, share),
        "about_s": _product(longest, runs / jobs, seconds, share),
    }


def _product(*factors: float | None) -> float | None:
    """Return the product of the factors, or None if one is None."""
    found = [factor for factor in factors if factor is not None]
    return math.prod(found) if len(found) == len(factors) else None


def _iterations(
    stop: Mapping[str, float],
    time_attr: str,
    levels: Sequence[float],
    advance: Mapping[str, float],
) -> int | None:
    """Return the number of iterations of a trial that is never stopped early; None if unbounded.

    Args:
        stop: result → value at which a trial ends.
        time_attr: result that the scheduler counts.
        levels: rungs of the scheduler, ascending; a trial ends at the last one.
        advance: result → its increase by one iteration; ends by other results are ignored.
    """
    bounds = list(stop.items())
    if levels:
        bounds.append((time_attr, levels[-1]))
    found = [math.ceil(bound / advance[key]) for key, bound in bounds if key in advance]
    return max(1, min(found)) if found else None


def _halving_share(trials: int, levels: Sequence[float]) -> float:
    """Return the training under successive halving, as a share of training all trials to the end.

    `levels` are the rungs, ascending; without any, it is 1.
    """
    if not levels or levels[-1] <= 0:
        return 1.0
    work = trials * levels[0]
    for low, high in pairwise(levels):
        work += max(1.0, math.floor(trials * levels[0] / low / (high / low))) * (high - low)
    return min(1.0, work / (trials * levels[-1]))


def _share_of_plan(resolved: Resolved, runs: int) -> float | None:
    """Return the training that the scheduler expects, as a share of training all `runs` to the end.

    It is from 0 to 1. Returns None if the scheduler does not predict its work or has no levels.
    """
    past = History(resolved.objective)
    past.wanted = resolved.spec.trials
    work, levels = resolved.scheduler.remaining_training(past), resolved.scheduler.levels
    return min(1.0, work / (runs * levels[-1])) if work is not None and levels else None


def preview(resolved: Resolved, jobs: int | None, pool: str = pools.DEFAULT) -> dict[str, Any]:
    """Return what can be said of a sweep without training, as plain data.

    Its keys include ``space`` (described in lines), ``points`` (their number), ``rungs``, ``jobs``
    (number of slots), ``samples`` (settings of random points) and ``warnings``. A `jobs` of None
    takes the default number of slots.

    Raises:
        SweepError: the pool does not exist, or it needs lanes, which the trainable does not have.
    """
    spec = resolved.spec
    if not pools.has_lanes(pool, resolved.paths):
        pool = pools.DEFAULT  # a cluster is not contacted, so its workers are unknown
    else:
        prepare.check_lanes(resolved)
    return {
        "name": spec.name,
        "trials": spec.trials,
        "trainable": spec.trainable,
        "metric": spec.metric,
        "mode": spec.mode,
        "objectives": dict(spec.objectives),
        "constraints": dict(spec.constraints),
        "seeds": None if spec.has_seed_plan else spec.first_seeds,
        "searcher": spec.searcher.name,
        "scheduler": spec.scheduler.name,
        "time_attr": resolved.scheduler.time_attr,
        "rungs": list(resolved.scheduler.levels),
        "stop": spec.stop.to_spec(),
        "jobs": prepare.slots(
            jobs, spec, resolved.paths, spec.trials, lambda: resolved.trainable, pool
        ),
        "space": spec.space.describe(),
        "points": count_points(spec.space),
        "initial": [dict(given) for given in spec.initial],
        "samples": [point.settings for point in samples.draw_samples(spec.space, spec.seed)],
        "warnings": [
            *building.remarks(spec, resolved.scheduler),
            *space_warnings(spec.space, spec.trials),
            *prepare.gpu_warnings(resolved),
        ],
    }


def validation(
    resolved: Resolved,
    jobs: int | None,
    longest_s: float,
    show: Callable[[str], None],
    every_s: float,
    pool: str = pools.DEFAULT,
) -> dict[str, Any]:
    """Return the data of `preview`, with the findings of a smoke test.

    These are further ``warnings``, ``costs`` (of `estimate_costs`), ``restore`` (the differences)
    and ``cut_short``, the `CutShort` as a mapping or None.

    The smoke test trains in a child process for at most `longest_s` seconds, and calls `show` with
    its current step every `every_s` seconds. Raises UsageError if the trainable raised an error,
    SweepError as `preview`.
    """
    previewed = preview(resolved, jobs, pool)
    lanes = LANES if pools.has_lanes(pool, resolved.paths) else None
    smoke = smoke_test(resolved, longest_s, show, every_s, lanes=lanes)
    ended = smoke.cut_short
    return {
        **previewed,
        "warnings": [*previewed["warnings"], *result_warnings(resolved, smoke)],
        "costs": estimate_costs(resolved, smoke, previewed["jobs"], lanes),
        "restore": smoke.differences,
        "cut_short": None if ended is None else dataclasses.asdict(ended),
    }
