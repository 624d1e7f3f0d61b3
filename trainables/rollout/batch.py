"""Data of rollouts: the forms that samplers write and learners read.

T steps, N environments, B rows, *S the shape of an observation as a policy sees it: (D,), or
(H, W, C) for an image; K columns of an action. A `Fragment` is (T, N), as the sampler writes it in
place; a `TrainBatch` is rows, with advantages. `terminated` and `truncated` stay apart. What a
worker hands over is a `Sample`; its columns may be compressed on the way.
"""

from collections.abc import Collection, KeysView, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from trainables.errors import WorkerError
from trainables.policies.acting.actor import REAL, Column
from trainables.rollout.episode import Trajectory
from trainables.rollout.metrics import RolloutMetrics

Array = NDArray[Any]
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
"""Columns that stand in a fragment where a reader requests them (`WorkerSpec.columns`,
`Callbacks.columns`): shape and type of a row, or the column that they are like.

``new_obs``: the next observation, at an episode's end its final one, filtered or not as
``observations`` are, without being counted · ``t``: the step's number in its episode, from 0 ·
``eps_id``: the episode's number, of which no two in a trial are alike · ``infos``: the step's info
· ``agent_index``: which of several agents acted · ``unroll_id``: the number of these rows of an
environment, no two in a trial alike: of the fragment, of whole episodes the episode's; with several
agents, of what one of them did in a fragment without a gap, no two of a policy alike ·
``prev_actions``, ``prev_rewards``: of the row before, 0 where an episode begins · ``state_out``:
the policy's memory after the step; ``memory``, which every fragment of such a policy has, is that
before it.
"""


@dataclass(frozen=True)
class Fragment:
    """T steps of N environments; arrays are (T, N, …).

    Every column is an attribute: those below, those that the policy's actor declares, and those
    that were requested.
    """

    observations: Array
    """(T, N, *S) filtered, float32; unfiltered bytes are uint8. Where the learner keeps rows for
    long (`WorkerSpec.unfiltered`), as the filter is given them: of the environment's precision."""
    actions: Array
    """(T, N) int64 choices or rows (T, N, K), unclipped as the policy chose them."""
    rewards: Array
    """(T, N) as the learner wants them: clipped or scaled if so set; where it keeps rows for long,
    clipped alone."""
    terminated: Array
    """(T, N) the episode ended by itself."""
    truncated: Array
    """(T, N) the episode was cut off; its value goes on."""
    valid: Array
    """(T, N) False: not to be learnt from (a faulty episode, or ``training_enabled: False``)."""
    autoreset: Array
    """(T, N) True: no transition at all, in no count
    (`trainables.envs.vector.base.Step.restarting`)."""
    declared: Mapping[str, Array]
    """The actor's columns and the requested ones, by name."""
    last: Mapping[str, Array]
    """(1, N, …) ``last_<name>``: what the actor says of the observation after the last step."""

    def __getattr__(self, name: str) -> Array:
        """A declared column, or what is said of the observation after the last step."""
        for named in ("declared", "last"):
            if name in (found := vars(self).get(named, {})):
                column: Array = found[name]
                return column
        raise AttributeError(
            f"a fragment without the column {name!r}; it has "
            f"{', '.join(self.arrays) if 'last' in vars(self) else 'none yet'}"
        )

    @property
    def columns(self) -> dict[str, Array]:
        """All that are (T, N, …), by name."""
        base = {name: column for name, column in vars(self).items() if name not in BESIDE}
        return {**base, **self.declared}

    @property
    def arrays(self) -> dict[str, Array]:
        """All columns and `last`, by name; what `of` takes."""
        return {**self.columns, **self.last}

    @property
    def steps(self) -> int:
        """Transitions."""
        return self.autoreset.size - int(np.count_nonzero(self.autoreset))

    def __getitem__(self, name: str) -> Array:
        """A column by name, or one of `last`."""
        return self.arrays[name]

    def keys(self) -> KeysView[str]:
        """Names of all columns and of `last`."""
        return self.arrays.keys()

    def slice(self, start: int, stop: int) -> "Fragment":
        """Steps from `start` to before `stop`, as views; `last` stands where the end does."""
        columns = {name: column[start:stop] for name, column in self.columns.items()}
        return Fragment.of({**columns, **(self.last if stop >= len(self.valid) else {})})

    def timeslices(self, size: int) -> "list[Fragment]":
        """Slices of `size` steps; the last one may be shorter."""
        return [self.slice(t, t + size) for t in range(0, len(self.valid), size)]

    def split_by_episode(self) -> "list[Fragment]":
        """The pieces of episodes (L, 1), environment after environment, as views.

        Rows that are no transition are left out.
        """
        pieces: list[Fragment] = []
        steps, envs = self.valid.shape
        for env in range(envs):
            whole = {name: column[:, env : env + 1] for name, column in self.arrays.items()}
            one = Fragment.of(whole)
            over = (one.terminated | one.truncated | one.autoreset)[:, 0]
            ends = [*(np.flatnonzero(over) + 1).tolist(), steps]
            pieces += [one.slice(*span) for span in zip([0, *ends], ends, strict=False)]
        return [piece for piece in map(_transitions, pieces) if len(piece.valid)]

    def shuffled(self, stream: np.random.Generator) -> "Fragment":
        """The rows (R, 1) that may be learnt from, in another order."""
        kept = np.flatnonzero(rows(self.valid & ~self.autoreset))
        order = stream.permutation(kept)
        return Fragment.of({n: rows(column)[order][:, None] for n, column in self.columns.items()})

    @classmethod
    def concat(cls, parts: "Sequence[Fragment]") -> "Fragment":
        """All parts one after the other, of environments of one number; `last` is the last's."""
        joined = {n: np.concatenate([one[n] for one in parts]) for n in parts[0].columns}
        return cls.of({**joined, **parts[-1].last})

    def copy(self) -> "Fragment":
        """A fragment with copies of all arrays."""
        return Fragment.of({name: array.copy() for name, array in self.arrays.items()})

    @classmethod
    def of(cls, columns: Mapping[str, Array]) -> "Fragment":
        """Of all columns by name, ``last_<name>`` among them."""
        base = {one.name: columns[one.name] for one in fields(cls) if one.name not in BESIDE}
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
        """Arrays for one fragment of such observations and actions, and of declared columns."""
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
        return cls.of(made)


