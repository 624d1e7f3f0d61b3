"""Batches that are read from files, in order, over and over; from which place on is its state.

A line of a JSON file is a batch, as `trainables.offline.writer` or RLlib's JsonWriter wrote it, of
one agent or of several; `trainables.offline.tables` has other kinds of files. A batch is checked
before it is learnt from; what is wrong with it is said with file and line. R rows of a batch.
"""

import glob
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import Box

from trainables.core import rng
from trainables.envs.make import EnvSpaces
from trainables.envs.spaces.observations import is_wide
from trainables.errors import ConfigError, StoredDataError
from trainables.offline.batches import NAMES, Array, Batch, Columns
from trainables.offline.following import add_following
from trainables.offline.packed import NotAnArray, unpack

logger = logging.getLogger(__name__)
#: Longest line, in bytes.
MAX_LINE = 256 * 2**20
POLICY = "default_policy"
PARQUET = ".parquet"
#: Of the files that are read of a folder.
ENDINGS = (".json", PARQUET)
#: Columns that may stand in a line and are not read.
UNREAD = frozenset(
    {"infos", "prev_actions", "prev_rewards", "action_dist_inputs"}
    | {"vf_preds", "advantages", "value_targets", "weights", "obs_t", "count", "agent_id"}
    | {"env_id", "seq_lens", "state_out", "loss_mask", "dones"}
)
_NUMBERS: Mapping[str, type] = {
    **dict.fromkeys(("rewards", "action_logp", "action_prob"), np.float32),
    **dict.fromkeys(("t", "eps_id", "agent_index", "unroll_id"), np.int64),
    **dict.fromkeys(("terminateds", "truncateds", "dones"), np.bool_),
}
#: Most environment steps of a line.
MAX_STEPS = 10**9
#: Why a batch has no row, and what to do.
NO_ROW = "what its rows lead to is not there; give the column new_obs"
#: Columns that are read.
READABLE = (NAMES.keys() | _NUMBERS.keys()) - UNREAD | {"dones"}


class NotABatch(ValueError):
    """A line that is no batch of such rows; the message says what it is."""


class InputReader:
    """A source of batches; a user-defined one is made with an `IOContext`.

    Without a state of its own it begins anew where a trial is restored.
    """

    def next(self) -> Batch:
        """The next batch: ``obs``, ``actions`` and what else there is, each (R, …).

        Of several agents ``policy_batches``, policy → such columns, and ``count``.
        """
        raise NotImplementedError

    def get_state(self) -> dict[str, Any]:
        """Everything that decides what comes next, as plain data."""
        return {}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave."""


@dataclass(frozen=True)
class Rows:
    """The form of a batch's rows in an environment of these spaces."""

    spaces: EnvSpaces
    of_agents: bool = False
    """True if an agent may not act in every step of its episode."""
    exact: bool = False
    """True if observations keep the digits that a filter needs and float32 does not hold."""

    def of(self, line: bytes) -> Columns:
        """The batch of a line, checked and completed; NotABatch if there is none.

        It may have no row (`following.add_following`).
        """
        return self._checked(_parsed(line))

    def checked(self, given: Mapping[str, Any]) -> Columns:
        """The columns of a reader of one's own, as `of` gives those of a line."""
        return self._checked({"type": "SampleBatch", **given})

    def _checked(self, found: Any) -> Columns:
        return self.completed({name: self._column(name, one) for name, one in _named(found)})

    def completed(self, given: Columns) -> Columns:
        """The columns with what follows from them; NotABatch if they do not fit together."""
        columns = dict(given)
        if missing := sorted({"obs", "actions"} - columns.keys()):
            raise NotABatch(
                f"no column {missing[0]}; it has {', '.join(sorted(columns)) or 'none'}"
            )
        lengths = {name: len(column) for name, column in columns.items()}
        if len(set(lengths.values())) > 1 or not lengths["obs"]:
            raise NotABatch(f"columns of {lengths} rows, which must be alike and not 0")
        if "dones" in columns:
            columns.setdefault("terminateds", columns.pop("dones"))
        columns.setdefault("truncateds", np.zeros(lengths["obs"], dtype=np.bool_))
        _add_likelihoods(columns)
        if "terminateds" in columns:
            add_following(columns, self.of_agents)
        return columns

    def _column(self, name: str, value: Any) -> Array:
        try:
            column = unpack(value) if isinstance(value, str) else np.asarray(value)
        except NotAnArray as error:
            raise NotABatch(f"column {name} holds {error}") from None
        except (ValueError, OverflowError):
            raise NotABatch(f"column {name} has rows of several shapes") from None
        if column.dtype.kind not in "biuf":
            raise NotABatch(f"column {name} does not hold numbers alone")
        if not np.isfinite(column).all() and name not in ("action_logp", "action_prob"):
            raise NotABatch(f"column {name} holds what is not finite")
        if name in ("obs", "new_obs"):
            of, column = self.spaces, _as_seen(self.spaces, column)
            kind = of.observation_dtype
            if self.exact and is_wide(of.observation):
                kind = np.dtype(np.float64)
            return _shaped(name, column, of.observation_shape, kind, of.raw.shape)
        if name == "actions":
            return self._actions(column)
        return _shaped(name, column, (), np.dtype(_NUMBERS[name]))

    def _actions(self, column: Array) -> Array:
        layout = self.spaces.layout
        shape = layout.shape
        rows = _shaped("actions", column, shape, layout.dtype, (1,) if shape == () else None)
        if not layout.real_columns and (rows != np.asarray(column).reshape(rows.shape)).any():
            raise NotABatch("column actions holds fractions where the environment has choices")
        for i in layout.choice_columns:
            chosen, size = rows.reshape(len(rows), -1)[:, i], layout.sizes[i]
            if len(chosen) and not (chosen.min() >= 0 and chosen.max() < size):
                wrong = chosen[(chosen < 0) | (chosen >= size)][0]
                raise NotABatch(
                    f"column actions holds {wrong}; the environment has 0 to {size - 1}"
                )
        return rows


