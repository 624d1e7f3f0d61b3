import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainables.learners.returns import (
    Bounds,
    Traced,
    generalized_advantages,
    next_values,
    v_trace,
)


def column(*numbers: float) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return np.array(numbers, dtype=np.float64)[:, None]


def flags(*numbers: int) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    return np.array(numbers, dtype=np.bool_)[:, None]


def test_a_truncated_episode_bootstraps_its_final_value_and_a_terminated_one_nothing() -> None:
    # Step 1 is cut off (its final observation is worth 10), step 3 terminates, the others go on.
    rewards = column(1, 2, 3, 4, 5)
    values = column(0.5, 1.5, 2.5, 3.5, 4.5)
    final_values = column(0, 10, 0, 99, 0)
    truncated, terminated = flags(0, 1, 0, 0, 0), flags(0, 0, 0, 1, 0)
    gamma, lambda_ = 0.9, 0.8
    following = next_values(values, np.array([6.0]), final_values, truncated)
    advantages, returns = generalized_advantages(
        rewards, values, following, (terminated, truncated), (gamma, lambda_)
    )
    a4 = 5 + 0.9 * 6.0 - 4.5
    a3 = 4 - 3.5
    a2 = (3 + 0.9 * 3.5 - 2.5) + 0.72 * a3
    a1 = 2 + 0.9 * 10 - 1.5
    a0 = (1 + 0.9 * 1.5 - 0.5) + 0.72 * a1
    np.testing.assert_allclose(advantages[:, 0], [a0, a1, a2, a3, a4], rtol=1e-6)
    np.testing.assert_allclose(returns, advantages + values, rtol=1e-6)


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=20), st.floats(0, 1))
def test_with_lambda_1_and_no_ends_returns_are_discounted_sums(
    numbers: list[float], gamma: float
) -> None:
    rewards = column(*numbers)
    nothing = np.zeros(rewards.shape, dtype=np.bool_)
    values = np.zeros_like(rewards)
    following = next_values(values, np.array([2.0]), values, nothing)
    _, returns = generalized_advantages(
        rewards, values, following, (nothing, nothing), (gamma, 1.0)
    )
    expected = 2.0
    for t in range(len(numbers) - 1, -1, -1):
        expected = numbers[t] + gamma * expected
        np.testing.assert_allclose(returns[t, 0], expected, rtol=1e-5, atol=1e-5)


#: Five steps: step 1 is cut off (its final observation is worth 10), step 3 terminates.
REWARDS, VALUES = column(1, 2, 3, 4, 5), column(0.5, 1.5, 2.5, 3.5, 4.5)
TERMINATED = flags(0, 0, 0, 1, 0)
#: How much more probable each action is now than it was.
RATIOS = column(0.5, 4, 2, 0.25, 3)


def traced(
    bounds: Bounds,
    lambda_: float = 1.0,
    truncated: np.ndarray[tuple[int, ...], np.dtype[np.bool_]] | None = None,
    ratios: np.ndarray[tuple[int, ...], np.dtype[np.float64]] = RATIOS,
) -> Traced:
    truncated = flags(0, 1, 0, 0, 0) if truncated is None else truncated
    following = next_values(VALUES, np.array([6.0]), column(0, 10, 0, 99, 20), truncated)
    ends = (TERMINATED, truncated)
    return v_trace(REWARDS, VALUES, following, ends, (0.9, lambda_), ratios, bounds)


