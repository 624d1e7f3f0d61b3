"""An environment that writes down where each of it is made; nothing in it hints at chance."""

import os
import traceback
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

#: Functions that make environments, innermost first.
ASKED = ("_examine_once", "_hints", "inspect", "_serve", "play", "make_workers")


class Noted(gymnasium.Env[Any, Any]):
    """Observes its steps, seven of them an episode; writes a line into `file` when it is made."""

    def __init__(self, file: str) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.steps = 0
        callers = [frame.name for frame in traceback.extract_stack()]
        why = next(name for name in ASKED if name in callers)
        with Path(file).open("a", encoding="ascii") as notes:
            notes.write(f"{os.getpid()} {why}\n")

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return np.full(1, self.steps, np.float32), 1.0, False, self.steps >= 7, {}
