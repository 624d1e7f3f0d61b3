"""Returns and advantages: pure functions of arrays.

T steps, N environments; arrays are (T, N) unless a comment says otherwise. `terminated` and
`truncated` are separate flags: the value after a truncated step is bootstrapped, after a terminated
step it is 0.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]
#: Array of booleans.
Flags = NDArray[np.bool_]


class Advantages(NamedTuple):
    """Advantages and returns, each (T, N), float32."""

    advantages: NDArray[np.float32]
    """Estimated advantages of the actions taken."""
    returns: NDArray[np.float32]
    """Targets of the value function: advantages + values."""


def next_values(
    values: Floats, last_values: Floats, final_values: Floats, truncated: Flags
) -> NDArray[np.float64]:
    """Return the value of the observation after each step, (T, N), float64.

    Args:
        values: V(s_t), (T, N).
        last_values: values (N,) of the observations after the fragment's last step.
        final_values: values (T, N) of episodes' final observations, read only where `truncated`.
        truncated: flags (T, N) of steps at which the episode was cut off.
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
    """Return advantages and returns by generalized advantage estimation (Schulman et al. 2016).

    Equation 16: δ_t = r_t + gamma (1 - terminated_t) V(s_{t+1}) - V(s_t). The λ-recursion stops at
    terminated and truncated steps and at the end of the fragment.

    Args:
        rewards: r_t.
        values: V(s_t).
        following: V(s_{t+1}), the result of `next_values`.
        ends: flags terminated and truncated.
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
    """Upper bounds of V-trace's importance weights (ratios of probabilities)."""

    rho: float | None
    """Bound of the weight of a temporal difference, which decides of which policy the values are
    learnt; None for no bound."""
    c: float | None
    """Bound of the trace weight of a temporal difference, which decides how fast values are learnt;
    None for no bound."""
    pg_rho: float | None
    """Bound of the weight of the policy gradient; None for no bound."""


class Traced(NamedTuple):
    """Results of V-trace, off-policy corrections of returns; each (T, N), float64."""

    advantages: NDArray[np.float64]
    """Advantages for the policy gradient, times the importance weights."""
    targets: NDArray[np.float64]
    """Targets v_t of the value function."""


def v_trace(
    rewards: Floats,
    values: Floats,
    following: Floats,
    ends: tuple[Flags, Flags],
    discounts: tuple[float, float],
    ratios: Floats,
    bounds: Bounds,
) -> Traced:
    """Return advantages and value targets by V-trace (Espeholt et al. 2018, eq. 1), off-policy.

    v_t = V(s_t) + δ_t + gamma c_t (v_{t+1} - V(s_{t+1})) with δ_t = min(rho, ratio_t) (r_t + gamma
    V(s_{t+1}) - V(s_t)) and c_t = λ min(c, ratio_t); the advantage is min(pg_rho, ratio_t) (r_t +
    gamma v_{t+1} - V(s_t)). After the last step of an episode or of the fragment v_{t+1} is
    V(s_{t+1}), which is 0 if the episode was terminated.

    Args:
        rewards: r_t.
        values: V(s_t) of the policy that learns.
        following: V(s_{t+1}) of the policy that learns, the result of `next_values`.
        ends: flags terminated and truncated.
        discounts: gamma and λ.
        ratios: probability of the action under the policy that learns, divided by that under the
            policy that chose it.
        bounds: bounds of the weights.
    """
    terminated, truncated = ends
    gamma, lambda_ = discounts
    rho, c, pg_rho = (ratios if one is None else np.minimum(ratios, one) for one in bounds)
    bootstrap = np.where(terminated, 0.0, following).astype(np.float64)
    deltas = rho * (rewards + gamma * bootstrap - values)
    carries = gamma * lambda_ * c * ~(terminated | truncated)
    corrections = np.empty(deltas.shape)  # v_t - V(s_t)
    running = np.zeros(deltas.shape[1])
    for t in range(len(deltas) - 1, -1, -1):
        running = deltas[t] + carries[t] * running
        corrections[t] = running
    bootstrap[:-1] += corrections[1:] * ~(terminated | truncated)[:-1]
    return Traced(pg_rho * (rewards + gamma * bootstrap - values), corrections + values)
