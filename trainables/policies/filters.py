"""Running normalisation of observations and rewards, mergeable between workers.

A worker's filter keeps the statistics of the last synchronisation (the base) and, apart, those of
the rows since (the delta). Deltas are taken from the workers and merged into the master in worker
order; all workers adopt the result and keep their newer deltas: nothing is counted twice or lost.
B rows, D features; statistics are float64.
"""

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from trainables.core.importing import entry_points, load, path_of
from trainables.core.settings import Section
from trainables.errors import ConfigError, NotImportable

Array = NDArray[Any]


class RunningStat:
    """Count, mean and sum of squared deviations of all rows seen; each feature by itself.

    Batches and whole statistics are merged with the parallel-variance formula (Chan et al. 1979).
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.count = 0
        self.mean = np.zeros(shape)
        self.m2 = np.zeros(shape)

    def push(self, rows: Array) -> None:
        """Count a batch (B, *shape) in one vectorised step."""
        if len(rows) == 0:
            return
        batch = np.asarray(rows, dtype=np.float64)
        # The ufuncs themselves: an array's methods take a detour through python.
        mean = np.add.reduce(batch, axis=0) / len(batch)
        moved = batch - mean
        self._merge(len(batch), mean, np.add.reduce(np.square(moved, out=moved), axis=0))

    def merge(self, other: "RunningStat") -> None:
        """Count everything that `other` has counted."""
        self._merge(other.count, other.mean, other.m2)

    def copy_from(self, other: "RunningStat") -> None:
        """Become equal to `other`."""
        self.count, self.mean, self.m2 = other.count, other.mean, other.m2

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


EPSILON = 1e-8
REWARD_CLIP = 10.0


@runtime_checkable
class Filter(Protocol):
    """A filter for the sampler and the trainer; states and deltas are plain data."""

    def __call__(self, x: Array, update: bool = True) -> Array:
        """Filter rows (B, D); `update` counts them first. The dtype is kept."""

    def get_delta(self, flush: bool = False) -> dict[str, Any]:
        """Return the statistics since the last flush; `flush` moves them into the base."""

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
        """Filter rows with what has been counted so far; nothing is counted."""
        shifted = x - self._known.mean if self.center else np.asarray(x, dtype=np.float64)
        scaled = shifted / (self._known.std() + EPSILON)
        if self.clip is not None:
            scaled = np.minimum(np.maximum(scaled, -self.clip), self.clip)
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
        """Return the statistics since the last flush: entries ``count``, ``mean``, ``m2``."""
        delta = self._delta.get_state()
        if flush:
            self._base.copy_from(self._known)
            self._delta = RunningStat(self._base.mean.shape)
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


def _locked(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def locked(self: ConcurrentMeanStdFilter, *args: Any, **kwargs: Any) -> Any:
        with self._lock:
            return method(self, *args, **kwargs)

    return locked


for _name, _member in tuple(vars(MeanStdFilter).items()):
    if isinstance(_member, property):
        setattr(ConcurrentMeanStdFilter, _name, property(_locked(_member.__get__)))
    elif callable(_member) and _name not in ("__init__", "_join"):
        setattr(ConcurrentMeanStdFilter, _name, _locked(_member))


def _plain(
    shape: tuple[int, ...], clip: float | None, center: bool, state: Mapping[str, Any]
) -> MeanStdFilter:
    made = MeanStdFilter(shape, clip, center)
    made.set_state(state)
    return made


class BeforeMasks:
    """Another filter for all of a row but so many numbers at its end, which stay as they are."""

    def __init__(self, features: Filter, masks: int) -> None:
        self.features = features
        self._masks = masks
        self.get_delta, self.apply_changes = features.get_delta, features.apply_changes
        self.sync, self.get_state = features.sync, features.get_state
        self.set_state = features.set_state

    def __call__(self, x: Array, update: bool = True) -> Array:
        """Filter rows (B, D); `update` counts them first."""
        filtered = self.features(x[:, : -self._masks], update=update)
        return np.concatenate([filtered, x[:, -self._masks :]], axis=1)


class RewardScaler:
    """Rewards by the running deviation of the discounted return (Engstrom et al. 2020), clipped.

    `stat` counts the discounted returns and is merged between workers like any filter.
    """

    def __init__(self, num_envs: int, gamma: float, stat: MeanStdFilter) -> None:
        self.gamma = gamma
        self.stat = stat
        self.returns = np.zeros(num_envs)
        """(N,) discounted return of each episode in flight; part of the sampler's state."""

    def __call__(
        self, rewards: Array, ended: NDArray[np.bool_], skipped: NDArray[np.bool_] | None = None
    ) -> Array:
        """Count rewards (N,) as `count` does; return them scaled."""
        self.count(rewards, ended, skipped)
        return self.stat.scale(rewards)

    def count(
        self, rewards: Array, ended: NDArray[np.bool_], skipped: NDArray[np.bool_] | None = None
    ) -> None:
        """Count the returns that rewards (N,) lead to; `ended` starts those of episodes anew.

        Where `skipped` (N,), a reward belongs to no transition: nothing is counted.
        """
        moved = self.returns * self.gamma + rewards
        self.returns = moved if skipped is None else np.where(skipped, self.returns, moved)
        self.stat.count(self.returns if skipped is None else self.returns[~skipped])
        self.returns[ended] = 0.0