def _transitions(piece: Fragment) -> Fragment:
    """A piece of one environment, without a row at its end that is no transition."""
    steps = len(piece.valid)
    return piece.slice(0, steps - 1) if steps and piece.autoreset[-1, 0] else piece


BESIDE = ("declared", "last")
"""Fields of a fragment that are no columns."""


def requested(names: frozenset[str], like: Mapping[str, Column]) -> dict[str, Column]:
    """The columns of these names, some `like` those of observations, actions and memory.

    Raises:
        WorkerError: a name that no sampler writes.
    """
    if unknown := sorted(names - REQUESTABLE.keys()):
        raise WorkerError(
            f"columns: {', '.join(unknown)} cannot be requested of a worker; it can give "
            f"{', '.join(REQUESTABLE)}"
        )
    asked = {name: REQUESTABLE[name] for name in sorted(names)}
    return {name: like[one] if isinstance(one, str) else one for name, one in asked.items()}


@dataclass(frozen=True)
class TrainBatch:
    """B rows, fragment after fragment in worker order; within one, step after step."""

    observations: Array
    """(B, *S)."""
    actions: Array
    """(B,) or (B, K)."""
    logp: Array
    """(B,)."""
    values: Array
    """(B,)."""
    advantages: Array
    """(B,)."""
    returns: Array
    """(B,)."""

    def __len__(self) -> int:
        return len(self.observations)

    @classmethod
    def join(cls, parts: list[Self]) -> Self:
        """All parts as one; a single part is handed through without copying."""
        if len(parts) == 1:
            return parts[0]
        columns = {f.name: [getattr(part, f.name) for part in parts] for f in fields(cls)}
        return cls(**{name: np.concatenate(column) for name, column in columns.items()})

    def columns(self) -> dict[str, Array]:
        """Return the columns for a loss."""
        return dict(vars(self))

    def only(self, valid: Array) -> "TrainBatch":
        """The rows where `valid` (B,) holds; itself if all do."""
        if valid.all():
            return self
        return TrainBatch(**{f.name: getattr(self, f.name)[valid] for f in fields(self)})


def rows(column: Array) -> Array:
    """(T, N, …) as (T·N, …)."""
    return column.reshape(column.shape[0] * column.shape[1], *column.shape[2:])


# -------------------------------------------------------------------------------------------------
# What one rollout worker hands to its trainer in one round.


