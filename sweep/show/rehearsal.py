"""A trainable tried out for a few iterations: whether it restores exactly, and what it costs.

Everything happens in a temporary folder. Durations are seconds, sizes bytes.
"""

import tempfile
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweep import samples
from sweep.errors import UsageError
from sweep.launch import Resolved
from sweep.metrics import flatten, number
from sweep.spec.stopping import COUNTERS
from trainables import rng
from trainables.errors import TrainableError, shorten
from trainables.results import VOLATILE_KEYS
from trainables.trainable import Trainable, TrialContext

#: Iterations that a trainable has to come to a checkpoint.
MOST_ITERATIONS = 20
#: Seconds after which no further iteration is begun only to see whether a result comes later.
LATER_S = 5.0


@dataclass(frozen=True)
class Rehearsal:
    """What came of it."""

    differences: list[str]
    """How the iteration after a restore differs; empty: it is the same, to the bit."""
    seconds: float | None = None
    """Of one iteration, the slower of two; None: nothing was measured."""
    size: int = 0
    """Of one checkpoint, with its segments."""
    advance: Mapping[str, float] | None = None
    """By how much one iteration advances each counter, and ``time_attr``."""
    keys: frozenset[str] = frozenset()
    """What the results have."""
    results: int = 2
    """How many were looked at: more than two where something that the spec names was missing."""


def rehearse(resolved: Resolved) -> Rehearsal:
    """Train, save, train on; restore, train on; compare the two ends.

    Times, dates and the like may differ.

    Raises:
        UsageError: the trainable raised.
    """
    if not resolved.trainable.can_save():
        return Rehearsal(
            ["it has no save_checkpoint(): its trials run in one piece and cannot be resumed"]
        )
    spec = resolved.spec
    point = samples.draw(spec.space, spec.seed, 1)[0]
    nested = spec.space.nest(point.settings, spec.config)
    config = resolved.trainable.complete_config(nested, spec.stop)
    with tempfile.TemporaryDirectory(prefix="sweep-validate-") as folder:
        context = TrialContext(
            rng.integer(spec.seed, "validate"), "validate", "validate", Path(folder)
        )
        try:
            counters = (*COUNTERS, resolved.scheduler.time_attr)
            named = frozenset({spec.metric, *spec.stop})
            return _compare(resolved.trainable, config, context, counters, named)
        except Exception as error:
            raise UsageError(f"validate: {spec.trainable} raised {_in_short(error)}") from error


def _compare(
    cls: type[Trainable],
    config: Mapping[str, Any],
    context: TrialContext,
    counters: tuple[str, ...],
    named: frozenset[str],
) -> Rehearsal:
    straight = cls(config, context)
    try:
        first = _train_to_checkpoint(straight)
        if first is None:
            return Rehearsal([f"it came to no checkpoint in {MOST_ITERATIONS} iterations"])
        path = straight.save()
        expected, seconds = _timed(straight)
    finally:
        straight.stop()
    restored = cls(config, context)
    try:
        restored.restore(path)
        found, again = _timed(restored)
        later = _later(restored, named - {*first, *found}, found.get("done") is True)
    finally:
        restored.stop()
    beside = Path(path).parent.glob("seg-*")
    size = sum(file.stat().st_size for file in (Path(path), *beside))
    slower = max(seconds, again)
    return Rehearsal(
        _differences(_stable(expected), _stable(found)),
        slower,
        size,
        _advance(first, expected, counters),
        frozenset({*first, *expected}.union(*later)),
        2 + len(later),
    )


def _later(trainable: Trainable, missing: frozenset[str], done: bool) -> list[dict[str, Any]]:
    """Further results, until they have what is `missing`: an evaluation is not in every one."""
    results: list[dict[str, Any]] = []
    end_at = time.monotonic() + LATER_S
    while missing and not done and trainable.iteration < MOST_ITERATIONS:
        if time.monotonic() >= end_at:
            break
        results.append(flatten(trainable.train()))
        missing, done = missing - results[-1].keys(), results[-1].get("done") is True
    return results


def _timed(trainable: Trainable) -> tuple[dict[str, Any], float]:
    began = time.perf_counter()
    result = flatten(trainable.train())
    return result, time.perf_counter() - began


def _advance(
    first: Mapping[str, Any], second: Mapping[str, Any], counters: tuple[str, ...]
) -> dict[str, float]:
    found = {}
    for key in counters:
        before, after = number(first.get(key)), number(second.get(key))
        if before is not None and after is not None and after > before:
            found[key] = after - before
    return found


def _in_short(error: Exception) -> str:
    """An exception and where it happened, on one line."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}{where}"


def _train_to_checkpoint(trainable: Trainable) -> dict[str, Any] | None:
    """The result at its first checkpoint; None: it came to none."""
    for _ in range(MOST_ITERATIONS):
        result = flatten(trainable.train())
        if trainable.at_checkpoint:
            if result.get("done") is True:
                raise TrainableError("it is done after its first checkpoint; nothing to compare")
            return result
    return None


def _stable(result: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in result.items() if key.split("/")[0] not in VOLATILE_KEYS}


def _differences(expected: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    missing = "absent"
    return [
        f"{key}: {shorten(expected.get(key, missing))} without, "
        f"{shorten(found.get(key, missing))} after save and restore"
        for key in sorted({*expected, *found})
        if repr(expected.get(key)) != repr(found.get(key))
    ]
