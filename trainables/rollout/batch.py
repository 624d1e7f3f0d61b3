"""Data of rollouts: the forms that samplers write and learners read.

T steps, N environments, B rows, K columns of an action. *S is the shape of an observation as a
policy sees it: (D,), or (H, W, C) for an image. A sampler writes a `Fragment` (T, N) in place; a
`TrainBatch` has rows with advantages. `terminated` and `truncated` are separate flags. A worker
returns a `Sample`, whose columns may be compressed for transport.
"""

from collections.abc import Collection, KeysView, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from trainables.envs.make import EnvSpaces
from trainables.envs.spaces.connectors import Connectors
from trainables.errors import WorkerError
from trainables.policies.acting.actor import REAL, Actor, Column
from trainables.policies.filters import NoFilter
from trainables.rollout.episodes.episode import Trajectory
from trainables.rollout.episodes.metrics import RolloutMetrics

Array = NDArray[Any]
#: Shape and type of a column of whole numbers.
WHOLE: Column = ((), np.dtype(np.int64))
REQUESTABLE: Mapping[str, Column | str] = {
    "new_obs": "observations",
    "t": WHOLE,
    "eps_id": WHOLE,
    "infos": ((), np.dtype(object)),
    "agent_index": WHOLE,
    "unroll_id": WHOLE,
    "prev_actions": "actions",
    "prev_rewards": REAL,
    "state_out": "memory",
}
"""Columns that a fragment has only on request (`WorkerSpec.columns`, `Callbacks.columns`).

Each name maps to the shape and type of a row, or to the column that it resembles.

- ``new_obs``: next observation, at the end of an episode its final one; filtered if
  ``observations`` are, without updating the filter
- ``t``: number of the step in its episode, from 0; with several agents in the agent's trajectory
- ``eps_id``: number of the episode, unique in a trial
- ``infos``: info of the step, a dict; empty if there is none
- ``agent_index``: number of the agent that acted
- ``unroll_id``: number of the run of rows to which the row belongs, unique in a trial: one for each
  environment and fragment, or for each whole episode; with several agents one for each stretch of
  an agent's consecutive rows in a fragment, unique within a policy
- ``prev_actions``, ``prev_rewards``: those of the row before, also if an earlier fragment has it;
  0 where an episode begins
- ``state_out``: the policy's memory after the step (``memory``, which every fragment of such a
  policy has, is the memory before it)
"""


