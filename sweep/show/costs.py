"""What a sweep costs at most, and about, from two measured iterations of its trainable.

At most: every trial runs to its end. About: of the trials at a rung, those that successive halving
leaves reach the next. Durations are seconds, sizes bytes.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from sweep.launch import Resolved
from sweep.show.rehearsal import Rehearsal

#: The result in which environment steps are counted.
STEPS = "timesteps_total"


def estimate(resolved: Resolved, rehearsal: Rehearsal, jobs: int) -> dict[str, Any] | None:
    """The costs as plain data; None: nothing was measured.

    A number is null where nothing bounds a trial, or its results do not count it.
    """
    spec, scheduler = resolved.spec, resolved.scheduler
    if rehearsal.seconds is None:
        return None
    advance = {"training_iteration": 1.0, **(rehearsal.advance or {})}
    advance["time_total_s"] = rehearsal.seconds
    runs = spec.trials * spec.replicas
    longest = _iterations(spec.stop, scheduler.time_attr, scheduler.levels, advance)
    share = _share(spec.trials, scheduler.levels)
    steps = advance.get(STEPS)
    kept = spec.checkpoint.keep_last + spec.checkpoint.keep_best
    return {
        "iteration_s": rehearsal.seconds,
        "steps_per_iteration": steps,
        "checkpoint_bytes": rehearsal.size,
        "iterations_per_trial": longest,
        "most_steps": _times(longest, runs, steps),
        "most_s": _times(longest, math.ceil(runs / jobs), rehearsal.seconds),
        "most_bytes": None if rehearsal.size is None else runs * (kept + 1) * rehearsal.size,
        "about_steps": _times(longest, runs, steps, share),
        "about_s": _times(longest, runs / jobs, rehearsal.seconds, share),
    }


def _times(*factors: float | None) -> float | None:
    found = [factor for factor in factors if factor is not None]
    return math.prod(found) if len(found) == len(factors) else None


def _iterations(
    stop: Mapping[str, float],
    time_attr: str,
    levels: Sequence[float],
    advance: Mapping[str, float],
) -> int | None:
    """The iterations of a trial that is never stopped early; None: only its results can end it."""
    bounds = list(stop.items())
    if levels:
        bounds.append((time_attr, levels[-1]))
    found = [math.ceil(bound / advance[key]) for key, bound in bounds if key in advance]
    return max(1, min(found)) if found else None


def _share(trials: int, levels: Sequence[float]) -> float:
    """The work under successive halving as a share of the work of all trials to their ends."""
    if not levels or levels[-1] <= 0:
        return 1.0
    work = trials * levels[0]
    for low, high in pairwise(levels):
        work += max(1.0, math.floor(trials * levels[0] / low / (high / low))) * (high - low)
    return min(1.0, work / (trials * levels[-1]))
