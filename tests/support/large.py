"""Ledgers of sweeps that are too large to be run in a test, written event by event."""

import math
from pathlib import Path
from typing import Any

import numpy as np

from sweep.history.events import (
    Closed,
    Created,
    End,
    Event,
    Goal,
    Moved,
    Opened,
    Row,
    Status,
    TermBegan,
    TermEnded,
)
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from tests.support import sweeps

#: ASHA's rungs for 100 iterations, reduction factor 3.
RUNGS = (4, 11, 33, 100)


def write(root: Path, trials: int, results: int, **changes: Any) -> Folder:
    """A finished sweep under ASHA with `trials` trials and about `results` results."""
    spec: dict[str, Any] = {
        "name": "large",
        "trials": trials,
        "metric": "score",
        "mode": "max",
        "config": {},
        "space": {
            "lr": {"loguniform": [1e-5, 1e-1]},
            "depth": {"randint": [1, 8]},
            "gamma": {"uniform": [0.9, 0.999]},
            "kind": {"choice": ["relu", "tanh", "gelu"]},
        },
        "stop": {"training_iteration": 100},
        "searcher": "random",
        "scheduler": {"name": "asha", "grace_period": 4, "reduction_factor": 3},
        "trackers": (),
    }
    folder = sweeps.make(root, **{**spec, **changes})
    ledger = Ledger(folder.ledger)
    stream = np.random.default_rng(0)
    term = ledger.append(None, [TermBegan("here", 1, trials, jobs=8, pool="loky")])[0].term
    per_trial = max(1, results // trials)
    events: list[Event] = []
    for number in range(trials):
        events += _trial(number, per_trial, stream)
        if len(events) > 500:
            ledger.append(term, events)
            events = []
    ledger.append(term, [*events, TermEnded("finished")])
    ledger.close()
    return folder


def _trial(number: int, results: int, stream: np.random.Generator) -> list[Event]:
    lr, gamma = 10 ** stream.uniform(-5, -1), stream.uniform(0.9, 0.999)
    searched = {
        "lr": float(lr),
        "depth": int(stream.integers(1, 9)),
        "gamma": float(gamma),
        "kind": str(stream.choice(["relu", "tanh", "gelu"])),
    }
    quality = 1.0 - abs(math.log10(lr) + 3) / 2 + 0.1 * stream.normal()
    ends = results if results < RUNGS[0] else RUNGS[0]
    rows = [
        Row(
            i,
            {
                "training_iteration": i,
                "score": quality * (1 - math.exp(-i / 20)) + 0.02 * stream.normal(),
                "time_this_iter_s": 0.5,
                "timesteps_total": 1000 * i,
                "timesteps_this_iter": 1000,
            },
        )
        for i in range(1, results + 1)
    ]
    first = Goal(ends, results)
    done = number % 3 == 0
    end, status = (End.DONE, Status.COMPLETED) if done else (End.GOAL, Status.PAUSED)
    found: list[Event] = [
        Created(number, searched, searched, number),
        Opened(number, 0, 0, first, "a new trial"),
        Closed(number, 0, 0, End.GOAL, Status.PAUSED, "reached rung 4", rows=tuple(rows[:ends])),
        Opened(number, 0, 1, Goal(results, results), "promoted", {"rung": 4, "place": 1}),
        Closed(number, 0, 1, end, status, "reached", source=ends, rows=tuple(rows[ends:])),
    ]
    if not done:
        found.append(Moved(number, Status.PRUNED, "the sweep ended while it waited"))
    return found
