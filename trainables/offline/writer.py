"""Files that a trainer writes its experience into, each row once, whatever is killed when.

A line is a batch: a JSON object of `batches.batch_of`'s columns, as RLlib's JsonWriter writes it;
of several agents what one worker sampled in a round, by policy.
The trainer writes as samples arrive, in worker order. A file's name says after how many environment
steps its series began and the file's number in it: ``output-000000000000-00000.json``. A checkpoint
holds which file is written and how long it was. A trial that is restored cuts off what came after
and samples it again. One that goes on from another trial's checkpoint begins a series of its own,
with a number above those that are there: what it had written stays. Beside such a series stands
which checkpoint it goes on from, by which a trial that was killed knows that it began it already.
"""

import json
import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trainables.checkpoint import disk
from trainables.errors import StoredDataError
from trainables.offline.batches import Array, Batch, Columns, batch_of, batch_of_lanes
from trainables.offline.config import (
    LOGDIR,
    PATH_OF_CLASS,
    IOContext,
    OfflineConfig,
    make_own,
)
from trainables.offline.packed import pack
from trainables.rollout.agents.worker import MultiAgentBatch
from trainables.rollout.batch import Fragment, Sample
from trainables.trainable import TrialContext

logger = logging.getLogger(__name__)
FILE = re.compile(r"output-(\d{12,})-(\d{5,})\.json")
_APPENDING = os.O_WRONLY | os.O_CREAT | os.O_APPEND


class OutputWriter:
    """Where batches are written; one of one's own is made with an `IOContext`."""

    def write(self, batch: Batch) -> None:
        """Write the next batch: columns, or of several agents ``policy_batches`` and ``count``."""
        raise NotImplementedError

    def get_state(self) -> dict[str, Any]:
        """How far it has come, as plain data; what was written is on the disk then."""
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
    """

    def __init__(
        self, config: OfflineConfig, folder: Callable[[], Path], owner: str, shared: bool
    ) -> None:
        self._packed = frozenset(config.output_compress_columns)
        self._most = config.output_max_file_size
        self._folder = folder
        self._owner = owner
        self._must_be_empty = shared
        self._place = (0, 0)
        """Series and number of the file that is written."""
        self._bytes = 0
        """Of it."""
        self._file: int | None = None
        self._origin = b""
        """Of a series that is not begun yet: from which checkpoint of another trial it goes on."""
        self._is_new = True
        """Whether nothing in the folder is known to stay: the latest series may have been begun by
        a process that was killed."""

    def write(self, batch: Batch) -> None:
        """Append a line; StoredDataError if the disk refuses it."""
        line = f"{json.dumps(self._as_data(batch), default=_plain)}\n".encode()
        try:
            if self._bytes >= self._most:
                self._close(sync=True)
                self._place, self._bytes = (self._place[0], self._place[1] + 1), 0
            if self._file is None:
                self._file = self._opened()
            disk.write_all(self._file, line)
        except (OSError, disk.NotRegular) as error:
            self._close()
            remedy = "make room or set output to another folder, and resume: nothing is lost"
            raise StoredDataError(self._path, f"cannot be written ({error})", remedy) from error
        self._bytes += len(line)

    def get_state(self) -> dict[str, Any]:
        """Entries ``owner``, ``series``, ``file`` and ``bytes``."""
        if self._file is not None:
            os.fsync(self._file)
        series, number = self._place
        return {"owner": self._owner, "series": series, "file": number, "bytes": self._bytes}

    def set_state(self, state: Mapping[str, Any], timesteps: int) -> None:
        """Take back what `get_state` gave; what was written since is removed by the next line."""
        self._close()
        if state.get("owner") == self._owner:
            self._place = int(state["series"]), int(state["file"])
            self._bytes = int(state["bytes"])
            self._must_be_empty, self._is_new, self._origin = False, False, b""
        else:
            self._origin = json.dumps([state, timesteps], default=_plain, sort_keys=True).encode()
            self._place, self._bytes = (self._series_of(self._origin, timesteps), 0), 0

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
        series, number = self._place
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
            self._place, self._bytes = (self._place[0], self._place[1] + 1), 0
        with disk.opened(folder) as descriptor:
            if self._origin:
                kept, size = self._origin_of(self._place[0]).name, len(self._origin)
                disk.publish(descriptor, kept, size, [self._origin], 0)
                self._origin = b""
            file = disk.open_file(self._path, _APPENDING)
            os.ftruncate(file, self._bytes)
            disk.sync(descriptor)
        return file

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
    """What stands in an info, for JSON; what is no data by its text."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return str(value)


