"""A native vector environment of one lane as a plain environment, for reading and evaluating."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv


class Single(gymnasium.Env[Any, Any]):
    """One lane; after an end it has to be reset, as any environment.

    Args:
        vector: of one lane, in any autoreset mode.
    """

    def __init__(self, vector: VectorEnv[Any, Any, Any]) -> None:
        self.vector = vector
        self.observation_space = vector.single_observation_space
        self.action_space = vector.single_action_space
        self.spec = vector.spec

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        super().reset(seed=seed)
        return self.vector.reset(seed=seed, options=options)[0][0], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One step; where the vector has already begun anew, the true last observation."""
        observations, rewards, terminated, truncated, infos = self.vector.step(np.asarray([action]))
        observation = observations[0]
        if terminated[0] or truncated[0]:
            at_once = self.vector.metadata.get("autoreset_mode") is AutoresetMode.SAME_STEP
            observation = infos["final_obs"][0] if at_once else observation
        return observation, float(rewards[0]), bool(terminated[0]), bool(truncated[0]), {}

    def close(self) -> None:
        """Let go of the vector."""
        self.vector.close()
