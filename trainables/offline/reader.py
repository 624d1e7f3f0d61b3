"""Readers that return the batches of files in order, again and again; their state is the position.

A line of a JSON file is a batch, as `trainables.offline.writer` or RLlib's JsonWriter wrote it, of
one agent or of several; `trainables.offline.tables` reads other kinds of files. A batch is checked
before it is learnt from, and errors name file and line. R rows of a batch.
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
from trainables.envs.spaces.actions import Spread
from trainables.envs.spaces.observations import is_wide
from trainables.errors import ConfigError, StoredDataError, shorten, type_of
from trainables.offline.batches import NAMES, Array, Batch, Columns
from trainables.offline.following import add_following
from trainables.offline.packed import NotAnArray, unpack

logger = logging.getLogger(__name__)
#: Maximum length of a line, bytes.
MAX_LINE = 256 * 2**20
#: Name of the only policy.
POLICY = "default_policy"
#: Ending of Parquet files.
PARQUET = ".parquet"
#: Endings of the files that are read from a folder.
ENDINGS = (".json", PARQUET)
#: Columns that are allowed in a line but not read.
UNREAD = frozenset(
    {"infos", "prev_actions", "prev_rewards", "action_dist_inputs"}
    | {"vf_preds", "advantages", "value_targets", "weights", "obs_t", "count", "agent_id"}
    | {"env_id", "seq_lens", "state_out", "loss_mask", "dones"}
)
#: Column → type of its numbers.
_NUMBERS: Mapping[str, type] = {
    **dict.fromkeys(("rewards", "action_logp", "action_prob"), np.float32),
    **dict.fromkeys(("t", "eps_id", "agent_index", "unroll_id"), np.int64),
    **dict.fromkeys(("terminateds", "truncateds", "dones"), np.bool_),
}
#: Maximum number of environment steps of a line.
MAX_STEPS = 10**9
#: Reason for a batch without rows, and advice.
NO_ROW = "the next observations of its rows are missing; give the column new_obs"
#: Columns that are read.
READABLE = (NAMES.keys() | _NUMBERS.keys()) - UNREAD | {"dones"}


class NotABatch(ValueError):
    """A line, or another part of a file, that is not a batch of the required rows.

    The message says what it is.
    """


class InputReader:
    """A source of batches of experience; a user-defined one is made with an `IOContext`.

    A reader without a state starts from the beginning when a trial is restored.
    """

    def next(self) -> Batch:
        """Return the next batch, and move on: ``obs``, ``actions`` and other columns, each (R, …).

        With several agents it is ``policy_batches``, policy → such columns, and ``count``, the
        number of environment steps. There is always a next one. Derived classes must define this.
        """
        raise NotImplementedError

    def get_state(self) -> dict[str, Any]:
        """Return everything that determines the next batches, as plain data; by default nothing."""
        return {}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `get_state` returned; by default does nothing."""


