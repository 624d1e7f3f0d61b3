"""The outlook: by how much more training is expected to improve the pick."""

import math

import numpy as np
import pytest

from sweep.history.posterior.outlook import LEAST, outlook
from tests.support.trials import history
from tests.sweep.history.test_expectation import drawn


def test_what_is_drawn_is_the_mean_of_the_best_over_random_parts() -> None:
    stream = np.random.default_rng(0)
    values = np.sort(stream.normal(size=30))  # the last is the best
    found = outlook(values, 1.0)
    assert found is not None
    bests = []
    for _ in range(20000):
        part = values[stream.random(30) < 0.5]
        bests += [part.max()] if len(part) else []
    seen = values[-1] - values[:15].max()
    assert found.gain == pytest.approx((values[-1] - np.mean(bests) + seen) / 2, rel=0.03)
    assert found.range == pytest.approx(values[-1] - np.quantile(values, 0.1))


def test_a_pick_that_stands_out_is_not_settled_and_one_among_equals_is() -> None:
    poor = np.linspace(0.0, 1.0, 20)
    alone, among = (outlook(np.append([3.0] * good, poor), 1.0) for good in (1, 10))
    assert alone is not None
    assert among is not None
    assert alone.relative_gain > 0.1
    assert among.relative_gain < 0.01


def test_what_came_late_counts_for_more_than_what_came_early() -> None:
    values = np.linspace(0.0, 1.0, 16)
    rising, falling = outlook(values, 1.0), outlook(values[::-1].copy(), 1.0)
    assert rising is not None
    assert falling is not None
    assert rising.gain > falling.gain > 0


@pytest.mark.parametrize(("place", "seen"), [(3, 0.0), (4, 1.0)])
def test_as_much_training_again_is_compared_with_the_first_half_and_no_setting_more(
    place: int, seen: float
) -> None:
    values = np.zeros(8)
    values[place] = 1.0
    first, found = outlook(np.eye(8)[0], 1.0), outlook(values, 1.0)
    assert first is not None
    assert found is not None
    assert found.gain - first.gain == pytest.approx(seen / 2)


def test_more_training_brings_more() -> None:
    values = np.random.default_rng(1).normal(size=50)
    gains = [found.gain for more in (0.1, 0.5, 1.0, 4.0) if (found := outlook(values, more))]
    assert gains == sorted(gains)
    assert len(gains) == 4


@pytest.mark.parametrize("scale", [1e-300, 1.0, 8e307])
def test_values_of_any_size_are_judged_alike(scale: float) -> None:
    values = np.array([0.1, 0.2, 0.15, 0.9, 0.3, 0.5, -0.8, 1.0, 0.7])
    plain, large = outlook(values, 1.0), outlook(values * scale, 1.0)
    assert plain is not None
    assert large is not None
    assert large.relative_gain == pytest.approx(plain.relative_gain)
    assert math.isfinite(large.gain)


def test_of_few_settings_nothing_is_said_and_of_equal_ones_that_nothing_is_gained() -> None:
    assert outlook(np.arange(LEAST - 1.0), 1.0) is None
    equal = outlook(np.full(LEAST, 500.0), 1.0)
    assert equal is not None
    assert (equal.gain, equal.relative_gain) == (0.0, 0.0)


def test_nothing_is_said_before_settings_have_come_far() -> None:
    trials = drawn(1).trials
    assert history(trials, len(trials)).expectations.outlook() is not None
    low = [one for one in trials if len(one.milestones) == 1]
    assert history(low, len(low)).expectations.outlook() is None
