"""Running normalisation of observations and rewards, mergeable between workers.

A worker's filter keeps the statistics of the last synchronisation (the base) apart from those of
the rows since then (the delta). The trainer takes deltas from the workers and merges them into the
master's filter in worker order. All workers replace their base by the result and keep their newer
deltas, so that no row is counted twice or lost. B rows, D features; statistics are float64.
"""

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from trainables.core.importing import entry_point_path, entry_points, load_callable
from trainables.core.settings import Section
from trainables.errors import ConfigError, NotImportable, shorten

Array = NDArray[Any]


class RunningStat:
    """Running count, mean and sum of squared deviations of rows, separately for each feature.

    Batches and whole statistics are merged with the parallel-variance formula (Chan et al. 1979).
    `shape` is the shape of a row.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.count = 0
        self.mean = np.zeros(shape)
        self.m2 = np.zeros(shape)

    def push(self, rows: Array) -> None:
        """Add a batch of rows (B, *shape) to the statistics."""
        if len(rows) == 0:
            return
        batch = np.asarray(rows, dtype=np.float64)
        # Ufuncs are called directly, since an array's methods take a detour through Python.
        mean = np.add.reduce(batch, axis=0) / len(batch)
        moved = batch - mean
        self._merge(len(batch), mean, np.add.reduce(np.square(moved, out=moved), axis=0))

    def merge(self, other: "RunningStat") -> None:
        """Add the statistics of `other` to these."""
        self._merge(other.count, other.mean, other.m2)

    def copy_from(self, other: "RunningStat") -> None:
        """Replace count, mean and squared deviations by those of `other`, sharing its arrays."""
        self.count, self.mean, self.m2 = other.count, other.mean, other.m2

    def std(self) -> Array:
        """Return the population standard deviation (*shape); ones until there are two rows."""
        if self.count < 2:
            return np.ones_like(self.mean)
        return np.asarray(np.sqrt(self.m2 / self.count))

    def get_state(self) -> dict[str, Any]:
        """Return copies of ``count``, ``mean`` and ``m2``, the sum of squared deviations."""
        return {"count": self.count, "mean": np.array(self.mean), "m2": np.array(self.m2)}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Replace count, mean and squared deviations by copies of those in `state`."""
        self.count = int(state["count"])
        self.mean = np.array(state["mean"], dtype=np.float64)
        self.m2 = np.array(state["m2"], dtype=np.float64)

    def _merge(self, count: int, mean: Array, m2: Array) -> None:
        """Add the statistics of `count` rows: their mean, and sum of squared deviations `m2`."""
        total = self.count + count
        if count == 0:
            return
        delta = mean - self.mean
        self.mean = self.mean + delta * (count / total)  # not in place: copies share these arrays
        self.m2 = self.m2 + m2 + np.square(delta) * (self.count * count / total)
        self.count = total


#: Number added to a standard deviation before it divides.
EPSILON = 1e-8
#: Bound on the absolute value of a scaled reward.
REWARD_CLIP = 10.0


@runtime_checkable
class Filter(Protocol):
    """Protocol of a filter that normalises rows with running statistics.

    The base are statistics that all workers share, the delta those of rows since the last flush.
    States and deltas are plain data.
    """

    def __call__(self, x: Array, update: bool = True) -> Array:
        """Return rows (B, *shape) filtered; rows of floats keep their dtype.

        Other rows become floats, unless the filter changes nothing. With `update` the rows are
        first added to the statistics.
        """

    def get_delta(self, flush: bool = False) -> dict[str, Any]:
        """Return the statistics of rows since the last flush; `flush` moves them into the base."""

    def apply_changes(self, delta: Mapping[str, Any]) -> None:
        """Merge another filter's delta, as `get_delta` returned it, into the base of this one."""

    def sync(self, state: Mapping[str, Any]) -> None:
        """Replace the merged statistics (the base) by those of another filter's state."""

    def get_state(self) -> dict[str, Any]:
        """Return base and delta as plain data, separately."""

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore a state of `get_state`."""


class NoFilter:
    """A filter that changes nothing and counts nothing."""

    def __call__(self, x: Array, update: bool = True) -> Array:
        """Return `x` itself."""
        return x

    def get_delta(self, flush: bool = False) -> dict[str, Any]:
        """Return an empty dict, since nothing is counted."""
        return {}

    def apply_changes(self, delta: Mapping[str, Any]) -> None:
        """Do nothing."""

    def sync(self, state: Mapping[str, Any]) -> None:
        """Do nothing."""

    def get_state(self) -> dict[str, Any]:
        """Return an empty dict."""
        return {}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Do nothing."""


