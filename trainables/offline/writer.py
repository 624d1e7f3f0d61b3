"""Files into which a trainer writes its experience, each row once, even if a process is killed.

A line is a batch: a JSON object of `batches.batch_of`'s columns, as RLlib's JsonWriter writes it;
with several agents the transitions of one worker in a round, by policy. The trainer writes as
samples arrive, in worker order. A file's name contains the environment steps at which its series
began, and the file's number in it: ``output-000000000000-00000.json``. A checkpoint contains the
current file and its length. A restored trial cuts off what was written later and samples it again.
A trial that continues another trial's checkpoint begins its own series with a number above the
existing ones, so the other's files stay. A file beside such a series names the checkpoint that it
continues, so that a trial that was killed knows its series again. No two episodes of an output have
the same ``eps_id``, whatever was restored meanwhile: each series has its own block of numbers, and
new workers, which count from 0 again, continue above the written numbers.
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
    make_user_defined,
)
from trainables.offline.packed import pack
from trainables.rollout.agents.worker import MultiAgentBatch
from trainables.rollout.batch import Fragment, Sample
from trainables.rollout.workers.access import DEFAULT_POLICY_ID
from trainables.trainable import TrialContext

logger = logging.getLogger(__name__)
#: Pattern of an output file's name: numbers of its series and in it.
FILE = re.compile(r"output-(\d{12,})-(\d{5,})\.json")
#: Flags that open a file for appending, created if it is missing.
_APPENDING = os.O_WRONLY | os.O_CREAT | os.O_APPEND
#: Number of episode numbers in the block of each series.
BLOCK = 2**40


class OutputWriter:
    """A destination of sampled batches; a user-defined one is made with an `IOContext`."""

    first_episode: int = 0
    """Number that is added to the numbers of episodes and unrolls (``eps_id``, ``unroll_id``)
    before they are written."""

    def write(self, batch: Batch) -> None:
        """Write the next batch: columns, or ``policy_batches`` and ``count`` of several agents.

        Derived classes must define this.
        """
        raise NotImplementedError

    def get_state(self) -> dict[str, Any]:
        """Return the position as plain data, after flushing all written batches to the disk.

        By default there is nothing to flush, and the position is empty.
        """
        return {}

    def set_state(self, state: Mapping[str, Any], timesteps: int) -> None:
        """Continue from a state of `get_state`: batches that were written after it do not count.

        It was saved after `timesteps` environment steps. By default does nothing.
        """


class JsonWriter(OutputWriter):
    """Writes batches as lines of JSON, in RLlib's form, into files of about equal size.

    Files of one trial are a series. A trial that continues another trial's checkpoint begins a new
    series, so that the files of both are kept.

    Args:
        folder: function that returns the folder, which is made when something is written.
        owner: name of the trial; a checkpoint of another owner begins a series.
        shared: True if other runs may have written to the folder: until a state is restored, a
            first `write` into a folder with output files raises StoredDataError.
        is_retried: True if a checkpoint's rows may still be lost, as those of a killed slice, so
            that only the sweep knows which checkpoint counts.
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
        self._max_bytes = config.output_max_file_size
        self._folder = folder
        self._owner = owner
        self._must_be_empty = shared
        self._is_retried = is_retried
        self._place = (0, 0)
        """Numbers of the current series and file."""
        self._bytes = 0
        """Length of the current file."""
        self._file: int | None = None
        self._last = (0, 0)
        """Length of the latest line in bytes, and its checksum."""
        self._nth = 0
        """Number of series before the current one."""
        self._origin = b""
        """Checkpoint of another trial that a series not yet begun continues.

        Empty if there is none.
        """
        self._begun_from = b""
        """Checkpoint that the current series continues, while no checkpoint has any of its rows."""
        self._is_new = True
        """True while no file in the folder is known to be kept.

        The latest series may then have been begun by a process that was killed.
        """

    @property
    def first_episode(self) -> int:  # type: ignore[override]  # that of the series now
        """First number of this series' block of episode numbers: `BLOCK` for each series before."""
        return self._nth * BLOCK

    def write(self, batch: Batch) -> None:
        """Append a batch as a line, in a new file if the current one is full.

        The first line after a start or a restored state cuts off what was written later, and
        removes later files. Raises StoredDataError if the disk refuses it, or the folder holds
        another run's files.
        """
        line = f"{json.dumps(self._as_data(batch), default=_as_plain_data)}\n".encode()
        try:
            if self._bytes >= self._max_bytes:
                self._close(sync=True)
                self._next_file()
            if self._file is None:
                self._file = self._open_file()
            disk.write_all(self._file, line)
        except (OSError, disk.NotRegular) as error:
            self._close()
            remedy = (
                "free some space, or set output to another folder, then resume; nothing is lost"
            )
            raise StoredDataError(self._path, f"cannot be written ({error})", remedy) from error
        self._bytes += len(line)
        self._last = len(line), zlib.crc32(line)

    def get_state(self) -> dict[str, Any]:
        """Flush the file; return ``owner``, ``series``, ``nth``, ``file``, ``bytes``, ``last``.

        ``nth`` is the number of earlier series, ``last`` the length and checksum of the latest
        line. A series that continues another trial's checkpoint, and has rows, now counts as kept:
        that checkpoint, restored again, begins another one. Raises OSError if flushing fails.
        """
        if self._file is not None:
            os.fsync(self._file)
        if self._begun_from and (self._bytes or self._place[1]):
            self._keep_series()
        series, number = self._place
        at = {"series": series, "nth": self._nth, "file": number, "bytes": self._bytes}
        return {"owner": self._owner, **at, "last": list(self._last)}

    def set_state(self, state: Mapping[str, Any], timesteps: int) -> None:
        """Continue a state of `get_state`: the next line replaces what was written after it.

        If the state is another trial's, or its file has another line there, a new series of files
        begins, or one that a killed process has begun from the same state. Files are changed only
        by the next `write`. `timesteps` is the number of environment steps at that time.

        Raises StoredDataError if the folder cannot be read.
        """
        self._close()
        if state.get("owner") == self._owner and self._has_last_line(state):
            self._place = int(state["series"]), int(state["file"])
            self._bytes, self._nth = int(state["bytes"]), int(state["nth"])
            length, checksum = state["last"]
            self._last = int(length), int(checksum)
            self._must_be_empty, self._is_new = False, False
            self._origin = self._begun_from = b""
            return
        origin = json.dumps([state, timesteps], default=_as_plain_data, sort_keys=True).encode()
        # The origin is restored again, and no checkpoint has rows of its series: it begins again.
        again = bool(self._begun_from) and origin == self._begun_from
        series = self._place[0] if again else self._series_of(origin, timesteps)
        self._origin = self._begun_from = origin
        self._place, self._bytes, self._last = (series, 0), 0, (0, 0)
        self._nth = len({one for one, _ in self._existing_files().values() if one < series})

    def _has_last_line(self, state: Mapping[str, Any]) -> bool:
        """Return whether the state's file contains the state's last line, by its checksum.

        It also returns True if the file is missing or shorter, since its lines are then only lost.

        Raises StoredDataError if the file cannot be read.
        """
        series, number = int(state["series"]), int(state["file"])
        path, end = self._path_of(series, number), int(state["bytes"])
        length, checksum = state["last"]
        try:
            if not path.exists() or path.stat().st_size < end:
                return True  # lost rows are reported when the file is opened
            with path.open("rb") as file:
                file.seek(end - int(length))
                return zlib.crc32(file.read(int(length))) == int(checksum)
        except OSError as error:
            raise StoredDataError(path, f"cannot be read ({error})") from error

    def _keep_series(self) -> None:
        """Keep the current series of files, since a checkpoint now counts its rows.

        A trial that later restores the checkpoint from which the series began writes another
        series. The file that names this checkpoint is removed, unless the trial may be retried.
        """
        self._begun_from = b""
        if not self._is_retried:
            self._origin_of(self._place[0]).unlink(missing_ok=True)

    def _series_of(self, origin: bytes, timesteps: int) -> int:
        """Return the number of the series of files that continues the checkpoint `origin`.

        That is a series that a killed process has begun from it, or else a new one, above all
        others and not below `timesteps`, the number of environment steps so far.

        Raises StoredDataError if the folder cannot be read.
        """
        try:
            latest = max((series for series, _ in self._existing_files().values()), default=-1)
            kept = self._origin_of(latest)
            if self._is_new and kept.is_file() and kept.read_bytes() == origin:
                return latest
        except OSError as error:
            raise StoredDataError(self._folder(), f"cannot be read ({error})") from error
        return max(timesteps, latest + 1)

    def _origin_of(self, series: int) -> Path:
        """Return the path of the file with the checkpoint's state from which a series began."""
        return self._folder() / f".output-{series:012d}.origin"

    def _existing_files(self) -> dict[Path, tuple[int, int]]:
        """Return path → (series, number in it) of all output files in the folder, if it exists."""
        folder = self._folder()
        there = (
            {path: FILE.fullmatch(path.name) for path in folder.iterdir()}
            if folder.exists()
            else {}
        )
        return {path: (int(of[1]), int(of[2])) for path, of in there.items() if of}

    @property
    def _path(self) -> Path:
        """Path of the current file."""
        return self._path_of(*self._place)

    def _path_of(self, series: int, number: int) -> Path:
        """Return the path of the file `number` of a series."""
        return self._folder() / f"output-{series:012d}-{number:05d}.json"

    def _open_file(self) -> int:
        """Open the current file, cut off at its known length, and remove later files of the folder.

        Makes the folder. If the file is shorter than it was, logs a warning, and opens the next one
        instead. A new series that continues a checkpoint gets a file that names it. Returns the
        descriptor. Raises StoredDataError if the folder holds another run's files.
        """
        folder = self._folder()
        disk.make_folder(folder, "output-")
        begun = self._existing_files()
        if begun and self._must_be_empty:
            remedy = "move its files away, or set output to another folder"
            raise StoredDataError(
                folder, "this folder contains the experience of another run", remedy
            )
        self._must_be_empty = self._is_new = False
        for path in (path for path, place in begun.items() if place > self._place):
            path.unlink()
        size = self._path.stat().st_size if self._path.exists() else 0
        if size < self._bytes:
            logger.warning(
                "%s has %s of %s bytes: some earlier output is missing; a new file begins",
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
        """Make the next file of the series the current one, with 0 bytes; it is opened later."""
        self._place, self._bytes, self._last = (self._place[0], self._place[1] + 1), 0, (0, 0)

    def _close(self, sync: bool = False) -> None:
        """Close the current file, if it is open; with `sync`, flush it to the disk first."""
        if self._file is not None:
            file, self._file = self._file, None
            with disk.closing(file):
                if sync:
                    os.fsync(file)

    def _as_data(self, batch: Batch) -> dict[str, Any]:
        """Return a batch as a JSON object in RLlib's form."""
        if "policy_batches" not in batch:
            return {"type": "SampleBatch", **self._columns(batch)}
        by_policy = {pid: self._columns(one) for pid, one in batch["policy_batches"].items()}
        return {"type": "MultiAgentBatch", "count": batch["count"], "policy_batches": by_policy}

    def _columns(self, columns: Columns) -> dict[str, Any]:
        """Return columns as nested lists, those of ``output_compress_columns`` as packed text."""
        return {
            name: pack(column) if name in self._packed else _as_lists(column)
            for name, column in columns.items()
        }


def _as_lists(column: Array) -> list[Any]:
    """Return a column as nested lists; the keys of dicts in it, which are infos, as text."""
    lists: list[Any] = column.tolist()
    return [_with_text_keys(one) for one in lists] if column.dtype == object else lists


def _with_text_keys(value: Any) -> Any:
    """Return a value of an info with all keys of its dicts as text, since JSON has no others."""
    if isinstance(value, Mapping):
        return {str(key): _with_text_keys(one) for key, one in value.items()}
    return [_with_text_keys(one) for one in value] if isinstance(value, list | tuple) else value


def _as_plain_data(value: Any) -> Any:
    """Return numpy data in an info as lists and numbers, and any other object as text; for JSON."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return str(value)


class _Numbers:
    """Makes the numbers of workers, which count from 0 each time they are made, distinct."""

    def __init__(self) -> None:
        self.span = (0, 0)
        """Offset of the workers' numbers, and the first unused number."""

    def of(self, numbers: Array) -> Array:
        """Return workers' numbers (R,) plus the present offset, and remember the highest one."""
        first, following = self.span
        made: Array = numbers + first
        self.span = first, max(following, int(made.max(initial=-1)) + 1)
        return made

    def begin_with_new_workers(self) -> None:
        """Raise the offset above all numbers so far, since new workers count from 0 again."""
        self.span = self.span[1], self.span[1]


class Output:
    """Passes the samples of all workers to the writer of the setting ``output``.

    `whole` is True if fragments are whole episodes.
    """

    def __init__(self, context: IOContext, trial: TrialContext, whole: bool) -> None:
        self._context, self._trial = context, trial
        self._writer: OutputWriter | None = None
        self._whole = whole
        self.spread_of: Callable[[str], Spread | None] = lambda _: None
        """Function of a policy that returns how its numbers are spread, or None."""
        self.in_lanes = False
        """True if the rows of one agent are in lanes and have their previous rows as columns."""
        self._last_steps: dict[int, tuple[Array, Array]] = {}
        """Worker → actions (N, …) and rewards (N,) of its latest step."""
        self._unrolls = 0
        self._numbers = {"eps_id": _Numbers(), "unroll_id": _Numbers()}

    def begin(self) -> None:
        """Make the writer, if ``output`` is set; called once there are workers.

        Raises ConfigError if the result is no writer.
        """
        if self._context.offline.output:
            self._writer = _make_writer(self._context, self._trial)

    def begin_with_new_workers(self) -> None:
        """Prepare for new workers, which begin new episodes and count from 0.

        Their numbers will continue above all numbers so far; last steps of old ones are forgotten.
        """
        self._last_steps, self._unrolls = {}, 0
        for one in self._numbers.values():
            one.begin_with_new_workers()

    def add(self, samples: Sequence[Sample]) -> None:
        """Write samples.

        Does nothing without a writer, or for samples that were read from files. Numbers of episodes
        and unrolls are made distinct first. Raises StoredDataError if the disk refuses a batch.
        """
        if (writer := self._writer) is None:
            return
        for sample in (one for one in samples if not one.was_read):
            if isinstance(sample, MultiAgentBatch) and (
                batch := batch_of_agents(sample, self.spread_of)
            ):
                by_policy = batch["policy_batches"].items()
                own = {pid: self._make_distinct(one, writer) for pid, one in by_policy}
                writer.write({**batch, "policy_batches": own})
            for chosen in sample.fragments:
                fragment = as_sent(chosen, self.spread_of(DEFAULT_POLICY_ID))
                columns = (
                    batch_of_lanes([fragment])
                    if self.in_lanes
                    else self._number_rows(fragment, sample.index)
                )
                if len(columns["obs"]):
                    writer.write(self._make_distinct(columns, writer))

    def _make_distinct(self, columns: Columns, writer: OutputWriter) -> Columns:
        """Return columns whose episode and unroll numbers are unique in the writer's output.

        The highest numbers are remembered.
        """
        found = {
            name: own.of(columns[name]) + writer.first_episode
            for name, own in self._numbers.items()
        }
        return {**columns, **found}

    def _number_rows(self, fragment: Fragment, worker: int) -> Columns:
        """Return the valid rows of a worker's next fragment as columns, with ``unroll_id``.

        `worker` is its index. The fragment's last step is remembered for the worker's next one,
        unless fragments are whole episodes.
        """
        before = self._last_steps.get(worker)
        if before is not None and before[0].shape != fragment.actions[-1].shape:
            before = None  # the worker was restored with another number of environments
        columns = batch_of(fragment, before, self._unrolls)
        self._unrolls += fragment.valid.shape[1]
        if not self._whole:
            last = fragment.actions[-1].copy(), fragment.rewards[-1].copy()
            self._last_steps[worker] = last
        return columns

    def get_state(self) -> dict[str, Any]:
        """Return the entry ``output``, with ``before``, ``unrolls``, ``numbers`` and ``writer``.

        They are each worker's last step, counts, and the writer's state, for which written batches
        are flushed to the disk. Empty without a writer.
        """
        if self._writer is None:
            return {}
        before = {index: list(both) for index, both in self._last_steps.items()}
        numbers = {name: list(one.span) for name, one in self._numbers.items()}
        counted = {"unrolls": self._unrolls, "numbers": numbers}
        return {"output": {"before": before, **counted, "writer": self._writer.get_state()}}

    def set_state(self, state: Mapping[str, Any], timesteps: int) -> None:
        """Restore the entry ``output`` of a trainer's state; does nothing without a writer.

        `timesteps` is the number of environment steps at that time. Without this entry all counts
        begin at 0, and the writer gets an empty state: a `JsonWriter` begins another series of
        files. Raises StoredDataError if the folder cannot be read.
        """
        if self._writer is None:
            return
        output = state.get("output", {"before": {}, "unrolls": 0, "numbers": {}, "writer": {}})
        self._last_steps = {
            int(i): (np.array(a), np.array(r)) for i, (a, r) in output["before"].items()
        }
        self._unrolls = int(output["unrolls"])
        for name, one in self._numbers.items():
            first, following = output["numbers"].get(name, (0, 0))
            one.span = int(first), int(following)
        self._writer.set_state(output["writer"], timesteps)


def _make_writer(context: IOContext, trial: TrialContext) -> OutputWriter:
    """Make the writer that the setting ``output`` names: a user's, or a `JsonWriter`.

    The latter writes to ``output`` in the trial's folder for ``logdir``, else to the named folder,
    in a sweep to ``<sweep>/<trial>`` in it. Raises ConfigError if a user's class or function makes
    no writer.
    """
    given = context.offline.output
    if context.offline.has_own_writer:
        return make_user_defined("output", given or "", OutputWriter, context)
    place = str(given)
    in_sweep = trial.has_settled_config and trial.logdir is not None

    def folder() -> Path:
        """Return the folder for output files."""
        if place == LOGDIR:
            return Path(context.log_dir) / "output"
        *_, sweep, _, name = ("", "", "", *Path(context.log_dir).parts)
        return Path(place).expanduser().joinpath(*((sweep, name) if in_sweep else ()))

    shared = not in_sweep and place != LOGDIR
    owner = f"{trial.trial_name} of seed {context.seed} in {place}"
    return JsonWriter(context.offline, folder, owner, shared, is_retried=in_sweep)
