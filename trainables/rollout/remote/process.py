"""A worker in a child process that never outlives its parent.

Children that are started with spawn or forkserver die at once inside a worker of a joblib pool;
loky's own context works there and everywhere else. Here is the parent's end, `server` is the other
one. Requests and their answers are numbered: an answer that nobody waited for to the end is not
taken for a later one's.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Mapping
from multiprocessing import connection
from typing import Any, NamedTuple

from trainables.core.processes import ONE_THREAD, kill_at_exit, limit_standstill, this_process
from trainables.core.starting import child_context
from trainables.errors import (
    CallbackError,
    EnvError,
    ExchangeError,
    NotFiniteError,
    TrainableError,
    WorkerDied,
    WorkerError,
)
from trainables.rollout.remote.server import Pipe, Spec, serve

STOP_TIMEOUT_S = 5.0
#: How long a child that hangs is listened to for the next part of its stack.
STACK_TIMEOUT_S = 0.5
#: What a child gets on top of its time to answer while it imports and makes its environments.
START_TIMEOUT_S = 60.0

#: Errors that stay what they are on their way to the parent; every other one becomes a WorkerError.
NAMED_ERRORS: Mapping[str, type[TrainableError]] = {
    one.__name__: one for one in (CallbackError, EnvError, ExchangeError, NotFiniteError)
}


class Patience(NamedTuple):
    """How long an answer is waited for."""

    seconds: float | None = None
    """None: until it comes."""
    setting: str = ""
    """Where that is set; empty: where the waiting for all answers is."""


class WorkerProcess:
    """The parent's end: requests are sent to all first and answered in worker order.

    Args:
        spec: what the child builds its worker from.
        build: makes the worker of it, in the child.
        standstill: how long a message to or from it may stand still half-way.
    """

    def __init__(
        self,
        spec: Spec,
        build: Callable[[Spec], Any],
        standstill: Patience | None = None,
    ) -> None:
        self.index = spec.index
        self._name = f"{spec.role} {spec.index}"
        self._timeout_key = spec.timeout_key
        self._pipe, theirs = connection.Pipe()
        self._stack, their_stack = connection.Pipe(duplex=False)
        self._process = child_context().Process(
            target=serve,
            args=(theirs, their_stack, spec, build, this_process()),
            name=self._name.replace(" ", "-"),
            daemon=True,
            env={**ONE_THREAD, **spec.resources.environs},
        )
        self._process.start()
        kill_at_exit(self._process)
        theirs.close()
        their_stack.close()
        self._asked_at = time.monotonic()
        self._patience = self._standstill = standstill or Patience()
        self._number = 0
        self._answered = 0
        self._torn = False  # part of a message may have been read or written
        self._hung: WorkerError | None = None
        self._ending = False
        self._limit_standstill(START_TIMEOUT_S)

    @property
    def pid(self) -> int:
        """Of the child."""
        return int(self._process.pid)

    @property
    def ends(self) -> tuple[Pipe, int]:
        """What becomes ready when the child answers or ends."""
        return self._pipe, self._process.sentinel

    def send(self, method: str, *args: Any) -> None:
        """Ask for ``worker.method(*args)``."""
        if self._answered < self._number:
            # Its `receive` was interrupted. A child that is still writing reads no request.
            self._answer()
        self._asked_at = time.monotonic()
        self._post(method, args)

    def receive(self, timeout_s: float | None = None, setting: str = "") -> Any:
        """The answer to the latest request; waits on the pipe and on the child's end.

        Args:
            timeout_s: seconds from the request on within which the answer has to come.
            setting: from which they are, for the error.
        """
        self._patience = Patience(timeout_s, setting)
        kind, answer = self._answer()
        if kind == "error":
            raise _rebuilt(self._name, *answer)
        return answer

    def ask_to_end(self) -> None:
        """Let the child begin to end; `close` waits for it."""
        if not self._pipe.closed and not self._ending:
            self._ending = True
            with contextlib.suppress(WorkerError):
                self._post("close", ())

    def close(self) -> None:
        """End the child, gently if it is listening; a second call does nothing."""
        self.ask_to_end()
        if not self._pipe.closed:
            self._process.join(STOP_TIMEOUT_S)
        self.kill()

    def kill(self) -> None:
        """End the child at once; a second call does nothing."""
        if self._pipe.closed:
            return
        self._slay()
        self._pipe.close()
        self._stack.close()

    def _post(self, method: str, args: tuple[Any, ...]) -> None:
        self._require_whole()
        self._number += 1
        self._torn = True
        try:
            self._pipe.send((self._number, method, args))
        except BlockingIOError:
            raise self._cut_off("has not taken its request", self._standstill) from None
        except (BrokenPipeError, ConnectionResetError):
            raise self._death() from None
        self._torn = False

    def _answer(self) -> tuple[str, Any]:
        """That to the latest request; older ones are read over."""
        self._require_whole()
        while True:
            self._wait()
            first = not self._answered
            self._answered, kind, answer = self._read()
            if first:
                self._limit_standstill(0.0)
            if self._answered == self._number:
                return kind, answer

    def _wait(self) -> None:
        ready = connection.wait(list(self.ends), self.left(self._patience.seconds))
        if not ready:
            raise self._cut_off("no answer", self._patience)
        if self._pipe not in ready:
            # A process that the child started may hold its end open: no end of file would come.
            raise self._death()

    def _limit_standstill(self, start_s: float) -> None:
        if self._standstill.seconds is not None:
            limit_standstill(self._pipe, start_s + self._standstill.seconds)

    def _cut_off(self, what: str, patience: Patience) -> WorkerError:
        """End a child that has taken too long; the error is that of every later request, too."""
        stack = self._read_stack()
        self._slay()
        timeout_s, setting = patience
        self._hung = WorkerError(
            f"{self._name} (pid {self.pid}) hangs: {what} within "
            f"{timeout_s} s ({setting or self._timeout_key})\n\n{stack}"
        )
        return self._hung

    def _require_whole(self) -> None:
        if self._hung:
            raise self._hung
        if self._torn:
            raise WorkerError(
                f"{self._name} (pid {self.pid}) cannot be understood any more: a message to or "
                "from it was interrupted half-way"
            )

    def _slay(self) -> None:
        if self._process.is_alive():
            os.kill(self.pid, signal.SIGKILL)  # a process of loky's context has no kill()
        self._process.join()

    def _read_stack(self) -> str:
        """Where the threads of a child that hangs are; empty if it is stopped altogether."""
        with contextlib.suppress(ProcessLookupError):  # it has died meanwhile
            os.kill(self.pid, signal.SIGUSR1)
        written = b""
        while connection.wait([self._stack], STACK_TIMEOUT_S):
            part = os.read(self._stack.fileno(), 65536)
            if not part:
                break
            written += part
        return written.decode(errors="replace")

    def left(self, timeout_s: float | None) -> float | None:
        """Seconds that are left of the child's time to answer; None without a bound."""
        if timeout_s is None:
            return None
        start = 0.0 if self._answered else START_TIMEOUT_S
        return max(0.0, self._asked_at + start + timeout_s - time.monotonic())

    def _read(self) -> tuple[int, str, Any]:
        self._torn = True
        try:
            number, kind, answer = self._pipe.recv()
        except BlockingIOError:
            raise self._cut_off("only part of its answer", self._standstill) from None
        except (EOFError, OSError):
            raise self._death() from None
        except Exception as error:
            raise WorkerError(
                f"{self._name} (pid {self.pid}) returned garbage: "
                f"its answer cannot be read: {error!r}"
            ) from error
        self._torn = False
        return number, kind, answer

    def _death(self) -> WorkerDied:
        self._torn = False  # this says more than that
        self._process.join(STOP_TIMEOUT_S)
        return WorkerDied(f"{self._name} (pid {self.pid}) died; exit code {self._process.exitcode}")


def _rebuilt(name: str, kind: str, message: str, trace: str) -> TrainableError:
    if kind in NAMED_ERRORS:
        named = NAMED_ERRORS[kind](message)
        named.__cause__ = WorkerError(f"in {name}\n\n{trace}")
        return named
    return WorkerError(f"{name} raised {kind}: {message}\n\n{trace}")