class Output:
    """The experience of all workers on its way to a writer.

    Args:
        config: where to, and how.
        context: of the trial.
        logdir: gives its folder.
        whole: fragments are whole episodes.
    """

    def __init__(
        self,
        config: OfflineConfig,
        context: TrialContext,
        logdir: Callable[[], str],
        whole: bool,
    ) -> None:
        self._writer = _make_writer(config, context, logdir) if config.output else None
        self._whole = whole
        self.in_lanes = False
        """Whether the rows of one agent lie in lanes, with what came before."""
        self._before: dict[int, tuple[Array, Array]] = {}
        """Of each worker the actions (N, …) and rewards (N,) of its latest step."""
        self._unrolls = 0

    def add(self, samples: Sequence[Sample]) -> None:
        """Write what was sampled, if anything is written; what was read stays where it is."""
        for sample in (one for one in samples if self._writer and not one.was_read):
            if isinstance(sample, MultiAgentBatch):
                self._add_agents(sample)
            for fragment in sample.fragments:
                columns = (
                    batch_of_lanes([fragment])
                    if self.in_lanes
                    else self._numbered(fragment, sample.index)
                )
                if self._writer and len(columns["obs"]):
                    self._writer.write(columns)

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

    def _add_agents(self, sample: MultiAgentBatch) -> None:
        found = {
            pid: batch_of_lanes(one.fragments)
            for pid, one in sample.policy_batches.items()
            if one.fragments
        }
        found = {pid: columns for pid, columns in found.items() if len(columns["obs"])}
        if found and self._writer:
            self._writer.write({"count": sample.env_steps, "policy_batches": found})

    def get_state(self) -> dict[str, Any]:
        """Entry ``output``, if anything is written: its ``before``, ``unrolls`` and ``writer``."""
        if self._writer is None:
            return {}
        before = {index: list(both) for index, both in self._before.items()}
        state = {"before": before, "unrolls": self._unrolls, "writer": self._writer.get_state()}
        return {"output": state}

    def set_state(self, state: Mapping[str, Any], timesteps: int) -> None:
        """Take back what `get_state` gave after so many environment steps, among other entries."""
        if self._writer is None:
            return
        own = state.get("output", {"before": {}, "unrolls": 0, "writer": {}})
        self._before = {int(i): (np.array(a), np.array(r)) for i, (a, r) in own["before"].items()}
        self._unrolls = int(own["unrolls"])
        self._writer.set_state(own["writer"], timesteps)


def _make_writer(
    config: OfflineConfig, context: TrialContext, logdir: Callable[[], str]
) -> OutputWriter:
    place = str(config.output)
    if PATH_OF_CLASS.fullmatch(place):
        own = IOContext(config=config, log_dir=logdir, seed=context.seed)
        return make_own("output", place, OutputWriter, own)
    in_sweep = context.settled and context.logdir is not None

    def folder() -> Path:
        if place == LOGDIR:
            return Path(logdir()) / "output"
        *_, sweep, _, trial = ("", "", "", *Path(logdir()).parts)
        return Path(place).expanduser().joinpath(*((sweep, trial) if in_sweep else ()))

    shared = not in_sweep and place != LOGDIR
    return JsonWriter(config, folder, f"{context.trial_name} in {place}", shared)
