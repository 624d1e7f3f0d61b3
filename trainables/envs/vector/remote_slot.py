"""One environment in its own process: the shared memory, the process's side, the worker's side."""

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
from trainables.envs.calls.contract import EnvContractError, Outcome, is_plain
from trainables.envs.calls.faults import Fault, Gone, close
from trainables.envs.make import Env, EnvironmentConfig, make_connector
from trainables.envs.spaces.connectors import EnvConnector, OwnSpaces
from trainables.envs.state.replay import steps_to_replay
from trainables.envs.vector.slot import EnvSlot
from trainables.errors import WorkerError

#: Alignment of arrays in the shared memory, bytes.
ALIGNMENT = 64


class SharedStepMemory:
    """Memory for one action and one step's results, shared by an environment's process and parent.

    It can be sent to a child. It is anonymous memory, which is freed with the last process that
    holds it, however that ends. Without a descriptor it is new.
    """

    numbers: Any
    """Reward, terminated, truncated, and the total seconds of each conversion, float64."""
    observation: Any
    """Array for one observation, or None if observations are not arrays."""
    action: Any
    """Array for one action, or None if actions are not arrays."""

    def __init__(self, descriptor: int | None = None) -> None:
        self._descriptor = os.memfd_create("environment") if descriptor is None else descriptor

    def __reduce__(self) -> Any:
        return _receive_shared, (reduction.DupFd(self._descriptor),)

    def map(self, connector: EnvConnector) -> None:
        """Map the memory into this process, with room for an observation and an action.

        Their spaces are the `connector`'s. The memory grows if needed, and never shrinks. Sets
        `numbers`, `observation` and `action` to arrays in it.
        """
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
        """Release the memory; arrays in use remain valid. A second call does nothing."""
        if vars(self):
            os.close(self._descriptor)
            vars(self).clear()

    def _array(self, space: spaces.Space[Any], offset: int) -> Any:
        """Return an array at `offset` for a value of `space`; None if it is not an array."""
        if not is_plain(space) or space.shape is None:
            return None
        count = math.prod(space.shape)
        return np.frombuffer(self._memory, space.dtype, count, offset).reshape(space.shape)


def _receive_shared(descriptor: Any) -> SharedStepMemory:
    """Make a `SharedStepMemory` from a descriptor that was sent from another process."""
    return SharedStepMemory(descriptor.detach())