@dataclass(frozen=True)
class Sample:
    """The experience that one worker collected in one iteration."""

    fragments: list[Fragment]
    """They may be buffers that the worker writes again in its next `sample`."""
    episodes: list[RolloutMetrics]
    """Those that ended, in the order of their end."""
    deltas: dict[str, Any]
    """Each filter's statistics since it was last synchronised."""
    recent: Array
    """(≤ 64, D) the latest raw observations of this iteration."""
    perf: Mapping[str, float] = field(default_factory=dict)
    """Mean times of the worker's ticks."""
    trajectories: Sequence[list[Trajectory]] = ()
    """Of each fragment, its pieces by episode, where a callback looks at them."""
    index: int = 0
    """Of the worker."""
    late: bool = False
    """Its episodes had not come in time; they come with a later one."""
    was_read: bool = False
    """It comes from files; no environment was stepped for it."""
    version: int = 0
    """Of the weights that chose: `WorkerSet.version` as it was when they were given."""
    steps: int = 0
    """Environment steps of fragments that stayed where they were learnt from."""

    @property
    def count(self) -> int:
        """Environment steps."""
        return self.steps + sum(fragment.steps for fragment in self.fragments)

    def __getitem__(self, name: str) -> Array:
        """The rows (R, …) of a column, of all fragments, that are transitions."""
        return np.concatenate([rows(one[name])[~rows(one.autoreset)] for one in self.fragments])

    def keys(self) -> Collection[str]:
        """Names of columns."""
        return self.fragments[0].columns.keys() if self.fragments else ()

    def split_by_episode(self) -> list[Fragment]:
        """The pieces of episodes (L, 1) of all fragments, as views."""
        return [piece for one in self.fragments for piece in one.split_by_episode()]

    def slice(self, start: int, stop: int) -> Self:
        """Steps from `start` to before `stop` of each environment, fragment after fragment."""
        sliced, passed = list[Fragment](), 0
        for one in self.fragments:
            own = slice(max(0, start - passed), max(0, stop - passed))
            passed += len(one.valid)
            if len(one.valid[own]):
                sliced.append(one.slice(own.start, own.stop))
        return replace(self, fragments=sliced)

    def timeslices(self, size: int) -> list[Self]:
        """Slices of `size` steps of each environment; the last one may be shorter."""
        steps = sum(len(one.valid) for one in self.fragments)
        return [self.slice(t, t + size) for t in range(0, steps, size)]

    def shuffled(self, stream: np.random.Generator) -> Self:
        """The rows that may be learnt from, those of each fragment in another order."""
        return replace(self, fragments=[one.shuffled(stream) for one in self.fragments])

    @classmethod
    def concat(cls, parts: Sequence[Self]) -> Self:
        """The fragments and episodes of all parts; what else there is, is the last one's."""
        fragments = [fragment for one in parts for fragment in one.fragments]
        episodes = [episode for one in parts for episode in one.episodes]
        return replace(parts[-1], fragments=fragments, episodes=episodes)

    def compress(
        self, bulk: bool = False, columns: Sequence[str] = ("observations", "new_obs")
    ) -> "PackedSample":
        """The sample with these columns compressed (LZ4), each row by itself or as a whole.

        Raises:
            WorkerError: a column does not hold numbers.
        """
        packed = [
            {name: Packed.of(name, one[name], bulk) for name in columns if name in one.columns}
            for one in self.fragments
        ]
        none = np.zeros((0, 0, 0), dtype=np.float32)
        emptied = [
            Fragment.of({**one.arrays, **dict.fromkeys(own, none)})
            for one, own in zip(self.fragments, packed, strict=True)
        ]
        return PackedSample(replace(self, fragments=emptied), packed)


class Packed(NamedTuple):
    """A compressed array."""

    dtype: str
    shape: tuple[int, ...]
    frames: list[bytes]
    """LZ4 frames that make its bytes, one after the other."""

    @classmethod
    def of(cls, name: str, array: Array, bulk: bool) -> Self:
        """A column, row by row or as a whole."""
        if array.dtype == object:
            raise WorkerError(f"columns: {name} does not hold numbers, so it cannot be compressed")
        import lz4.frame  # not at the top: few compress

        parts = [array] if bulk else array.reshape(-1, *array.shape[2:])
        frames = [lz4.frame.compress(part.tobytes()) for part in parts]
        return cls(array.dtype.str, array.shape, frames)

    def array(self) -> Array:
        """The column again, to the bit."""
        import lz4.frame

        # A bytearray, because torch wants arrays that may be written.
        data = bytearray(b"".join(lz4.frame.decompress(frame) for frame in self.frames))
        return np.frombuffer(data, dtype=self.dtype).reshape(self.shape)


@dataclass(frozen=True)
class PackedSample:
    """A sample some of whose columns are compressed."""

    sample: Sample
    """Without them."""
    columns: list[dict[str, Packed]]
    """Of each fragment."""

    def decompress(self) -> Sample:
        """The sample as it was, to the bit."""
        pairs = zip(self.sample.fragments, self.columns, strict=True)
        fragments = [
            Fragment.of({**one.arrays, **{name: own.array() for name, own in packed.items()}})
            for one, packed in pairs
        ]
        return replace(self.sample, fragments=fragments)


def as_data(sample: Sample | None) -> dict[str, Any] | None:
    """Return the sample of a fake sampler, as plain data: ``fragments`` and ``recent``."""
    if sample is None:
        return None
    columns = [
        {name: as_plain(column) for name, column in one.arrays.items()} for one in sample.fragments
    ]
    return {"fragments": columns, "recent": sample.recent.copy()}


def as_plain(column: Array) -> Any:
    """A copy that may stand in a checkpoint: infos as nested lists."""
    return column.tolist() if column.dtype == object else column.copy()


def from_data(data: Mapping[str, Any] | None, index: int) -> Sample | None:
    """Take back what `as_data` gave, in the worker of this index."""
    if data is None:
        return None
    fragments = [
        Fragment.of({name: np.array(column) for name, column in columns.items()})
        for columns in data["fragments"]
    ]
    return Sample(fragments, [], {}, np.array(data["recent"]), index=index)
