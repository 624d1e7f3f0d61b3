"""A pool whose slices are played on a clock of its own.

A slice takes as long as its iterations say. It ends like a real one: at its goal, at a stopping
criterion, at a bound (a plateau, `limits.trial_s`, `limits.not_finite`), or when `limits.slice_s`
simulated seconds are over. What is said to be saved lies in memory. A kill of the driver does not
disturb the simulated world: what ran then ends when it would have ended anyway, so that outcomes
arrive in the same order.
"""

import hashlib
import json
import math
import traceback
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from sweep import pools
from sweep.errors import UsageError, WorkerLost
from sweep.history.events import End, Row, Saved
from sweep.history.results import flatten, instead_of_number, number
from sweep.slices import retention
from sweep.slices.messages import SliceOutcome, SliceSpec
from sweep.slices.stopping import ending
from sweep.testing.curves import SECONDS, Curve, CurvePoint
from trainables.core.results import Counters

Replica = tuple[int, int]


@dataclass(frozen=True)
class _Stand:
    """What a simulated checkpoint holds."""

    iteration: int
    result: Mapping[str, Any]
    counters: Mapping[str, float]


_NOTHING = _Stand(0, {}, Counters().get_state())


@dataclass
class _Under:
    """A slice on its way."""

    what: tuple[Any, ...]
    due: float
    future: Future[SliceOutcome] | None = None
    outcome: SliceOutcome | WorkerLost | None = None


@dataclass
class SimulatedClock:
    """What a kill of the driver does not touch."""

    curve: Curve
    saves: bool
    now: float = 0.0
    """Simulated seconds since the beginning."""
    disk: dict[str, _Stand] = field(default_factory=dict)
    """Digest → checkpoint."""
    under_way: dict[Replica, _Under] = field(default_factory=dict)
    live: dict[Replica, _Stand] = field(default_factory=dict)
    """What cannot save and is kept in its process, until its driver is gone."""

    def copy(self) -> "SimulatedClock":
        """A world that goes on from here by itself, its driver being gone."""
        under_way = {key: replace(under, future=None) for key, under in self.under_way.items()}
        return SimulatedClock(self.curve, self.saves, self.now, dict(self.disk), under_way)

    def advance(self) -> None:
        """Let the clock run until the next slices end, and hand over what came of them."""
        waiting = [under for under in self.under_way.values() if under.future is not None]
        if not waiting:
            return
        self.now = min(under.due for under in waiting)
        for replica, under in sorted(self.under_way.items()):
            if under.future is not None and under.due == self.now:
                del self.under_way[replica]
                _deliver(under.future, under.outcome)


def _deliver(future: Future[SliceOutcome], outcome: SliceOutcome | WorkerLost | None) -> None:
    if isinstance(outcome, SliceOutcome):
        future.set_result(outcome)
    else:
        future.set_exception(outcome)


class Pool(pools.Pool):
    """Slots in a simulated world."""

    blocks: ClassVar[bool] = False

    def __init__(self, slots: int, world: SimulatedClock) -> None:
        self.slots = slots
        self._world = world

    def submit(self, spec: SliceSpec) -> Future[SliceOutcome]:
        """Play the slice; its future is done when the world's clock says so."""
        world, played = self._world, _Play(spec, self._world)
        outcome = played.play()
        replica, what = (spec.trial, spec.replica), (played.began, spec.goal)
        before = world.under_way.get(replica)
        due = world.now + played.seconds
        if before is not None and before.what == what:
            due = before.due  # it was running when the driver was killed
        future: Future[SliceOutcome] = Future()
        world.under_way[replica] = _Under(what, due, future, outcome)
        return future

    def close(self) -> None:
        """The driver is gone; what runs goes on, and waits for the next driver."""
        self._world.live.clear()
        for under in self._world.under_way.values():
            under.future = None


class _Play:
    """The course of one slice."""

    def __init__(self, spec: SliceSpec, world: SimulatedClock) -> None:
        self.spec = spec
        self.world = world
        begin = self._begin()
        self.began = begin.iteration
        self.result = begin.result
        self.counters = Counters()
        self.counters.set_state(begin.counters)
        self.rows: list[Row] = []
        self.saved: list[Saved] = []
        self.seconds = 0.0
        self.instead = ""
        self.bounds = spec.bounds(self.began)

    def play(self) -> SliceOutcome | WorkerLost:
        """What comes of the slice; `seconds` says how long it takes."""
        try:
            while (end := self._step()) is None:
                pass
        except WorkerLost as error:
            return error
        except UsageError:
            raise
        except Exception as error:  # noqa: BLE001 it is the simulated trial that crashed
            return self._crashed(error)
        if not self.world.saves:
            stand = _Stand(self.counters.iteration, self.result, self.counters.get_state())
            self.world.live[self.spec.trial, self.spec.replica] = stand
        return self._outcome(end)

    def _begin(self) -> _Stand:
        spec, sources, birth = self.spec, self.spec.sources, self.spec.birth
        if sources:
            return self.world.disk[sources[0].digest]
        live = self.world.live.get((spec.trial, spec.replica))
        if live is not None and live.iteration == spec.iteration:
            return live
        return _NOTHING if birth is None else self.world.disk[birth.saved.digest]

    def _step(self) -> End | None:
        spec, iteration = self.spec, self.counters.iteration + 1
        moment = CurvePoint(spec.trial, spec.replica, iteration, spec.config, self.result)
        told = dict(self.world.curve(moment))
        seconds = float(told.get(SECONDS, 1.0))
        self.seconds += seconds
        self.result = self.counters.complete(told, seconds, {})
        metrics = flatten(self.result)
        self.instead = instead_of_number(self.result, spec.metric)
        self.rows.append(Row(iteration, metrics))
        end = self.bounds.ending(metrics, iteration)
        end = end or ending(metrics, spec.goal, spec.time_attr, spec.stop)
        if end is None and self.world.saves and self.seconds >= spec.slice_s:
            end = End.TIME
        due = end is not None or iteration % spec.policy.every == 0
        if self.world.saves and due and end is not End.DIVERGED:
            self._save(iteration, number(metrics.get(spec.metric)))
        return end

    def _save(self, iteration: int, value: float | None) -> None:
        spec = self.spec
        counters = self.counters.get_state()
        named = [spec.trial, spec.replica, iteration, counters]
        digest = hashlib.sha256(json.dumps(named).encode()).hexdigest()
        self.world.disk[digest] = _Stand(iteration, self.result, counters)
        finite = value if value is not None and math.isfinite(value) else None
        self.saved.append(Saved(iteration, digest, f"simulated-{iteration}", 0, finite))
        spare = retention.expendable(self.saved, spec.policy, spec.sign)
        self.saved = [saved for saved in self.saved if saved not in spare]

    def _outcome(self, end: End, **more: Any) -> SliceOutcome:
        spec = self.spec
        return SliceOutcome(
            spec.trial,
            spec.replica,
            spec.number,
            end,
            self.began,
            tuple(self.rows),
            tuple(self.saved),
            exactness="simulated",
            why=self.bounds.why,
            instead=self.instead,
            **more,
        )

    def _crashed(self, error: BaseException) -> SliceOutcome:
        """The outcome of a crash; iterations after the last checkpoint will be played again."""
        done = self.counters.iteration
        upto = self.saved[-1].iteration if self.saved else self.began
        self.rows = [row for row in self.rows if row.iteration <= upto]
        text = "".join(traceback.format_exception(error))
        return self._outcome(End.CRASHED, error=text, error_at=done + 1)