@dataclass(frozen=True)
class Rows:
    """Checks batches, and converts columns to the form that an environment's spaces require."""

    spaces: EnvSpaces
    """Spaces of the environment."""
    is_multi_agent: bool = False
    """True if an agent may not act in every step of its episode."""
    keeps_float64: bool = False
    """True if observations stay float64, for a filter that needs digits which float32 lacks."""
    spread: Spread | None = None
    """Mapping of the policy's numbers to the bounds of actions (`ActionAdapter.spread`).

    Actions and their densities are converted to these numbers; None if they stay as they are.
    """

    def of(self, line: bytes) -> Columns:
        """Parse a line of JSON as a batch; return its checked columns, completed by derived ones.

        Rows whose next observation is unknown are removed, so there may be none left. Raises
        NotABatch if the line is not a batch.
        """
        return self._checked(_parse_line(line))

    def checked(self, columns: Mapping[str, Any]) -> Columns:
        """Check the columns of a reader, and return them completed by derived ones.

        Rows whose next observation is unknown are removed, so there may be none left. Raises
        NotABatch if they do not have the required form.
        """
        return self._checked({"type": "SampleBatch", **columns})

    def _checked(self, value: Any) -> Columns:
        """Check the columns in a line's object, and return them completed; raises NotABatch."""
        return self.completed(
            {name: self._column(name, one) for name, one in _select_columns(value)}
        )

    def completed(self, read: Columns) -> Columns:
        """Return checked columns with derived ones: log-probabilities, ``new_obs``, ``has_next``.

        ``dones`` become ``terminateds``; without ``truncateds`` no row is truncated. With
        ``terminateds``, rows whose next observation is unknown are removed; without, the last two
        columns are not added. Raises NotABatch if ``obs`` or ``actions`` are missing, lengths
        differ or are 0, or a probability is impossible.
        """
        columns = dict(read)
        if missing := sorted({"obs", "actions"} - columns.keys()):
            raise NotABatch(
                f"the column {missing[0]} is missing; the columns are "
                f"{', '.join(sorted(columns)) or 'none'}"
            )
        lengths = {name: len(column) for name, column in columns.items()}
        if len(set(lengths.values())) > 1 or not lengths["obs"]:
            raise NotABatch(
                f"the columns must all have the same number of rows, not 0, but they have {lengths}"
            )
        if "dones" in columns:
            columns.setdefault("terminateds", columns.pop("dones"))
        columns.setdefault("truncateds", np.zeros(lengths["obs"], dtype=np.bool_))
        _add_likelihoods(columns)
        if self.spread is not None and "action_logp" in columns:
            columns["action_logp"] = columns["action_logp"] + np.log(self.spread[0]).sum()
        if "terminateds" in columns:
            add_following(columns, self.is_multi_agent)
        return columns

    def _column(self, name: str, value: Any) -> Array:
        """Return the column `name` as an array (R, …) of the required shape and dtype.

        `value` is packed text or nested lists. Raises NotABatch if it does not fit.
        """
        try:
            column = unpack(value) if isinstance(value, str) else np.asarray(value)
        except NotAnArray as error:
            raise NotABatch(f"the column {name} holds {error}") from None
        except (ValueError, OverflowError):
            problem = f"the rows of column {name} have different shapes, but need the same one"
            raise NotABatch(problem) from None
        if column.dtype.kind not in "biuf":
            raise NotABatch(f"the column {name} contains values that are not numbers")
        if not np.isfinite(column).all() and name not in ("action_logp", "action_prob"):
            raise NotABatch(f"the column {name} contains NaN or infinity")
        if name in ("obs", "new_obs"):
            of, column = self.spaces, _as_seen(self.spaces, column)
            kind = of.observation_dtype
            if self.keeps_float64 and is_wide(of.observation):
                kind = np.dtype(np.float64)
            return _reshape(name, column, of.observation_shape, kind, of.raw.shape)
        if name == "actions":
            return self._actions(column)
        return _reshape(name, column, (), np.dtype(_NUMBERS[name]))

    def _actions(self, column: Array) -> Array:
        """Return a column of actions in the required shape and dtype, in the policy's numbers.

        Raises NotABatch for choices that the environment does not have, counted from 0; real
        numbers may be beyond their bounds.
        """
        layout = self.spaces.layout
        shape = layout.shape
        rows = _reshape("actions", column, shape, layout.dtype, (1,) if shape == () else None)
        if not layout.real_columns and (rows != np.asarray(column).reshape(rows.shape)).any():
            raise NotABatch(
                "the column actions contains fractions, but the environment's actions are whole "
                "numbers"
            )
        for i in layout.choice_columns:
            chosen, size = rows.reshape(len(rows), -1)[:, i], layout.sizes[i]
            if len(chosen) and not (chosen.min() >= 0 and chosen.max() < size):
                wrong = chosen[(chosen < 0) | (chosen >= size)][0]
                raise NotABatch(
                    f"the column actions contains {wrong}, but the environment's actions are 0 to "
                    f"{size - 1}"
                )
        return rows if self.spread is None else (rows - self.spread[1]) / self.spread[0]


@dataclass(frozen=True)
class RowsByPolicy:
    """Checks batches of several policies, each by its own `Rows`."""

    policies: Callable[[], Mapping[str, Rows]]
    """Function that returns policy → its `Rows`, for the policies of that moment."""

    def of(self, line: bytes) -> Batch:
        """Parse a line of JSON as a batch by policy, and return it checked and completed.

        Policies without rows are left out. Raises NotABatch if the line is none.
        """
        return self.checked(_parse_line(line))

    def checked(self, value: Any) -> Batch:
        """Check a batch by policy; return ``policy_batches``, policy → columns, and ``count``.

        Policies without rows are left out.

        Raises:
            NotABatch: an unknown policy, or anything else than a batch.
        """
        if not isinstance(value, Mapping):
            raise NotABatch(f"expected an object with columns, but found {type_of(value)}")
        kind, by_policy = value.get("type", "MultiAgentBatch"), value.get("policy_batches")
        if kind != "MultiAgentBatch":
            raise NotABatch(
                f"the type is {str(kind)[:40]!r}; with several policies, it must be MultiAgentBatch"
            )
        if not isinstance(by_policy, Mapping) or not by_policy:
            raise NotABatch(
                "policy_batches, which maps each policy to its columns, is missing or empty"
            )
        known = self.policies()
        checked = {
            pid: _check_policy_columns(known, pid, columns) for pid, columns in by_policy.items()
        }
        batches = {pid: columns for pid, columns in checked.items() if len(columns["obs"])}
        if type(count := value.get("count")) is not int or not 0 < count <= MAX_STEPS:
            raise NotABatch(
                f"count is {str(count)[:40]}; expected the number of environment steps, from 1 to "
                f"{MAX_STEPS}"
            )
        return {"policy_batches": batches, "count": count}


