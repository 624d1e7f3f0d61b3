"""A sweep on a simulated pool: the real driver and ledger, killed and resumed at will."""

import contextlib
import copy
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from sweep import spec as specs
from sweep.core.errors import SweepError
from sweep.driver.context import DriverContext
from sweep.driver.driver import Driver
from sweep.driver.start import launch
from sweep.driver.start.creation import creating, resolving
from sweep.driver.start.launch import Launch
from sweep.history.events import Created, Goal, Moved, Opened, Recorded
from sweep.history.history import History
from sweep.ledger.codec import to_body
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger, iterate
from sweep.testing.curves import Curve, Table, as_curve
from sweep.testing.pool import Pool, SimulatedClock
from sweep.views import reading


@dataclass(frozen=True)
class Decision:
    """One decision of a sweep; decisions of two sweeps that are the same compare equal."""

    kind: str
    """``trial`` (a trial was created), ``slice`` (a trial got a new goal) or ``move`` (a trial's
    status changed)."""
    trial: int
    """Number of the trial that the decision is about."""
    fields: dict[str, Any]
    """Other fields of the event as plain data, without the numbers of events and slices."""


@dataclass(frozen=True)
class SimulationResult:
    """The result of a simulated sweep."""

    state: str
    """State of the sweep at its end, such as ``finished``."""
    history: History
    """History at the sweep's end, with all results; trials that a user holds keep their status."""
    records: tuple[Recorded, ...]
    """All events of the sweep, each with its number and time."""
    seconds: float
    """Simulated seconds from the sweep's start to its end."""
    kills: int
    """Number of times that the driver was killed, in this and earlier runs of the simulation."""

    @property
    def decisions(self) -> list[Decision]:
        """Decisions in order; a restart after an interruption is none."""
        return decisions(self.records)


def decisions(records: Sequence[Recorded]) -> list[Decision]:
    """Return the decisions among events, without numbers that differ after kills.

    Decisions are created trials, slices with a new goal, and changes of status. Slices that
    continue to the same goal are left out.
    """
    goals: dict[tuple[int, int], Goal] = {}
    result = []
    for record in records:
        event = record.event
        if isinstance(event, Opened):
            replica = (event.trial, event.replica)
            if goals.get(replica) == event.goal:
                continue
            goals[replica] = event.goal
        if isinstance(event, Created | Opened | Moved):
            moved_by_kills = ("trial", "seen", "slice", "suggestion")
            what = {k: v for k, v in to_body(event).items() if k not in moved_by_kills}
            result.append(Decision(event.kind, event.trial, what))
    return result


#: Defaults for keys of the spec. A `trainable` in the spec is used for its settings only.
DEFAULTS: Mapping[str, Any] = {
    "name": "simulated",
    "trials": 1,
    "metric": "score",
    "mode": "max",
    "space": {"x": {"uniform": [0.0, 1.0]}},
    "searcher": "random",
    "trackers": [],
}
#: Events after which a sweep is considered endless.
MOST_EVENTS = 20_000
#: A file system in memory, used if it exists, since a simulated sweep mostly waits for the disk.
_MEMORY = Path("/dev/shm")  # noqa: S108 a folder with a name of its own is made in it


class _Killed(Exception):
    """Raised in place of a kill of the driver."""


class _Driver(Driver):
    """A driver on a simulated pool, which advances the clock instead of waiting."""

    def __init__(
        self,
        context: DriverContext,
        clock: SimulatedClock,
        kills: set[int],
        on_turn: Callable[[int], None],
    ) -> None:
        super().__init__(context, self._watch_records)
        self._clock = clock
        self._kills = kills
        self._seen = on_turn

    def _collect(self) -> None:
        """Move the clock to the next ends of slices, and record their outcomes."""
        self._clock.advance()
        super()._collect()

    def _watch_records(self, records: Sequence[Recorded]) -> None:
        """Call `on_turn` with the last event's number; raise _Killed if a kill is due.

        Kills that are due are removed from the set. Does nothing without records. Raises SweepError
        after `MOST_EVENTS`.
        """
        if not records:
            return
        last = records[-1].number
        self._seen(last)
        if last > MOST_EVENTS:
            raise SweepError(
                f"the simulated sweep has not ended after {last} events; check what ends its trials"
            )
        due = {k for k in self._kills if k <= last}
        if due:
            self._kills -= due
            raise _Killed


