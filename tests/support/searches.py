"""Searches without training: a trial's score follows from its settings, or is told.

Run as a program it goes on with the searches that it is handed, in a process of its own.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sweep import searchers
from sweep import spec as specs
from sweep.driver.proposals import Proposer
from sweep.history.events import Closed, End, Event, Goal, Opened, Recorded, Row, Status, TermBegan
from sweep.history.history import History
from sweep.history.objective import Objective
from sweep.ledger.codec import from_body, to_body
from sweep.schedulers import NewTrial
from sweep.searchers import Searcher
from sweep.spec import SweepSpec
from sweep.views import reading

LEVELS = (1.0, 3.0)
FRESH = NewTrial(Goal(), "a slot is free")
#: What every searcher that samples can search.
MIXED: Mapping[str, Any] = {
    "lr": {"loguniform": [1e-5, 1e-1]},
    "gamma": {"choice": [0.9, 0.99, 1, False, [64, 64], None]},
    "epochs": {"randint": [1, 20]},
    "width": {"uniform": [0.0, 1.0], "step": 0.25},
    "filter": {"choice": ["none", "mean"]},
    "clip": {"uniform": [1.0, 10.0], "when": {"filter": "mean"}},
    "total": {"value": "epochs * 2"},
}
#: What can be enumerated: 3 * (5 + 2 * 4) = 39 points.
FINITE: Mapping[str, Any] = {
    "gamma": {"choice": [1, "1", [1]]},
    "filter": {"choice": ["none", "mean", "max"]},
    "width": {"uniform": [0.0, 1.0], "step": 0.25, "when": {"filter": "none"}},
    "epochs": {"randint": [3, 6], "when": {"filter": ["mean", "max"]}},
}
#: Trial n ends as the nth of these, round and round.
ENDS = (Status.COMPLETED, Status.PAUSED, Status.PRUNED, Status.COMPLETED, Status.FAILED)


def build(name: str, options: Mapping[str, Any] | None = None) -> Searcher:
    cls = searchers.find(name)
    return cls(cls.Options(**dict(options or {})))


def quality(settings: Mapping[str, Any]) -> float:
    """Best at epochs 7 and small lr and width."""
    number = {"lr": 1e-3, "width": 0.5, "epochs": 7, **settings}
    return float(-abs(number["epochs"] - 7) - 10 * number["lr"] - number["width"])


def spec_of(raw: Mapping[str, Any], seed: int, compared: Mapping[str, Any]) -> SweepSpec:
    whole = {**compared, "name": "search", "trials": 1000, "trainable": "a:B", "metric": "score"}
    return specs.parse(json.dumps({**whole, "mode": "max", "space": raw, "seed": seed}), "s.yaml")


class Search:
    """One searcher on one space, with `slots` trials in flight.

    Args:
        raw: the space.
        compared: the keys ``also`` and ``constraints`` of the spec.
        records: the history so far, from which a new driver goes on.
    """

    def __init__(
        self,
        name: str,
        raw: Mapping[str, Any] = MIXED,
        *,
        slots: int = 1,
        options: Mapping[str, Any] | None = None,
        records: Sequence[Recorded] = (),
        seed: int = 3,
        compared: Mapping[str, Any] | None = None,
    ) -> None:
        self.recipe: dict[str, Any] = {
            "name": name,
            "raw": raw,
            "slots": slots,
            "options": options,
            "seed": seed,
            "compared": compared,
        }
        spec = spec_of(raw, seed, compared or {})
        self.name, self.slots = name, slots
        self.objective: Objective = reading.objective_of(spec, "training_iteration")
        self.history = History(self.objective)
        self.records: list[Recorded] = []
        self.proposer = Proposer(spec, build(name, options), LEVELS, dict)
        self.space = self.proposer.spec.space
        self.ends: Sequence[Status] = ENDS
        self.quality: Callable[[Mapping[str, Any]], float | None] = quality
        self.beside: Callable[[Mapping[str, Any]], Mapping[str, float]] = lambda _settings: {}
        for record in records or [Recorded(1, 1, 0.0, TermBegan("host", 1, 1000))]:
            self._take(record)

    def run(self, trials: int, finish: bool = True) -> "Search":
        """Go on until there are `trials` trials, and (`finish`) all have ended."""
        while True:
            room = min(self.room, trials - len(self.history.trials))
            if room and not self.start(room):
                trials = len(self.history.trials)
            running = self.history.with_status(Status.RUNNING)
            if not running or (not finish and len(self.history.trials) >= trials):
                return self
            first = (7 * self.history.k) % len(running)
            for trial in running[first : first + 2]:  # so that several are decided on at once
                self.end(trial.number)

    @property
    def room(self) -> int:
        return self.slots - len(self.history.with_status(Status.RUNNING))

    def propose(self, count: int = 1) -> list[dict[str, Any]]:
        """What the next trials would be; nothing is recorded."""
        created, _ = self.proposer.search(self.history, (FRESH,) * count)
        return [dict(event.searched) for event in created]

    def start(self, count: int = 1) -> int:
        """Decide on `count` trials at once; returns how many points were left for them."""
        created, exhausted = self.proposer.search(self.history, (FRESH,) * count)
        goal = Goal(LEVELS[0], LEVELS[-1])
        opened = [Opened(event.trial, 0, 0, goal, "") for event in created]
        self.record(*created, *opened, *exhausted)
        return len(created)

    def end(self, number: int) -> None:
        """The trial ends as its number says; a paused one waits at the first rung."""
        status = self.ends[number % len(self.ends)]
        config = self.history.trials[number].config
        value, beside = self.quality(config), dict(self.beside(config))
        if value is not None:
            beside["score"] = value
        rows = [
            Row(i, {"training_iteration": i, **beside})
            for i in range(1, 2 if status is Status.PAUSED else 4)
        ]
        end = End.CRASHED if status is Status.FAILED else End.DONE
        self.record(Closed(number, 0, 0, end, status, "", rows=tuple(rows)))

    def go_on(self, number: int) -> None:
        """A paused trial is promoted, and ends as its number says."""
        self.record(Opened(number, 0, 1, Goal(LEVELS[1], LEVELS[-1]), ""))
        self.end(number)

    def record(self, *events: Event) -> None:
        for event in events:
            self._take(Recorded(self.history.k + 1, 1, 0.0, event))

    def _take(self, record: Recorded) -> None:
        self.records.append(record)
        self.history.extend([record])

    @property
    def proposals(self) -> list[dict[str, Any]]:
        return [trial.searched for trial in self.history.trials]

    def to_json(self) -> dict[str, Any]:
        """Enough for another process to go on."""
        told = [
            [r.number, r.event.kind, to_body(r.event), [[w.iteration, w.metrics] for w in rows(r)]]
            for r in self.records
        ]
        return {**self.recipe, "told": told}

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> "Search":
        told = raw.pop("told")
        found = [
            Recorded(k, 1, 0.0, from_body(kind, json.dumps(body), tuple(Row(*row) for row in its)))
            for k, kind, body, its in told
        ]
        return cls(raw.pop("name"), raw.pop("raw"), records=found, **raw)


def rows(record: Recorded) -> tuple[Row, ...]:
    return record.event.rows if isinstance(record.event, Closed) else ()


if __name__ == "__main__":
    orders = json.load(sys.stdin)
    ends = [order.pop("upto") for order in orders]
    found = [Search.from_json(o).run(end).proposals for o, end in zip(orders, ends, strict=True)]
    json.dump(found, sys.stdout)
