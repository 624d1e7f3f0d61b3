"""An environment that calls the trainer, with the interface of a vector environment."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainables.envs.calls.faults import close
from trainables.envs.external.polled import AGENT
from trainables.envs.kinds.agents import AgentsConnector
from trainables.envs.make import (
    EnvironmentConfig,
    make_connector,
)
from trainables.envs.vector.base import Step, WorkerContext

Array = NDArray[Any]


class CalledEnvs:
    """An environment that calls the trainer, with the interface of a vector environment of one.

    Args:
        env: environment as `make_env` returned it.
        config: settings of the environment.
        place: the worker's index, for errors.
    """

    restarts_unasked = False
    count = sub_env_count = 1

    def __init__(self, env: Any, config: EnvironmentConfig, place: WorkerContext) -> None:
        self.base: Any = env.unwrapped.base
        self.own_spaces = env.observation_space, env.action_space
        self.observation_space, self.action_space = self.own_spaces
        connector = make_connector(config, *self.own_spaces)
        of_agents = connector.of if isinstance(connector, AgentsConnector) else {AGENT: connector}
        self.connectors = of_agents
        """Agent → the connector at the environment."""
        self.connector_seconds: Callable[[], dict[str, float]] = lambda: connector.seconds
        self.sub_envs: Sequence[Any] = [self.base]
        self.before_restart: Callable[[Step], None] | None = None
        self._env, self._place = env, place

    def reset(self, seeds: Sequence[int] | None) -> Array:
        """Call the environment's `start` if it has one; returns an empty array (0,).

        `seeds` are ignored, since such an environment has no seed.
        """
        if callable(start := getattr(self.base, "start", None)):
            start()
        return np.zeros((0,))

    def restart(self, sub_env: int, seed: int) -> Array:
        """Ask the environment to abandon all running episodes, if it can; returns an empty array.

        Both arguments are ignored.
        """
        if callable(abandon := getattr(self.base, "abandon", None)):
            abandon("the trainer went back to a checkpoint")
        return np.zeros((0,))

    def step(self, actions: Array) -> Step:
        """Raise EnvError: an environment that calls the trainer is polled, not stepped."""
        step: Step = self._env.step(actions)
        return step

    def seed_spaces(self, seeds: Sequence[int]) -> None:
        """Seed the observation space and the action space with the first of `seeds`."""
        self.observation_space.seed(seeds[0])
        self.action_space.seed(seeds[0])

    def get_state(self) -> dict[str, Any]:
        """Return empty ``units`` and ``counters``: the environment has no state to be stored."""
        return {"units": [], "counters": {}}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Ignore the empty state."""

    def get_counters(self) -> dict[str, Any]:
        """Return an empty dict, since there are no counters to store."""
        return {}

    def set_counters(self, counters: Mapping[str, Any]) -> None:
        """Ignore the empty counters."""

    def unsaved_attributes(self) -> list[str]:
        """Return [class name of the environment], as no checkpoint contains its state."""
        return [type(self.base).__name__]

    def close(self) -> None:
        """Close the environment; an exception is logged, not raised."""
        close(self._env, f"worker {self._place.worker}, {type(self.base).__name__}")