def _check_policy_columns(readers: Mapping[str, Rows], pid: str, columns: Any) -> Columns:
    """Return the checked columns of the policy `pid`; raises NotABatch, which names the policy."""
    if pid not in readers:
        known = f"the policies are {', '.join(readers)}"
        raise NotABatch(f"there is no policy {str(pid)[:40]!r}; {known}")
    if not isinstance(columns, Mapping):
        raise NotABatch(f"policy {pid} has {type_of(columns)} instead of columns")
    try:
        return readers[pid].checked(columns)
    except NotABatch as error:
        raise NotABatch(f"policy {pid}: {error}") from None


def _parse_line(line: bytes) -> Any:
    """Return the JSON value of a line; raises NotABatch if it is none."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise NotABatch(f"not a JSON object ({error})") from None


def _select_columns(value: Any) -> list[tuple[str, Any]]:
    """Return (name, value) of those columns in a line's object that are read.

    In a batch by policy they are those of `POLICY`, which must be the only one. Raises NotABatch if
    the object is not a batch of one agent, or has an unknown column.
    """
    if not isinstance(value, dict):
        raise NotABatch(f"expected an object with columns, but found {type_of(value)}")
    kind = value.get("type")
    if kind == "MultiAgentBatch":
        policies = value.get("policy_batches")
        if not isinstance(policies, dict) or set(policies) != {POLICY}:
            raise NotABatch(
                "the batch contains experience of several policies, but this trainer has only "
                f"one and can read only batches of {POLICY}"
            )
        value = policies[POLICY]
    elif kind != "SampleBatch":
        raise NotABatch(f"the type is {str(kind)[:40]!r}; expected SampleBatch")
    known = NAMES.keys() | _NUMBERS.keys()
    columns = [(name, one) for name, one in value.items() if name in known - UNREAD]
    if "terminateds" not in value and "dones" in value:
        columns.append(("dones", value["dones"]))
    for name in value:
        if name not in known | UNREAD | {"type"} and not name.startswith("state_"):
            likely = "obs, new_obs, actions, rewards, terminateds, truncateds, t, eps_id"
            known_names = f"{likely} and the other columns of RLlib"
            raise NotABatch(f"unknown column {name[:40]!r}; expected one of {known_names}")
    return columns


def _reshape(
    name: str,
    column: Array,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    other_shape: tuple[int, ...] | None = None,
) -> Array:
    """Return a column with rows of this shape and dtype, (R, *shape).

    Raises NotABatch if its rows have neither this shape nor `other_shape`.
    """
    if column.ndim == 0 or column.shape[1:] not in (shape, other_shape):
        raise NotABatch(f"the column {name} has rows of shape {column.shape[1:]}; expected {shape}")
    return np.asarray(column.reshape(len(column), *shape), dtype=dtype)


def _as_seen(spaces: EnvSpaces, column: Array) -> Array:
    """Return images (R, *O) in the environment's layout as a policy sees them, (R, H, W, C).

    Other observations are returned unchanged.
    """
    raw = spaces.raw
    is_own = isinstance(raw, Box) and column.ndim > 1 and column.shape[1:] == raw.shape
    if not is_own or raw.shape == spaces.observation_shape or spaces.preprocessor_path is not None:
        return column
    at_env = spaces.at_env()
    return at_env.observe_all(column) if at_env.observes else column


def _add_likelihoods(columns: dict[str, Array]) -> None:
    """Add the column ``action_logp`` to `columns` if there is only ``action_prob``.

    Raises:
        NotABatch: a value that no taken action can have, also in a given ``action_logp``.
    """
    given = next((name for name in ("action_logp", "action_prob") if name in columns), None)
    if given is None:
        return
    if given == "action_prob":
        with np.errstate(divide="ignore", invalid="ignore"):
            columns["action_logp"] = np.log(columns["action_prob"])
    if len(wrong := np.flatnonzero(~np.isfinite(columns["action_logp"]))):
        found = f"the column {given} holds {columns[given][wrong[0]]} in row {wrong[0]}"
        remedy = "leave the column out if the probabilities of the actions are unknown"
        raise NotABatch(f"{found}, which an action that was taken cannot have; {remedy}")


def find_files(place: str, paths: str | Sequence[str]) -> list[Path]:
    """Return the files of a folder, a glob or a list of such paths, sorted within each path.

    Of a folder, those are its JSON and Parquet files. Raises ConfigError, about the setting
    `place`, if one path has none, or they are of several kinds.
    """
    all_files: list[Path] = []
    for pattern_or_path in [paths] if isinstance(paths, str) else paths:
        path = Path(pattern_or_path).expanduser()
        if path.is_dir():  # its own name may have the characters of a pattern
            inside = (str(Path(glob.escape(str(path))) / f"*{ending}") for ending in ENDINGS)
            matches = [match for pattern in inside for match in _glob(pattern)]
        else:
            matches = [str(path)] if path.is_file() else _glob(str(path))
        files = [Path(match) for match in sorted(matches) if Path(match).is_file()]
        if not files:
            problem = f"there are no files at {shorten(pattern_or_path)}, seen from {Path.cwd()}"
            allowed = f"a file, a folder with *{' or *'.join(ENDINGS)} files, or a glob"
            hint = (
                "a trainer with `output: data` writes such files "
                "(docs/offline.md#behaviour-cloning)"
            )
            raise ConfigError(place, pattern_or_path, allowed, hint, problem)
        all_files += files
    if len({path.suffix == PARQUET for path in all_files}) > 1:
        problem = f"some files are *{PARQUET} and some are not, and one source must have one kind"
        hint = "write several sources with probabilities, {source: probability}"
        raise ConfigError(place, paths, hint=hint, problem=problem)
    return all_files


def _glob(pattern: str) -> list[str]:
    """Return the paths that match a pattern."""
    return glob.glob(pattern)  # noqa: PTH207 a star may stand in any part of it


def has_rows(batch: Batch) -> bool:
    """Return whether a checked batch has a row; a batch by policy, whether it has a policy."""
    return bool(batch["policy_batches"] if "policy_batches" in batch else len(batch["obs"]))


def each_once(reader: InputReader) -> Iterator[Batch]:
    """Yield the batches of a reader of files until their end; of any other reader, without end.

    The latter are user-defined or shuffled ones.
    """
    while True:
        batch = reader.next()
        if isinstance(reader, FilesReader) and reader.passes:
            return
        yield batch


class FilesReader(InputReader):
    """Base class of readers of files: one file after the other, then from the first again."""

    unit: ClassVar[str]
    """Word for what positions in a file count, such as bytes, for errors."""

    def __init__(self, files: Sequence[Path], rows: Rows | RowsByPolicy) -> None:
        self._files = list(files)
        self._rows = rows
        self._at, self._offset, self._line = 0, 0, 0
        """Index of the current file; position in it in units (`unit`); batches read from it."""
        self.passes = 0
        """Number of completed passes over all files."""

    def take(self, path: Path) -> Batch | None:
        """Return the next checked batch of a file, and move the position; None at the file's end.

        Raises:
            NotABatch: there is no batch at this position.
            StoredDataError: the file cannot be read.
            NotImplementedError: here; derived classes define this.
        """
        raise NotImplementedError

    def size(self, path: Path) -> int:
        """Return the length of a file in the units of positions; derived classes define this."""
        raise NotImplementedError

    def next(self) -> Batch:
        """Return the next batch that has a row: column → rows (R, …), or batches by policy.

        After the last file it begins with the first again, and adds 1 to `passes`.

        Raises:
            StoredDataError: there is something else than a batch, or no file has a batch with a
                row.
        """
        problem = f"there is no batch in any of {len(self._files)} file(s)"
        for _ in range(len(self._files) + 1):
            while (batch := self._take_from_current()) is not None:
                if has_rows(batch):
                    return batch
                problem = (
                    f"there is no batch with a row in any of {len(self._files)} file(s): {NO_ROW}"
                )
            self._at = (self._at + 1) % len(self._files)
            self._offset = self._line = 0
            self.passes += self._at == 0
        raise StoredDataError(self._files[0], problem)

    def _take_from_current(self) -> Batch | None:
        """Return the next batch of the current file; None at its end.

        Raises StoredDataError, which names file and line, if there is something else than a batch.
        """
        path = self._files[self._at]
        try:
            return self.take(path)
        except NotABatch as error:
            raise StoredDataError(path, str(error), line=self._line) from None

    def get_state(self) -> dict[str, Any]:
        """Return ``files``, the index ``at`` of the current one, and the position in it.

        ``offset`` counts what `unit` says, ``line`` the batches read from it.
        """
        return {
            "files": [str(path) for path in self._files],
            "at": self._at,
            "offset": self._offset,
            "line": self._line,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `get_state` returned, with the files of that time.

        Raises StoredDataError if one of the files is gone, or the current one has become shorter.
        """
        self._files = [Path(path) for path in state["files"]]
        self._at, self._offset, self._line = state["at"], state["offset"], state["line"]
        for path in self._files:
            if not path.exists():
                raise StoredDataError(
                    path,
                    "the checkpoint continues in this file, but the file is missing",
                    "put the file back",
                )
        path = self._files[self._at]
        if self.size(path) < self._offset:
            found = (
                f"the file is shorter than the {self._offset} {self.unit} that were read from it"
            )
            raise StoredDataError(path, found, "put the whole file back")


