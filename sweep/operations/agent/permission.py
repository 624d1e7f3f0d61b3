"""The limits of a model: spec files, a root, trials in all, a budget; and how much is left.

The counts are taken from the ledgers of the sweeps that were started through a server, so they hold
whenever a server, a driver or the machine was stopped. The file `Folder.by_a_model` marks such a
sweep; it is made and deleted with the sweep, so that no other sweep of this name has it.
``ROOT/.agent/NAME.log`` has the output of the sweep's driver.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sweep import spec as specs
from sweep.core.errors import BadConfig, NameTaken, Place, Source, UnknownName, UsageError
from sweep.driver import limits
from sweep.ledger import folder as folders
from sweep.ledger.folder import Folder
from sweep.operations.agent.narrowing import Narrowing, narrow_spec
from sweep.spec import Budget, Override, SweepSpec
from sweep.spec.sections import name_from
from sweep.views import lookup
from trainables.errors import shorten

#: Folder in the root for the logs of drivers that a server started, and its lock.
PLACE = ".agent"
#: Seconds to wait for another server that starts a sweep.
START_S, POLL_S = 20.0, 0.1
#: Parts of a budget of which all sweeps together have one; the others hold for each sweep.
SHARED = ("time_s", "cpu_hours", "timesteps")


@dataclass(frozen=True)
class Remaining:
    """The part of a permission that no sweep has used yet, and the sweeps that a driver runs."""

    trials: int
    """Number of trials that new sweeps may still have together."""
    budget: Mapping[str, float]
    """Limit that all sweeps share (``time_s``, ``cpu_hours`` or ``timesteps``) → the amount left,
    in its unit, at least 0."""
    driven: tuple[str, ...]
    """Names of the sweeps, of those started by a server, that a driver runs now."""


@dataclass(frozen=True)
class Permission:
    """The limits within which a language model may start sweeps, fixed when its server starts."""

    root: Path
    """Absolute path of the folder of all sweeps."""
    files: Mapping[str, Path]
    """Name of a spec that the model may use → its file."""
    trials: int
    """Largest number of trials of all sweeps together."""
    budget: Mapping[str, float] = field(default_factory=dict)
    """Key of the spec's ``budget`` → its limit; those in `SHARED` hold for all sweeps together."""
    jobs: int | None = None
    """Number of trials that train at once; None for as many as the processor cores allow."""

    @classmethod
    def of(
        cls, spaces: Sequence[str], root: Path, trials: int, budget: Sequence[str], jobs: int | None
    ) -> "Permission":
        """Return the permission that the options of ``sweep mcp`` describe.

        Args:
            spaces: spec files, or names of shipped ones.
            trials: trials of all sweeps together.
            budget: values of the option ``--budget``, such as ``time_s=7200``; a key that is null
                is no limit.

        Raises:
            UsageError: a spec is missing or has mistakes, two have one name, or a part of the
                budget is wrong.
        """
        files: dict[str, Path] = {}
        for space in spaces:
            path = specs.find(space).resolve()
            name = _read(path)[0].name
            if name in files:
                raise NameTaken(
                    f"{shorten(space)}: {files[name]} has the name '{name}' too; give one of the "
                    "two specs another name"
                )
            files[name] = path
        given = [Override.parse(text, "--budget", "time_s=7200") for text in budget]
        parts = {one.path: one.value for one in given if one.value is not None}
        Budget().with_changes(parts, Source(marks={(): Place("--budget")}))
        return cls(root.absolute(), files, trials, parts, jobs)

    # ---- specs ------------------------------------------------------------------------------

    def file(self, name: str) -> Path:
        """Return the file of an allowed spec; UnknownName for any other name."""
        if name not in self.files:
            raise UnknownName("spec", name, self.files)
        return self.files[name]

    def spec(self, name: str) -> SweepSpec:
        """Return the spec of an allowed name, parsed from its file as it is now.

        Raises UnknownName for any other name, UsageError if the file has mistakes.
        """
        return _read(self.file(name))[0]

    def prepare(
        self, name: str, narrow: Mapping[str, Narrowing], trials: int | None, remaining: Remaining
    ) -> tuple[SweepSpec, list[Override]]:
        """Return an allowed spec with a smaller space, trials and budget, and the overrides for it.

        Args:
            narrow: parameter → values that remain.
            trials: number of trials; None for those of the spec, or what is left if that is less.

        Raises:
            UsageError: the name is not allowed, the spec has mistakes, a value is not in the space,
                `trials` is below 1 or more than is left, or a part of the budget is used up.
        """
        spec, text = _read(self.file(name))
        if remaining.trials < 1:
            raise UsageError(
                f"trials: all {self.trials} trials that `sweep mcp --trials` allows are used up"
            )
        wanted = min(spec.trials, remaining.trials) if trials is None else trials
        if not 1 <= wanted <= remaining.trials:
            raise BadConfig("trials", wanted, f"1 to {remaining.trials}, of {self.trials} in all")
        changed, changes = narrow_spec(text, str(self.file(name)), name, narrow, wanted)
        own = self._limits(changed.budget, remaining)
        changes += [Override(f"budget.{part}", value, "--budget") for part, value in own.items()]
        checked, found = specs.survey(text, str(self.file(name)), changes, name)
        found.check()
        return checked, changes

    def _limits(self, budget: Budget, remaining: Remaining) -> dict[str, float]:
        """Return the keys of ``budget`` that the permission limits, with values for the next sweep.

        For a limit that all sweeps share (`SHARED`), this is what is left, or what the spec has if
        that is less. Any other has the permission's own value, whatever the spec has. Raises
        UsageError if nothing is left of a shared limit.
        """
        limits = dict(self.budget)
        for part, rest in remaining.budget.items():
            if rest <= 0:
                raise UsageError(
                    f"budget.{part}: all {self.budget[part]:g} that `sweep mcp --budget` allows "
                    "are used up"
                )
            asked = getattr(budget, part)
            limits[part] = rest if asked is None else min(asked, rest)
        return limits

    # ---- sweeps -----------------------------------------------------------------------------

    def find(self, name: str) -> Folder:
        """Return the folder of a sweep in the root; UnknownName if there is none of this name.

        Raises UsageError if one of the sweep's files is a link.
        """
        names = folders.list_sweeps(self.root)
        if name not in names:
            raise UnknownName("sweep", name, names)
        return folders.find(self.root, name)

    def find_own(self, name: str) -> Folder:
        """Return the folder of a sweep that a server of this permission's root started.

        Raises UsageError if a person started it, UnknownName if there is none of this name.
        """
        found = self.find(name)
        if not os.path.lexists(found.by_a_model):
            raise UsageError(f"{name}: a person started this sweep, so only a person may stop it")
        return found

    def started(self) -> list[str]:
        """Return the names of the sweeps that servers of this root started, sorted."""
        names = folders.list_sweeps(self.root)
        return [name for name in names if os.path.lexists(Folder(self.root, name).by_a_model)]

    def log(self, name: str) -> Path:
        """Return the path ``ROOT/.agent/NAME.log``, which receives the output of a sweep's driver.

        The file need not exist, nor the sweep.
        """
        return self.root / PLACE / f"{name}.log"

    def remaining(self) -> Remaining:
        """Compute the unused part of the permission from the ledgers of the servers' sweeps.

        A sweep that runs counts with all the trials that it may still have, any other with those
        that it has. Deleted sweeps do not count. Raises SweepError if a ledger cannot be read.
        """
        trials, used, driven = 0, dict.fromkeys(SHARED, 0.0), []
        for name in self.started():
            sweep = lookup.read(Folder(self.root, name), curves=False)
            past, runs = sweep.history, sweep.state in lookup.DRIVEN
            driven += [name] * runs
            wanted = past.wanted or sweep.spec.trials
            trials += max(past.searched_count, wanted) if runs else past.searched_count
            used["time_s"] += past.driven_s
            used["cpu_hours"] += limits.cpu_hours(past, sweep.spec)
            used["timesteps"] += limits.timesteps(past)
        rest = {
            part: max(0.0, self.budget[part] - spent)
            for part, spent in used.items()
            if part in self.budget
        }
        return Remaining(max(0, self.trials - trials), rest, tuple(driven))

    @contextlib.contextmanager
    def claim(self) -> Iterator[int]:
        """Hold a lock on the root's lock file, so that only one sweep is being started at a time.

        Creates folder and file if they are missing, and waits up to `START_S` seconds for another
        server's lock. Yields the descriptor of the locked file. The lock lasts until one process
        that has inherited the descriptor unlocks it, or each has ended. A sweep that runs without
        the lock is no obstacle; for that there is `require_idle`.

        Raises:
            UsageError: another process has the lock, and its sweep runs or the wait is over; or
                folder or file is a link.
        """
        place = self.root / PLACE
        if place.is_symlink():
            raise UsageError(
                f"{place}: is a symbolic link, but sweep mcp needs a folder there; move it away"
            )
        place.mkdir(parents=True, exist_ok=True)
        folders.require_regular_file(place / "lock")
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(place / "lock", flags, 0o600)
        try:
            until = time.monotonic() + START_S
            while not _locks(descriptor):
                driven = self.remaining().driven
                if driven or time.monotonic() > until:
                    raise _refuse_second_sweep(driven)
                time.sleep(POLL_S)
            yield descriptor
        finally:
            os.close(descriptor)


def _locks(descriptor: int) -> bool:
    """Try to lock an open file (its descriptor) without waiting; return whether that succeeded."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _refuse_second_sweep(driven: Sequence[str]) -> UsageError:
    """Return the error for starting a sweep while those in `driven` run; it may be empty."""
    which = ", ".join(driven) or "another sweep"
    return UsageError(
        f"run: {which} is running, and only one sweep may run at a time; wait until it ends, or "
        "stop it"
    )


def require_idle(remaining: Remaining) -> None:
    """Raise UsageError if a sweep that a server started is running, perhaps resumed by a person."""
    if remaining.driven:
        raise _refuse_second_sweep(remaining.driven)


def _read(path: Path) -> tuple[SweepSpec, str]:
    """Return the parsed spec of a file, and the file's text; UsageError if it has mistakes.

    A spec without a name is named after its file.
    """
    text = specs.text_of(path)
    spec, found = specs.survey(text, str(path), [], name_from(path.stem))
    found.check()
    return spec, text
