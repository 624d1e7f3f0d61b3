"""Sweeps told by hand: real ledgers with made-up events, for tests of what is copied from them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sweep import spec as specs
from sweep.history.events import (
    Closed,
    Created,
    End,
    Event,
    Goal,
    Moved,
    Opened,
    ParentCheckpoint,
    Recorded,
    Row,
    Saved,
    Scalar,
    Status,
    TermBegan,
    TermEnded,
)
from sweep.history.history import History
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.trackers import Tracker, TrackerContext
from sweep.views import reading

SPEC = """
name: {name}
trials: 5
trainable: tests.support.quadratic:Quadratic
metric: info/score
mode: max
score: best
space:
  lr: {{loguniform: [1.0e-5, 1.0e-1]}}
  layers: {{randint: [1, 4]}}
  net: {{choice: [[64, 64], [128, 128], null, true]}}
stop: {{training_iteration: 9}}
searcher: random
scheduler: {{name: asha, time_attr: timesteps_total, grace_period: 100, max_t: 900}}
seed: 7
"""

SETTINGS: Mapping[str, Any] = {"lr": 0.001, "layers": 2, "net": [64, 64]}
#: Seconds since 1970 of the first result.
STARTED = 1_700_000_000


def row(trial: int, iteration: int, **more: Scalar) -> Row:
    """The result of one iteration, as a trainable with 100 steps in each gives it."""
    metrics: dict[str, Scalar] = {
        "training_iteration": iteration,
        "timesteps_total": 100 * iteration,
        "time_total_s": 0.5 * iteration,
        "time_this_iter_s": 0.5,
        "timestamp": STARTED + iteration,
        "date": "today",
        "pid": 77,
        "done": False,
        "info/score": trial + 1 - 1 / iteration,
        "info/loss": 1 / iteration,
        **more,
    }
    return Row(iteration, metrics)


@dataclass
class Story:
    """A sweep that is told event by event, in a real ledger."""

    where: TrackerContext
    ledger: Ledger
    term: int = 0
    slices: dict[int, int] = field(default_factory=dict)

    @classmethod
    def create(cls, root: Path, name: str = "demo", uri: str | None = None) -> "Story":
        folder = Folder(root, name)
        folder.path.mkdir(parents=True)
        spec = specs.parse(SPEC.format(name=name), "test.yaml")
        text = specs.canonical_json(spec)
        ledger = Ledger.create(folder.ledger, name, text, {"versions": {}, "paths": []})
        objective = reading.history(ledger).objective
        where = TrackerContext(
            folder, ledger.sweep_id, name, ledger.created_at, spec, objective, uri
        )
        return cls(where, ledger)

    @property
    def records(self) -> list[Recorded]:
        return self.ledger.read()

    @property
    def history(self) -> History:
        history = History(self.where.objective)
        history.extend(self.records)
        return history

    def begin(self, trials: int = 5) -> None:
        (record,) = self.ledger.append(None, [TermBegan("host", 1, trials)])
        self.term = record.term

    def tell(self, *events: Event) -> list[Recorded]:
        return self.ledger.append(self.term, events)

    def start(self, trial: int, **settings: Any) -> None:
        searched = {**SETTINGS, **settings}
        self.tell(Created(trial, searched, searched, seen=0), self._opened(trial))

    def breed(self, trial: int, parent: int) -> None:
        """Start a trial that begins from its parent's newest checkpoint."""
        leader = self.history.trials[parent].leader
        assert leader.newest_checkpoint is not None
        birth = ParentCheckpoint(parent, 0, leader.time, leader.newest_checkpoint)
        self.tell(Created(trial, SETTINGS, SETTINGS, 0, births=(birth,)), self._opened(trial))

    def go_on(self, trial: int) -> None:
        self.tell(self._opened(trial))

    def close(
        self,
        trial: int,
        status: Status,
        rows: Sequence[Row] = (),
        end: End = End.GOAL,
        source: int | None = None,
        reason: str = "",
    ) -> None:
        """End the trial's slice; by default it continued from just before its first row."""
        first = rows[0].iteration - 1 if rows else 0
        saved = tuple(
            Saved(r.iteration, f"{trial:02}{r.iteration:062}", f"ckpt-{r.iteration}", 10)
            for r in rows[-1:]
            if end is not End.CRASHED
        )
        source = first if source is None else source
        number = self.slices[trial] - 1
        self.tell(
            Closed(
                *(trial, 0, number, end, status, reason or end.value, source),
                saved=saved,
                rows=tuple(rows),
            )
        )

    def move(self, trial: int, status: Status) -> None:
        self.tell(Moved(trial, status, f"moved to {status}"))

    def end(self, how: str = "finished") -> None:
        self.tell(TermEnded(how))

    def _opened(self, trial: int) -> Opened:
        number = self.slices.setdefault(trial, 0)
        self.slices[trial] = number + 1
        return Opened(trial, 0, number, Goal(900.0, top=900.0), f"slice {number}")


def rows(trial: int, first: int, last: int, **more: Scalar) -> list[Row]:
    return [row(trial, iteration, **more) for iteration in range(first, last + 1)]


def tell_everything(story: Story) -> None:
    """Every kind of event and every status; one trial runs iterations again after a crash."""
    story.begin()
    story.start(0)
    story.start(1, net=None)
    story.close(0, Status.PAUSED, rows(0, 1, 3))
    story.close(1, Status.PAUSED, rows(1, 1, 3, **{"info/loss": math.nan, "wide": math.inf}))
    story.start(2, net=True)
    story.close(2, Status.PAUSED, rows(2, 1, 4), End.CRASHED)
    story.go_on(2)
    again = [row(2, i, time_total_s=9.5 * i, timestamp=STARTED + 60 + i) for i in (3, 4, 5)]
    story.close(2, Status.FAILED, again, End.CRASHED, source=2)
    story.go_on(0)
    story.close(0, Status.PAUSED, end=End.INTERRUPTED, source=3)
    story.end("stopped")
    story.begin()
    story.go_on(0)
    story.start(3, layers=4)
    story.close(3, Status.PAUSED, end=End.LOST)
    story.close(0, Status.COMPLETED, rows(0, 4, 9), End.DONE)
    story.go_on(3)
    story.close(3, Status.STOPPED, rows(3, 1, 1))
    story.move(1, Status.PRUNED)
    story.end()
    story.begin(trials=6)
    story.start(4)


def publish_with(
    tracker: type[Tracker], story: Story, first: int = 1, last: int | None = None
) -> None:
    """Publish events `first` to `last` as a process that has just started."""
    started = tracker(story.where)
    started.publish(story.records[first - 1 : last])
    started.close()