def _bytes(space: spaces.Space[Any]) -> int:
    """Return the aligned size of an array of `space` in bytes; 0 if its values are not arrays."""
    if not is_plain(space) or space.shape is None:
        return 0
    size = math.prod(space.shape) * np.dtype(space.dtype).itemsize
    return -(-size // ALIGNMENT) * ALIGNMENT


class EnvServer(EnvSlot):
    """The environment in its own process: each method answers one request of `RemoteEnvSlot`.

    `remake` must be called first. `shared` is memory for the results of a step; the log calls the
    environment `name`.
    """

    def __init__(
        self,
        make: Callable[[], Env],
        config: EnvironmentConfig,
        shared: SharedStepMemory,
        name: str,
    ) -> None:
        self._make, self._config = make, config
        self._shared, self._name = shared, name
        self._is_mapped = False

    def remake(self, seed: int) -> OwnSpaces:
        """Make a new environment, and return its spaces, before any conversion.

        Seeds this process's global streams. The first call maps the shared memory; a later one does
        not close the environment before.
        """
        rng.seed_global(seed, "global")
        super().__init__(self._make, self._config)
        if not self._is_mapped:
            self._shared.map(self.connector)
            self._is_mapped = True
        return self.connector.own_spaces

    def step(self, action: Any) -> Any:
        """Make one step; `action` is None if it is in the shared memory.

        Reward, flags and the times of conversions are written there. Returns the observation (None
        if it is there, too) and info. Raises what the environment raises, or EnvContractError.
        """
        if action is None:
            action = self._shared.action.copy()[()]
        observation, *numbers, info = super().step(action)
        self._shared.numbers[:] = *numbers, *self.seconds.values()
        return self._shown(observation), info

    def reset(self, seed: int | None) -> Any:
        """Start an episode; return its first observation, or None if it is in the shared memory."""
        return self._shown(super().reset(seed))

    def get_state(self) -> dict[str, Any]:
        """Return ``environment``, its state, and ``global_streams``, those of this process."""
        return {"environment": super().get_state(), "global_streams": rng.capture_global()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore a state that `get_state` returned, and this process's global streams."""
        super().set_state(state["environment"])
        rng.restore_global(state["global_streams"])

    def end(self) -> None:
        """Close the environment before the process ends; an error is only logged."""
        close(self, self._name)

    def _shown(self, observation: Any) -> Any:
        """Write an observation to the shared memory and return None.

        If observations are not arrays, return it instead.
        """
        if self._shared.observation is None:
            return observation
        self._shared.observation[...] = observation
        return None


class RemoteEnvSlot:
    """The worker's end of an environment that runs in its own process.

    It has the methods of `EnvSlot`, for an environment in the worker's process. The process is
    started by `start`.

    Args:
        make: makes the environment, in the process.
        timeout_s: time limit of a step or reset, seconds; None for no limit.
        is_remade: True if the environment is replaced when its process dies, so that its absence is
            a valid state.
    """

    _child: ChildProcess
    """Child process of the environment."""
    connector: EnvConnector
    """Converter of observations and actions that the process uses; this copy only has its
    spaces."""

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
        self._shared = SharedStepMemory()
        self._is_started = False
        self._gone: Gone | None = None

    @property
    def wait_handles(self) -> tuple[Any, ...]:
        """Handles that become ready when the process answers or dies; empty if it is gone."""
        return () if self._gone else self._child.ends

    @property
    def deadline(self) -> float:
        """`time.monotonic` by which the process has to answer; infinity without a time limit."""
        return self._child.deadline(self._patience.seconds)

    @property
    def pid(self) -> int:
        """Id of the environment's process."""
        return self._child.pid

    def start(self, seed: int) -> None:
        """Start the process, and request that it makes the environment.

        `finish_start` waits for it. `seed` is for the process's global random streams. Raises Gone
        if the process died at once.
        """
        name = f"environment {self._name}"
        server = (self._make, self._config, self._shared, name)
        self._child = ChildProcess(name, EnvServer, server, self._patience)
        self._gone, self._is_started = None, True
        self._send("remake", seed)

    @property
    def seconds(self) -> dict[str, float]:
        """Name of a conversion → total time in the process, seconds."""
        return dict(zip(self.connector.seconds, self._shared.numbers[3:].tolist(), strict=True))

    def finish_start(self) -> None:
        """Wait until the process has made the environment; set `connector`, map the shared memory.

        Raises Fault if the environment cannot be made, or the process died or took too long.
        """
        env_spaces: OwnSpaces = self._receive(self._patience)
        self.connector = make_connector(self._config, *env_spaces)
        self._shared.map(self.connector)

    def send_step(self, action: Any) -> None:
        """Request a step without waiting; if the process is gone, `receive_step` raises.

        An action that is an array is passed in the shared memory.
        """
        if self._shared.action is not None:
            self._shared.action[...] = action
            action = None
        with contextlib.suppress(Fault):
            self._send("step", action)

    def receive_step(self) -> Outcome:
        """Wait for the requested step, and return its five values.

        The next request overwrites an observation in shared memory. Raises Fault or
        EnvContractError.
        """
        observation, info = self._receive(self._patience)
        reward, terminated, truncated, *_ = self._shared.numbers.tolist()
        return self._observation(observation), reward, bool(terminated), bool(truncated), info

    def reset(self, seed: int | None) -> Any:
        """Start an episode; wait for its first observation (*O), and return it.

        A `seed` of None continues the streams. The next request overwrites an observation in shared
        memory. Raises Fault or EnvContractError.
        """
        return self._observation(self._ask("reset", seed))

    def remake(self, seed: int) -> None:
        """Replace the environment by a new one, in a new process if the old one is gone, and wait.

        `seed` is for the process's global random streams. Raises Fault if that fails.
        """
        if self._is_running():
            self._ask("remake", seed)
        else:
            self._child.kill()
            self.start(seed)
            self.finish_start()

    def render(self) -> Any:
        """Return what the environment's `render` returns, such as a picture; raises Fault."""
        return self._ask("render")

    def seed_spaces(self, seed: int) -> None:
        """Seed the environment's spaces in its process, each with its own stream; raises Fault."""
        self._ask("seed_spaces", seed)

    def get_state(self) -> dict[str, Any]:
        """Return ``environment``, its state, and ``global_streams``, those of its process.

        If the process is gone and the environment will be replaced, the only entry is ``gone``, the
        reason. Otherwise a failure raises Fault.
        """
        try:
            state: dict[str, Any] = self._ask("get_state")
        except Gone as error:
            if not self._is_remade:
                raise
            return {"gone": str(error)}
        return state

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore a state of `get_state`; the time limit grows with the steps to be replayed.

        A process that is gone is started again. A state with the entry ``gone`` kills the process
        instead. Raises Fault.
        """
        if "gone" in state:
            self._end_at_once(state["gone"])
            return
        if not self._is_running():
            self.remake(seed=0)  # the streams come with the state
            self.reset(seed=0)
        self._send("set_state", state)
        timeout_s, setting = self._patience
        self._receive(Patience(timeout_s and timeout_s * (1 + steps_to_replay(state)), setting))

    def unsaved_attributes(self) -> list[str]:
        """Return the names of attributes that `get_state` cannot store; raises Fault."""
        names: list[str] = self._ask("unsaved_attributes")
        return names

    def close(self) -> None:
        """Close the environment, but keep its process; does nothing if that is gone."""
        if self._is_running():
            self._ask("close")

    def begin_end(self) -> None:
        """Request that the process ends, if it was started; `end` waits for this."""
        if self._is_started:
            self._child.ask_to_end()

    def end(self) -> None:
        """Wait until the process has ended, killing it if it does not; release the shared memory.

        A second call does nothing.
        """
        if self._is_started:
            self._child.close()
        self._shared.close()

    def _ask(self, method: str, *args: Any) -> Any:
        """Call a method of `EnvServer` in the process, wait, and return its result.

        Raises Fault or EnvContractError.
        """
        self._send(method, *args)
        return self._receive(self._patience)

    def _send(self, method: str, *args: Any) -> None:
        """Request a call of a method in the process, without waiting; raises Gone if it is gone."""
        if self._gone:
            raise self._gone
        try:
            self._child.send(method, *args)
        except WorkerError as error:
            raise self._lost() from error

    def _receive(self, patience: Patience) -> Any:
        """Wait for the result of the latest request.

        Raises Fault if the environment raised, Gone if the process died or hangs, or
        EnvContractError.
        """
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

    def _observation(self, observation: Any) -> Any:
        """Return the observation in shared memory if it is an array, else the received one."""
        return observation if self._shared.observation is None else self._shared.observation

    def _is_running(self) -> bool:
        """Return whether the process was started and is not known to be gone."""
        return not self._gone and self._child.is_alive

    def _lost(self) -> Gone:
        """Kill the process, record why it is lost, and return the error of all later requests."""
        return self._end_at_once(f"lost its process (pid {self.pid}), which {self._child.failure}")

    def _end_at_once(self, reason: str) -> Gone:
        """Kill the process; record and return the error that every later request raises."""
        self._child.kill()
        self._gone = Gone(reason)
        return self._gone
