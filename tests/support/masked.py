"""Environments most of whose actions are invalid, and say which ones are not."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

CHOICES = 30


class Vault(gymnasium.Env[Any, Any]):
    """Of 30 choices two are valid, others each time; the observation says if the lower is right.

    Nothing but the mask says which ones they are. A right one is worth 1; an invalid one ends the
    episode, which has 8 steps otherwise.

    Args:
        source: where the mask is: "info", "observation" or "nowhere".
        columns: 1: Discrete from 5 on; 2: MultiDiscrete, of whose columns both have to be right.
        fault: what the mask of the third step is: "missing", "empty" or "short".
        length: steps of an episode.
    """

    def __init__(
        self, source: str = "info", columns: int = 1, fault: str = "", length: int = 8
    ) -> None:
        self.sizes = [CHOICES, CHOICES - 7][:columns]
        self.source, self.fault, self.length = source, fault, length
        self.action_space = (
            spaces.Discrete(CHOICES, start=5) if columns == 1 else spaces.MultiDiscrete(self.sizes)
        )
        told = spaces.Box(-1, 1, (columns,), np.float32)
        self.observation_space: Any = told
        if source == "observation":
            mask = spaces.Box(0, 1, (sum(self.sizes),), np.int8)
            self.observation_space = spaces.Dict({"observation": told, "action_mask": mask})

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps, self.invalid = 0, 0
        return self._said()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        chosen = np.atleast_1d(action) - (5 if len(self.sizes) == 1 else 0)
        pairs = list(zip(self.valid, chosen.tolist(), strict=True))
        self.steps += 1
        if any(one not in valid for valid, one in pairs):
            self.invalid += 1
            return self._with_info(0.0, True)
        right = all(one == valid[way] for (valid, one), way in zip(pairs, self.ways, strict=True))
        return self._with_info(float(right), False)

    def _with_info(self, reward: float, ended: bool) -> tuple[Any, float, bool, bool, Any]:
        observation, info = self._said()
        return observation, reward, ended, self.steps == self.length, info

    def _said(self) -> tuple[Any, dict[str, Any]]:
        draw = self.np_random
        self.valid = [sorted(draw.choice(size, 2, replace=False).tolist()) for size in self.sizes]
        self.ways = draw.integers(2, size=len(self.sizes)).tolist()
        told = np.array(self.ways, dtype=np.float32) * 2 - 1
        masks = [np.zeros(size, dtype=np.int8) for size in self.sizes]
        for one, valid in zip(masks, self.valid, strict=True):
            one[valid] = 1
        mask: Any = masks[0] if len(masks) == 1 else tuple(masks)
        if self.fault and self.steps == 2:
            flat = np.concatenate(masks)
            mask = {"missing": None, "empty": flat * 0, "short": flat[1:]}[self.fault]
        if self.source == "info":
            return told, {} if mask is None else {"action_mask": mask}
        if self.source == "observation":
            whole = np.hstack(mask) if isinstance(mask, tuple) else mask
            return {"observation": told, "action_mask": whole}, {}
        return told, {}


class Board(gymnasium.Env[Any, Any]):
    """A board of 9 squares that is filled until none is left: then no choice is valid."""

    def __init__(self) -> None:
        self.action_space = spaces.Discrete(9)
        board = spaces.Box(0, 1, (3, 3), np.int8)
        mask = spaces.Box(0, 1, (9,), np.int8)
        self.observation_space = spaces.Dict({"action_mask": mask, "observation": board})

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.board = np.zeros(9, dtype=np.int8)
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert not self.board[action], f"square {action} is taken"
        self.board[action] = 1
        return self._seen(), 1.0, bool(self.board.all()), False, {}

    def _seen(self) -> dict[str, Any]:
        return {"observation": self.board.reshape(3, 3).copy(), "action_mask": 1 - self.board}
