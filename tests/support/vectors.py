"""Native vector environments in each of gymnasium's autoreset modes."""

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from tests.support.environments import Counting
from tests.support.spaces import AnySpaces

Vector = SyncVectorEnv


def _vector(make: Callable[[], Any], num_envs: int, mode: AutoresetMode) -> Vector:
    return SyncVectorEnv([make] * num_envs, copy=False, autoreset_mode=mode)


def _cartpole() -> Any:
    return gymnasium.make("CartPole-v1", disable_env_checker=True, max_episode_steps=25)


def same_step(num_envs: int) -> Vector:
    return _vector(_cartpole, num_envs, AutoresetMode.SAME_STEP)


def next_step(num_envs: int) -> Vector:
    return _vector(_cartpole, num_envs, AutoresetMode.NEXT_STEP)


def disabled(num_envs: int) -> Vector:
    return _vector(_cartpole, num_envs, AutoresetMode.DISABLED)


def counting_next_step(num_envs: int, length: int = 5) -> Vector:
    return _vector(partial(Counting, length), num_envs, AutoresetMode.NEXT_STEP)


def counting_disabled(num_envs: int, length: int = 5) -> Vector:
    return _vector(partial(Counting, length), num_envs, AutoresetMode.DISABLED)


def tells_no_mode(num_envs: int) -> Vector:
    vector = same_step(num_envs)
    vector.metadata["autoreset_mode"] = "whenever"
    return vector


def any_spaces(num_envs: int, mode: str) -> Vector:
    """Observations and actions that are Dicts."""
    make = partial(AnySpaces, "dict", "dict", 3)
    return _vector(make, num_envs, AutoresetMode[mode])
