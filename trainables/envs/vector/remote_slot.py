"""One environment in a process of its own: what is shared, what is answered, who asks."""

import contextlib
import math
import mmap
import os
from collections.abc import Callable, Mapping
from multiprocessing import reduction
from typing import Any

import numpy as np
from gymnasium import spaces

from trainables.core import rng
from trainables.core.processes.child import ChildProcess, Patience
from trainables.envs.contract import EnvContractError, Outcome, is_plain
from trainables.envs.faults import Fault, Gone, close
from trainables.envs.make import Env, EnvironmentConfig, connect
from trainables.envs.spaces.connectors import EnvConnector, OwnSpaces
from trainables.envs.state.replay import steps_to_replay
from trainables.envs.vector.slot import EnvSlot
from trainables.errors import WorkerError

ALIGNMENT = 64


class Shared:
    """Memory of a step that two processes share, once its spaces are known; it travels to a child.

    It is anonymous memory, so it is gone with the last process that holds it, however that ends.
    """

    numbers: Any
    """reward, terminated, truncated, and the seconds of the connector's steps"""
    observation: Any
    """None if it is no array; likewise ``action``."""
    action: Any

    def __init__(self, descriptor: int | None = None) -> None:
        self._descriptor = os.memfd_create("environment") if descriptor is None else descriptor

    def __reduce__(self) -> Any:
        return _arrived, (reduction.DupFd(self._descriptor),)

    def map(self, connector: EnvConnector) -> None:
        """Hold one observation and one action of its spaces; it never becomes smaller."""
        # To travel it became one that programs inherit, no matter who starts them.
        os.set_inheritable(self._descriptor, False)
        env_spaces = connector.observation_space, connector.action_space
        observation, action = map(_bytes, env_spaces)
        size = ALIGNMENT + observation + action
        if os.fstat(self._descriptor).st_size < size:
            os.ftruncate(self._descriptor, size)
        self._memory = mmap.mmap(self._descriptor, size)
        self.numbers = np.frombuffer(self._memory, np.float64, 3 + len(connector.seconds))
        self.observation = self._array(env_spaces[0], ALIGNMENT)
        self.action = self._array(env_spaces[1], ALIGNMENT + observation)

    def close(self) -> None:
        """Let go of it; arrays that somebody holds stay. A second call does nothing."""
        if vars(self):
            os.close(self._descriptor)
            vars(self).clear()

    def _array(self, space: spaces.Space[Any], offset: int) -> Any:
        if not is_plain(space) or space.shape is None:
            return None
        count = math.prod(space.shape)
        return np.frombuffer(self._memory, space.dtype, count, offset).reshape(space.shape)


def _arrived(descriptor: Any) -> Shared:
    return Shared(descriptor.detach())


