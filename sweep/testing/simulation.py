"""A sweep on a simulated pool: the real driver and ledger, killed and resumed at will."""

import contextlib
import copy
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from sweep import launch, reading
from sweep import spec as specs
from sweep.driver import Driver
from sweep.errors import SweepError
from sweep.events import Recorded
from sweep.folder import Folder
from sweep.launch import Launch
from sweep.ledger import Ledger, iterate
from sweep.parts import Parts
from sweep.testing.course import Course
from sweep.testing.curves import Curve, Table, as_curve
from sweep.testing.pool import Pool, World

#: What a spec says where it is not told otherwise; the trainable is always simulated.
DEFAULTS: Mapping[str, Any] = {
    "name": "simulated",
    "trials": 1,
    "metric": "score",
    "mode": "max",
    "space": {"x": {"uniform": [0.0, 1.0]}},
    "searcher": "random",
    "trackers": [],
}
#: Events after which a sweep is taken to have no end.
MOST_EVENTS = 20_000
#: A file system in memory, where there is one: waiting for a disk is most of a simulated sweep.
_MEMORY = Path("/dev/shm")  # noqa: S108 a folder with a name of its own is made in it


class _Killed(Exception):
    """The driver is gone, at once."""


class _Driver(Driver):
    """Waits for the simulated clock."""

    def __init__(
        self, parts: Parts, world: World, kills: set[int], seen: Callable[[int], None]
    ) -> None:
        super().__init__(parts, self._recorded)
        self._world = world
        self._kills = kills
        self._seen = seen

    def _collect(self) -> None:
        self._world.advance()
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
        self.world = World(as_curve(curves), saves)
        self.killed = 0
        stand_in = "Played" if saves else "PlayedWithoutSaving"
        raw = {**DEFAULTS, **spec, "trainable": f"sweep.testing.curves:{stand_in}"}
        source = json.dumps({key: value for key, value in raw.items() if value is not None})
        resolved = launch.resolve(specs.parse(source, "simulated"), ())
        self._place = _place()
        self.folder = Folder(Path(self._place.name), resolved.spec.name)
        launch.create(self.folder, resolved, source, ())

    def __enter__(self) -> "Simulation":
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: object, _trace: TracebackType | None
    ) -> None:
        self._place.cleanup()

    def copy(self) -> "Simulation":
        """The sweep as it would be found if its driver were killed now; to be closed like this."""
        other = copy.copy(self)
        other._place = _place()
        other.world = self.world.copy()
        other.folder = Folder(Path(other._place.name), self.folder.name)
        shutil.copytree(self.folder.path, other.folder.path)
        return other

    def run(
        self,
        kills: Collection[int] = (),
        trials: int | None = None,
        seen: Callable[[int], None] = lambda _k: None,
    ) -> Course:
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

    def _term(self, kills: set[int], trials: int | None, seen: Callable[[int], None]) -> Course:
        """One driver's term."""
        request = Launch(self.folder, self.slots, trials=trials)
        with launch.opened(request, lambda slots: Pool(slots, self.world)) as (parts, _warnings):
            how = _Driver(parts, self.world, kills, seen).run()
        with contextlib.closing(Ledger(self.folder.ledger)) as ledger:
            records = tuple(record for batch in iterate(ledger) for record in batch)
            history = reading.history(ledger)
        return Course(how, history, records, self.world.now, self.killed)


def _place() -> tempfile.TemporaryDirectory[str]:
    where = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    return tempfile.TemporaryDirectory(prefix="sweep-simulated-", dir=where)


def simulate(
    spec: Mapping[str, Any],
    curves: Curve | Table,
    slots: int = 1,
    kills: Collection[int] = (),
    saves: bool = True,
) -> Course:
    """Run a simulated sweep to its end; see `Simulation`."""
    with Simulation(spec, curves, slots, saves) as simulation:
        return simulation.run(kills)
