"""Pictures of an environment: arrays (H, W, 3) of uint8.

Environments are made with ``render_mode="rgb_array"`` only if their pictures are used.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainables.core import rng
from trainables.envs.make import EnvironmentConfig
from trainables.errors import ConfigError, shorten

#: Render mode that returns pictures.
MODE = "rgb_array"
FPS = 30.0
"""Frame rate of an environment that declares none, 1/s."""
#: Description of allowed return values of ``render()``.
RETURNS = (
    "a picture, an array of uint8 of shape (height, width, 3), or True, False or None from an "
    "environment that draws into its own window"
)


def with_render_mode(config: EnvironmentConfig) -> EnvironmentConfig:
    """Return the settings with ``render_mode`` set to `MODE`, unless `env_config` has a mode."""
    return config.model_copy(update={"env_config": {"render_mode": MODE, **config.env_config}})


def draw(env: Any) -> Any:
    """Call ``env.render()`` and return its result; the global random streams are preserved."""
    with rng.preserve_global():
        return env.render()


def checked_picture(returned: Any, key: str) -> NDArray[np.uint8] | None:
    """Return what ``render()`` returned as an array (H, W, 3), or None if it drew nothing.

    Raises ConfigError, which names the setting `key`, for anything else.
    """
    if returned is None or isinstance(returned, bool):
        return None
    array = isinstance(returned, np.ndarray)
    if array and returned.dtype == np.uint8 and returned.ndim == 3 and returned.shape[2] == 3:
        image: NDArray[np.uint8] = returned
        return image
    seen = f"an array of {returned.dtype} of shape {returned.shape}" if array else returned
    problem = f"the environment's render() returned {shorten(seen) if seen is returned else seen}"
    raise ConfigError(key, seen, RETURNS, problem=problem)


def frames_per_second(env: Any) -> float:
    """Return the frame rate in an environment's metadata, 1/s; `FPS` if it declares none."""
    fps = env.metadata.get("render_fps")
    return float(fps) if isinstance(fps, int | float) and fps > 0 else FPS
