"""Intervals and comparisons of a few noisy scores, against tables and by counting."""

import numpy as np
import pytest

from sweep.core import stats
from sweep.spec.objective import interquartile_mean
from trainables.core import rng


def test_quantiles_are_those_of_the_tables() -> None:
    assert stats.t_quantile(0.95, 2) == pytest.approx(2.920, abs=1e-3)
    assert stats.t_quantile(0.975, 9) == pytest.approx(2.262, abs=1e-3)
    assert stats.t_quantile(0.975, 10**9) == pytest.approx(1.960, abs=1e-3)


def test_the_interval_of_a_mean_is_students() -> None:
    found = stats.mean_interval([1.0, 2.0, 3.0, 4.0, 5.0])
    reach = 2.776 * (2.5 / 5) ** 0.5
    assert found.value == 3.0
    assert found.low == pytest.approx(3 - reach, abs=1e-3)
    assert found.high == pytest.approx(3 + reach, abs=1e-3)


def test_the_pooled_spread_is_within_groups_and_needs_one_of_two() -> None:
    assert stats.pooled_spread([[1.0], [5.0]]) is None
    found = stats.pooled_spread([[1.0, 3.0], [10.0, 10.0, 13.0], [99.0]])
    assert found is not None
    assert found.freedom == 3
    assert found.deviation == pytest.approx((8 / 3) ** 0.5)


def test_one_score_has_no_bound() -> None:
    with pytest.raises(ValueError, match="no spread"):
        stats.confidence_bound([1.0], 0.9, upper=False)


def test_about_nineteen_of_twenty_intervals_hold_the_truth() -> None:
    stream = rng.generator(1, "coverage")
    draws = stream.standard_normal((400, 6)).tolist()
    held = [found.low <= 0.0 <= found.high for found in map(stats.mean_interval, draws)]
    assert 0.92 <= np.mean(held) <= 0.98


def test_a_bootstrap_is_the_same_every_time_and_holds_its_estimate() -> None:
    scores = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0]
    found = stats.bootstrap_interval(scores, interquartile_mean, seed=7)
    assert found == stats.bootstrap_interval(scores, interquartile_mean, seed=7)
    assert found.value == interquartile_mean(sorted(scores))
    assert min(scores) <= found.low < found.value < found.high <= max(scores)


def test_a_bootstrap_of_three_is_too_narrow_and_one_of_ten_is_not() -> None:
    """As the report and the page about seeds say."""
    stream, held = np.random.default_rng(0), dict[int, float]()
    for size in (3, 10):
        draws = [sorted(stream.normal(size=size).tolist()) for _ in range(100)]
        found = [stats.bootstrap_interval(d, interquartile_mean, i) for i, d in enumerate(draws)]
        held[size] = sum(one.low <= 0.0 <= one.high for one in found) / 100
    assert 0.65 < held[3] < 0.85
    assert held[10] > 0.85


def test_the_probability_of_improvement_counts_pairs_and_ties_as_half() -> None:
    assert stats.improvement([1.0, 3.0], [2.0, 3.0]).value == (1 + 0.5) / 4
    assert stats.improvement([1.0, 2.0], [1.0, 2.0]).value == 0.5


def test_runs_that_never_overlap_are_not_taken_for_certain() -> None:
    """At the bound, 1 - bound is 1.96 of the deviations that it would have itself."""
    above = [float(k) for k in range(10, 20)]
    below = [float(k) for k in range(10)]
    found = stats.improvement(above, below)
    assert (found.value, found.high) == (1.0, 1.0)
    low = found.low
    overlap = (1 - low) / (2 - low) + low / (1 + low)
    assert 1 - low == pytest.approx(1.96 * (low * (1 - low) * (1 + 9 * overlap) / 100) ** 0.5, 1e-3)
    assert 0.75 < low < 0.85
    turned = stats.improvement(below, above)
    assert (turned.value, turned.low) == (0.0, 0.0)
    assert turned.high == pytest.approx(1 - found.low)


def test_about_nineteen_of_twenty_comparisons_hold_the_truth() -> None:
    """Normal scores, one standard deviation apart: the first wins with probability 0.760."""
    stream = rng.generator(2, "coverage")
    held = []
    for _ in range(200):
        first, second = stream.standard_normal(8) + 1.0, stream.standard_normal(8)
        found = stats.improvement(first.tolist(), second.tolist())
        held.append(found.low <= 0.760 <= found.high)
    assert 0.90 <= np.mean(held) <= 1.0
