"""Environments whose steps a test alters."""

from collections.abc import Callable
from typing import Any

from trainables.envs.vector.base import Step, VectorEnv


class Altered:
    """Real environments whose steps a test alters: `alter(number of the step, step)`."""

    def __init__(self, envs: VectorEnv, alter: Callable[[int, Step], Step]) -> None:
        self.envs = envs
        self.alter = alter
        self.steps = 0
        self.count, self.sub_env_count = envs.count, envs.sub_env_count

    def step(self, actions: Any) -> Step:
        self.steps += 1
        return self.alter(self.steps, self.envs.step(actions))._replace(is_calm=False)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.envs, name)
