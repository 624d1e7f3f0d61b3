"""Normalisation of observations by their running mean and standard deviation.

The statistics can be converted to a state of `MeanStdFilter` and back. D features.
"""

from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from trainables.policies.filters import EPSILON, MeanStdFilter


class Counted(NamedTuple):
    """Running statistics of observations."""

    count: Array
    """Number of rows, ()."""
    mean: Array
    """Mean of each feature, (D,)."""
    variance: Array
    """Variance of each feature, (D,)."""


def count(statistics: Counted, rows: Array) -> Counted:
    """Return the statistics after adding rows (N, D), by the method of Chan et al. (1979)."""
    added = jnp.float32(len(rows))
    total = statistics.count + added
    mean = rows.mean(0)
    moved = mean - statistics.mean
    spread = ((rows - mean) ** 2).sum(0) / total + moved**2 * (statistics.count * added / total**2)
    variance = statistics.variance * (statistics.count / total) + spread
    return Counted(total, statistics.mean + moved * (added / total), variance)


def scale(statistics: Counted, clip: Array, rows: Array) -> Array:
    """Return rows (…, D) scaled to mean 0 and standard deviation 1, then clipped."""
    deviation = jnp.where(statistics.count < 2, 1.0, jnp.sqrt(statistics.variance))
    return jnp.clip((rows - statistics.mean) / (deviation + EPSILON), -clip, clip)


class Settings(Protocol):
    """The settings of a lane by which its observations are filtered; each ()."""

    @property
    def is_filtered(self) -> Array:
        """True if observations are normalised by their running mean and standard deviation."""

    @property
    def filter_clip(self) -> Array:
        """Bound of filtered observations, in standard deviations; infinite without clipping."""


def see(settings: Settings, statistics: Counted, rows: Array) -> tuple[Counted, Array]:
    """Return the statistics after adding rows (N, D), and the filtered rows (N, D).

    Without a filter, both are returned unchanged.
    """
    counted: Counted = jax.tree.map(
        lambda new, old: jnp.where(settings.is_filtered, new, old),
        count(statistics, rows),
        statistics,
    )
    return counted, filtered(settings, counted, rows)


def filtered(settings: Settings, statistics: Counted, rows: Array) -> Array:
    """Return rows (…, D) filtered by the statistics, or unchanged without a filter."""
    scaled = scale(statistics, settings.filter_clip, rows)
    return jnp.where(settings.is_filtered, scaled, rows)


def as_counted(observed: Any, features: int) -> Counted:
    """Return the statistics of a filter in the program's form; empty ones for other filters."""
    if not isinstance(observed, MeanStdFilter) or not observed.counted:
        return Counted(np.float32(0), np.zeros(features, np.float32), np.ones(features, np.float32))
    variance = np.square(observed.std) if observed.counted > 1 else np.zeros(features)
    return Counted(
        np.float32(observed.counted), observed.mean.astype(np.float32), variance.astype(np.float32)
    )


def as_filter_state(statistics: Counted) -> dict[str, Any]:
    """Return the program's statistics as the state of a `MeanStdFilter`."""
    rows, mean = int(statistics.count), np.asarray(statistics.mean, np.float64)
    m2 = np.asarray(statistics.variance, np.float64) * rows
    nothing = {"count": 0, "mean": np.zeros_like(mean), "m2": np.zeros_like(mean)}
    return {"base": {"count": rows, "mean": mean, "m2": m2}, "delta": nothing}
