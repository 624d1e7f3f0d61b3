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

from trainables.rollout.episode import Trajectory
from trainables.rollout.metrics import RolloutMetrics

Array = NDArray[Any]
Column = tuple[tuple[int, ...], np.dtype[Any]]
"""Shape and type of one row."""


@dataclass(frozen=True)
class Fragment:
    """T steps of N environments; arrays are (T, N, …) but `last_values`."""

    observations: Array
    """(T, N, *S) filtered, float32; unfiltered images are uint8."""
    actions: Array
    """(T, N) int64 choices or rows (T, N, K), unclipped as the policy chose them."""
    logp: Array
    """(T, N) log-probability of each action when it was chosen."""
    values: Array
    """(T, N) V of each observation when it was seen."""
    rewards: Array
    """(T, N) as the learner wants them: clipped or scaled if so set."""
    terminated: Array
    """(T, N) the episode ended by itself."""
    truncated: Array
    """(T, N) the episode was cut off; its value goes on."""
    final_values: Array
    """(T, N) V of the final observation where truncated, 0 elsewhere."""
    valid: Array
    """(T, N) False: not to be learnt from (a faulty episode, or ``training_enabled: False``)."""
    autoreset: Array
    """(T, N) True: no transition at all, in no count
    (`trainables.envs.vector.base.Step.restarting`)."""
    memory: Array
    """(T, N, M) with which the policy saw each observation; M is 0 without an LSTM."""
    last_values: Array
    """(1, N) V of the observation after the last step."""

    @property
    def steps(self) -> int:
        """Transitions."""
        return self.autoreset.size - int(np.count_nonzero(self.autoreset))

    @classmethod
    def allocate(
        cls, steps: int, num_envs: int, observation: Column, action: Column, memory: int = 0
    ) -> "Fragment":
        """Arrays for one fragment of such observations and actions, and M numbers of memory."""
        rows = (steps, num_envs)
        return cls(
            observations=np.zeros((*rows, *observation[0]), dtype=observation[1]),
            actions=np.zeros((*rows, *action[0]), dtype=action[1]),
            logp=np.zeros(rows, dtype=np.float32),
            values=np.zeros(rows, dtype=np.float32),
            rewards=np.zeros(rows, dtype=np.float32),
            terminated=np.zeros(rows, dtype=np.bool_),
            truncated=np.zeros(rows, dtype=np.bool_),
            final_values=np.zeros(rows, dtype=np.float32),
            valid=np.ones(rows, dtype=np.bool_),
            autoreset=np.zeros(rows, dtype=np.bool_),
            memory=np.zeros((*rows, memory), dtype=np.float32),
            last_values=np.zeros((1, num_envs), dtype=np.float32),
        )


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
        return len(self.logp)

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

    @property
    def count(self) -> int:
        """Environment steps."""
        return sum(fragment.steps for fragment in self.fragments)


def as_data(sample: Sample | None) -> dict[str, Any] | None:
    """What a fake sampler gives for ever, as plain data: ``fragments`` and ``recent``."""
    if sample is None:
        return None
    columns = [
        {name: column.copy() for name, column in vars(fragment).items()}
        for fragment in sample.fragments
    ]
    return {"fragments": columns, "recent": sample.recent.copy()}


def from_data(data: Mapping[str, Any] | None, index: int) -> Sample | None:
    """Take back what `as_data` gave, in the worker of this index."""
    if data is None:
        return None
    fragments = [
        Fragment(**{name: np.array(column) for name, column in columns.items()})
        for columns in data["fragments"]
    ]
    return Sample(fragments, [], {}, np.array(data["recent"]), index=index)
