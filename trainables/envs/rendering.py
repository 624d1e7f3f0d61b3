"""Pictures of an environment: arrays (H, W, 3) of uint8.

Only an environment whose pictures somebody wants is made with ``render_mode="rgb_array"``.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainables.core import rng
from trainables.envs.make import EnvironmentConfig
from trainables.errors import ConfigError

MODE = "rgb_array"
FPS = 30.0
"""The frame rate of an environment that declares none."""
RETURNS = (
    "a picture, an array of uint8 of shape (height, width, 3), or True, False or None from an "
    "environment that draws into a window of its own"
)


def rendered(config: EnvironmentConfig) -> EnvironmentConfig:
    """The same environment, made to draw; a render mode that `env_config` names stays."""
    return config.model_copy(update={"env_config": {"render_mode": MODE, **config.env_config}})


def draw(env: Any) -> Any:
    """Return the picture of ``render()``; the global streams are left as they were."""
    with rng.preserve_global():
        return env.render()


def picture(returned: Any, key: str) -> NDArray[np.uint8] | None:
    """The picture that ``render()`` returned; None with a window of its own; else ConfigError."""
    if returned is None or isinstance(returned, bool):
        return None
    array = isinstance(returned, np.ndarray)
    if array and returned.dtype == np.uint8 and returned.ndim == 3 and returned.shape[2] == 3:
        image: NDArray[np.uint8] = returned
        return image
    seen = f"an array of {returned.dtype} of shape {returned.shape}" if array else returned
    raise ConfigError(key, seen, RETURNS, "the environment's render() returned it")


def frames_per_second(env: Any) -> float:
    """Return the frame rate of an environment's pictures."""
    fps = env.metadata.get("render_fps")
    return float(fps) if isinstance(fps, int | float) and fps > 0 else FPS
