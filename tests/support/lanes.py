"""Lanes whose steps a test alters."""

from collections.abc import Callable
from typing import Any

from trainables.envs.vector import Lanes, Step


class Altered:
    """Real lanes whose steps a test alters: `alter(number of the step, step)`."""

    def __init__(self, lanes: Lanes, alter: Callable[[int, Step], Step]) -> None:
        self.lanes = lanes
        self.alter = alter
        self.steps = 0
        self.count, self.unit_count = lanes.count, lanes.unit_count

    def step(self, actions: Any) -> Step:
        self.steps += 1
        return self.alter(self.steps, self.lanes.step(actions))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.lanes, name)