@dataclass(frozen=True)
class RowsByPolicy:
    """The form of several policies' rows, each as `Rows` describes it."""

    policies: Callable[[], Mapping[str, Rows]]
    """Gives what the rows of each must look like, of those that there are now."""

    def of(self, line: bytes) -> Batch:
        """The batch of a line, checked and completed; NotABatch if there is none."""
        return self.checked(_parsed(line))

    def checked(self, given: Any) -> Batch:
        """``policy_batches`` of those with rows, with their columns, and ``count``."""
        if not isinstance(given, Mapping):
            raise NotABatch(f"a {type(given).__name__}, where an object with columns is expected")
        kind, by_policy = given.get("type", "MultiAgentBatch"), given.get("policy_batches")
        if kind != "MultiAgentBatch":
            hint = "there are several policies"
            raise NotABatch(f"type {str(kind)[:40]!r}; expected MultiAgentBatch, as {hint}")
        if not isinstance(by_policy, Mapping) or not by_policy:
            raise NotABatch("no policy_batches, policy → columns")
        known = self.policies()
        checked = {pid: _of_policy(known, pid, columns) for pid, columns in by_policy.items()}
        batches = {pid: columns for pid, columns in checked.items() if len(columns["obs"])}
        if type(count := given.get("count")) is not int or not 0 < count <= MAX_STEPS:
            raise NotABatch(
                f"count {str(count)[:40]}, where the number of environment steps is expected"
            )
        return {"policy_batches": batches, "count": count}


def _of_policy(known: Mapping[str, Rows], pid: str, columns: Any) -> Columns:
    if pid not in known:
        called = f"policy {str(pid)[:40]!r}"
        raise NotABatch(f"a batch of {called}; the policies are {', '.join(known)}")
    if not isinstance(columns, Mapping):
        raise NotABatch(f"policy {pid}: a {type(columns).__name__}, which is no columns")
    try:
        return known[pid].checked(columns)
    except NotABatch as error:
        raise NotABatch(f"policy {pid}: {error}") from None


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise NotABatch(f"no JSON object ({error})") from None


def _named(found: Any) -> list[tuple[str, Any]]:
    """The columns of a line's object that are read."""
    if not isinstance(found, dict):
        raise NotABatch(f"a {type(found).__name__}, where an object with columns is expected")
    kind = found.get("type")
    if kind == "MultiAgentBatch":
        policies = found.get("policy_batches")
        if not isinstance(policies, dict) or set(policies) != {POLICY}:
            raise NotABatch(f"a batch of several agents; one of {POLICY} alone can be read")
        found = policies[POLICY]
    elif kind != "SampleBatch":
        raise NotABatch(f"type {str(kind)[:40]!r}; expected SampleBatch")
    known = NAMES.keys() | _NUMBERS.keys()
    columns = [(name, one) for name, one in found.items() if name in known - UNREAD]
    if "terminateds" not in found and "dones" in found:
        columns.append(("dones", found["dones"]))
    for name in found:
        if name not in known | UNREAD | {"type"} and not name.startswith("state_"):
            likely = "obs, new_obs, actions, rewards, terminateds, truncateds, t, eps_id"
            raise NotABatch(f"unknown column {name[:40]!r}; known are {likely} and RLlib's others")
    return columns


