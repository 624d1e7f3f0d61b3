"""Environments that draw, and somebody who looks."""

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tests.support.environments import Counting, Observation, Outcome
from trainables.envs.kinds.atari import LIFE_LOST

Picture = NDArray[np.uint8]
SEEN: list[Picture] = []


def look(picture: Picture) -> None:
    """A viewer."""
    SEEN.append(picture.copy())


class Drawn(Counting):
    """Its picture is as grey as its episode is old.

    Args:
        length: of its episodes.
        returns: of ``render()`` instead of a picture.
    """

    def __init__(self, length: int = 5, render_mode: str | None = None, returns: Any = ...) -> None:
        super().__init__(length)
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": 10}
        self.render_mode = render_mode
        self.returns = returns

    def render(self) -> Any:
        if self.returns is not ...:
            return self.returns
        return np.full((15, 21, 3), min(255, 20 * self.steps), dtype=np.uint8)


class Unseen(Counting):
    """It has a render mode, but none that gives pictures."""

    def __init__(self) -> None:
        super().__init__()
        self.metadata = {"render_modes": ["ansi", "human"]}


class Shy(Drawn):
    """Its rewards are drawn from a stream from which it also draws its picture."""

    def step(self, action: Any) -> Outcome:
        observation, _, terminated, truncated, info = super().step(action)
        return observation, float(self.np_random.random()), terminated, truncated, info

    def render(self) -> Picture:
        return self.np_random.integers(0, 256, (16, 16, 3), dtype=np.uint8)


class DrawsByGlobalChance(Drawn):
    """Its rewards and its pictures are drawn from numpy's global stream."""

    def step(self, action: Any) -> Outcome:
        observation, _, terminated, truncated, info = super().step(action)
        reward = float(np.random.random())  # noqa: NPY002 an environment may
        return observation, reward, terminated, truncated, info

    def render(self) -> Picture:
        return np.random.randint(0, 256, (16, 16, 3), dtype=np.uint8)  # noqa: NPY002 likewise


class LosesLives(Drawn):
    """A game of three lives, each as long as `length`."""

    def __init__(self, length: int = 5, render_mode: str | None = None) -> None:
        super().__init__(length, render_mode)
        self.lives = 3

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        self.lives = self.lives - 1 if self.lives > 1 else 3
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Outcome:
        observation, reward, _, ended, _ = super().step(action)
        info = {LIFE_LOST: True} if ended and self.lives > 1 else {}
        return observation, reward, ended, False, info


class Fails(Drawn):
    """One that is drawn raises in the middle of its first episode, `left` times in a process."""

    left: ClassVar[int] = 0

    def step(self, action: Any) -> Outcome:
        if self.steps == 2 and self.render_mode and Fails.left:
            Fails.left -= 1
            raise RuntimeError("in the middle")
        return super().step(action)
