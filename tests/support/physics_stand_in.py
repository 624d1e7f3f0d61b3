"""Modules with the API of brax and of MuJoCo Playground, and one environment of a falling ball."""

from dataclasses import dataclass, replace
from types import ModuleType, SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, random


@jax.tree_util.register_dataclass
@dataclass
class State:
    """State of `Ball`, with the fields of both packages."""

    height: Array
    obs: Any
    reward: Any
    done: Array
    info: dict[str, Array]


class Ball:
    """A ball whose height an action changes, and a gust that a key in the state draws.

    Args:
        observed: keys of the observations; empty for one vector.
        floor: height at which an episode ends.
    """

    action_size = 1

    def __init__(self, observed: tuple[str, ...] = (), floor: float = -3.0) -> None:
        self._observed, self._floor = observed, floor

    @property
    def observation_size(self) -> Any:
        """Number of features, or of each of several observations."""
        return dict.fromkeys(self._observed, (2,)) if self._observed else 2

    def reset(self, key: Array) -> State:
        """Begin at 0."""
        key, kept = random.split(key)
        height = random.uniform(key, ())
        zero = jnp.float32(0)
        return State(height, self._seen(height), zero, zero, {"rng": kept})

    def step(self, state: State, action: Array) -> State:
        """Move the ball."""
        key, kept = random.split(state.info["rng"])
        height = state.height + action[0] + 0.1 * random.normal(key)
        done = jnp.where(height < self._floor, 1.0, 0.0)
        info = {**state.info, "rng": kept}
        # The dtype of the reward is another one than at first, as in some of brax's environments.
        reward = jnp.int32(action[0] < 0)
        return replace(
            state, height=height, obs=self._seen(height), reward=reward, done=done, info=info
        )

    def _seen(self, height: Array) -> Any:
        seen = jnp.stack([height, height**2])
        return dict.fromkeys(self._observed, seen) if self._observed else seen


def brax() -> ModuleType:
    """Return a module like ``brax.envs``, whose environments are single vectors."""
    made: Any = ModuleType("brax.envs")
    made._envs = {"ball": Ball, "two": Ball}
    made.get_environment = lambda name, **arguments: made._envs[name](**arguments)
    found: ModuleType = made
    return found


def playground(
    robots: Any, observed: tuple[str, ...] = ("state", "privileged_state")
) -> ModuleType:
    """Return a module like ``mujoco_playground``.

    Args:
        robots: path of the robots' files.
        observed: keys of an environment's observations.
    """
    usual = {"episode_length": 6, "impl": "warp", "floor": -3.0}

    def load(name: str, config_overrides: dict[str, Any]) -> Ball:
        if unknown := set(config_overrides) - set(usual):
            raise KeyError(f"no key {unknown}")
        settings = {**usual, **config_overrides}
        assert settings["impl"] == "jax"
        return Ball(observed, settings["floor"])

    made: Any = ModuleType("mujoco_playground")
    base: Any = ModuleType("mujoco_playground._src.mjx_env")
    base.MENAGERIE_PATH = robots
    made.MjxEnv = type("MjxEnv", (), {"__module__": base.__name__})
    made.dm_control_suite = SimpleNamespace(ALL_ENVS=("BallDrop",))
    made.registry = SimpleNamespace(
        ALL_ENVS=("BallDrop", "Robot"), load=load, get_default_config=lambda name: dict(usual)
    )
    made.base = base
    found: ModuleType = made
    return found