def _shaped(
    name: str,
    column: Array,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    alike: tuple[int, ...] | None = None,
) -> Array:
    """The column with rows of this shape and type, or of one that is laid out alike."""
    if column.ndim == 0 or column.shape[1:] not in (shape, alike):
        raise NotABatch(f"column {name} has rows of shape {column.shape[1:]}; expected {shape}")
    return np.asarray(column.reshape(len(column), *shape), dtype=dtype)


def _as_seen(spaces: EnvSpaces, column: Array) -> Array:
    """Return images that lie as the environment lays them out as a policy sees them."""
    raw = spaces.raw
    is_own = isinstance(raw, Box) and column.ndim > 1 and column.shape[1:] == raw.shape
    if not is_own or raw.shape == spaces.observation_shape or spaces.own is not None:
        return column
    at_env = spaces.at_env()
    return at_env.observe_all(column) if at_env.observes else column


def _add_likelihoods(columns: dict[str, Array]) -> None:
    """Add ``action_logp`` where it is left out and known; NotABatch if no action can have it."""
    given = next((name for name in ("action_logp", "action_prob") if name in columns), None)
    if given is None:
        return
    if given == "action_prob":
        with np.errstate(divide="ignore", invalid="ignore"):
            columns["action_logp"] = np.log(columns["action_prob"])
    if len(wrong := np.flatnonzero(~np.isfinite(columns["action_logp"]))):
        found = f"column {given} holds {columns[given][wrong[0]]} in row {wrong[0]}"
        remedy = "leave the column out if nobody knows how likely the actions were"
        raise NotABatch(f"{found}, as no action can have it that was taken; {remedy}")


def find_files(place: str, given: str | Sequence[str]) -> list[Path]:
    """The files of a folder, a glob or a list of them; ConfigError if there are none."""
    found: list[Path] = []
    for one in [given] if isinstance(given, str) else given:
        path = Path(one).expanduser()
        inside = (str(path / f"*{ending}") for ending in ENDINGS)
        matches = [match for pattern in inside for match in _globbed(pattern)]
        if not path.is_dir():
            matches = _globbed(str(path))
        files = [Path(match) for match in sorted(matches) if Path(match).is_file()]
        if not files:
            allowed = f"a file, a folder with *{' or *'.join(ENDINGS)} files, or a glob that "
            hint = (
                f"seen from {Path.cwd()}; a trainer with `output: data` writes some there, as "
                f"docs/offline.md#behaviour-cloning shows"
            )
            raise ConfigError(place, one, f"{allowed}matches some", hint)
        found += files
    if len({path.suffix == PARQUET for path in found}) > 1:
        allowed = f"files of one kind, all *{PARQUET} or none"
        raise ConfigError(place, given, allowed, "several kinds may stand in a mixture")
    return found


def _globbed(pattern: str) -> list[str]:
    return glob.glob(pattern)  # noqa: PTH207 a star may stand in any part of it


def has_rows(batch: Batch) -> bool:
    """Return whether a checked batch has anything to learn from."""
    return bool(batch["policy_batches"] if "policy_batches" in batch else len(batch["obs"]))


def each_once(reader: InputReader) -> Iterator[Batch]:
    """The batches of all files once; a reader of one's own has no end."""
    while True:
        batch = reader.next()
        if isinstance(reader, FilesReader) and reader.passes:
            return
        yield batch


