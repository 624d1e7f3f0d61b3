"""Running normalisation of observations and rewards, mergeable between workers.

A worker's filter keeps what it was last given (the base) and, apart, what it has seen since (the
delta). Deltas are taken from the workers, merged into the master in worker order, and the result is
given back to all, who keep what they have seen in the meantime: nothing is counted twice or lost. B
rows, D features; statistics are float64.
"""

import threading
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from trainables.running_stat import RunningStat

Array = NDArray[Any]
EPSILON = 1e-8
REWARD_CLIP = 10.0


@runtime_checkable
class Filter(Protocol):
    """What the sampler and the trainer ask of a filter; states and deltas are plain data."""

    def __call__(self, x: Array, update: bool = True) -> Array:
        """Filter rows (B, D); `update` counts them first. The dtype is kept."""

    def get_delta(self, flush: bool = False) -> dict[str, Any]:
        """What was seen since the last flush; `flush` moves it into the base."""

    def apply_changes(self, delta: Mapping[str, Any]) -> None:
        """Merge another filter's delta into this one's base."""

    def sync(self, state: Mapping[str, Any]) -> None:
        """Adopt a master's base; what was seen since the last flush stays the delta."""

    def get_state(self) -> dict[str, Any]:
        """Base and delta, apart."""

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave."""


class NoFilter:
    """Leaves everything as it is."""

    def __call__(self, x: Array, update: bool = True) -> Array:
        """`x` itself."""
        return x

    def get_delta(self, flush: bool = False) -> dict[str, Any]:
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
        clip: bound on the absolute value of what comes out; None: unbounded.
        center: False leaves the mean in place, as rewards want.
    """

    def __init__(
        self, shape: tuple[int, ...], clip: float | None = 10.0, center: bool = True
    ) -> None:
        self.clip = clip
        self.center = center
        self._base = RunningStat(shape)
        self._delta = RunningStat(shape)
        self._known = RunningStat(shape)  # base and delta merged: what rows are filtered with

    def __call__(self, x: Array, update: bool = True) -> Array:
        """Filter rows (B, *shape); `update` counts them first. Bytes become float32."""
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
        if self.clip is not None:
            scaled = np.clip(scaled, -self.clip, self.clip)
        return np.asarray(scaled.astype(x.dtype if x.dtype.kind == "f" else np.float32))

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

    def get_delta(self, flush: bool = False) -> dict[str, Any]:
        """What was seen since the last flush: entries ``count``, ``mean``, ``m2``."""
        delta = self._delta.get_state()
        if flush:
            self._base.copy_from(self._known)
            self._delta.clear()
        return delta

    def apply_changes(self, delta: Mapping[str, Any]) -> None:
        """Merge another filter's delta into this one's base."""
        other = RunningStat(self._base.mean.shape)
        other.set_state(delta)
        self._base.merge(other)
        self._join()

    def sync(self, state: Mapping[str, Any]) -> None:
        """Adopt a master's base; what was seen since the last flush stays the delta."""
        self._base.set_state(state["base"])
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


class ConcurrentMeanStdFilter(MeanStdFilter):
    """A `MeanStdFilter` that one thread uses while another reads or synchronises it.

    A lock guards every access. Its state is that of the plain one.
    """

    def __init__(
        self, shape: tuple[int, ...], clip: float | None = 10.0, center: bool = True
    ) -> None:
        self._lock = threading.RLock()
        super().__init__(shape, clip, center)

    def __reduce__(self) -> tuple[Any, ...]:
        """In another process it is a plain `MeanStdFilter`: the threads stay here."""
        return _plain, (self._base.mean.shape, self.clip, self.center, self.get_state())

    def __call__(self, x: Array, update: bool = True) -> Array:
        """Filter rows (B, *shape); `update` counts them first. The dtype is kept."""
        with self._lock:
            return super().__call__(x, update)

    def count(self, rows: Array) -> None:
        """Count rows without filtering them."""
        with self._lock:
            super().count(rows)

    def scale(self, x: Array) -> Array:
        """Filter rows with what is known; nothing is counted."""
        with self._lock:
            return super().scale(x)

    @property
    def mean(self) -> Array:
        """(*shape) running mean, float64."""
        with self._lock:
            return super().mean

    @property
    def std(self) -> Array:
        """(*shape) running standard deviation, float64."""
        with self._lock:
            return super().std

    def get_delta(self, flush: bool = False) -> dict[str, Any]:
        """What was seen since the last flush: entries ``count``, ``mean``, ``m2``."""
        with self._lock:
            return super().get_delta(flush)

    def apply_changes(self, delta: Mapping[str, Any]) -> None:
        """Merge another filter's delta into this one's base."""
        with self._lock:
            super().apply_changes(delta)

    def sync(self, state: Mapping[str, Any]) -> None:
        """Adopt a master's base; what was seen since the last flush stays the delta."""
        with self._lock:
            super().sync(state)

    def get_state(self) -> dict[str, Any]:
        """Entries ``base`` and ``delta``, apart: nothing is flushed."""
        with self._lock:
            return super().get_state()

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave."""
        with self._lock:
            super().set_state(state)


def _plain(
    shape: tuple[int, ...], clip: float | None, center: bool, state: Mapping[str, Any]
) -> MeanStdFilter:
    made = MeanStdFilter(shape, clip, center)
    made.set_state(state)
    return made


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

    def __call__(
        self, rewards: Array, ended: NDArray[np.bool_], skipped: NDArray[np.bool_] | None = None
    ) -> Array:
        """Scaled rewards (N,); `ended` starts the return of those episodes anew.

        Where `skipped` (N,), a reward belongs to no transition: nothing is counted.
        """
        moved = self.returns * self.gamma + rewards
        self.returns = moved if skipped is None else np.where(skipped, self.returns, moved)
        if skipped is None:
            self.stat.count(self.returns)
        elif not skipped.all():
            self.stat.count(self.returns[~skipped])
        scaled = self.stat.scale(rewards)
        self.returns[ended] = 0.0
        return scaled


def make_reward_stat(concurrent: bool = False) -> MeanStdFilter:
    """Counts discounted returns; scales without subtracting a mean."""
    kind = ConcurrentMeanStdFilter if concurrent else MeanStdFilter
    return kind((), REWARD_CLIP, center=False)


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