@pytest.mark.parametrize(
    ("bounds", "lambda_", "rho", "c", "pg_rho"),
    [
        pytest.param(
            Bounds(1.0, 1.0, 1.0),
            1.0,
            (0.5, 1, 1, 0.25, 1),
            (0.5, 1, 1, 0.25, 1),
            (0.5, 1, 1, 0.25, 1),
            id="published",
        ),
        pytest.param(
            Bounds(3.5, 1.5, None),
            0.8,
            (0.5, 3.5, 2, 0.25, 3),
            (0.4, 1.2, 1.2, 0.2, 1.2),
            (0.5, 4, 2, 0.25, 3),
            id="three bounds, lambda",
        ),
        pytest.param(
            Bounds(None, None, 0.3),
            1.0,
            (0.5, 4, 2, 0.25, 3),
            (0.5, 4, 2, 0.25, 3),
            (0.3, 0.3, 0.3, 0.25, 0.3),
            id="none but the gradient's",
        ),
    ],
)
def test_v_trace_is_what_the_paper_says_with_a_truncation_in_the_middle(
    bounds: Bounds,
    lambda_: float,
    rho: tuple[float, ...],
    c: tuple[float, ...],
    pg_rho: tuple[float, ...],
) -> None:
    advantages, targets = traced(bounds, lambda_)
    v4 = 4.5 + rho[4] * (5 + 0.9 * 6.0 - 4.5)
    v3 = 3.5 + rho[3] * (4 - 3.5)
    v2 = 2.5 + rho[2] * (3 + 0.9 * 3.5 - 2.5) + 0.9 * c[2] * (v3 - 3.5)
    v1 = 1.5 + rho[1] * (2 + 0.9 * 10 - 1.5)
    v0 = 0.5 + rho[0] * (1 + 0.9 * 1.5 - 0.5) + 0.9 * c[0] * (v1 - 1.5)
    assert targets.dtype == advantages.dtype == np.float64
    np.testing.assert_allclose(targets[:, 0], [v0, v1, v2, v3, v4], rtol=1e-14)
    by_hand = [
        pg_rho[0] * (1 + 0.9 * v1 - 0.5),
        pg_rho[1] * (2 + 0.9 * 10 - 1.5),
        pg_rho[2] * (3 + 0.9 * v3 - 2.5),
        pg_rho[3] * (4 - 3.5),
        pg_rho[4] * (5 + 0.9 * 6.0 - 4.5),
    ]
    np.testing.assert_allclose(advantages[:, 0], by_hand, rtol=1e-14)


def test_v_trace_of_a_truncation_at_the_edge_bootstraps_the_final_observation() -> None:
    _, targets = traced(Bounds(1.0, 1.0, 1.0), truncated=flags(0, 0, 0, 0, 1))
    v4 = 4.5 + (5 + 0.9 * 20 - 4.5)
    v3 = 3.5 + 0.25 * (4 - 3.5)
    v2 = 2.5 + (3 + 0.9 * 3.5 - 2.5) + 0.9 * (v3 - 3.5)
    v1 = 1.5 + (2 + 0.9 * 2.5 - 1.5) + 0.9 * (v2 - 2.5)
    v0 = 0.5 + 0.5 * (1 + 0.9 * 1.5 - 0.5) + 0.9 * 0.5 * (v1 - 1.5)
    np.testing.assert_allclose(targets[:, 0], [v0, v1, v2, v3, v4], rtol=1e-14)


def test_v_trace_with_lambda_1_gives_n_step_returns_to_the_policy_that_has_chosen() -> None:
    advantages, targets = traced(Bounds(1.0, 1.0, 1.0), ratios=np.ones_like(RATIOS))
    after_the_cut = 3 + 0.9 * 4
    returns = [1 + 0.9 * (2 + 0.9 * 10), 2 + 0.9 * 10, after_the_cut, 4.0, 5 + 0.9 * 6.0]
    np.testing.assert_allclose(targets[:, 0], returns, rtol=1e-14)
    np.testing.assert_allclose(advantages, targets - VALUES, rtol=1e-14)


@given(st.integers(0, 2**32 - 1), st.floats(0, 1))
def test_v_trace_is_the_sum_that_the_paper_begins_with(seed: int, lambda_: float) -> None:
    stream = np.random.default_rng(seed)
    rewards, values, following = stream.standard_normal((3, 6, 2))
    following[:-1] = values[1:]
    ratios = stream.lognormal(size=(6, 2))
    nothing = np.zeros((6, 2), dtype=np.bool_)
    bounds = Bounds(1.2, 0.9, None)
    _, targets = v_trace(
        rewards, values, following, (nothing, nothing), (0.9, lambda_), ratios, bounds
    )
    rho, c = np.minimum(ratios, 1.2), lambda_ * np.minimum(ratios, 0.9)
    deltas = rho * (rewards + 0.9 * following - values)
    sums = [
        values[s] + sum(0.9 ** (t - s) * c[s:t].prod(axis=0) * deltas[t] for t in range(s, 6))
        for s in range(6)
    ]
    np.testing.assert_allclose(targets, sums, rtol=1e-10, atol=1e-12)
