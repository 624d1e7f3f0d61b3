"""Returns and advantages: pure functions of arrays.

T steps, N environments; every array is (T, N) unless a comment says otherwise. `terminated` and
`truncated` are kept apart: an episode that was only cut off goes on in value, one that ended does
not.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]
Flags = NDArray[np.bool_]


class Advantages(NamedTuple):
    """Both (T, N), float32."""

    advantages: NDArray[np.float32]
    returns: NDArray[np.float32]
    """Targets of the value function: advantages + values."""


def next_values(
    values: Floats, last_values: Floats, final_values: Floats, truncated: Flags
) -> NDArray[np.float64]:
    """The value of what came after each step.

    Args:
        values: V(s_t).
        last_values: (N,) V of the observation after the fragment's last step.
        final_values: V of the episode's final observation, read where `truncated`.
        truncated: the episode was cut off at this step.
    """
    following = np.concatenate([values[1:], last_values[None]]).astype(np.float64)
    return np.where(truncated, final_values, following)


def generalized_advantages(
    rewards: Floats,
    values: Floats,
    following: Floats,
    ends: tuple[Flags, Flags],
    discounts: tuple[float, float],
) -> Advantages:
    """Generalized advantage estimation (Schulman et al. 2016, equation 16).

    δ_t = r_t + gamma (1 - terminated_t) V(s_{t+1}) - V(s_t); the λ-recursion stops where an episode
    was terminated or truncated and at the end of the fragment.

    Args:
        rewards: r_t.
        values: V(s_t).
        following: V(s_{t+1}) as `next_values` gives it.
        ends: terminated and truncated.
        discounts: gamma and λ.
    """
    terminated, truncated = ends
    gamma, lambda_ = discounts
    deltas = rewards + gamma * np.where(terminated, 0.0, following) - values
    carries = gamma * lambda_ * ~(terminated | truncated)
    advantages = np.empty(deltas.shape)
    running = np.zeros(deltas.shape[1])
    for t in range(len(deltas) - 1, -1, -1):
        running = deltas[t] + carries[t] * running
        advantages[t] = running
    return Advantages(
        advantages.astype(np.float32), (advantages + values).astype(np.float32, copy=False)
    )
