"""What a sweep would do, before anything is written: `sweep validate`, `sweep run --dry-run`."""

import tempfile
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sweep import preparation, samples
from sweep.errors import UsageError
from sweep.launch import Resolved
from sweep.metrics import flatten
from sweep.preparation import Prepared
from trainables import rng
from trainables.errors import TrainableError, shorten
from trainables.results import VOLATILE_KEYS
from trainables.trainable import Trainable, TrialContext

#: Iterations that a trainable has to come to a checkpoint.
MOST_ITERATIONS = 20


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
        "points": spec.space.size(),
        "samples": [point.settings for point in samples.draw(spec.space, spec.seed)],
    }


def check_restore(resolved: Resolved) -> list[str]:
    """Train, save, train on; restore, train on: how the two ends differ. Empty: they are equal.

    Times, dates and the like may differ.
    """
    if not resolved.trainable.can_save():
        return ["it has no save_checkpoint(): its trials run in one piece and cannot be resumed"]
    spec = resolved.spec
    point = samples.draw(spec.space, spec.seed, 1)[0]
    nested = spec.space.nest(point.settings, spec.config)
    config = resolved.trainable.complete_config(nested, spec.stop)
    with tempfile.TemporaryDirectory(prefix="sweep-validate-") as folder:
        context = TrialContext(
            rng.integer(spec.seed, "validate"), "validate", "validate", Path(folder)
        )
        try:
            return _compare(resolved.trainable, config, context)
        except Exception as error:
            raise UsageError(f"validate: {spec.trainable} raised {_in_short(error)}") from error


def _compare(cls: type[Trainable], config: Mapping[str, Any], context: TrialContext) -> list[str]:
    straight = cls(config, context)
    try:
        if not _train_to_checkpoint(straight):
            return [f"it came to no checkpoint in {MOST_ITERATIONS} iterations"]
        path = straight.save()
        expected = _stable(straight.train())
    finally:
        straight.stop()
    restored = cls(config, context)
    try:
        restored.restore(path)
        return _differences(expected, _stable(restored.train()))
    finally:
        restored.stop()


def _in_short(error: Exception) -> str:
    """An exception and where it happened, on one line."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}{where}"


def _train_to_checkpoint(trainable: Trainable) -> bool:
    for _ in range(MOST_ITERATIONS):
        done = trainable.train().get("done") is True
        if trainable.at_checkpoint:
            if done:
                raise TrainableError("it is done after its first checkpoint; nothing to compare")
            return True
    return False


def _stable(result: Mapping[str, Any]) -> dict[str, Any]:
    flat = flatten(result)
    return {key: value for key, value in flat.items() if key.split("/")[0] not in VOLATILE_KEYS}


def _differences(expected: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    missing = "absent"
    return [
        f"{key}: {shorten(expected.get(key, missing))} without, "
        f"{shorten(found.get(key, missing))} after save and restore"
        for key in sorted({*expected, *found})
        if repr(expected.get(key)) != repr(found.get(key))
    ]
