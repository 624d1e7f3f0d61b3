"""Who looks at pictures of an environment while it is stepped: a window or a callable.

A viewer is called with each picture, an array (H, W, 3) of uint8.
"""

import os
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from trainables.importing import load

Viewer: TypeAlias = Callable[[NDArray[np.uint8]], object]
DRIVER = "SDL_VIDEODRIVER"
#: What SDL falls back to where there is no screen.
INVISIBLE = ("offscreen", "dummy")


def find_viewer(render_env: bool | str) -> Viewer | None:
    """The viewer that the setting names; None if there is no window to be had.

    Raises:
        ConfigError: a dotted path that leads to nothing callable.
    """
    if isinstance(render_env, str):
        return load("render_env", render_env, "a callable that takes a picture")
    return _Window() if render_env and _has_screen() else None


def _has_screen() -> bool:
    try:
        import pygame

        pygame.display.init()
    except Exception:  # noqa: BLE001 without pygame, or with one that cannot draw, there is no window
        return False
    driver = pygame.display.get_driver()
    return driver not in INVISIBLE or os.environ.get(DRIVER) == driver


class _Window:
    """A window as large as the first picture."""

    def __init__(self) -> None:
        self._surface: Any = None

    def __call__(self, picture: NDArray[np.uint8]) -> None:
        import pygame

        if self._surface is None:
            height, width, _ = picture.shape
            self._surface = pygame.display.set_mode((width, height))
        pygame.event.pump()
        drawn = pygame.surfarray.make_surface(np.swapaxes(picture, 0, 1))
        self._surface.blit(drawn, (0, 0))
        pygame.display.flip()
