"""What a sweep would do, before anything is written: `sweep validate`, `sweep run --dry-run`."""

import dataclasses
from collections.abc import Callable
from typing import Any

from sweep import preparation, samples
from sweep.preparation import Prepared
from sweep.show import costs, suspicions
from sweep.show.rehearsal import rehearse
from sweep.space import doubts


def preview(prepared: Prepared, jobs: int | None) -> dict[str, Any]:
    """The expanded space, the rungs, sample settings and the number of slots."""
    spec = prepared.resolved.spec
    return {
        "name": spec.name,
        "trials": spec.trials,
        "trainable": spec.trainable,
        "metric": spec.metric,
        "mode": spec.mode,
        "searcher": spec.searcher.name,
        "scheduler": spec.scheduler.name,
        "time_attr": prepared.resolved.scheduler.time_attr,
        "rungs": list(prepared.resolved.scheduler.levels),
        "stop": dict(spec.stop),
        "jobs": preparation.slots(jobs, spec, prepared.paths, spec.trials),
        "space": spec.space.describe(),
        "points": doubts.count(spec.space),
        "initial": [dict(given) for given in spec.initial],
        "samples": [point.settings for point in samples.draw(spec.space, spec.seed)],
        "doubts": doubts.find(spec.space, spec.trials),
    }


def validation(
    prepared: Prepared,
    jobs: int | None,
    longest_s: float,
    tell: Callable[[str], None],
    every_s: float,
) -> dict[str, Any]:
    """The same, and what came of trying the trainable out for so long at most.

    Args:
        prepared: the spec and its plugins.
        jobs: slots; None: as many as fit.
        longest_s: seconds that trying it out may take.
        tell: is told what it is at.
        every_s: how often.
    """
    seen = preview(prepared, jobs)
    rehearsal = rehearse(prepared, longest_s, tell, every_s)
    ended = rehearsal.cut_short
    return {
        **seen,
        "doubts": [*seen["doubts"], *suspicions.find(prepared.resolved, rehearsal)],
        "costs": costs.estimate(prepared.resolved, rehearsal, seen["jobs"]),
        "restore": rehearsal.differences,
        "cut_short": None if ended is None else dataclasses.asdict(ended),
    }
