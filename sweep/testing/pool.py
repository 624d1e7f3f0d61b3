"""A pool with simulated slices and a simulated clock.

A slice lasts as long as its results say. It ends like a real one: at its goal, at a stopping
criterion, at a bound (a plateau, `limits.trial_s`, `limits.not_finite`), or after `limits.slice_s`
simulated seconds. Checkpoints are kept in memory. If the driver is killed, running slices still end
at the same simulated times, so that outcomes arrive in the same order.
"""

import hashlib
import json
import math
from collections.abc import Mapping, MutableMapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from sweep import pools
from sweep.core.errors import UsageError, WorkerLost
from sweep.history.events import End, Goal, Row, Saved
from sweep.history.results import flatten, instead_of_number, to_number
from sweep.slices import retention
from sweep.slices.messages import SliceOutcome, SliceSpec
from sweep.slices.slice import Stretch
from sweep.testing.curves import SECONDS, Curve, CurvePoint
from trainables.core.results import Counters

#: Number of a trial, and index of its replica.
Replica = tuple[int, int]


@dataclass(frozen=True)
class SimulatedCheckpoint:
    """A checkpoint in memory: the newest result of a simulated trial."""

    iteration: int
    """Number of the last simulated iteration, from 1; 0 before the first."""
    result: Mapping[str, Any]
    """Result of that iteration."""
    counters: Mapping[str, float]
    """Counter → its value, for counters that continue after a restore, such as the total steps."""


#: State of a trial before its first iteration.
_NOTHING = SimulatedCheckpoint(0, {}, Counters().get_state())


@dataclass
class _Running:
    """A slice that runs on the simulated clock."""

    stretch: tuple[int, Goal]
    """Iteration at which the slice began, and its goal; they identify the slice after a kill."""
    ends_at: float
    """Simulated time at which the slice ends, in seconds."""
    future: Future[SliceOutcome] | None = None
    """Future on which a driver waits for the slice; None after that driver was killed."""
    outcome: SliceOutcome | WorkerLost | None = None
    """Outcome, or loss of the worker, that the slice will have; None before it is known."""


@dataclass
class SimulatedClock:
    """The simulated time, with the checkpoints and running slices, which outlive a driver."""

    curve: Curve
    """Function that returns the result of an iteration of a trial."""
    saves: bool
    """True if trials can save checkpoints."""
    now: float = 0.0
    """Simulated seconds since the start of the sweep."""
    disk: MutableMapping[str, SimulatedCheckpoint] = field(default_factory=dict)
    """Digest → saved checkpoint."""
    running: dict[Replica, _Running] = field(default_factory=dict)
    """Trial and replica → its running slice."""
    live: dict[Replica, SimulatedCheckpoint] = field(default_factory=dict)
    """Trial and replica that cannot save → its state in its process; lost with the driver."""

    def copy(self) -> "SimulatedClock":
        """Return a copy as after a kill of the driver.

        Running slices have no futures, and the states of trials that cannot save are lost.
        """
        running = {key: replace(one, future=None) for key, one in self.running.items()}
        return SimulatedClock(self.curve, self.saves, self.now, dict(self.disk), running)

    def advance(self) -> None:
        """Move the time to the end of the next slices, and set their outcomes in their futures.

        These slices are removed from `running`. Only slices with a future count; without any, the
        time stands still.
        """
        waiting = [ended for ended in self.running.values() if ended.future is not None]
        self.now = min((ended.ends_at for ended in waiting), default=self.now)
        ending = [replica for replica, ended in self.running.items() if ended.ends_at == self.now]
        for replica in sorted(ending):
            ended = self.running[replica]
            if ended.future is None:
                continue
            del self.running[replica]
            if isinstance(ended.outcome, SliceOutcome):
                ended.future.set_result(ended.outcome)
            else:
                ended.future.set_exception(ended.outcome)


