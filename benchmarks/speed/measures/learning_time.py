"""Wall seconds of training until the greedy policy balances CartPole, for any trainer."""

import time
from collections.abc import Callable

import gymnasium
import numpy as np
from numpy.typing import NDArray

#: Seeds; with fewer, the mean would be too random: the steps of one seed vary by a factor of 7.
SEEDS = range(1, 21)
#: Mean return of `EPISODES` episodes at which training ends, and most environment steps until then.
GOAL, EPISODES, MOST_STEPS = 475.0, 10, 200_000
#: Environment steps between two evaluations of the greedy policy.
STEPS = 2_048


def seconds(train: Callable[[], object], act: Callable[[NDArray[np.float32]], object]) -> float:
    """Return the seconds inside `train` until `act` reaches the goal, without evaluations.

    Args:
        train: trains for `STEPS` more environment steps.
        act: returns the most probable actions (N,) for observations (N, 4).

    Raises:
        RuntimeError: the goal was not reached within `MOST_STEPS`.
    """
    spent = 0.0
    for _ in range(0, MOST_STEPS, STEPS):
        began = time.perf_counter()
        train()
        spent += time.perf_counter() - began
        if greedy_return(act) >= GOAL:
            return spent
    raise RuntimeError(f"no greedy return of {GOAL:g} within {MOST_STEPS:,} steps")


def greedy_return(act: Callable[[NDArray[np.float32]], object]) -> float:
    """Return the mean return of `EPISODES` episodes, with the same seed for every policy."""
    envs = gymnasium.make_vec("CartPole-v1", EPISODES, vectorization_mode="vector_entry_point")
    observations, _ = envs.reset(seed=0)
    running, total = np.ones(EPISODES, dtype=bool), 0.0
    while running.any():
        observations, rewards, terminated, truncated, _ = envs.step(np.asarray(act(observations)))
        total += float(rewards[running].sum())
        running &= ~(terminated | truncated)
    return total / EPISODES