class MeanStdFilter:
    """A filter that returns (x - mean) / (std + 1e-8), clipped.

    Args:
        shape: shape of one row; () for scalars.
        clip: bound on the absolute value of the result, or None for no bound.
        center: False to leave the mean in place, as for rewards.
    """

    def __init__(
        self, shape: tuple[int, ...], clip: float | None = 10.0, center: bool = True
    ) -> None:
        self.clip = clip
        self.center = center
        self._base = RunningStat(shape)
        self._delta = RunningStat(shape)
        self._merged = RunningStat(shape)  # base and delta merged, with which rows are filtered

    def __call__(self, x: Array, update: bool = True) -> Array:
        """Return filtered rows (B, *shape); with `update`, first add the rows to the statistics.

        Other types than floats become float32.
        """
        if update:
            self.count(x)
        return self.scale(x)

    def count(self, rows: Array) -> None:
        """Add rows (B, *shape) to the statistics without filtering them."""
        self._delta.push(rows)
        self._merge_parts()

    def scale(self, x: Array) -> Array:
        """Return rows (B, *shape) filtered by the statistics so far, without counting them.

        Other types than floats become float32.
        """
        shifted = x - self._merged.mean if self.center else np.asarray(x, dtype=np.float64)
        scaled = shifted / (self._merged.std() + EPSILON)
        if self.clip is not None:
            scaled = np.minimum(np.maximum(scaled, -self.clip), self.clip)
        return np.asarray(scaled.astype(x.dtype if x.dtype.kind == "f" else np.float32))

    @property
    def mean(self) -> Array:
        """Copy of the running mean (*shape), float64; zeros before the first row."""
        return np.array(self._merged.mean)

    @property
    def std(self) -> Array:
        """Running standard deviation (*shape), float64; ones until two rows were counted."""
        return self._merged.std()

    @property
    def row_count(self) -> int:
        """Number of rows in the statistics: those counted here, and those of merged filters."""
        return self._merged.count

    def get_delta(self, flush: bool = False) -> dict[str, Any]:
        """Return ``count``, ``mean`` and ``m2`` (squared deviations) of rows since the last flush.

        `flush` moves them into the base, so that the next delta does not have them.
        """
        delta = self._delta.get_state()
        if flush:
            self._base.copy_from(self._merged)
            self._delta = RunningStat(self._base.mean.shape)
        return delta

    def apply_changes(self, delta: Mapping[str, Any]) -> None:
        """Merge another filter's delta, as `get_delta` returned it, into the base of this one."""
        other = RunningStat(self._base.mean.shape)
        other.set_state(delta)
        self._base.merge(other)
        self._merge_parts()

    def sync(self, state: Mapping[str, Any]) -> None:
        """Replace the base by that in another filter's state; the delta does not change."""
        self._base.set_state(state["base"])
        self._merge_parts()

    def get_state(self) -> dict[str, Any]:
        """Return ``base`` and ``delta``, each with count, mean and m2; nothing is flushed."""
        return {"base": self._base.get_state(), "delta": self._delta.get_state()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore a state of `get_state`."""
        self._base.set_state(state["base"])
        self._delta.set_state(state["delta"])
        self._merge_parts()

    def _merge_parts(self) -> None:
        """Recompute the merged statistics from base and delta."""
        self._merged.copy_from(self._base)
        self._merged.merge(self._delta)


class ConcurrentMeanStdFilter(MeanStdFilter):
    """A `MeanStdFilter` that one thread uses while another reads or synchronises it.

    A lock guards every access. States and deltas are those of a `MeanStdFilter`.
    """

    def __init__(
        self, shape: tuple[int, ...], clip: float | None = 10.0, center: bool = True
    ) -> None:
        self._lock = threading.RLock()
        super().__init__(shape, clip, center)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a `MeanStdFilter` with this state; the other process has no such threads."""
        return _make_plain_filter, (self._base.mean.shape, self.clip, self.center, self.get_state())


def _with_lock(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that calls `method` while it holds the filter's lock."""

    @functools.wraps(method)
    def locked(self: ConcurrentMeanStdFilter, *args: Any, **kwargs: Any) -> Any:
        """Call the method while the filter's lock is held."""
        with self._lock:
            return method(self, *args, **kwargs)

    return locked


for _name, _member in tuple(vars(MeanStdFilter).items()):
    if isinstance(_member, property):
        setattr(ConcurrentMeanStdFilter, _name, property(_with_lock(_member.__get__)))
    elif callable(_member) and _name not in ("__init__", "_merge_parts"):
        setattr(ConcurrentMeanStdFilter, _name, _with_lock(_member))


def _make_plain_filter(
    shape: tuple[int, ...], clip: float | None, center: bool, state: Mapping[str, Any]
) -> MeanStdFilter:
    """Return a `MeanStdFilter` with this state."""
    made = MeanStdFilter(shape, clip, center)
    made.set_state(state)
    return made


class MaskedFilter:
    """A filter of observations that end with an action mask, which is not filtered.

    `features` is the filter of the other columns, `masks` the length of the mask. Other methods
    than a call are those of `features`.
    """

    def __init__(self, features: Filter, masks: int) -> None:
        self.features = features
        self._masks = masks
        self.get_delta, self.apply_changes = features.get_delta, features.apply_changes
        self.sync, self.get_state = features.sync, features.get_state
        self.set_state = features.set_state

    def __call__(self, x: Array, update: bool = True) -> Array:
        """Return rows (B, D) with filtered features and an unchanged mask.

        With `update` the features are first added to the statistics.
        """
        filtered = self.features(x[:, : -self._masks], update=update)
        return np.concatenate([filtered, x[:, -self._masks :]], axis=1)


class RewardScaler:
    """Divides rewards by the running deviation of the discounted return (Engstrom et al. 2020).

    Args:
        gamma: discount factor of the return.
        stat: filter with the statistics of discounted returns; merged between workers as any
            filter.
    """

    def __init__(self, num_envs: int, gamma: float, stat: MeanStdFilter) -> None:
        self.gamma = gamma
        self.stat = stat
        self.returns = np.zeros(num_envs)
        """Discounted return so far of each running episode, (N,); part of the sampler's state."""

    def __call__(
        self, rewards: Array, has_ended: NDArray[np.bool_], skipped: NDArray[np.bool_] | None = None
    ) -> Array:
        """Count a step's rewards (N,) with `count`; return them divided by the deviation, clipped.

        Episodes with a True in `has_ended` (N,) end with this step. Rewards with a True in
        `skipped` (N,) are not counted.
        """
        self.count(rewards, has_ended, skipped)
        return self.stat.scale(rewards)

    def count(
        self, rewards: Array, has_ended: NDArray[np.bool_], skipped: NDArray[np.bool_] | None = None
    ) -> None:
        """Update the discounted returns with a step's rewards (N,), and add them to the statistics.

        Returns with a True in `has_ended` (N,) restart at 0. Rewards with a True in `skipped` (N,)
        belong to no transition, so neither the return nor the statistics include them.
        """
        moved = self.returns * self.gamma + rewards
        self.returns = moved if skipped is None else np.where(skipped, self.returns, moved)
        self.stat.count(self.returns if skipped is None else self.returns[~skipped])
        self.returns[has_ended] = 0.0


def is_filtering(filter_: object) -> bool:
    """Return whether the filter may change rows: whether its class is not `NoFilter` itself."""
    return type(filter_) is not NoFilter


def feature_filter(filter_: Any) -> Any:
    """Return the filter of the features: the inner one of `MaskedFilter`, else `filter_` itself."""
    return filter_.features if isinstance(filter_, MaskedFilter) else filter_


def get_state(filters: Mapping[str, Filter]) -> dict[str, Any]:
    """Return the state of each filter by name."""
    return {name: one.get_state() for name, one in filters.items()}


def set_state(filters: Mapping[str, Filter], state: Mapping[str, Any]) -> None:
    """Restore the filters to states of `get_state`."""
    for name, one in filters.items():
        one.set_state(state[name])


def synchronise(
    master: Mapping[str, Filter], deltas: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Merge workers' deltas (each filter's name → delta), in order, into the trainer's filters.

    `master` are the trainer's filters by name. Returns name → state of each, which workers take
    over with `Filter.sync`.
    """
    for delta in deltas:
        for name, one in master.items():
            one.apply_changes(delta[name])
    return get_state(master)


#: Function of the shape of a row that returns a `Filter`.
Maker: TypeAlias = Callable[[tuple[int, ...]], Any]
#: Group of entry points with which an installed package names its filters.
GROUP = "trainables.filters"
#: Names of the filters defined here.
KINDS = ("NoFilter", "MeanStdFilter", "ConcurrentMeanStdFilter")
#: Names of filters that one thread may use while another reads and synchronises them.
CONCURRENT_KINDS = ("NoFilter", "ConcurrentMeanStdFilter")


class FilterConfig(Section):
    """Settings of the normalisation of observations and rewards."""

    observation_filter: str | Maker = Field(
        default="NoFilter",
        description="Filter of observations. NoFilter; MeanStdFilter: subtract the running mean "
        "and divide by the running standard deviation; ConcurrentMeanStdFilter: the same, safe "
        "for threads (for sample_async); or your own, called with the shape of an observation: "
        "package.module:Name, or an installed package's entry point in the group "
        "trainables.filters.",
    )
    observation_filter_clip: float | None = Field(
        default=10.0,
        gt=0,
        description="Number of standard deviations to which the built-in filters clip "
        "observations; null: no clipping.",
    )
    synchronize_filters: bool = Field(
        default=True,
        description="true: all workers filter with common statistics; false: each worker has its "
        "own statistics, which bc, dqn, iql, sac and td3 refuse.",
    )
    normalize_rewards: bool = Field(
        default=False,
        description="Divide rewards by the standard deviation of the discounted return and clip "
        "them to ±10; with n_step, the limit for a sum of rewards grows with their number.",
    )

    @field_validator("observation_filter", mode="before")
    @classmethod
    def _check_observation_filter(cls, value: object) -> object:
        """Return `value`.

        Raises ValueError if it is no callable, known name, path or entry point.
        """
        named = isinstance(value, str) and (value in KINDS or ":" in value)
        if named or callable(value) or value in (installed := entry_points(GROUP)):
            return value
        names = ", ".join(f"'{kind}'" for kind in (*KINDS, *installed))
        raise ValueError(f"{names}, package.module:Name or a callable")


def make_filter(config: FilterConfig, shape: tuple[int, ...]) -> Filter:
    """Make the observation filter that the settings name, for rows of this shape.

    The clip of the settings applies to the built-in filters only; a user's callable gets just the
    shape. Raises ConfigError if it cannot be loaded or returns no `Filter`.
    """
    kind = config.observation_filter
    if kind == "NoFilter":
        return NoFilter()
    if kind == "MeanStdFilter":
        return MeanStdFilter(shape, config.observation_filter_clip)
    if kind == "ConcurrentMeanStdFilter":
        return ConcurrentMeanStdFilter(shape, config.observation_filter_clip)
    made = _load_maker(kind)(shape)
    if not isinstance(made, Filter):
        methods = ", ".join(sorted(n for n in vars(Filter) if n[0] != "_"))
        problem = f"{shorten(kind)} returned {shorten(made)}, which is not a filter"
        allowed = f"an object with {methods} that can be called"
        raise ConfigError("observation_filter", kind, allowed, problem=problem)
    return made


def _load_maker(kind: str | Maker) -> Maker:
    """Return the callable (shape of a row) → filter that the setting `kind` names.

    Raises ConfigError if it cannot be loaded.
    """
    if not isinstance(kind, str):
        return kind
    try:
        path = kind if ":" in kind else entry_point_path(GROUP, kind) or kind
    except NotImportable as error:
        raise ConfigError("observation_filter", kind, problem=str(error)) from error
    return load_callable("observation_filter", path, "a filter's class or callable")


def make_filters(
    config: FilterConfig, shape: tuple[int, ...], concurrent: bool = False, masks: int = 0
) -> dict[str, Filter]:
    """Make the filters of a worker: ``observation``, and ``reward`` if rewards are normalised.

    Args:
        shape: shape of an observation, with its action mask.
        concurrent: True if one thread counts rewards while another synchronises the filter. It
            makes the reward filter safe for threads; the observation filter is that of `config`.
        masks: length of the action mask at the end of an observation, which is not filtered, or 0.

    Raises:
        ConfigError: the observation filter cannot be loaded or is no `Filter`.
    """
    observation = make_filter(config, (shape[0] - masks,) if masks else shape)
    if masks and type(observation) is not NoFilter:
        observation = MaskedFilter(observation, masks)
    filters: dict[str, Filter] = {"observation": observation}
    if config.normalize_rewards:
        kind = ConcurrentMeanStdFilter if concurrent else MeanStdFilter
        filters["reward"] = kind((), REWARD_CLIP, center=False)
    return filters