class Pool(pools.Pool):
    """A pool whose slices are simulated at once, and end when the clock reaches their ends."""

    blocks: ClassVar[bool] = False

    def __init__(self, slots: int, clock: SimulatedClock) -> None:
        self.slots = slots
        self._clock = clock

    def submit(self, spec: SliceSpec) -> Future[SliceOutcome]:
        """Simulate a slice at once; its future is done when the clock reaches the slice's end.

        A slice that was running when the driver was killed keeps its end. Raises UsageError if the
        table of curves has too few results.
        """
        clock, played = self._clock, _Play(spec, self._clock)
        outcome = played.play()
        replica, target = (spec.trial, spec.replica), (played.source, spec.goal)
        before = clock.running.get(replica)
        due = clock.now + played.seconds
        if before is not None and before.stretch == target:
            due = before.ends_at  # it was running when the driver was killed
        future: Future[SliceOutcome] = Future()
        clock.running[replica] = _Running(target, due, future, outcome)
        return future

    def close(self) -> None:
        """Forget the states of trials that cannot save, and detach running slices' futures."""
        self._clock.live.clear()
        for one in self._clock.running.values():
            one.future = None


class _Play(Stretch):
    """A simulated slice: it asks the curve for results until the slice ends."""

    exactness = "simulated"

    def __init__(self, spec: SliceSpec, clock: SimulatedClock) -> None:
        self.clock = clock
        begin = self._begin(spec)
        super().__init__(spec, begin.iteration)
        self.result = begin.result
        self.counters = Counters()
        self.counters.set_state(begin.counters)
        self.seconds = 0.0
        self.bounds = spec.bounds(self.source)

    def play(self) -> SliceOutcome | WorkerLost:
        """Simulate the whole slice.

        Return its outcome, and set `seconds` to its simulated duration. An error of the curve
        becomes a crash of the trial, except that WorkerLost is returned and UsageError raised.
        """
        try:
            while (end := self._step()) is None:
                pass
        except WorkerLost as error:
            return error
        except UsageError:
            raise
        except Exception as error:  # noqa: BLE001 a simulated crash of the trial
            return self.failed(error)
        if not self.clock.saves:
            counters = self.counters.get_state()
            state = SimulatedCheckpoint(self.counters.iteration, self.result, counters)
            self.clock.live[self.spec.trial, self.spec.replica] = state
        return self.outcome(end)

    def end_reason(self, end: End) -> str:
        """Return words for the bound that ended the slice; empty if none did."""
        return self.bounds.end_reason

    def _begin(self, spec: SliceSpec) -> SimulatedCheckpoint:
        """Return the checkpoint from which the slice starts: its own, or at first its parent's.

        For a trial that cannot save it is the state in its process; without any, an empty one.
        """
        birth = spec.birth
        if spec.sources:
            return self.clock.disk[spec.sources[0].digest]
        live = self.clock.live.get((spec.trial, spec.replica))
        if live is not None and live.iteration == spec.iteration:
            return live
        return _NOTHING if birth is None else self.clock.disk[birth.saved.digest]

    def _step(self) -> End | None:
        """Simulate one iteration; return the end of the slice, or None if the slice continues.

        Adds the result to `rows`, and stores a checkpoint if one is due.
        """
        spec, iteration = self.spec, self.counters.iteration + 1
        point = CurvePoint(spec.trial, spec.replica, iteration, spec.config, self.result)
        reported = dict(self.clock.curve(point))
        seconds = float(reported.get(SECONDS, 1.0))
        self.seconds += seconds
        self.result = self.counters.complete(reported, seconds, {})
        metrics = flatten(self.result)
        self.instead = instead_of_number(self.result, spec.metric)
        self.rows.append(Row(iteration, metrics))
        end = self.bounds.find_end(metrics, iteration)
        if end is None and self.clock.saves and self.seconds >= spec.slice_s:
            end = End.TIME
        due = end is not None or iteration % (spec.policy.every or 1) == 0
        if self.clock.saves and due and end is not End.DIVERGED:
            self._save(iteration, to_number(metrics.get(spec.metric)))
        return end

    def _save(self, iteration: int, value: float | None) -> None:
        """Store a checkpoint, and drop from `saved` those that the retention policy does not keep.

        These stay in the clock's `disk`.
        """
        spec, counters = self.spec, self.counters.get_state()
        named = [spec.trial, spec.replica, iteration, counters]
        digest = hashlib.sha256(json.dumps(named).encode()).hexdigest()
        self.clock.disk[digest] = SimulatedCheckpoint(iteration, self.result, counters)
        finite = value if value is not None and math.isfinite(value) else None
        self.saved.append(Saved(iteration, digest, f"simulated-{iteration}", 0, finite))
        spare = retention.expendable(self.saved, spec.policy, spec.sign)
        self.saved = [saved for saved in self.saved if saved not in spare]
