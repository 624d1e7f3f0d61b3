"""Files that a trainer writes its experience into, each row once, whatever is killed when.

A line is a batch: a JSON object of `batches.batch_of`'s columns, as RLlib's JsonWriter writes it;
of several agents what one worker sampled in a round, by policy.
The trainer writes as samples arrive, in worker order. A file's name says after how many environment
steps its series began and the file's number in it: ``output-000000000000-00000.json``. A checkpoint
holds which file is written and how long it was. A trial that is restored cuts off what came after
and samples it again. One that goes on from another trial's checkpoint begins a series of its own,
with a number above those that are there: what it had written stays. Beside such a series stands
which checkpoint it goes on from, by which a trial that was killed knows that it began it already.
No two episodes of an output have the same ``eps_id``, whatever was restored on the way: each series
has a block of numbers of its own, and new workers, which count from 0 again, go on above those that
were written.
"""

import json
import logging
import os
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trainables.checkpoint import disk
from trainables.envs.spaces.actions import Spread
from trainables.errors import StoredDataError
from trainables.offline.batches import (
    Array,
    Batch,
    Columns,
    as_sent,
    batch_of,
    batch_of_agents,
    batch_of_lanes,
)
from trainables.offline.config import (
    LOGDIR,
    IOContext,
    OfflineConfig,
    make_own,
)
from trainables.offline.packed import pack
from trainables.rollout.agents.worker import MultiAgentBatch
from trainables.rollout.batch import Fragment, Sample
from trainables.rollout.workers.access import DEFAULT_POLICY_ID
from trainables.trainable import TrialContext

logger = logging.getLogger(__name__)
FILE = re.compile(r"output-(\d{12,})-(\d{5,})\.json")
_APPENDING = os.O_WRONLY | os.O_CREAT | os.O_APPEND
#: Numbers of episodes that each series of files may have.
BLOCK = 2**40


class OutputWriter:
    """A destination of batches; a user-defined one is made with an `IOContext`."""

    first_episode: int = 0
    """Added to the numbers of episodes and pieces (``eps_id``, ``unroll_id``) that are written."""

    def write(self, batch: Batch) -> None:
        """Write the next batch: columns, or of several agents ``policy_batches`` and ``count``."""
        raise NotImplementedError

    def get_state(self) -> dict[str, Any]:
        """Return its position, as plain data; all that was written is on the disk then."""
        return {}

    def set_state(self, state: Mapping[str, Any], timesteps: int) -> None:
        """Go on where `get_state` was called, after so many environment steps."""