class FilesReader(InputReader):
    """Batches of files, file after file in the order given; after the last the first again.

    Args:
        files: each with batches one after the other.
        rows: what their rows must look like.
    """

    unit: ClassVar[str]
    """The unit of a position in a file."""

    def __init__(self, files: Sequence[Path], rows: Rows | RowsByPolicy) -> None:
        self._files = list(files)
        self._rows = rows
        self._at, self._offset, self._line = 0, 0, 0
        """Which file is read, and where in it: units and batches."""
        self.passes = 0
        """The number of passes over all files."""

    def take(self, path: Path) -> Batch | None:
        """The next batch of a file, checked, or None at its end; moves the place in it on.

        Raises:
            NotABatch: what stands there is none.
            StoredDataError: the file cannot be read.
        """
        raise NotImplementedError

    def size(self, path: Path) -> int:
        """Units in a file."""
        raise NotImplementedError

    def next(self) -> Batch:
        """The next batch that has a row.

        Raises:
            StoredDataError: what is no batch; no file has any, or none with a row.
        """
        found = f"no batch in any of {len(self._files)} file(s)"
        for _ in range(len(self._files) + 1):
            while (batch := self._taken()) is not None:
                if has_rows(batch):
                    return batch
                found = f"no batch with a row in any of {len(self._files)} file(s): {NO_ROW}"
            self._at = (self._at + 1) % len(self._files)
            self._offset = self._line = 0
            self.passes += self._at == 0
        raise StoredDataError(self._files[0], found)

    def _taken(self) -> Batch | None:
        """Return the batch that `take` reads from the current file."""
        path = self._files[self._at]
        try:
            return self.take(path)
        except NotABatch as error:
            raise StoredDataError(path, str(error), line=self._line) from None

    def get_state(self) -> dict[str, Any]:
        """Entries ``files``, ``at``, ``offset`` and ``line``."""
        return {
            "files": [str(path) for path in self._files],
            "at": self._at,
            "offset": self._offset,
            "line": self._line,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave, with the files of that time.

        Raises:
            StoredDataError: one of them is gone, or the one that was read is shorter now.
        """
        self._files = [Path(path) for path in state["files"]]
        self._at, self._offset, self._line = state["at"], state["offset"], state["line"]
        for path in self._files:
            if not path.exists():
                raise StoredDataError(
                    path, "the checkpoint reads it, and it is gone", "put it back"
                )
        path = self._files[self._at]
        if self.size(path) < self._offset:
            found = f"shorter than the {self._offset} {self.unit} that were read of it"
            raise StoredDataError(path, found, "put back the file of that time")


class JsonReader(FilesReader):
    """Lines of files, each a batch."""

    unit = "bytes"

    def __init__(self, files: Sequence[Path], rows: Rows | RowsByPolicy) -> None:
        super().__init__(files, rows)
        self._torn: set[Path] = set()

    def take(self, path: Path) -> Batch | None:
        """The batch of the next line that is not empty; a torn last one is left out."""
        while line := self._read(path):
            try:
                return self._rows.of(line)
            except NotABatch as error:
                if not line.strip():
                    continue
                if line.endswith(b"\n") or not str(error).startswith("no JSON"):
                    raise
                self._skip_torn(path)
        return None

    def size(self, path: Path) -> int:
        """Bytes."""
        return path.stat().st_size

    def _read(self, path: Path) -> bytes:
        try:
            with path.open("rb") as file:
                file.seek(self._offset)
                line = file.readline(MAX_LINE + 1)
        except OSError as error:
            raise StoredDataError(path, f"cannot be read ({error})") from error
        self._offset += len(line)
        self._line += bool(line)
        if len(line) > MAX_LINE:
            found = f"a line of more than {MAX_LINE} bytes"
            raise StoredDataError(path, found, "write shorter fragments", self._line)
        return line

    def _skip_torn(self, path: Path) -> None:
        if path not in self._torn:
            self._torn.add(path)
            logger.warning("%s:%s: the last line is torn; it is left out", path, self._line)


class Shuffled(InputReader):
    """A window of batches, one of which is drawn and replaced by the next.

    Args:
        reader: gives the batches.
        size: of the window, which is filled first.
        stream: draws.
    """

    def __init__(self, reader: InputReader, size: int, stream: np.random.Generator) -> None:
        self._reader = reader
        self._size = size
        self._stream = stream
        self._window: list[Batch] = []

    def next(self) -> Batch:
        """One of the window."""
        while len(self._window) < self._size:
            self._window.append(self._reader.next())
        drawn = int(self._stream.integers(self._size))
        given, self._window[drawn] = self._window[drawn], self._reader.next()
        return given

    def get_state(self) -> dict[str, Any]:
        """Entries ``reader``, ``stream`` and ``window``."""
        return {
            "reader": self._reader.get_state(),
            "stream": rng.get_generator_state(self._stream),
            "window": [dict(batch) for batch in self._window],
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave; ConfigError for a window of another size."""
        if len(state["window"]) not in (0, self._size):
            allowed = f"{len(state['window'])}, as in the checkpoint"
            raise ConfigError("shuffle_buffer_size", self._size, allowed)
        self._reader.set_state(state["reader"])
        rng.set_generator_state(self._stream, state["stream"])
        self._window = [as_batch(one) for one in state["window"]]


def as_batch(data: Any) -> Any:
    """Columns, or what holds them by policy, out of a checkpoint."""
    if isinstance(data, Mapping):
        return {name: as_batch(one) for name, one in data.items()}
    return data if isinstance(data, int) else np.array(data)
