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
from sweep.driver import launch
from sweep.driver.context import DriverContext
from sweep.driver.creation import creating, resolving
from sweep.driver.driver import Driver
from sweep.driver.launch import Launch
from sweep.errors import SweepError
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
    """One decision; equal in two sweeps that decided the same."""

    kind: str
    """``trial``: it was created. ``slice``: it got a new goal. ``move``: it was ended."""
    trial: int
    what: dict[str, Any]
    """The event's other fields."""


@dataclass(frozen=True)
class SimulationResult:
    """The result of a simulated sweep."""

    how: str
    """``finished``."""
    history: History
    records: tuple[Recorded, ...]
    """All its events."""
    seconds: float
    """Simulated seconds from the sweep's start to its end."""
    kills: int
    """The number of kills of its driver."""

    @property
    def decisions(self) -> list[Decision]:
        """The decisions in their order; restarts after an interruption are none."""
        return decisions(self.records)


def decisions(records: Sequence[Recorded]) -> list[Decision]:
    """The decisions among the events, without the numbers that a kill moves."""
    goals: dict[tuple[int, int], Goal] = {}
    found = []
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
            found.append(Decision(event.kind, event.trial, what))
    return found


#: Keys of a spec that are not given. A trainable that is given only says what its settings mean.
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
#: A file system in memory, where there is one: a simulated sweep mostly waits for the disk.
_MEMORY = Path("/dev/shm")  # noqa: S108 a folder with a name of its own is made in it


class _Killed(Exception):
    """The driver was killed."""


class _Driver(Driver):
    """Waits for the simulated clock."""

    def __init__(
        self,
        context: DriverContext,
        clock: SimulatedClock,
        kills: set[int],
        seen: Callable[[int], None],
    ) -> None:
        super().__init__(context, self._recorded)
        self._clock = clock
        self._kills = kills
        self._seen = seen

    def _collect(self) -> None:
        self._clock.advance()
        super()._collect()

    def _recorded(self, records: Sequence[Recorded]) -> None:
        if not records:
            return
        last = records[-1].k
        self._seen(last)
        if last > MOST_EVENTS:
            raise SweepError(f"after {last} events the simulated sweep has not come to an end")
        due = {k for k in self._kills if k <= last}
        if due:
            self._kills -= due
            raise _Killed


class Simulation:
    """A sweep that can be run, killed, resumed and topped up; a context manager.

    Args:
        spec: keys of a spec, over `DEFAULTS`.
        curves: what its trials report.
        slots: how many slices run at once.
        saves: whether its trials can save checkpoints.

    Raises:
        UsageError: the spec cannot work.
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
        resolved = resolving.resolve(specs.parse(source, "simulated"), (), new=True)
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
        """The sweep as if its driver were killed now; to be closed, too."""
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
        seen: Callable[[int], None] = lambda _k: None,
    ) -> SimulationResult:
        """Run it to its end, from wherever it is.

        Args:
            kills: event numbers; the driver is killed when the event is recorded, with the others
                of its transaction, and another one resumes the sweep.
            trials: the new total of searched settings.
            seen: called after each transaction with the number of its last event.
        """
        left = set(kills)
        while True:
            try:
                return self._term(left, trials, seen)
            except _Killed:
                self.killed += 1

    def _term(
        self, kills: set[int], trials: int | None, seen: Callable[[int], None]
    ) -> SimulationResult:
        """One driver's term."""
        request = Launch(self.folder, self.slots, trials=trials)
        with launch.open_context(request, lambda slots: Pool(slots, self.clock)) as (
            context,
            _warnings,
        ):
            how = _Driver(context, self.clock, kills, seen).run()
        with contextlib.closing(Ledger(self.folder.ledger)) as ledger:
            records = tuple(record for batch in iterate(ledger) for record in batch)
            history = reading.history(ledger)
        return SimulationResult(how, history, records, self.clock.now, self.killed)


def _root() -> tempfile.TemporaryDirectory[str]:
    where = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    return tempfile.TemporaryDirectory(prefix="sweep-simulated-", dir=where)


def simulate(
    spec: Mapping[str, Any],
    curves: Curve | Table,
    slots: int = 1,
    kills: Collection[int] = (),
    saves: bool = True,
) -> SimulationResult:
    """Run a simulated sweep to its end; see `Simulation`."""
    with Simulation(spec, curves, slots, saves) as simulation:
        return simulation.run(kills)


def check_kills(
    spec: Mapping[str, Any], curves: Curve | Table, slots: int = 1, saves: bool = True
) -> SimulationResult:
    """Run a sweep; for each of its transactions, kill a copy of it there and resume that one.

    Returns:
        The sweep that was not killed.

    Raises:
        AssertionError: a killed and resumed sweep decided otherwise; with the event of the kill.
    """
    with contextlib.ExitStack() as stack:
        straight = stack.enter_context(Simulation(spec, curves, slots, saves))
        killed: list[tuple[int, Simulation]] = []
        result = straight.run(
            seen=lambda k: killed.append((k, stack.enter_context(straight.copy())))
        )
        for k, copy in killed:
            _compare(result.decisions, copy.run().decisions, k)
    return result


def _compare(expected: Sequence[Decision], found: Sequence[Decision], k: int) -> None:
    for number, (one, other) in enumerate(zip(expected, found, strict=False)):
        if one != other:
            raise AssertionError(
                f"killed after event {k}, decision {number} became {other}; it was {one}"
            )
    if len(found) != len(expected):
        raise AssertionError(
            f"killed after event {k}, it took {len(found)} decisions, not {len(expected)}"
        )