@dataclass(frozen=True)
class Fragment:
    """T steps of N environments; arrays are (T, N, …).

    Every column is an attribute: the fields below, the columns that the policy's actor declares,
    and the requested ones.
    """

    observations: Array
    """(T, N, *S) observations after the filter, float32; unfiltered bytes stay uint8.

    For learners that store rows (`WorkerSpec.unfiltered`) they are those before the filter, in the
    environment's precision.
    """
    actions: Array
    """(T, N) int64 choices or (T, N, K) rows, as the policy chose them: before they are scaled to
    the action space's bounds and clipped."""
    rewards: Array
    """(T, N) rewards for the learner, clipped and scaled as the settings say. For learners that
    store rows they are clipped but not scaled."""
    terminated: Array
    """(T, N) True where the episode ended by itself."""
    truncated: Array
    """(T, N) True where the episode was cut off, so that its value is bootstrapped, or ended as its
    environment failed; False where it also ended by itself."""
    valid: Array
    """(T, N) False where the row must not be learnt from.

    Such rows are no transitions (`autoreset`), are of faulty episodes, or have
    ``training_enabled: False`` in their info.
    """
    autoreset: Array
    """(T, N) True where the row is not a transition and is not counted: the environment was only
    reset in this step, or the row is padding.
    """
    declared: Mapping[str, Array]
    """Columns of the actor, such as ``logp`` and ``values``, and requested columns; name →
    (T, N, …). With a critic also ``final_<name>``, its values of the last observations of truncated
    episodes, with ``complete_episodes`` also at soft horizons; 0 in other rows."""
    last: Mapping[str, Array]
    """``last_<name>`` → (1, N, …): the actor's values of the observation after the last step, as
    ``last_values``, from which returns are bootstrapped. Empty without a critic, and in a slice
    that ends before the fragment's end."""

    def __getattr__(self, name: str) -> Array:
        """Return the declared column (T, N, …), or the entry of `last`, with this name.

        Raises AttributeError if there is neither.
        """
        for named in ("declared", "last"):
            if name in (found := vars(self).get(named, {})):
                column: Array = found[name]
                return column
        raise AttributeError(
            f"the fragment has no column {name!r}; it has "
            f"{', '.join(self.arrays) if 'last' in vars(self) else 'none yet'}"
        )

    @property
    def columns(self) -> dict[str, Array]:
        """All (T, N, …) columns by name, without `last`; the dict is new, the arrays are not."""
        base = {name: column for name, column in vars(self).items() if name not in NOT_COLUMNS}
        return {**base, **self.declared}

    @property
    def arrays(self) -> dict[str, Array]:
        """All columns and the entries of `last`, by name, as `from_columns` takes them."""
        return {**self.columns, **self.last}

    @property
    def steps(self) -> int:
        """Number of transitions: rows that are not `autoreset`, at most T·N."""
        return self.autoreset.size - int(np.count_nonzero(self.autoreset))

    def __getitem__(self, name: str) -> Array:
        """Return a column (T, N, …), or an entry of `last`, by name; raises KeyError."""
        return self.arrays[name]

    def keys(self) -> KeysView[str]:
        """Return the names of all columns and of the entries of `last`."""
        return self.arrays.keys()

    def slice(self, start: int, stop: int) -> "Fragment":
        """Return the time steps from `start` up to but without `stop`, as views.

        They are those of all environments. The slice has `last` only if it contains the fragment's
        end.
        """
        columns = {name: column[start:stop] for name, column in self.columns.items()}
        return Fragment.from_columns({**columns, **(self.last if stop >= len(self.valid) else {})})

    def timeslices(self, size: int) -> "list[Fragment]":
        """Return consecutive slices of `size` time steps, as views; the last one may be shorter."""
        return [self.slice(t, t + size) for t in range(0, len(self.valid), size)]

    def split_by_episode(self) -> "list[Fragment]":
        """Return one fragment (L, 1) for each episode or piece of an episode, as views.

        They are ordered by environment, then time. Rows that are not transitions are left out, rows
        that are not `valid` are kept. Only a piece that ends with the fragment has entries in
        `last`.
        """
        pieces: list[Fragment] = []
        steps, envs = self.valid.shape
        for env in range(envs):
            whole = {name: column[:, env : env + 1] for name, column in self.arrays.items()}
            one = Fragment.from_columns(whole)
            over = (one.terminated | one.truncated | one.autoreset)[:, 0]
            ends = [*(np.flatnonzero(over) + 1).tolist(), steps]
            pieces += [one.slice(*span) for span in zip([0, *ends], ends, strict=False)]
        return [piece for piece in map(_transitions, pieces) if len(piece.valid)]

    def shuffled(self, stream: np.random.Generator) -> "Fragment":
        """Return the valid transitions, copied and shuffled, as a fragment (R, 1) without `last`.

        The order is drawn from `stream`.
        """
        kept = np.flatnonzero(rows(self.valid & ~self.autoreset))
        order = stream.permutation(kept)
        return Fragment.from_columns(
            {n: rows(column)[order][:, None] for n, column in self.columns.items()}
        )

    @classmethod
    def concat(cls, parts: "Sequence[Fragment]") -> "Fragment":
        """Return parts of the same environments joined along time, copied.

        There must be one part at least; `last` is that of the last part.
        """
        joined = {n: np.concatenate([one[n] for one in parts]) for n in parts[0].columns}
        return cls.from_columns({**joined, **parts[-1].last})

    def copy(self) -> "Fragment":
        """Return a fragment with copies of all arrays."""
        return Fragment.from_columns({name: array.copy() for name, array in self.arrays.items()})

    @classmethod
    def from_columns(cls, columns: Mapping[str, Array]) -> "Fragment":
        """Return a fragment of these arrays by name, as `arrays` returns them, without copying.

        Names that begin with ``last_`` become entries of `last`. Raises KeyError without one of the
        columns that every fragment has: observations, actions, rewards and the four flags.
        """
        base = {one.name: columns[one.name] for one in fields(cls) if one.name not in NOT_COLUMNS}
        more = {name: column for name, column in columns.items() if name not in base}
        last = {name: more.pop(name) for name in list(more) if name.startswith("last_")}
        return cls(**base, declared=more, last=last)

    @classmethod
    def allocate(
        cls,
        steps: int,
        num_envs: int,
        observation: Column,
        action: Column,
        declared: Mapping[str, Column],
    ) -> "Fragment":
        """Return a fragment of zeros (`steps`, `num_envs`), in which all rows are valid.

        A column is given by (shape, dtype) of one row; `declared` has the additional ones by name.
        Those whose name begins with ``last_`` are entries of `last` and get one step.
        """
        flag, real = ((), np.dtype(np.bool_)), ((), np.dtype(np.float32))
        columns: dict[str, Column] = {
            "observations": observation,
            "actions": action,
            "rewards": real,
            **dict.fromkeys(("terminated", "truncated", "valid", "autoreset"), flag),
            **declared,
        }
        made = {
            name: np.zeros((1 if name.startswith("last_") else steps, num_envs, *shape), dtype)
            for name, (shape, dtype) in columns.items()
        }
        made["valid"][:] = True
        return cls.from_columns(made)


