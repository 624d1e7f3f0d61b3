"""The process of one environment: answers one request at a time, numbers through shared memory."""

import math
import mmap
import os
import traceback
from collections.abc import Callable
from multiprocessing import connection
from multiprocessing.reduction import recv_handle
from typing import Any, TypeAlias

import numpy as np
from gymnasium import spaces

from trainables.core import rng
from trainables.core.processes import Parent, die_with_parent, ignore_terminal_signals
from trainables.envs.contract import EnvContractError, is_plain
from trainables.envs.make import Env
from trainables.envs.vector.slot import EnvSlot

# -------------------------------------------------------------------------------------------------
# Memory that an environment's process and its worker share: the numbers of one step.
#
# It is anonymous, so it is gone with the last process that holds it, however that ends.

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


Pipe: TypeAlias = "connection.Connection[Any, Any]"


def serve(pipe: Pipe, make: Callable[[], Env], parent: Parent) -> None:
    """Answer until the other end closes; every answer is (kind, content)."""
    ignore_terminal_signals()
    die_with_parent(parent)
    child = _Child(pipe, make)
    while True:
        try:
            method, args = pipe.recv()
        except EOFError:
            return
        try:
            answer = ("ok", getattr(child, method)(*args))
        except EnvContractError as breach:
            answer = ("breach", str(breach))
        except Exception as error:  # noqa: BLE001 whatever it is, the worker must hear of it
            answer = ("raised", _in_words(error))
        try:
            pipe.send(answer)
        except Exception as error:  # noqa: BLE001 what an info holds may not travel
            pipe.send(("raised", _in_words(error)))
        if method == "end":
            return


class _Child:
    """What a request may call."""

    def __init__(self, pipe: Pipe, make: Callable[[], Env]) -> None:
        self._pipe = pipe
        self._make = make
        self._slot: EnvSlot | None = None
        self._shared: Shared | None = None

    @property
    def slot(self) -> EnvSlot:
        """The environment, once it is made."""
        assert self._slot is not None  # noqa: S101 `make` is the first request
        return self._slot

    @property
    def shared(self) -> Shared:
        """The memory, once it is shared."""
        assert self._shared is not None  # noqa: S101 `share` is the second request
        return self._shared

    def make(self, seed: int) -> Spaces:
        """An environment made anew; the global streams, here its own, begin at `seed`."""
        rng.seed_global(seed, "global")
        self._slot = EnvSlot(self._make)
        return self._slot.env.observation_space, self._slot.env.action_space

    def share(self) -> None:
        """Map the memory whose descriptor follows on the pipe."""
        descriptor = recv_handle(self._pipe)
        spaces = (self.slot.env.observation_space, self.slot.env.action_space)
        self._shared = Shared(spaces, descriptor)
        os.close(descriptor)

    def step(self, action: Any) -> Any:
        """Observation (None: it is shared) and info; an action of None is shared, too."""
        if action is None:
            action = self.shared.action.copy()[()]
        observation, *numbers, info = self.slot.step(action)
        self.shared.numbers[:] = numbers
        return self._shown(observation), info

    def reset(self, seed: int | None) -> Any:
        """The first observation (None: it is shared)."""
        return self._shown(self.slot.reset(seed))

    def render(self) -> Any:
        """What the environment draws."""
        return self.slot.render()

    def seed_spaces(self, seed: int) -> None:
        """Give the spaces streams of their own."""
        self.slot.seed_spaces(seed)

    def get_state(self) -> dict[str, Any]:
        """Entries ``environment`` and ``global_streams``."""
        return {"environment": self.slot.get_state(), "global_streams": rng.capture_global()}

    def set_state(self, state: dict[str, Any]) -> None:
        """Take back what `get_state` gave."""
        self.slot.set_state(state["environment"])
        rng.restore_global(state["global_streams"])

    def left_out(self) -> list[str]:
        """Names of attributes that `get_state` cannot hold."""
        return self.slot.left_out()

    def close(self) -> None:
        """Let go of the environment; another may be made."""
        self.slot.close()

    def end(self) -> None:
        """Let go of the environment; the process ends."""
        if self._slot is not None:
            self._slot.close()

    def _shown(self, observation: Any) -> Any:
        if self.shared.observation is None:
            return observation
        self.shared.observation[...] = observation
        return None


def _in_words(error: Exception) -> tuple[str, str]:
    return f"raised {type(error).__name__}: {error}", traceback.format_exc()