def is_filtering(one: object) -> bool:
    """Return whether a filter changes anything; a class derived from `NoFilter` may."""
    return type(one) is not NoFilter


def of_features(one: Any) -> Any:
    """Return the filter of the features, whether or not masks follow them."""
    return one.features if isinstance(one, BeforeMasks) else one


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


#: Makes a filter for rows of a shape; what it gives is a `Filter`.
Maker: TypeAlias = Callable[[tuple[int, ...]], Any]
#: The entry points with which an installed package names its filters.
GROUP = "trainables.filters"
KINDS = ("NoFilter", "MeanStdFilter", "ConcurrentMeanStdFilter")
#: Those that one thread may use while another reads and synchronises them.
CONCURRENT_KINDS = ("NoFilter", "ConcurrentMeanStdFilter")


class FilterConfig(Section):
    """Normalisation of what the policy sees and learns from."""

    observation_filter: str | Maker = Field(
        default="NoFilter",
        description="NoFilter; MeanStdFilter: minus the running mean, by the running deviation; "
        "ConcurrentMeanStdFilter: the same for threads; or package.module:Name, or an entry point "
        "trainables.filters of an installed package, called with the shape.",
    )
    observation_filter_clip: float | None = Field(
        default=10.0,
        gt=0,
        description="Filtered observations are clipped to ± this many standard deviations; null: "
        "they are not.",
    )
    synchronize_filters: bool = Field(
        default=True,
        description="Workers filter with what all have seen; false: each with what it has seen, "
        "which goes with no algorithm that learns from a replay.",
    )
    normalize_rewards: bool = Field(
        default=False,
        description="Divide rewards by the deviation of the discounted return; clip to ±10, sums "
        "over n_step to as much for each reward.",
    )

    @field_validator("observation_filter", mode="before")
    @classmethod
    def _known_or_made(cls, value: object) -> object:
        named = isinstance(value, str) and (value in KINDS or ":" in value)
        if named or callable(value) or value in (installed := entry_points(GROUP)):
            return value
        names = ", ".join(f"'{kind}'" for kind in (*KINDS, *installed))
        raise ValueError(f"{names}, package.module:Name or a callable")


def make_filter(config: FilterConfig, shape: tuple[int, ...]) -> Filter:
    """The observation filter of the settings; ConfigError where a callable gives no `Filter`."""
    kind = config.observation_filter
    if kind == "NoFilter":
        return NoFilter()
    if kind == "MeanStdFilter":
        return MeanStdFilter(shape, config.observation_filter_clip)
    if kind == "ConcurrentMeanStdFilter":
        return ConcurrentMeanStdFilter(shape, config.observation_filter_clip)
    made = _maker(kind)(shape)
    if not isinstance(made, Filter):
        methods = ", ".join(sorted(n for n in vars(Filter) if n[0] != "_"))
        needs = f"{made!r} needs {methods} and a call"
        raise ConfigError("observation_filter", kind, "a callable that gives a filter", needs)
    return made


def _maker(kind: str | Maker) -> Maker:
    if not isinstance(kind, str):
        return kind
    try:
        path = kind if ":" in kind else path_of(GROUP, kind) or kind
    except NotImportable as error:
        raise ConfigError("observation_filter", kind, "one filter", str(error)) from error
    return load("observation_filter", path, "a filter's class or callable")


def make_filters(
    config: FilterConfig, shape: tuple[int, ...], concurrent: bool = False, masks: int = 0
) -> dict[str, Filter]:
    """The filters of a worker: ``observation``, and ``reward`` where rewards are scaled.

    `concurrent`: rewards are counted in one thread and synchronised by another. `masks`: so many
    numbers at a row's end are no features.
    """
    observation = make_filter(config, (shape[0] - masks,) if masks else shape)
    if masks and type(observation) is not NoFilter:
        observation = BeforeMasks(observation, masks)
    filters: dict[str, Filter] = {"observation": observation}
    if config.normalize_rewards:
        kind = ConcurrentMeanStdFilter if concurrent else MeanStdFilter
        filters["reward"] = kind((), REWARD_CLIP, center=False)
    return filters