def _transitions(piece: Fragment) -> Fragment:
    """Return `piece` (L, 1) without its last row if that row is not a transition."""
    steps = len(piece.valid)
    return piece.slice(0, steps - 1) if steps and piece.autoreset[-1, 0] else piece


NOT_COLUMNS = ("declared", "last")
"""Fields of a fragment that are not columns."""


def new_fragment(
    steps: int,
    num_envs: int,
    actor: Actor,
    spaces_: EnvSpaces,
    connectors: Connectors,
    requested: frozenset[str],
    unfiltered: bool,
) -> Fragment:
    """Return a fragment of zeros (`steps`, `num_envs`) with an actor's and the requested columns.

    A filter makes float32 of an image's bytes, otherwise observations keep their type; they have
    that of the filter's input if they are `unfiltered`. All rows are valid.

    Raises:
        WorkerError: a requested column that no sampler writes.
    """
    if unknown := sorted(requested - REQUESTABLE.keys()):
        raise WorkerError(
            f"columns: {', '.join(unknown)} cannot be requested from a worker; available are "
            f"{', '.join(REQUESTABLE)}"
        )
    whole = isinstance(connectors.filter, NoFilter)
    observed = spaces_.observation_dtype if whole else np.dtype(np.float32)
    if unfiltered:
        observed = connectors.given_dtype
    observation, layout = (spaces_.observation_shape, observed), spaces_.layout
    action, memory = (layout.shape, layout.dtype), ((actor.memory_size,), np.dtype(np.float32))
    like = {"observations": observation, "actions": action, "memory": memory}
    asked = {name: REQUESTABLE[name] for name in sorted(requested)}
    columns = {name: like[one] if isinstance(one, str) else one for name, one in asked.items()}
    declared = {**actor.in_fragments, **columns}
    return Fragment.allocate(steps, num_envs, observation, action, declared)


@dataclass(frozen=True)
class TrainBatch:
    """B rows with advantages for an on-policy learner, ordered by worker, fragment and step."""

    observations: Array
    """(B, *S) observations."""
    actions: Array
    """(B,) or (B, K) actions."""
    logp: Array
    """(B,) log-probabilities of the actions when they were chosen."""
    values: Array
    """(B,) value estimates of the observations when the actions were chosen."""
    advantages: Array
    """(B,) advantages."""
    returns: Array
    """(B,) targets of the value function."""

    def __len__(self) -> int:
        return len(self.observations)

    @classmethod
    def join(cls, parts: list[Self]) -> Self:
        """Return all parts joined along the rows; a single part is returned without copying."""
        if len(parts) == 1:
            return parts[0]
        columns = {f.name: [getattr(part, f.name) for part in parts] for f in fields(cls)}
        return cls(**{name: np.concatenate(column) for name, column in columns.items()})

    def columns(self) -> dict[str, Array]:
        """Return name → column (B, …), for a loss: the batch's own arrays."""
        return dict(vars(self))

    def select(self, valid: Array) -> "TrainBatch":
        """Return the rows where `valid` (B,) is True; the batch itself if all are."""
        if valid.all():
            return self
        return TrainBatch(**{f.name: getattr(self, f.name)[valid] for f in fields(self)})


