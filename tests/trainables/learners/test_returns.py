import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trainables.learners.returns import generalized_advantages, next_values


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
