"""Normalisation of observations and rewards by running statistics.

The statistics can be converted to a state of `MeanStdFilter` and back. N environments, D features.
"""

from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from trainables.policies.filters import EPSILON, REWARD_CLIP, MeanStdFilter


class RunningStatistics(NamedTuple):
    """Running statistics of observations (D,), or of discounted returns ()."""

    count: Array
    """Number of rows, ()."""
    mean: Array
    """Mean of each feature, (D,) or ()."""
    variance: Array
    """Population variance of each feature, (D,) or ()."""


class DiscountedReturns(NamedTuple):
    """Discounted returns of the running episodes, and their statistics."""

    returns: Array
    """Discounted return so far of each running episode, (N,)."""
    counted: RunningStatistics
    """Running statistics of the returns after each step, of numbers ()."""


def count(statistics: RunningStatistics, rows: Array) -> RunningStatistics:
    """Return the running statistics with rows (N, D), or numbers (N,), added."""
    added = jnp.float32(len(rows))
    total = statistics.count + added
    mean = rows.mean(0)
    moved = mean - statistics.mean
    spread = ((rows - mean) ** 2).sum(0) / total + moved**2 * (statistics.count * added / total**2)
    variance = statistics.variance * (statistics.count / total) + spread
    return RunningStatistics(total, statistics.mean + moved * (added / total), variance)


def scale(statistics: RunningStatistics, clip: Array, rows: Array) -> Array:
    """Return rows (…, D) scaled to mean 0 and standard deviation 1, then clipped to ±`clip`.

    With fewer than two counted rows the standard deviation is taken as 1.
    """
    deviation = jnp.where(statistics.count < 2, 1.0, jnp.sqrt(statistics.variance))
    return jnp.clip((rows - statistics.mean) / (deviation + EPSILON), -clip, clip)


class Settings(Protocol):
    """The settings of one trial by which its observations are filtered; each ()."""

    @property
    def is_filtered(self) -> Array:
        """True if observations are normalised by their running mean and standard deviation, ()."""

    @property
    def filter_clip(self) -> Array:
        """Bound of filtered observations, in standard deviations, (); infinite without clipping."""


def count_and_filter(
    settings: Settings, statistics: RunningStatistics, rows: Array
) -> tuple[RunningStatistics, Array]:
    """Add observations (N, D) to the statistics; return these and the filtered rows (N, D).

    Rows are filtered by the statistics that include them. Both are returned unchanged if the
    settings have no filter.
    """
    counted: RunningStatistics = jax.tree.map(
        lambda new, old: jnp.where(settings.is_filtered, new, old),
        count(statistics, rows),
        statistics,
    )
    return counted, filtered(settings, counted, rows)


def filtered(settings: Settings, statistics: RunningStatistics, rows: Array) -> Array:
    """Return observations (…, D) filtered by the statistics, or unchanged without a filter."""
    scaled = scale(statistics, settings.filter_clip, rows)
    return jnp.where(settings.is_filtered, scaled, rows)


class RewardSettings(Protocol):
    """The settings of one trial by which its rewards are scaled; each ()."""

    @property
    def gamma(self) -> Array:
        """Discount factor per step, ()."""

    @property
    def normalize_rewards(self) -> Array:
        """True if rewards are divided by the standard deviation of the discounted return, ()."""


def scale_rewards(
    settings: RewardSettings, discounted: DiscountedReturns, rewards: Array, is_over: Array
) -> tuple[DiscountedReturns, Array]:
    """Add a step's rewards (N,) to the returns and their statistics; return these and scaled ones.

    Rewards are divided by the deviation of the discounted return, as by `RewardScaler` (Engstrom et
    al. 2020), and clipped to ±`REWARD_CLIP`. `is_over` (N,) is True where an episode ended with the
    step; its return restarts at 0. If the settings do not normalise rewards, both are returned
    unchanged.
    """
    moved = discounted.returns * settings.gamma + rewards
    counted = count(discounted.counted, moved)
    deviation = jnp.where(counted.count < 2, 1.0, jnp.sqrt(counted.variance))
    scaled = jnp.clip(rewards / (deviation + EPSILON), -REWARD_CLIP, REWARD_CLIP)
    after = DiscountedReturns(jnp.where(is_over, 0.0, moved), counted)
    chosen: tuple[DiscountedReturns, Array] = jax.tree.map(
        lambda new, old: jnp.where(settings.normalize_rewards, new, old),
        (after, scaled),
        (discounted, rewards),
    )
    return chosen


def as_counted(observed: Any, shape: tuple[int, ...]) -> RunningStatistics:
    """Return the statistics of a filter of rows of this shape, (D,) or (), as the program's arrays.

    Without rows, or if `observed` is no `MeanStdFilter`, count and mean are 0 and the variance 1.
    """
    if not isinstance(observed, MeanStdFilter) or not observed.row_count:
        return RunningStatistics(
            np.float32(0), np.zeros(shape, np.float32), np.ones(shape, np.float32)
        )
    variance = np.square(observed.std) if observed.row_count > 1 else np.zeros(shape)
    return RunningStatistics(
        np.float32(observed.row_count),
        np.asarray(observed.mean, np.float32),
        np.asarray(variance, np.float32),
    )


def as_filter_state(statistics: RunningStatistics) -> dict[str, Any]:
    """Return the program's statistics as the state of a `MeanStdFilter`.

    All rows are in its base, none in its delta, the part that is not synchronised yet.
    """
    rows, mean = int(statistics.count), np.asarray(statistics.mean, np.float64)
    m2 = np.asarray(statistics.variance, np.float64) * rows
    nothing = {"count": 0, "mean": np.zeros_like(mean), "m2": np.zeros_like(mean)}
    return {"base": {"count": rows, "mean": mean, "m2": m2}, "delta": nothing}