def rows(column: Array) -> Array:
    """Return an array (T, N, …) reshaped to rows (T·N, …), step after step."""
    return column.reshape(column.shape[0] * column.shape[1], *column.shape[2:])


# -------------------------------------------------------------------------------------------------
# The data that one rollout worker returns to its trainer in one round.


@dataclass(frozen=True)
class Sample:
    """The experience that one worker collected in one iteration."""

    fragments: list[Fragment]
    """Fragments; they may be buffers that the worker overwrites in its next `sample`."""
    episodes: list[RolloutMetrics]
    """Episodes that ended, faulty ones too, in the order of their ends."""
    deltas: dict[str, Any]
    """``observation`` and ``reward`` → statistics that the filter of this name gathered since the
    worker's previous sample; the trainer merges them into its own filters."""
    recent: Array
    """Latest raw observations (≤ 64, *S) of this iteration, before the filter; the newest last."""
    perf: Mapping[str, float] = field(default_factory=dict)
    """Mean milliseconds of the parts of the worker's steps, by result key such as
    ``mean_inference_ms`` (`PerfStats.means`) and ``connector_metrics/<connector>_ms``."""
    trajectories: Sequence[list[Trajectory]] = ()
    """For each fragment the rows of each episode in it, for the callback ``on_postprocess_traj``;
    empty without callbacks. With other callbacks alone its lists may be empty."""
    index: int = 0
    """Index of the worker."""
    is_late: bool = False
    """True if the worker's process did not send the sample's episodes in time; they come with a
    later one."""
    was_read: bool = False
    """True if the sample was read from files, so no environment was stepped for it."""
    version: int = 0
    """Version of the weights that chose the actions (`WorkerSet.version` when they were sent); 0
    unless child processes sample while the trainer learns."""
    steps: int = 0
    """Environment steps of fragments that are not in the sample, because the worker's process
    learnt from them itself."""

    @property
    def count(self) -> int:
        """Number of environment steps, including those of fragments that were not sent."""
        return self.steps + sum(fragment.steps for fragment in self.fragments)

    def __getitem__(self, name: str) -> Array:
        """Return a column's rows (R, …) of all fragments, without rows that are not transitions.

        Rows that are not `valid` are included. Raises KeyError for an unknown column, ValueError
        without fragments.
        """
        return np.concatenate([rows(one[name])[~rows(one.autoreset)] for one in self.fragments])

    def keys(self) -> Collection[str]:
        """Return the names of the columns; empty without fragments."""
        return self.fragments[0].columns.keys() if self.fragments else ()

    def split_by_episode(self) -> list[Fragment]:
        """Return `Fragment.split_by_episode` of all fragments, one after the other."""
        return [piece for one in self.fragments for piece in one.split_by_episode()]

    def slice(self, start: int, stop: int) -> Self:
        """Return a copy with the time steps from `start` up to but without `stop`, as views.

        Steps are those of each environment, counted over all fragments one after the other.
        Fragments without such steps are left out; the copy keeps all episodes.
        """
        sliced, passed = list[Fragment](), 0
        for one in self.fragments:
            own = slice(max(0, start - passed), max(0, stop - passed))
            passed += len(one.valid)
            if len(one.valid[own]):
                sliced.append(one.slice(own.start, own.stop))
        return replace(self, fragments=sliced)

    def timeslices(self, size: int) -> list[Self]:
        """Return slices of `size` steps of each environment; the last one may be shorter.

        Each is a copy as `slice` returns it, with all episodes.
        """
        steps = sum(len(one.valid) for one in self.fragments)
        return [self.slice(t, t + size) for t in range(0, steps, size)]

    def shuffled(self, stream: np.random.Generator) -> Self:
        """Return a copy with the valid transitions in random order within each fragment.

        The order is drawn from `stream`. A fragment (T, N) becomes one of (R, 1), R valid rows.
        """
        return replace(self, fragments=[one.shuffled(stream) for one in self.fragments])

    @classmethod
    def concat(cls, parts: Sequence[Self]) -> Self:
        """Return a sample with the fragments and episodes of all parts, else equal to the last.

        So filter statistics, `recent` and `steps` of the other parts are lost.
        """
        fragments = [fragment for one in parts for fragment in one.fragments]
        episodes = [episode for one in parts for episode in one.episodes]
        return replace(parts[-1], fragments=fragments, episodes=episodes)

    def compress(
        self, bulk: bool = False, columns: Sequence[str] = ("observations", "new_obs")
    ) -> "PackedSample":
        """Return the sample with these columns compressed with LZ4; unknown ones are skipped.

        With `bulk`, a whole column is compressed at once, else each row by itself. Raises
        WorkerError if a column does not hold numbers.
        """
        packed = [
            {name: Packed.of(name, one[name], bulk) for name in columns if name in one.columns}
            for one in self.fragments
        ]
        none = np.zeros((0, 0, 0), dtype=np.float32)
        emptied = [
            Fragment.from_columns({**one.arrays, **dict.fromkeys(own, none)})
            for one, own in zip(self.fragments, packed, strict=True)
        ]
        return PackedSample(replace(self, fragments=emptied), packed)


