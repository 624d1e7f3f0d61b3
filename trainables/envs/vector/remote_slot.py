"""The worker's end of an environment's process, started, asked, cut off and ended.

`remote_server` is the other end. Times are seconds.
"""

import contextlib
import math
import os
import signal
import time
from collections.abc import Callable, Mapping
from multiprocessing import connection
from multiprocessing.reduction import send_handle
from typing import Any

from trainables.core.processes import kill_at_exit, limit_standstill, this_process
from trainables.core.starting import child_context
from trainables.envs.contract import EnvContractError, Outcome
from trainables.envs.make import Env
from trainables.envs.state.replay import steps_to_replay
from trainables.envs.vector.remote_server import Pipe, Shared, Spaces, allocate, serve
from trainables.envs.vector.restarts import Fault, Gone
from trainables.errors import WorkerError

STOP_TIMEOUT_S = 5.0
#: What a process gets on top of its time while it starts and makes its environment.
START_TIMEOUT_S = 60.0
ENVIRONMENT = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class RemoteEnvSlot:
    """The worker's end of one environment's process.

    Args:
        make: makes the environment, there.
        name: of the process.
        timeout_s: within which a step or reset has to be done; None: some day.
        is_remade: it is made anew when its process is gone, so that this is a state as well.
    """

    def __init__(
        self, make: Callable[[], Env], name: str, timeout_s: float | None, is_remade: bool = False
    ) -> None:
        self._make = make
        self._name = name
        self._timeout_s = timeout_s
        self._is_remade = is_remade
        self._process: Any = None
        self._pipe: Pipe | None = None
        self._descriptor = -1
        self._shared: Shared | None = None
        self._asked_at = 0.0
        self._gone = Gone("had lost its process")
        self._unheard = False  # a request has not been answered

    @property
    def ends(self) -> list[Any]:
        """What becomes ready when it answers or dies; nothing if it is gone."""
        return [] if self._pipe is None else [self._pipe, self._process.sentinel]

    @property
    def deadline(self) -> float:
        """`time.monotonic` by which it has to answer; infinite without a limit."""
        return math.inf if self._timeout_s is None else self._asked_at + self._timeout_s

    def start(self, seed: int) -> None:
        """Start the process and ask it to make the environment."""
        self._pipe, theirs = connection.Pipe()
        self._process = child_context().Process(
            target=serve,
            args=(theirs, self._make, this_process()),
            name=f"environment-{self._name}",
            daemon=True,
            env=ENVIRONMENT,
        )
        self._process.start()
        kill_at_exit(self._process)
        theirs.close()
        if self._timeout_s is not None:
            limit_standstill(self._pipe, self._timeout_s)
        self._send("make", seed)

    def finish_start(self) -> Spaces:
        """Wait for the environment; the two spaces."""
        limit = None if self._timeout_s is None else START_TIMEOUT_S + self._timeout_s
        env_spaces: Spaces = self._receive(limit)
        if self._descriptor < 0:
            self._descriptor = allocate(env_spaces)
            self._shared = Shared(env_spaces, self._descriptor)
        self._send("share")
        if self._pipe is not None:
            with contextlib.suppress(OSError):  # a process that has just died is noticed next
                send_handle(self._pipe, self._descriptor, self.pid)
        self._receive(limit)
        return env_spaces

    @property
    def pid(self) -> int:
        """Of the process."""
        return int(self._process.pid)

    def send_step(self, action: Any) -> None:
        """Ask for a step; a process that is gone is noticed by `receive_step`."""
        assert self._shared is not None  # noqa: S101 it has started
        if self._shared.action is not None:
            self._shared.action[...] = action
            action = None
        with contextlib.suppress(Fault):
            self._send("step", action)

    def receive_step(self) -> Outcome:
        """What the step gave; a shared observation is written again by the next request."""
        observation, info = self._receive(self._timeout_s)
        assert self._shared is not None  # noqa: S101 it has started
        reward, terminated, truncated = self._shared.numbers.tolist()
        return self._seen(observation), reward, bool(terminated), bool(truncated), info

    def reset(self, seed: int | None) -> Any:
        """The first observation of the next episode."""
        self._send("reset", seed)
        return self._seen(self._receive(self._timeout_s))

    def remake(self, seed: int) -> None:
        """An environment made anew, if need be in another process."""
        if self._is_there():
            self._ask("make", seed)
        else:
            self.start(seed)
            self.finish_start()

    def render(self) -> Any:
        """What the environment draws."""
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
        timeout_s = self._timeout_s
        self._receive(timeout_s and timeout_s * (1 + steps_to_replay(state)))

    def left_out(self) -> list[str]:
        """Names of attributes that `get_state` cannot hold."""
        names: list[str] = self._ask("left_out")
        return names

    def close(self) -> None:
        """Let go of the environment, not of its process."""
        if self._is_there():
            self._ask("close")

    def begin_end(self) -> None:
        """Ask the process to end."""
        if self._process is not None and self._is_there():
            with contextlib.suppress(Fault):
                self._post("end")

    def end(self) -> None:
        """End the process, gently if it is listening; a second call does nothing."""
        if self._process is None:
            return
        self._process.join(STOP_TIMEOUT_S)
        self._slay()
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._process, self._descriptor, self._shared = None, -1, None

    def _ask(self, method: str, *args: Any) -> Any:
        self._send(method, *args)
        return self._receive(self._timeout_s)

    def _send(self, method: str, *args: Any) -> None:
        if self._unheard:  # whoever asked was interrupted: its answer is nobody's
            with contextlib.suppress(Fault, EnvContractError):
                self._receive(self._timeout_s)
        self._post(method, *args)

    def _post(self, method: str, *args: Any) -> None:
        self._asked_at = time.monotonic()
        if self._pipe is None:
            raise self._gone
        try:
            self._pipe.send((method, args))
            self._unheard = True
        except BlockingIOError:
            raise self._cut_off("a request not taken") from None
        except (BrokenPipeError, ConnectionResetError):
            raise self._death() from None

    def _receive(self, timeout_s: float | None) -> Any:
        if self._pipe is None:
            raise self._gone
        left = None if timeout_s is None else self._asked_at + timeout_s - time.monotonic()
        sentinel = self._process.sentinel
        ready = connection.wait([self._pipe, sentinel], None if left is None else max(0.0, left))
        if not ready:
            raise self._cut_off("no answer", timeout_s)
        if self._pipe not in ready:
            raise self._death()
        try:
            kind, content = self._pipe.recv()
            self._unheard = False
        except BlockingIOError:
            raise self._cut_off("only part of an answer") from None
        except (EOFError, OSError):
            raise self._death() from None
        if kind == "breach":
            raise EnvContractError(content)
        if kind == "raised":
            words, trace = content
            raise Fault(words) from WorkerError(f"in the environment's process\n\n{trace}")
        return content

    def _seen(self, observation: Any) -> Any:
        assert self._shared is not None  # noqa: S101 it has started
        return observation if self._shared.observation is None else self._shared.observation

    def _is_there(self) -> bool:
        return self._pipe is not None and bool(self._process.is_alive())

    def _cut_off(self, what: str, timeout_s: float | None = None) -> Gone:
        within = self._timeout_s if timeout_s is None else timeout_s
        return self._end_at_once(f"was cut off: {what} within {within} s (env_step_timeout_s)")

    def _death(self) -> Gone:
        self._process.join(STOP_TIMEOUT_S)
        pid, code = self.pid, self._process.exitcode
        return self._end_at_once(f"lost its process (pid {pid}), which died; exit code {code}")

    def _end_at_once(self, why: str) -> Gone:
        """End the process; what every later request is told."""
        self._slay()
        self._gone = Gone(why)
        return self._gone

    def _slay(self) -> None:
        if self._process.is_alive():
            os.kill(self.pid, signal.SIGKILL)  # a process of loky's context has no kill()
        self._process.join()
        if self._pipe is not None:
            self._pipe.close()
            self._pipe, self._unheard = None, False
