"""Memory that an environment's process and its worker share: the numbers of one step.

It is anonymous, so it is gone with the last process that holds it, however that ends.
"""

import math
import mmap
import os
from typing import Any

import numpy as np
from gymnasium import spaces

from trainables.envs.contract import is_plain

Spaces = tuple[spaces.Space[Any], spaces.Space[Any]]
ALIGNMENT = 64


class Shared:
    """One observation, one action, a reward and two flags; ``None`` for what is no array.

    Args:
        env_spaces: observation and action space.
        descriptor: of memory made by `allocate`.
    """

    def __init__(self, env_spaces: Spaces, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, _size(env_spaces))
        self.numbers = np.frombuffer(self._memory, np.float64, 3)
        """reward, terminated, truncated"""
        observation, action = env_spaces
        self.observation = self._array(observation, ALIGNMENT)
        self.action = self._array(action, ALIGNMENT + _bytes(observation))

    def _array(self, space: spaces.Space[Any], offset: int) -> Any:
        if not is_plain(space) or space.shape is None:
            return None
        count = math.prod(space.shape)
        return np.frombuffer(self._memory, space.dtype, count, offset).reshape(space.shape)


def allocate(env_spaces: Spaces) -> int:
    """A descriptor of so much memory; whoever maps it may close it."""
    descriptor = os.memfd_create("environment")
    os.ftruncate(descriptor, _size(env_spaces))
    return descriptor


def _size(env_spaces: Spaces) -> int:
    return ALIGNMENT + sum(_bytes(space) for space in env_spaces)


def _bytes(space: spaces.Space[Any]) -> int:
    if not is_plain(space) or space.shape is None:
        return 0
    size = math.prod(space.shape) * np.dtype(space.dtype).itemsize
    return -(-size // ALIGNMENT) * ALIGNMENT