class Packed(NamedTuple):
    """One column of a fragment, compressed with LZ4."""

    dtype: str
    """Type of the array, as numpy's `dtype.str`."""
    shape: tuple[int, ...]
    """Shape of the array, (T, N, …)."""
    frames: list[bytes]
    """LZ4 frames whose contents, joined, are the bytes of the array."""

    @classmethod
    def of(cls, name: str, array: Array, bulk: bool) -> Self:
        """Compress a column (T, N, …) as a whole (`bulk`) or each row by itself.

        Raises WorkerError, in which `name` is the column, if it does not hold numbers.
        """
        if array.dtype == object:
            raise WorkerError(f"columns: {name} does not hold numbers, so it cannot be compressed")
        import lz4.frame  # not at the top: few compress

        parts = [array] if bulk else array.reshape(-1, *array.shape[2:])
        frames = [lz4.frame.compress(part.tobytes()) for part in parts]
        return cls(array.dtype.str, array.shape, frames)

    def array(self) -> Array:
        """Return the decompressed column (T, N, …), equal to the bit and writable."""
        import lz4.frame

        # A bytearray, because torch wants arrays that may be written.
        data = bytearray(b"".join(lz4.frame.decompress(frame) for frame in self.frames))
        return np.frombuffer(data, dtype=self.dtype).reshape(self.shape)


@dataclass(frozen=True)
class PackedSample:
    """A sample some of whose columns are compressed."""

    sample: Sample
    """The sample; empty arrays stand in for its compressed columns."""
    columns: list[dict[str, Packed]]
    """For each fragment: name → compressed column."""

    def decompress(self) -> Sample:
        """Return the original sample, equal to the bit."""
        pairs = zip(self.sample.fragments, self.columns, strict=True)
        fragments = [
            Fragment.from_columns(
                {**one.arrays, **{name: own.array() for name, own in packed.items()}}
            )
            for one, packed in pairs
        ]
        return replace(self.sample, fragments=fragments)


def as_data(sample: Sample | None) -> dict[str, Any] | None:
    """Return ``fragments`` (a list of name → array) and ``recent`` of a sample, for a checkpoint.

    They are copies; other fields are left out. Returns None for None. Used with the setting
    ``fake_sampler``, whose only sample is repeated.
    """
    if sample is None:
        return None
    columns = [
        {name: as_plain(column) for name, column in one.arrays.items()} for one in sample.fragments
    ]
    return {"fragments": columns, "recent": sample.recent.copy()}


def as_plain(column: Array) -> Any:
    """Return a copy of a column for a checkpoint; one of objects (infos) becomes nested lists."""
    return column.tolist() if column.dtype == object else column.copy()


def from_data(data: Mapping[str, Any] | None, index: int) -> Sample | None:
    """Return the sample of which `as_data` made plain data, with worker index `index`.

    It has no episodes and no filter statistics. Returns None for None.
    """
    if data is None:
        return None
    fragments = [
        Fragment.from_columns({name: np.array(column) for name, column in columns.items()})
        for columns in data["fragments"]
    ]
    return Sample(fragments, [], {}, np.array(data["recent"]), index=index)
