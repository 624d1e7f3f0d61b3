"""What a rollout writes and what a learner reads.

T steps, N environments, B rows, *S the shape of a filtered observation: (D,), or (H, W, C) for an
image; K columns of an action. A `Fragment` is (T, N), as the sampler writes it in place; a
`TrainBatch` is rows, with advantages. `terminated` and `truncated` stay apart.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from trainables.errors import WorkerError
from trainables.policies.actor import Column
from trainables.rollout.episode import Trajectory
from trainables.rollout.metrics import RolloutMetrics

Array = NDArray[Any]
REQUESTABLE: Mapping[str, Column | None] = {
    "new_obs": None,  # as an observation
    "t": ((), np.dtype(np.int64)),
    "eps_id": ((), np.dtype(np.int64)),
    "infos": ((), np.dtype(object)),
}
"""Columns that stand in a fragment where a reader requests them (`WorkerSpec.columns`).

``new_obs``: the next observation, at an episode's end its final one, filtered without being counted
· ``t``: the step's number in its episode, from 0 · ``eps_id``: the episode's number, of which no
two in a trial are alike · ``infos``: the step's info.
"""


@dataclass(frozen=True)
class Fragment:
    """T steps of N environments; arrays are (T, N, …).

    Every column is an attribute: those below, those that the policy's actor declares, and those
    that were requested.
    """

    observations: Array
    """(T, N, *S) filtered, float32; unfiltered images are uint8."""
    actions: Array
    """(T, N) int64 choices or rows (T, N, K), unclipped as the policy chose them."""
    rewards: Array
    """(T, N) as the learner wants them: clipped or scaled if so set."""
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


BESIDE = ("declared", "last")
"""What of a fragment is no column."""


def requested(names: frozenset[str], observation: Column) -> dict[str, Column]:
    """The columns of these names, for such observations.

    Raises:
        WorkerError: a name that no sampler writes.
    """
    if unknown := sorted(names - REQUESTABLE.keys()):
        raise WorkerError(
            f"columns: {', '.join(unknown)} cannot be requested of a worker; it can give "
            f"{', '.join(REQUESTABLE)}"
        )
    return {name: REQUESTABLE[name] or observation for name in sorted(names)}


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
        """What a loss is given."""
        return dict(vars(self))

    def only(self, valid: Array) -> "TrainBatch":
        """The rows where `valid` (B,) holds; itself if all do."""
        if valid.all():
            return self
        return TrainBatch(**{f.name: getattr(self, f.name)[valid] for f in fields(self)})


def rows(column: Array) -> Array:
    """(T, N, …) as (T·N, …)."""
    return column.reshape(-1, *column.shape[2:])


# -------------------------------------------------------------------------------------------------
# What one rollout worker hands to its trainer in one round.


@dataclass(frozen=True)
class Sample:
    """What one worker collected in one iteration."""

    fragments: list[Fragment]
    """They may be buffers that the worker writes again in its next `sample`."""
    episodes: list[RolloutMetrics]
    """Those that ended, in the order of their end."""
    deltas: dict[str, Any]
    """What each filter saw since it was last synchronised."""
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

    version: int = 0
    """Of the weights that chose: `WorkerSet.version` as it was when they were given."""

    steps: int = 0
    """Environment steps of fragments that stayed where they were learnt from."""

    @property
    def count(self) -> int:
        """Environment steps."""
        return self.steps + sum(fragment.steps for fragment in self.fragments)


def as_data(sample: Sample | None) -> dict[str, Any] | None:
    """What a fake sampler gives for ever, as plain data: ``fragments`` and ``recent``."""
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