class Simulation:
    """A sweep in a temporary folder that can be run, killed, resumed and enlarged.

    A context manager, which removes the folder at its end.

    Args:
        spec: keys of a spec, which override `DEFAULTS`; a value of None leaves the key out.
        curves: results of its trials.
        slots: number of slices that run at once.
        saves: True if trials can save checkpoints.

    Raises:
        UsageError: the spec is invalid.
    """

    def __init__(
        self, spec: Mapping[str, Any], curves: Curve | Table, slots: int = 1, saves: bool = True
    ) -> None:
        self.slots = slots
        self.clock = SimulatedClock(as_curve(curves), saves)
        self.killed = 0
        trainable = "Played" if saves else "PlayedWithoutSaving"
        raw = {**DEFAULTS, "trainable": f"sweep.testing.curves:{trainable}", **spec}
        source = json.dumps({key: value for key, value in raw.items() if value is not None})
        resolved = resolving.resolve(specs.parse(source, "simulated"), (), is_new=True)
        self._root = _root()
        self.folder = Folder(Path(self._root.name), resolved.spec.name)
        creating.create(self.folder, resolved, source)

    def __enter__(self) -> "Simulation":
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: object, _trace: TracebackType | None
    ) -> None:
        self._root.cleanup()

    def copy(self) -> "Simulation":
        """Return a copy in its own folder, as after a kill of the driver.

        Enter it as a context manager, too, so that its folder is removed.
        """
        other = copy.copy(self)
        other._root = _root()
        other.clock = self.clock.copy()
        other.folder = Folder(Path(other._root.name), self.folder.name)
        shutil.copytree(self.folder.path, other.folder.path)
        return other

    def run(
        self,
        kills: Collection[int] = (),
        trials: int | None = None,
        on_turn: Callable[[int], None] = lambda _k: None,
    ) -> SimulationResult:
        """Run the sweep from its present state to its end.

        Raises SweepError if it has not ended after `MOST_EVENTS` events, and UsageError if the
        table of curves has too few results.

        Args:
            kills: event numbers; the driver is killed after the transaction that records the event,
                and a new driver resumes the sweep.
            trials: new total number of trials, or None to keep it.
            on_turn: called after each transaction with the number of its last event.
        """
        left = set(kills)
        while True:
            try:
                return self._run_driver(left, trials, on_turn)
            except _Killed:
                self.killed += 1

    def _run_driver(
        self, kills: set[int], trials: int | None, on_turn: Callable[[int], None]
    ) -> SimulationResult:
        """Run one driver until it ends, and return the result; raises _Killed if it is killed.

        `kills` are event numbers; those at which it was killed are removed. `trials` is the new
        total number of trials, None to keep it. `on_turn` is called after each transaction.
        """
        request = Launch(self.folder, self.slots, trials=trials)
        with launch.open_context(request, lambda slots: Pool(slots, self.clock)) as (
            context,
            _warnings,
        ):
            how = _Driver(context, self.clock, kills, on_turn).run()
        with contextlib.closing(Ledger(self.folder.ledger)) as ledger:
            records = tuple(record for batch in iterate(ledger) for record in batch)
            history = reading.history(ledger)
        return SimulationResult(how, history, records, self.clock.now, self.killed)


def _root() -> tempfile.TemporaryDirectory[str]:
    """Create a temporary folder, in memory if possible."""
    where = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    return tempfile.TemporaryDirectory(prefix="sweep-simulated-", dir=where)


def simulate(
    spec: Mapping[str, Any],
    curves: Curve | Table,
    slots: int = 1,
    kills: Collection[int] = (),
    saves: bool = True,
) -> SimulationResult:
    """Run a simulated sweep to its end, and return the result.

    See `Simulation` for the arguments; `kills` are those of `Simulation.run`.
    """
    with Simulation(spec, curves, slots, saves) as simulation:
        return simulation.run(kills)


def check_kills(
    spec: Mapping[str, Any], curves: Curve | Table, slots: int = 1, saves: bool = True
) -> SimulationResult:
    """Check that a driver decides the same if it is killed after any transaction and resumed.

    Returns the result of the sweep without kills. Raises AssertionError if a copy decided
    otherwise; the message names the event of the kill.
    """
    with contextlib.ExitStack() as stack:
        straight = stack.enter_context(Simulation(spec, curves, slots, saves))
        killed: list[tuple[int, Simulation]] = []
        result = straight.run(
            on_turn=lambda k: killed.append((k, stack.enter_context(straight.copy())))
        )
        for k, copy in killed:
            _compare(result.decisions, copy.run().decisions, k)
    return result


def _compare(expected: Sequence[Decision], decisions: Sequence[Decision], k: int) -> None:
    """Raise AssertionError if decisions differ from the expected ones.

    `k` is the event of the kill.
    """
    for number, (one, other) in enumerate(zip(expected, decisions, strict=False)):
        if one != other:
            raise AssertionError(
                f"killed after event {k}, decision {number} became {other}; it was {one}"
            )
    if len(decisions) != len(expected):
        raise AssertionError(
            f"killed after event {k}, it took {len(decisions)} decisions, not {len(expected)}"
        )
