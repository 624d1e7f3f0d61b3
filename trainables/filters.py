"""Running normalisation of observations and rewards, mergeable between workers.

A worker's filter keeps what it was last given (the base) and, apart, what it has seen since (the
delta). Deltas are merged into the master in worker order with the parallel-variance formula (Chan
et al. 1979), and the result is given back to all: nothing is counted twice or lost. B rows, D
features; statistics are float64.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from trainables.settings import Section

Array = NDArray[Any]
EPSILON = 1e-8
REWARD_CLIP = 10.0


class FilterConfig(Section):
    """Normalisation of what the policy sees and learns from."""

    observation_filter: Literal["NoFilter", "MeanStdFilter"] = Field(
        default="NoFilter",
        description="NoFilter, or MeanStdFilter: minus the running mean, by the running deviation.",
    )
    observation_filter_clip: float = Field(
        default=10.0,
        gt=0,
        description="Filtered observations are clipped to ± this many standard deviations.",
    )
    normalize_rewards: bool = Field(
        default=False,
        description="Divide rewards by the deviation of the discounted return; clip to ±10.",
    )


class RunningStat:
    """Count, mean and sum of squared deviations of all rows seen; each feature by itself."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.count = 0
        self.mean = np.zeros(shape)
        self.m2 = np.zeros(shape)

    def push(self, rows: Array) -> None:
        """Count a batch (B, *shape) in one vectorised step."""
        if len(rows) == 0:
            return
        batch = np.asarray(rows, dtype=np.float64)
        mean = batch.mean(axis=0)
        self._merge(len(batch), mean, np.square(batch - mean).sum(axis=0))

    def merge(self, other: "RunningStat") -> None:
        """Count everything that `other` has counted."""
        self._merge(other.count, other.mean, other.m2)

    def copy_from(self, other: "RunningStat") -> None:
        """Become equal to `other`."""
        self.count, self.mean, self.m2 = other.count, other.mean, other.m2

    def clear(self) -> None:
        """Forget everything."""
        self.count = 0
        self.mean = np.zeros_like(self.mean)
        self.m2 = np.zeros_like(self.m2)

    def std(self) -> Array:
        """Population standard deviation; 1 before the second row."""
        if self.count < 2:
            return np.ones_like(self.mean)
        return np.asarray(np.sqrt(self.m2 / self.count))

    def get_state(self) -> dict[str, Any]:
        """Entries ``count``, ``mean``, ``m2``."""
        return {"count": self.count, "mean": np.array(self.mean), "m2": np.array(self.m2)}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave."""
        self.count = int(state["count"])
        self.mean = np.array(state["mean"], dtype=np.float64)
        self.m2 = np.array(state["m2"], dtype=np.float64)

    def _merge(self, count: int, mean: Array, m2: Array) -> None:
        total = self.count + count
        if count == 0:
            return
        delta = mean - self.mean
        self.mean = self.mean + delta * (count / total)  # never in place: copies share these arrays
        self.m2 = self.m2 + m2 + np.square(delta) * (self.count * count / total)
        self.count = total


class Filter(Protocol):
    """What the sampler, the trainer and the export ask of a filter."""

    def __call__(self, x: Array, update: bool = True) -> Array:
        """Filter rows (B, D); `update` counts them first. The dtype is kept."""

    def get_delta(self) -> dict[str, Any]:
        """What was seen since the last `sync`, as data."""

    def apply_changes(self, delta: Mapping[str, Any]) -> None:
        """Merge another filter's delta into this one's base."""

    def sync(self, state: Mapping[str, Any]) -> None:
        """Adopt a master's state; the own delta is then empty."""

    def get_state(self) -> dict[str, Any]:
        """Base and delta, apart."""

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave."""


class NoFilter:
    """Leaves everything as it is."""

    def __call__(self, x: Array, update: bool = True) -> Array:
        """`x` itself."""
        return x

    def get_delta(self) -> dict[str, Any]:
        """Nothing is ever counted."""
        return {}

    def apply_changes(self, delta: Mapping[str, Any]) -> None:
        """Nothing to merge."""

    def sync(self, state: Mapping[str, Any]) -> None:
        """Nothing to adopt."""

    def get_state(self) -> dict[str, Any]:
        """No entries."""
        return {}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """No entries."""


class MeanStdFilter:
    """(x - mean) / (std + 1e-8), clipped.

    Args:
        shape: of one row; () for scalars.
        clip: bound on the absolute value of what comes out.
        center: False leaves the mean in place, as rewards want.
    """

    def __init__(self, shape: tuple[int, ...], clip: float, center: bool = True) -> None:
        self.clip = clip
        self.center = center
        self._base = RunningStat(shape)
        self._delta = RunningStat(shape)
        self._known = RunningStat(shape)  # base and delta merged: what rows are filtered with

    def __call__(self, x: Array, update: bool = True) -> Array:
        """Filter rows (B, *shape); `update` counts them first. The dtype is kept."""
        if update:
            self.count(x)
        return self.scale(x)

    def count(self, rows: Array) -> None:
        """Count rows without filtering them."""
        self._delta.push(rows)
        self._join()

    def scale(self, x: Array) -> Array:
        """Filter rows with what is known; nothing is counted."""
        shifted = x - self._known.mean if self.center else np.asarray(x, dtype=np.float64)
        scaled = shifted / (self._known.std() + EPSILON)
        return np.clip(scaled, -self.clip, self.clip).astype(x.dtype)

    @property
    def mean(self) -> Array:
        """(*shape) running mean, float64."""
        return np.array(self._known.mean)

    @property
    def std(self) -> Array:
        """(*shape) running standard deviation, float64."""
        return self._known.std()

    @property
    def counted(self) -> int:
        """Rows counted in all."""
        return self._known.count

    def get_delta(self) -> dict[str, Any]:
        """What was seen since the last `sync`: entries ``count``, ``mean``, ``m2``."""
        return self._delta.get_state()

    def apply_changes(self, delta: Mapping[str, Any]) -> None:
        """Merge another filter's delta into this one's base."""
        other = RunningStat(self._base.mean.shape)
        other.set_state(delta)
        self._base.merge(other)
        self._join()

    def sync(self, state: Mapping[str, Any]) -> None:
        """Adopt a master's base; the own delta is then empty."""
        self._base.set_state(state["base"])
        self._delta.clear()
        self._join()

    def get_state(self) -> dict[str, Any]:
        """Entries ``base`` and ``delta``, apart: nothing is flushed."""
        return {"base": self._base.get_state(), "delta": self._delta.get_state()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave."""
        self._base.set_state(state["base"])
        self._delta.set_state(state["delta"])
        self._join()

    def _join(self) -> None:
        self._known.copy_from(self._base)
        self._known.merge(self._delta)


class RewardScaler:
    """Rewards by the running deviation of the discounted return (Engstrom et al. 2020), clipped.

    Args:
        num_envs: N.
        gamma: discount of the return.
        stat: counts the discounted returns; merged between workers like any filter.
    """

    def __init__(self, num_envs: int, gamma: float, stat: MeanStdFilter) -> None:
        self.gamma = gamma
        self.stat = stat
        self.returns = np.zeros(num_envs)
        """(N,) discounted return of each episode in flight; part of the sampler's state."""

    def __call__(self, rewards: Array, ended: NDArray[np.bool_]) -> Array:
        """Scaled rewards (N,); `ended` starts the return of those episodes anew."""
        self.returns = self.returns * self.gamma + rewards
        self.stat.count(self.returns)
        scaled = self.stat.scale(rewards)
        self.returns[ended] = 0.0
        return scaled


def make_filter(config: FilterConfig, size: int) -> NoFilter | MeanStdFilter:
    """The observation filter that the settings name, for rows of `size` features."""
    if config.observation_filter == "NoFilter":
        return NoFilter()
    return MeanStdFilter((size,), config.observation_filter_clip)


def make_reward_stat() -> MeanStdFilter:
    """Counts discounted returns; scales without subtracting a mean."""
    return MeanStdFilter((), REWARD_CLIP, center=False)


def make_filters(config: FilterConfig, size: int) -> dict[str, Filter]:
    """The filters of a worker: ``observation``, and ``reward`` where rewards are scaled."""
    filters: dict[str, Filter] = {"observation": make_filter(config, size)}
    if config.normalize_rewards:
        filters["reward"] = make_reward_stat()
    return filters


def get_state(filters: Mapping[str, Filter]) -> dict[str, Any]:
    """The state of each filter by name."""
    return {name: one.get_state() for name, one in filters.items()}


def set_state(filters: Mapping[str, Filter], state: Mapping[str, Any]) -> None:
    """Take back what `get_state` gave."""
    for name, one in filters.items():
        one.set_state(state[name])


def synchronise(
    master: Mapping[str, Filter], deltas: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Merge deltas, in worker order, into the master; returns the state to give back."""
    for delta in deltas:
        for name, one in master.items():
            one.apply_changes(delta[name])
    return get_state(master)
