"""What one rollout worker hands to its trainer in one round."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainables.rollout.batch import Fragment
from trainables.rollout.metrics import RolloutMetrics
from trainables.rollout.watch import Trajectory

Array = NDArray[Any]


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
