"""Slices made by hand, for tests of slices and pools."""

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sweep.history.events import Goal, Saved
from sweep.slices.messages import SliceSpec
from sweep.slices.retention import Retention
from sweep.slices.stopping import Criteria
from sweep.spec import CheckpointPolicy


def slice_spec(
    folder: Path,
    config: Mapping[str, Any] | None = None,
    sources: Sequence[Saved] = (),
    **changes: Any,
) -> SliceSpec:
    """A slice of a quadratic to iteration 5."""
    folder.mkdir(parents=True, exist_ok=True)
    values: dict[str, Any] = {
        "sweep_id": "s" * 32,
        "term": 1,
        "trial": 0,
        "replica": 0,
        "number": 0,
        "trainable": "tests.support.quadratic:Quadratic",
        "paths": (),
        "config": dict(config or {"noise": 0.1}),
        "seed": 11,
        "sources": tuple(sources),
        "goal": Goal(5),
        "time_attr": "training_iteration",
        "stop": Criteria(),
        "metric": "loss",
        "sign": -1.0,
        "policy": Retention.from_spec(CheckpointPolicy(every=1)),
        "slice_s": 60.0,
        "folder": str(folder),
        "stop_file": str(folder / ".stop-1"),
    }
    return SliceSpec(**{**values, **changes})


def note(folder: Path) -> dict[str, Any]:
    """Where a slice that runs is; empty: it has not said yet."""
    with contextlib.suppress(OSError, ValueError):
        return dict(json.loads((folder / "progress.json").read_text()))
    return {}