class JsonWriter(OutputWriter):
    """Lines of JSON in files of about one size.

    Args:
        config: which columns are packed, and how long a file gets.
        folder: gives that of the files, which is made when something is written.
        owner: of the files: another's checkpoint begins a series.
        shared: other runs may have written there, whose files are kept.
        is_retried: what a checkpoint holds may be lost nevertheless, as a slice's that was killed:
            only its sweep knows.
    """

    def __init__(
        self,
        config: OfflineConfig,
        folder: Callable[[], Path],
        owner: str,
        shared: bool,
        is_retried: bool = False,
    ) -> None:
        self._packed = frozenset(config.output_compress_columns)
        self._most = config.output_max_file_size
        self._folder = folder
        self._owner = owner
        self._must_be_empty = shared
        self._is_retried = is_retried
        self._place = (0, 0)
        """Series and number of the file that is written."""
        self._bytes = 0
        """Of it."""
        self._file: int | None = None
        self._last = (0, 0)
        """Bytes of the latest line, and its checksum."""
        self._nth = 0
        """The number of series begun before the current one."""
        self._origin = b""
        """Of a series that is not begun yet: from which checkpoint of another trial it goes on."""
        self._begun_from = b""
        """Of the series that is written, as long as no checkpoint holds any row of it."""
        self._is_new = True
        """True if nothing in the folder is known to stay: the latest series may have been begun by
        a process that was killed."""

    @property
    def first_episode(self) -> int:  # type: ignore[override]  # that of the series now
        """The first number of the series' own block."""
        return self._nth * BLOCK

    def write(self, batch: Batch) -> None:
        """Append a line; StoredDataError if the disk refuses it."""
        line = f"{json.dumps(self._as_data(batch), default=_plain)}\n".encode()
        try:
            if self._bytes >= self._most:
                self._close(sync=True)
                self._next_file()
            if self._file is None:
                self._file = self._opened()
            disk.write_all(self._file, line)
        except (OSError, disk.NotRegular) as error:
            self._close()
            remedy = "make room or set output to another folder, and resume: nothing is lost"
            raise StoredDataError(self._path, f"cannot be written ({error})", remedy) from error
        self._bytes += len(line)
        self._last = len(line), zlib.crc32(line)

    def get_state(self) -> dict[str, Any]:
        """Entries ``owner``, ``series``, ``nth`` of all series, ``file``, ``bytes`` and ``last``.

        The last one is how long the latest line is, and its checksum.
        """
        if self._file is not None:
            os.fsync(self._file)
        if self._begun_from and (self._bytes or self._place[1]):
            self._keep_series()
        series, number = self._place
        at = {"series": series, "nth": self._nth, "file": number, "bytes": self._bytes}
        return {"owner": self._owner, **at, "last": list(self._last)}

    def set_state(self, state: Mapping[str, Any], timesteps: int) -> None:
        """Take back what `get_state` gave; what was written since is removed by the next line.

        Raises:
            StoredDataError: the folder cannot be read.
        """
        self._close()
        if state.get("owner") == self._owner and self._wrote(state):
            self._place = int(state["series"]), int(state["file"])
            self._bytes, self._nth = int(state["bytes"]), int(state["nth"])
            length, checksum = state["last"]
            self._last = int(length), int(checksum)
            self._must_be_empty, self._is_new = False, False
            self._origin = self._begun_from = b""
            return
        origin = json.dumps([state, timesteps], default=_plain, sort_keys=True).encode()
        # Restored once more, with nothing kept of what came of it: its series begins again.
        again = bool(self._begun_from) and origin == self._begun_from
        series = self._place[0] if again else self._series_of(origin, timesteps)
        self._origin = self._begun_from = origin
        self._place, self._bytes, self._last = (series, 0), 0, (0, 0)
        self._nth = len({one for one, _ in self._begun().values() if one < series})

    def _wrote(self, state: Mapping[str, Any]) -> bool:
        """Return whether the folder has the line after which `state` was saved, or lost it."""
        series, number = int(state["series"]), int(state["file"])
        path, end = self._path_of(series, number), int(state["bytes"])
        length, checksum = state["last"]
        try:
            if not path.exists() or path.stat().st_size < end:
                return True  # what is lost is said where the file is opened
            with path.open("rb") as file:
                file.seek(end - int(length))
                return zlib.crc32(file.read(int(length))) == int(checksum)
        except OSError as error:
            raise StoredDataError(path, f"cannot be read ({error})") from error

    def _keep_series(self) -> None:
        """A checkpoint holds rows of this series: whoever restores its origin begins another."""
        self._begun_from = b""
        if not self._is_retried:
            self._origin_of(self._place[0]).unlink(missing_ok=True)

    def _series_of(self, origin: bytes, timesteps: int) -> int:
        """The number of the series that goes on from there, which another process may have begun.

        Raises:
            StoredDataError: the folder cannot be read.
        """
        try:
            latest = max((series for series, _ in self._begun().values()), default=-1)
            kept = self._origin_of(latest)
            if self._is_new and kept.is_file() and kept.read_bytes() == origin:
                return latest
        except OSError as error:
            raise StoredDataError(self._folder(), f"cannot be read ({error})") from error
        return max(timesteps, latest + 1)

    def _origin_of(self, series: int) -> Path:
        return self._folder() / f".output-{series:012d}.origin"

    def _begun(self) -> dict[Path, tuple[int, int]]:
        """Each file that is there, with its series and number."""
        folder = self._folder()
        there = (
            {path: FILE.fullmatch(path.name) for path in folder.iterdir()}
            if folder.exists()
            else {}
        )
        return {path: (int(of[1]), int(of[2])) for path, of in there.items() if of}

    @property
    def _path(self) -> Path:
        return self._path_of(*self._place)

    def _path_of(self, series: int, number: int) -> Path:
        return self._folder() / f"output-{series:012d}-{number:05d}.json"

    def _opened(self) -> int:
        """The file, as long as it was; those that were begun after it never happened."""
        folder = self._folder()
        disk.make_folder(folder, "output-")
        begun = self._begun()
        if begun and self._must_be_empty:
            remedy = "move them, or set output to another folder"
            raise StoredDataError(folder, "holds the experience of another run", remedy)
        self._must_be_empty = self._is_new = False
        for path in (path for path, place in begun.items() if place > self._place):
            path.unlink()
        size = self._path.stat().st_size if self._path.exists() else 0
        if size < self._bytes:
            logger.warning(
                "%s has %s of %s bytes: what was written before is not all here; a new file begins",
                *(self._path, size, self._bytes),
            )
            self._next_file()
        with disk.open_folder(folder) as descriptor:
            if self._origin:
                kept, size = self._origin_of(self._place[0]).name, len(self._origin)
                disk.publish(descriptor, kept, size, [self._origin], 0)
                self._origin = b""
            file = disk.open_file(self._path, _APPENDING)
            os.ftruncate(file, self._bytes)
            disk.sync(descriptor)
        return file

    def _next_file(self) -> None:
        """Go on in the next file of the series."""
        self._place, self._bytes, self._last = (self._place[0], self._place[1] + 1), 0, (0, 0)

    def _close(self, sync: bool = False) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            with disk.closing(file):
                if sync:
                    os.fsync(file)

    def _as_data(self, batch: Batch) -> dict[str, Any]:
        if "policy_batches" not in batch:
            return {"type": "SampleBatch", **self._columns(batch)}
        by_policy = {pid: self._columns(one) for pid, one in batch["policy_batches"].items()}
        return {"type": "MultiAgentBatch", "count": batch["count"], "policy_batches": by_policy}

    def _columns(self, columns: Columns) -> dict[str, Any]:
        return {
            name: pack(column) if name in self._packed else column.tolist()
            for name, column in columns.items()
        }


