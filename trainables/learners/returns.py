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


class Bounds(NamedTuple):
    """Upper bounds of V-trace's importance weights; None: none."""

    rho: float | None
    """Of the weight of each temporal difference: which policy's values are found."""
    c: float | None
    """Of the weight with which a difference is traced back: how fast they are found."""
    pg_rho: float | None
    """Of the weight of the policy's gradient."""


class Traced(NamedTuple):
    """Both (T, N), float64."""

    advantages: NDArray[np.float64]
    """Of the policy's gradient, its importance weight included."""
    targets: NDArray[np.float64]
    """v_s, of the value function."""


def v_trace(
    rewards: Floats,
    values: Floats,
    following: Floats,
    ends: tuple[Flags, Flags],
    discounts: tuple[float, float],
    ratios: Floats,
    bounds: Bounds,
) -> Traced:
    """V-trace (Espeholt et al. 2018, equation 1), for steps that another policy has chosen.

    v_t = V(s_t) + δ_t + gamma c_t (v_{t+1} - V(s_{t+1})) with δ_t = min(rho, ratio_t)
    (r_t + gamma V(s_{t+1}) - V(s_t)) and c_t = λ min(c, ratio_t); the advantage is
    min(pg_rho, ratio_t) (r_t + gamma v_{t+1} - V(s_t)). After the last step of an episode or of the
    fragment v_{t+1} is V(s_{t+1}), which is 0 where the episode was terminated.

    Args:
        rewards: r_t.
        values: V(s_t), by the policy that learns.
        following: V(s_{t+1}) likewise, as `next_values` gives it.
        ends: terminated and truncated.
        discounts: gamma and λ.
        ratios: probability of the action by the policy that learns / by the one that chose it.
        bounds: of the weights.
    """
    terminated, truncated = ends
    gamma, lambda_ = discounts
    rho, c, pg_rho = (ratios if one is None else np.minimum(ratios, one) for one in bounds)
    after = np.where(terminated, 0.0, following).astype(np.float64)
    deltas = rho * (rewards + gamma * after - values)
    carries = gamma * lambda_ * c * ~(terminated | truncated)
    beyond = np.empty(deltas.shape)  # v_t - V(s_t)
    running = np.zeros(deltas.shape[1])
    for t in range(len(deltas) - 1, -1, -1):
        running = deltas[t] + carries[t] * running
        beyond[t] = running
    after[:-1] += beyond[1:] * ~(terminated | truncated)[:-1]
    return Traced(pg_rho * (rewards + gamma * after - values), beyond + values)