class JsonReader(FilesReader):
    """A reader of RLlib's JSON files; each line is a batch."""

    unit = "bytes"

    def __init__(self, files: Sequence[Path], rows: Rows | RowsByPolicy) -> None:
        super().__init__(files, rows)
        self._torn: set[Path] = set()

    def take(self, path: Path) -> Batch | None:
        """Return the next checked batch of a file's lines; None at the end of the file.

        Moves the position. Empty lines are skipped, also an incomplete last one, with a warning.
        Raises NotABatch for any other line that is no batch, StoredDataError if the file cannot be
        read.
        """
        while line := self._read(path):
            try:
                return self._rows.of(line)
            except NotABatch as error:
                if not line.strip():
                    continue
                if line.endswith(b"\n") or not str(error).startswith("not a JSON"):
                    raise
                self._skip_torn(path)
        return None

    def size(self, path: Path) -> int:
        """Return the size of a file in bytes."""
        return path.stat().st_size

    def _read(self, path: Path) -> bytes:
        """Read the next line and move the position; empty at the end of the file.

        Raises StoredDataError if it cannot be read or is too long.
        """
        try:
            with path.open("rb") as file:
                file.seek(self._offset)
                line = file.readline(MAX_LINE + 1)
        except OSError as error:
            raise StoredDataError(path, f"cannot be read ({error})") from error
        self._offset += len(line)
        self._line += bool(line)
        if len(line) > MAX_LINE:
            found = f"this line has more than {MAX_LINE} bytes"
            raise StoredDataError(path, found, "write shorter fragments", self._line)
        return line

    def _skip_torn(self, path: Path) -> None:
        """Log a warning, once per file, that the last line is incomplete and left out."""
        if path not in self._torn:
            self._torn.add(path)
            logger.warning("%s:%s: the last line is incomplete; it is left out", path, self._line)


