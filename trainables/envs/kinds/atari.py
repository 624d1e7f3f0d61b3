"""Atari games as DeepMind's agents saw them (Mnih et al. 2015), and their metrics per whole game.

Frames are grey, 84 x 84, the last four of them as channels; an action is repeated for four frames;
up to 30 idle frames come first. While training, a lost life ends the episode: the value of what
follows is not counted, though the game continues. H x W pixels, C channels.
"""

import importlib.util
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation, TransformObservation

from trainables.errors import ConfigError

#: Any environment of gymnasium.
Env = gymnasium.Env[Any, Any]
#: Prefix of the ids of Atari games.
PREFIX = "ALE/"
#: Frames for which an action is repeated.
FRAME_SKIP = 4
#: Stacked frames.
FRAMES = 4
#: Side of a frame, pixels.
SIZE = 84
#: Largest number of idle frames at the start of a game.
IDLE_FRAMES = 30
#: Key in the info of a step that ended an episode by a lost life while the game continues.
LIFE_LOST = "life_lost"
#: Actions of a game: no operation, and FIRE.
NOOP, FIRE = 0, 1


def register_games(env_id: str) -> None:
    """Import ale-py, which registers Atari's games with gymnasium, and silence its banner.

    Without ale-py, does nothing, or raises ConfigError if `env_id` names an Atari game.
    """
    if importlib.util.find_spec("ale_py") is not None:
        import ale_py

        # Otherwise each process writes a banner to the terminal.
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        gymnasium.register_envs(ale_py)
    elif env_id.startswith(PREFIX):
        raise _missing_package_error(env_id)


def is_atari(env_id: str) -> bool:
    """Return whether a gymnasium id names an Atari game; False for a dotted path."""
    spec = gymnasium.registry.get(env_id)
    entry = "" if spec is None else str(spec.entry_point)
    return env_id.startswith(PREFIX) or entry.startswith("ale_py.env")


class EpisodicLife(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A wrapper that ends the episode at a lost life; the game is reset only when it is over."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.lives = 0
        self.life_lost = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start a game; or without a seed, if a life was just lost, the next life by an idle step.

        If the idle step ends the game, a new one is started.
        """
        if seed is not None or not self.life_lost:
            observation, info = self.env.reset(seed=seed, options=options)
        else:
            observation, _, terminated, truncated, info = self.env.step(NOOP)
            if terminated or truncated:
                observation, info = self.env.reset(options=options)
        self.life_lost = False
        self.lives = _lives(self)
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Make one step; a lost life, except the last, sets terminated, and `LIFE_LOST` in info."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        lives = _lives(self)
        self.life_lost = 0 < lives < self.lives and not (terminated or truncated)
        if self.life_lost:
            terminated = True
            info = {**info, LIFE_LOST: True}
        self.lives = lives
        return observation, reward, terminated, truncated, info


class FireAtEachLife(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A wrapper that presses FIRE after a reset and each lost life, for which some games wait."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.lives = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode and press FIRE; arguments and results as in gymnasium.

        If FIRE ends the episode, another one is started without it.
        """
        _, _ = self.env.reset(seed=seed, options=options)
        observation, _, terminated, truncated, info = self.env.step(FIRE)
        if terminated or truncated:
            observation, info = self.env.reset(options=options)
        self.lives = _lives(self)
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Make one step, or press FIRE instead if a life has just been lost."""
        lives = _lives(self)
        if lives < self.lives:
            action = FIRE
        self.lives = lives
        return self.env.step(action)


def make_game(
    env_id: str, env_config: dict[str, Any], size: tuple[int, int], learning: bool
) -> Env:
    """Make an Atari game in DeepMind's wrappers: skipped, grey, small and stacked frames.

    Observations are uint8 (side, side, frames). Limits OpenCV to one thread in this process.

    Args:
        env_id: id in gymnasium.
        env_config: arguments of the environment; ``frameskip`` is the number of frames for which an
            action is repeated.
        size: side of a frame in pixels, and number of stacked frames.
        learning: True if a lost life ends the episode.

    Raises:
        ConfigError: OpenCV is not installed.
    """
    try:
        import cv2
    except ImportError as error:
        raise _missing_package_error(env_id) from error
    side, count = size
    cv2.setNumThreads(1)  # frames are small, and trials run side by side
    inner = {**env_config, "frameskip": 1}
    env: Env = gymnasium.make(env_id, disable_env_checker=True, **inner)
    env = AtariPreprocessing(
        env,
        noop_max=IDLE_FRAMES,
        frame_skip=env_config.get("frameskip", FRAME_SKIP),
        screen_size=side,
        grayscale_newaxis=count == 1,
    )
    if learning:
        env = EpisodicLife(env)
    meanings = env.unwrapped.get_action_meanings()  # type: ignore[attr-defined]  # ale-py's own
    if len(meanings) > FIRE and meanings[FIRE] == "FIRE":
        env = FireAtEachLife(env)
    if count == 1:
        return env
    image = spaces.Box(0, 255, (side, side, count), np.uint8)
    return TransformObservation(FrameStackObservation(env, count), _channels_last, image)


def _channels_last(frames: Any) -> Any:
    """Return stacked frames (C, H, W) as a new array (H, W, C)."""
    return np.ascontiguousarray(np.moveaxis(frames, 0, -1))


def _missing_package_error(env_id: str) -> ConfigError:
    """Return the error for an Atari game whose packages are not installed."""
    problem = f"the packages of the Atari game {env_id} are not installed"
    hint = "install them: pip install 'sweep-rl[atari]'"
    return ConfigError("env", env_id, hint=hint, problem=problem)


def _lives(env: Env) -> int:
    """Return the number of lives left in the game that an environment wraps."""
    return int(env.unwrapped.ale.lives())  # type: ignore[attr-defined]  # ale-py's own