def _bytes(space: spaces.Space[Any]) -> int:
    if not is_plain(space) or space.shape is None:
        return 0
    size = math.prod(space.shape) * np.dtype(space.dtype).itemsize
    return -(-size // ALIGNMENT) * ALIGNMENT


class EnvServer(EnvSlot):
    """The process of an environment, which answers as a slot does; `remake` is asked first.

    Args:
        make: makes the environment.
        config: what it makes.
        shared: holds the numbers of a step.
        name: of the environment, in the log.
    """

    def __init__(
        self, make: Callable[[], Env], config: EnvironmentConfig, shared: Shared, name: str
    ) -> None:
        self._make, self._config = make, config
        self._shared, self._name = shared, name
        self._is_mapped = False

    def remake(self, seed: int) -> OwnSpaces:
        """An environment made anew; the global streams, here its own, begin at `seed`."""
        rng.seed_global(seed, "global")
        super().__init__(self._make, self._config)
        if not self._is_mapped:
            self._shared.map(self.connector)
            self._is_mapped = True
        return self.connector.own_spaces

    def step(self, action: Any) -> Any:
        """Observation (None: it is shared) and info; an action of None is shared, too."""
        if action is None:
            action = self._shared.action.copy()[()]
        observation, *numbers, info = super().step(action)
        self._shared.numbers[:] = *numbers, *self.seconds.values()
        return self._shown(observation), info

    def reset(self, seed: int | None) -> Any:
        """The first observation (None: it is shared)."""
        return self._shown(super().reset(seed))

    def get_state(self) -> dict[str, Any]:
        """Entries ``environment`` and ``global_streams``."""
        return {"environment": super().get_state(), "global_streams": rng.capture_global()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave."""
        super().set_state(state["environment"])
        rng.restore_global(state["global_streams"])

    def end(self) -> None:
        """Close the environment; the process ends."""
        close(self, self._name)

    def _shown(self, observation: Any) -> Any:
        if self._shared.observation is None:
            return observation
        self._shared.observation[...] = observation
        return None


class RemoteEnvSlot:
    """The worker's end of one environment's process.

    Args:
        make: makes the environment, there.
        config: what it makes.
        name: of the process.
        timeout_s: seconds within which a step or reset has to be done; None: some day.
        is_remade: it is made anew when its process is gone, so that this is a state as well.
    """

    _child: ChildProcess
    connector: EnvConnector
    """As in the process, where it acts; here it says the spaces."""

    def __init__(
        self,
        make: Callable[[], Env],
        config: EnvironmentConfig,
        name: str,
        timeout_s: float | None,
        is_remade: bool = False,
    ) -> None:
        self._make, self._config = make, config
        self._name = name
        self._patience = Patience(timeout_s, "env_step_timeout_s")
        self._is_remade = is_remade
        self._shared = Shared()
        self._is_started = False
        self._gone: Gone | None = None

    @property
    def ends(self) -> tuple[Any, ...]:
        """Handles that become ready when it answers or dies; empty if it is gone."""
        return () if self._gone else self._child.ends

    @property
    def deadline(self) -> float:
        """`time.monotonic` by which it has to answer; infinite without a limit."""
        return self._child.deadline(self._patience.seconds)

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._child.pid

    def start(self, seed: int) -> None:
        """Start the process and ask it to make the environment."""
        name = f"environment {self._name}"
        server = (self._make, self._config, self._shared, name)
        self._child = ChildProcess(name, EnvServer, server, self._patience)
        self._gone, self._is_started = None, True
        self._send("remake", seed)

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds that the connector's steps took, there."""
        return dict(zip(self.connector.seconds, self._shared.numbers[3:].tolist(), strict=True))

    def finish_start(self) -> None:
        """Wait for the environment."""
        env_spaces: OwnSpaces = self._receive(self._patience)
        self.connector = connect(self._config, *env_spaces)
        self._shared.map(self.connector)

    def send_step(self, action: Any) -> None:
        """Ask for a step; a process that is gone is noticed by `receive_step`."""
        if self._shared.action is not None:
            self._shared.action[...] = action
            action = None
        with contextlib.suppress(Fault):
            self._send("step", action)

    def receive_step(self) -> Outcome:
        """Return the result of a step; a shared observation is overwritten by the next request."""
        observation, info = self._receive(self._patience)
        reward, terminated, truncated, *_ = self._shared.numbers.tolist()
        return self._seen(observation), reward, bool(terminated), bool(truncated), info

    def reset(self, seed: int | None) -> Any:
        """The first observation of the next episode."""
        return self._seen(self._ask("reset", seed))

    def remake(self, seed: int) -> None:
        """An environment made anew, if need be in another process."""
        if self._is_there():
            self._ask("remake", seed)
        else:
            self._child.kill()
            self.start(seed)
            self.finish_start()

    def render(self) -> Any:
        """Return a picture of the environment."""
        return self._ask("render")

    def seed_spaces(self, seed: int) -> None:
        """Give the spaces streams of their own."""
        self._ask("seed_spaces", seed)

    def get_state(self) -> dict[str, Any]:
        """Entries ``environment`` and ``global_streams``.

        Only ``gone``, why, where the process is and the next step makes the environment anew.
        """
        try:
            state: dict[str, Any] = self._ask("get_state")
        except Gone as error:
            if not self._is_remade:
                raise
            return {"gone": str(error)}
        return state

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave; an episode that is played again has its time for it."""
        if "gone" in state:
            self._end_at_once(state["gone"])
            return
        if not self._is_there():
            self.remake(seed=0)  # the streams come with the state
            self.reset(seed=0)
        self._send("set_state", state)
        timeout_s, setting = self._patience
        self._receive(Patience(timeout_s and timeout_s * (1 + steps_to_replay(state)), setting))

    def left_out(self) -> list[str]:
        """Names of attributes that `get_state` cannot hold."""
        names: list[str] = self._ask("left_out")
        return names

    def close(self) -> None:
        """Let go of the environment, not of its process."""
        if self._is_there():
            self._ask("close")

    def begin_end(self) -> None:
        """Ask the process to end, if it was started."""
        if self._is_started:
            self._child.ask_to_end()

    def end(self) -> None:
        """End the process, gently if it is listening; a second call does nothing."""
        if self._is_started:
            self._child.close()
        self._shared.close()

    def _ask(self, method: str, *args: Any) -> Any:
        self._send(method, *args)
        return self._receive(self._patience)

    def _send(self, method: str, *args: Any) -> None:
        if self._gone:
            raise self._gone
        try:
            self._child.send(method, *args)
        except WorkerError as error:
            raise self._lost() from error

    def _receive(self, patience: Patience) -> Any:
        if self._gone:
            raise self._gone
        try:
            kind, answer = self._child.receive_answer(patience)
        except WorkerError as error:
            raise self._lost() from error
        if kind == "ok":
            return answer
        name, message, trace = answer
        if name == EnvContractError.__name__:
            raise EnvContractError(message)
        raise Fault(f"raised {name}: {message}") from WorkerError(
            f"in the environment's process\n\n{trace}"
        )

    def _seen(self, observation: Any) -> Any:
        return observation if self._shared.observation is None else self._shared.observation

    def _is_there(self) -> bool:
        return not self._gone and self._child.is_alive

    def _lost(self) -> Gone:
        return self._end_at_once(f"lost its process (pid {self.pid}), which {self._child.failure}")

    def _end_at_once(self, why: str) -> Gone:
        """End the process; the answer to every later request."""
        self._child.kill()
        self._gone = Gone(why)
        return self._gone