class Shuffled(InputReader):
    """A reader that shuffles another's batches: it holds `size` of them, and returns a random one.

    The next batch takes its place. Draws come from `stream`.
    """

    def __init__(self, reader: InputReader, size: int, stream: np.random.Generator) -> None:
        self._reader = reader
        self._size = size
        self._stream = stream
        self._window: list[Batch] = []

    def next(self) -> Batch:
        """Return a batch drawn from the window, and put the reader's next one in its place.

        The first call reads `size` batches into the window. Draws once from the stream.
        """
        while len(self._window) < self._size:
            self._window.append(self._reader.next())
        drawn = int(self._stream.integers(self._size))
        given, self._window[drawn] = self._window[drawn], self._reader.next()
        return given

    def get_state(self) -> dict[str, Any]:
        """Return ``reader`` and ``stream``, their states, and ``window``, the batches in it."""
        return {
            "reader": self._reader.get_state(),
            "stream": rng.get_generator_state(self._stream),
            "window": [dict(batch) for batch in self._window],
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `get_state` returned; ConfigError for a window of another size."""
        if len(state["window"]) not in (0, self._size):
            before = len(state["window"])
            raise ConfigError.of_checkpoint("shuffle_buffer_size", self._size, before)
        self._reader.set_state(state["reader"])
        rng.set_generator_state(self._stream, state["stream"])
        self._window = [as_batch(one) for one in state["window"]]


def as_batch(data: Any) -> Any:
    """Return a batch from a checkpoint, with its columns copied to writable arrays.

    Batches by policy are converted, too; integers, such as ``count``, stay as they are.
    """
    if isinstance(data, Mapping):
        return {name: as_batch(one) for name, one in data.items()}
    return data if isinstance(data, int) else np.array(data)
