"""Creation of a long sweep within seconds: a ledger with completed trials, without training.

folder = large.make(root, trials=5_000, iterations=100)
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from sweep import spec as specs
from sweep.driver.start.creation import creating, resolving
from sweep.history.events import (
    Closed,
    Created,
    End,
    Event,
    Goal,
    Opened,
    Row,
    Status,
    TermBegan,
    TermEnded,
)
from sweep.history.replica import Replica
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.spec.space import Space

#: Spec of such a sweep; its trials are never run.
SPEC: Mapping[str, Any] = {
    "name": "large",
    "metric": "score",
    "mode": "max",
    "space": {"x": {"uniform": [0.0, 1.0]}, "y": {"loguniform": [1e-5, 1e-1]}},
    "searcher": "random",
    "trackers": [],
    "trainable": "sweep.testing.curves:Played",
}
#: Number of events in one transaction, at least.
_AT_ONCE = 3_000


def make(
    root: Path, trials: int, iterations: int = 1, wait: bool = False, **changes: Any
) -> Folder:
    """Create a sweep whose trials have ended, all but one that is not yet created.

    Args:
        trials: number of trials that have reached their goals.
        iterations: number of iterations and results of each.
        wait: True if the trials wait at their goals for a decision; False if they are completed.
        changes: keys of the spec that differ from `SPEC`.

    Returns:
        The sweep's folder.
    """
    raw = {**SPEC, "trials": trials + 1, "stop": {"training_iteration": iterations}, **changes}
    source = json.dumps(raw)
    resolved = resolving.resolve(specs.parse(source, "large"), ())
    folder = Folder(root, resolved.spec.name)
    creating.create(folder, resolved, source)
    with closing(Ledger(folder.ledger)) as ledger:
        term = ledger.append(None, [TermBegan("here", 1, trials + 1, 2, False, "loky")])[0].term
        batch: list[Event] = []
        for number in range(trials):
            batch += _trial(
                Replica(number, 0, resolved.objective), resolved.spec.space, iterations, wait
            )
            if len(batch) >= _AT_ONCE:
                ledger.append(term, batch)
                batch = []
        ledger.append(term, [*batch, TermEnded("stopped")])
    return folder


def _trial(replica: Replica, space: Space, iterations: int, wait: bool) -> Iterator[Event]:
    """Yield the events of the trial of `replica`, its only one."""
    number = replica.trial
    settings = {
        name: domain.value_at(_pseudo_random(number + place))
        for place, (name, domain) in enumerate(space.domains.items())
    }
    yield Created(number, settings, settings, 3 * number + 1)
    goal = Goal(iterations) if wait else Goal()
    yield Opened(number, 0, 0, goal, "a slot was free")
    rows = tuple(
        Row(
            iteration,
            {"score": _pseudo_random(number * iterations + iteration), **_other_metrics(iteration)},
        )
        for iteration in range(1, iterations + 1)
    )
    end, status = (End.GOAL, Status.PAUSED) if wait else (End.DONE, Status.COMPLETED)
    sums = replica.sums_after(0, rows)
    yield Closed(number, 0, 0, end, status, "it has reached its goal", rows=rows, sums=sums)


def _other_metrics(iteration: int) -> dict[str, float]:
    """Return the entries of every result beside the score."""
    return {
        "training_iteration": iteration,
        "timesteps_total": iteration * 1000,
        "time_this_iter_s": 1.0,
        "time_total_s": float(iteration),
    }


def _pseudo_random(number: int) -> float:
    """Return a number in [0, 1) that looks random and is a function of `number`."""
    return number * 2_654_435_761 % 2**32 / 2**32