def _plain(value: Any) -> Any:
    """Return a value of an info for JSON; if it is no data, its text."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return str(value)


class _Numbers:
    """Numbers of which no two are alike, of workers each of which counts from 0."""

    def __init__(self) -> None:
        self.span = (0, 0)
        """Offset of the workers' episode numbers, and the first number that is unused."""

    def of(self, given: Array) -> Array:
        """Return workers' numbers (R,) as they are written."""
        first, following = self.span
        made: Array = given + first
        self.span = first, max(following, int(made.max(initial=-1)) + 1)
        return made

    def begin_anew(self) -> None:
        """Workers count from 0 again."""
        self.span = self.span[1], self.span[1]


class Output:
    """The experience of all workers on its way to a writer.

    Args:
        context: where to, and how.
        trial: that writes.
        whole: fragments are whole episodes.
    """

    def __init__(self, context: IOContext, trial: TrialContext, whole: bool) -> None:
        self._context, self._trial = context, trial
        self._writer: OutputWriter | None = None
        self._whole = whole
        self.spread_of: Callable[[str], Spread | None] = lambda _: None
        """Policy → how its numbers are spread before the environment is sent them."""
        self.in_lanes = False
        """True if the rows of one agent lie in lanes, with the rows before them."""
        self._before: dict[int, tuple[Array, Array]] = {}
        """Of each worker the actions (N, …) and rewards (N,) of its latest step."""
        self._unrolls = 0
        self._numbers = {"eps_id": _Numbers(), "unroll_id": _Numbers()}

    def begin(self) -> None:
        """Make the writer, now that there are workers; ConfigError if it is none."""
        if self._context.offline.output:
            self._writer = _make_writer(self._context, self._trial)

    def begin_anew(self) -> None:
        """Other workers collect from here on, which begin new episodes and count from 0."""
        self._before, self._unrolls = {}, 0
        for one in self._numbers.values():
            one.begin_anew()

    def add(self, samples: Sequence[Sample]) -> None:
        """Write what was sampled, if anything is written; what was read stays where it is."""
        if (writer := self._writer) is None:
            return
        for sample in (one for one in samples if not one.was_read):
            if isinstance(sample, MultiAgentBatch) and (
                batch := batch_of_agents(sample, self.spread_of)
            ):
                by_policy = batch["policy_batches"].items()
                own = {pid: self._distinct(one, writer) for pid, one in by_policy}
                writer.write({**batch, "policy_batches": own})
            for chosen in sample.fragments:
                fragment = as_sent(chosen, self.spread_of(DEFAULT_POLICY_ID))
                columns = (
                    batch_of_lanes([fragment])
                    if self.in_lanes
                    else self._numbered(fragment, sample.index)
                )
                if len(columns["obs"]):
                    writer.write(self._distinct(columns, writer))

    def _distinct(self, columns: Columns, writer: OutputWriter) -> Columns:
        """Return columns whose numbers of episodes and pieces no other ones in the output have."""
        found = {
            name: own.of(columns[name]) + writer.first_episode
            for name, own in self._numbers.items()
        }
        return {**columns, **found}

    def _numbered(self, fragment: Fragment, worker: int) -> Columns:
        """The valid rows of a worker's next fragment."""
        before = self._before.get(worker)
        if before is not None and before[0].shape != fragment.actions[-1].shape:
            before = None  # it is restored with other environments
        columns = batch_of(fragment, before, self._unrolls)
        self._unrolls += fragment.valid.shape[1]
        if not self._whole:
            last = fragment.actions[-1].copy(), fragment.rewards[-1].copy()
            self._before[worker] = last
        return columns

    def get_state(self) -> dict[str, Any]:
        """Entry ``output``, if anything is written.

        It has ``before``, ``unrolls``, ``numbers`` and ``writer``.
        """
        if self._writer is None:
            return {}
        before = {index: list(both) for index, both in self._before.items()}
        numbers = {name: list(one.span) for name, one in self._numbers.items()}
        counted = {"unrolls": self._unrolls, "numbers": numbers}
        return {"output": {"before": before, **counted, "writer": self._writer.get_state()}}

    def set_state(self, state: Mapping[str, Any], timesteps: int) -> None:
        """Take back what `get_state` gave after so many environment steps, among other entries."""
        if self._writer is None:
            return
        own = state.get("output", {"before": {}, "unrolls": 0, "numbers": {}, "writer": {}})
        self._before = {int(i): (np.array(a), np.array(r)) for i, (a, r) in own["before"].items()}
        self._unrolls = int(own["unrolls"])
        for name, one in self._numbers.items():
            first, following = own["numbers"].get(name, (0, 0))
            one.span = int(first), int(following)
        self._writer.set_state(own["writer"], timesteps)


def _make_writer(context: IOContext, trial: TrialContext) -> OutputWriter:
    given = context.offline.output
    if context.offline.has_own_writer:
        return make_own("output", given or "", OutputWriter, context)
    place = str(given)
    in_sweep = trial.settled and trial.logdir is not None

    def folder() -> Path:
        if place == LOGDIR:
            return Path(context.log_dir) / "output"
        *_, sweep, _, name = ("", "", "", *Path(context.log_dir).parts)
        return Path(place).expanduser().joinpath(*((sweep, name) if in_sweep else ()))

    shared = not in_sweep and place != LOGDIR
    owner = f"{trial.trial_name} of seed {context.seed} in {place}"
    return JsonWriter(context.offline, folder, owner, shared, is_retried=in_sweep)
