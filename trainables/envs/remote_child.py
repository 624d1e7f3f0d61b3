"""The process of one environment: answers one request at a time, numbers through shared memory."""

import os
import traceback
from collections.abc import Callable
from multiprocessing import connection
from multiprocessing.reduction import recv_handle
from typing import Any, TypeAlias

from trainables import rng
from trainables.envs.contract import Breach
from trainables.envs.make import Env
from trainables.envs.seat import Seat
from trainables.envs.shared import Shared, Spaces
from trainables.processes import Parent, die_with_parent, ignore_terminal_signals

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
        except Breach as breach:
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
        self._seat: Seat | None = None
        self._shared: Shared | None = None

    @property
    def seat(self) -> Seat:
        """The environment, once it is made."""
        assert self._seat is not None  # noqa: S101 `make` is the first request
        return self._seat

    @property
    def shared(self) -> Shared:
        """The memory, once it is shared."""
        assert self._shared is not None  # noqa: S101 `share` is the second request
        return self._shared

    def make(self, seed: int) -> Spaces:
        """An environment made anew; the global streams, here its own, begin at `seed`."""
        rng.seed_global(seed, "global")
        self._seat = Seat(self._make)
        return self._seat.env.observation_space, self._seat.env.action_space

    def share(self) -> None:
        """Map the memory whose descriptor follows on the pipe."""
        descriptor = recv_handle(self._pipe)
        spaces = (self.seat.env.observation_space, self.seat.env.action_space)
        self._shared = Shared(spaces, descriptor)
        os.close(descriptor)

    def step(self, action: Any) -> Any:
        """Observation (None: it is shared) and info; an action of None is shared, too."""
        if action is None:
            action = self.shared.action.copy()[()]
        observation, *numbers, info = self.seat.step(action)
        self.shared.numbers[:] = numbers
        return self._shown(observation), info

    def reset(self, seed: int | None) -> Any:
        """The first observation (None: it is shared)."""
        return self._shown(self.seat.reset(seed))

    def render(self) -> Any:
        """What the environment draws."""
        return self.seat.render()

    def seed_spaces(self, seed: int) -> None:
        """Give the spaces streams of their own."""
        self.seat.seed_spaces(seed)

    def get_state(self) -> dict[str, Any]:
        """Entries ``environment`` and ``global_streams``."""
        return {"environment": self.seat.get_state(), "global_streams": rng.capture_global()}

    def set_state(self, state: dict[str, Any]) -> None:
        """Take back what `get_state` gave."""
        self.seat.set_state(state["environment"])
        rng.restore_global(state["global_streams"])

    def left_out(self) -> list[str]:
        """Names of attributes that `get_state` cannot hold."""
        return self.seat.left_out()

    def close(self) -> None:
        """Let go of the environment; another may be made."""
        self.seat.close()

    def end(self) -> None:
        """Let go of the environment; the process ends."""
        if self._seat is not None:
            self._seat.close()

    def _shown(self, observation: Any) -> Any:
        if self.shared.observation is None:
            return observation
        self.shared.observation[...] = observation
        return None


def _in_words(error: Exception) -> tuple[str, str]:
    return f"raised {type(error).__name__}: {error}", traceback.format_exc()
