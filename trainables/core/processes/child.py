"""A child process that answers one request at a time: both ends of the protocol.

`ChildProcess` is the parent's end. The child's end is a server: an object that is made there at the
first request, and whose methods are all that can be asked for. Requests and answers are numbered:
an answer that nobody waited for to the end is not taken for a later one's. Times are seconds.
"""

import contextlib
import faulthandler
import math
import os
import signal
import time
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from multiprocessing import connection
from typing import Any, NamedTuple, TypeAlias

from trainables.core.logs import LogConfig, is_shown, set_level, show
from trainables.core.processes.ending import (
    die_with_parent,
    kill_at_exit,
    leave,
    limit_standstill,
)
from trainables.core.processes.printing import lose_what_is_not_taken
from trainables.core.processes.program import become_program
from trainables.core.resources import ResourcesConfig, limit_child
from trainables.errors import (
    CallbackError,
    EnvError,
    ExchangeError,
    NotFiniteError,
    TrainableError,
    WorkerDied,
    WorkerError,
    WorkerHangs,
)

STOP_TIMEOUT_S = 5.0
#: How long a child that hangs is listened to for the next part of its stack.
STACK_TIMEOUT_S = 0.5
#: What a child gets on top of its time to answer while it imports and makes its environments.
START_TIMEOUT_S = 60.0

#: Errors that stay what they are on their way to the parent; every other one becomes a WorkerError.
NAMED_ERRORS: Mapping[str, type[TrainableError]] = {
    one.__name__: one for one in (CallbackError, EnvError, ExchangeError, NotFiniteError)
}
#: The request after which a child ends; a server has it, too.
END = "end"

Pipe: TypeAlias = "connection.Connection[Any, Any]"


class Patience(NamedTuple):
    """The longest wait for an answer."""

    seconds: float | None = None
    """None: until it comes."""
    setting: str = ""
    """The setting that says so."""


# ---- the parent's end ----------------------------------------------------------------------------


class ChildProcess:
    """The parent's end of a child, which ends with the parent however that ends.

    Args:
        name: how errors call it.
        server: makes, in the child, the object that answers.
        args: of `server`; they travel to the child.
        patience: how long a message to or from it may stand still half-way.
        resources: its variables and its quota of memory.
        logs: what it logs; None: nothing is set.
    """

    def __init__(
        self,
        name: str,
        server: Callable[..., Any],
        args: tuple[Any, ...],
        patience: Patience,
        resources: ResourcesConfig | None = None,
        logs: LogConfig | None = None,
    ) -> None:
        # Not at the top: most trainers start no child, and this imports loky.
        from trainables.core.processes.starting import ONE_THREAD, child_context

        self._name = name
        self._patience = self._standstill = patience
        self._pipe, theirs = connection.Pipe()
        self._stack, their_stack = connection.Pipe(duplex=False)
        self._process: Any = child_context().Process(
            target=_serve,
            args=(theirs, their_stack, os.getpid(), partial(server, *args), resources),
            kwargs={"log": partial(_log, name, logs, is_shown()) if logs else None},
            name=name.replace(" ", "-"),
            daemon=True,
            env={**ONE_THREAD, **(resources.environs if resources else {})},
        )
        self._process.start()
        kill_at_exit(self._process)
        theirs.close()
        their_stack.close()
        self.pid = int(self._process.pid)
        self.ends: tuple[Any, Any] = (self._pipe, self._process.sentinel)
        """The handles that become ready when the child answers or dies."""
        self.failure = ""
        """The reason why it can answer no more, in words with a verb; empty while it can."""
        self.exitcode: int | None = None
        """Of one that has died."""
        self._error: WorkerError | None = None  # which every later request raises, too
        self._asked_at = time.monotonic()
        self._number = self._answered = 0
        self._begun = False
        self._torn = False  # part of a message may have been read or written
        self._ending = False
        self._limit_standstill(START_TIMEOUT_S)

    @property
    def is_alive(self) -> bool:
        """True if the process runs and can be asked."""
        return not self._error and self._process is not None and bool(self._process.is_alive())

    def send(self, method: str, *args: Any) -> None:
        """Ask for ``server.method(*args)``."""
        if self._answered < self._number:
            # Its answer was not waited for to the end. A child that is writing reads no request.
            self.answer(self._patience)
        self._post(method, args)

    def receive(self, patience: Patience) -> Any:
        """The answer to the latest request, within so long of it.

        Raises:
            TrainableError: the server raised, or the child can answer no more.
        """
        kind, answer = self.answer(patience)
        if kind == "error":
            raise _rebuilt(self._name, *answer)
        return answer

    def answer(self, patience: Patience) -> tuple[str, Any]:
        """``ok`` and the answer; or ``error``, and its kind, message and traceback.

        Raises:
            WorkerError: the child can answer no more.
        """
        kind, answer = self.hear(patience)
        while kind == "note":
            kind, answer = self.hear(patience)
        return kind, answer

    def hear(self, patience: Patience) -> tuple[str, Any]:
        """The next message: an `answer`, or ``note`` and its text; a note restarts the clock."""
        self._require_whole()
        self._patience = patience
        while True:
            ready = connection.wait(self.ends, self.left(patience.seconds))
            if not ready:
                raise self._cut_off("no answer", patience)
            if self._pipe not in ready:
                # A process that the child started may hold its end open: no end of file would come.
                raise self._death()
            number, kind, content = self._read()
            if not self._begun:
                self._begun = True
                self._limit_standstill(0.0)
            if kind != "note":
                self._answered = number
            elif number == self._number:
                self._asked_at = time.monotonic()
            if number == self._number:
                return kind, content

    def deadline(self, seconds: float | None) -> float:
        """`time.monotonic` at which these seconds of its time to answer are over."""
        if seconds is None:
            return math.inf
        return self._asked_at + seconds + (0.0 if self._begun else START_TIMEOUT_S)

    def left(self, seconds: float | None) -> float | None:
        """Return how many of the seconds are left; None without a limit."""
        if seconds is None:
            return None
        return max(0.0, self.deadline(seconds) - time.monotonic())

    def ask_to_end(self) -> None:
        """Let the child begin to end; `close` waits for it."""
        if not self._pipe.closed and not self._ending:
            self._ending = True
            with contextlib.suppress(WorkerError):
                self._post(END, ())

    def close(self) -> None:
        """End the child, gently if it is listening; a second call does nothing."""
        self.ask_to_end()
        if not self._pipe.closed:
            self._process.join(STOP_TIMEOUT_S)
        self.kill()

    def kill(self) -> None:
        """End the child at once; a second call does nothing."""
        if not self._pipe.closed:
            self._slay()
            self._pipe.close()
            self._stack.close()
            self._process = None  # its sentinel is closed with it

    def _post(self, method: str, args: tuple[Any, ...]) -> None:
        self._require_whole()
        self._asked_at = time.monotonic()
        self._number += 1
        self._torn = True
        try:
            self._pipe.send((self._number, method, args))
        except BlockingIOError:
            raise self._cut_off("has not taken its request", self._standstill) from None
        except (BrokenPipeError, ConnectionResetError):
            raise self._death() from None
        self._torn = False

    def _read(self) -> tuple[int, str, Any]:
        self._torn = True
        try:
            message: tuple[int, str, Any] = self._pipe.recv()
        except BlockingIOError:
            raise self._cut_off("only part of its answer", self._standstill) from None
        except (EOFError, OSError):
            raise self._death() from None
        except Exception as error:
            raise self._failed(f"returned garbage: its answer cannot be read: {error!r}") from error
        self._torn = False
        return message

    def _require_whole(self) -> None:
        if self._error:
            raise self._error
        if self._torn:
            raise self._failed(
                "cannot be understood any more: a message to or from it was interrupted half-way"
            )

    def _failed(self, words: str, kind: type[WorkerError] = WorkerError) -> WorkerError:
        self.failure = words
        self._error = kind(f"{self._name} (pid {self.pid}) {words}")
        return self._error

    def _cut_off(self, what: str, patience: Patience) -> WorkerError:
        """End a child that has taken too long."""
        stack = self._read_stack()
        self._slay()
        self.failure = f"hangs: {what} within {patience.seconds} s ({patience.setting})"
        self._error = WorkerHangs(f"{self._name} (pid {self.pid}) {self.failure}\n\n{stack}")
        return self._error

    def _death(self) -> WorkerError:
        self._process.join(STOP_TIMEOUT_S)
        self.exitcode = self._process.exitcode
        return self._failed(f"died; exit code {self.exitcode}", WorkerDied)

    def _read_stack(self) -> str:
        """Return the stacks of a hanging child's threads; empty if it is stopped altogether."""
        with contextlib.suppress(ProcessLookupError):  # it has died meanwhile
            os.kill(self.pid, signal.SIGUSR1)
        written = b""
        while connection.wait([self._stack], STACK_TIMEOUT_S):
            part = os.read(self._stack.fileno(), 65536)
            if not part:
                break
            written += part
        return written.decode(errors="replace")

    def _slay(self) -> None:
        if self._process.is_alive():
            os.kill(self.pid, signal.SIGKILL)  # a process of loky's context has no kill()
        self._process.join()

    def _limit_standstill(self, start_s: float) -> None:
        if self._standstill.seconds is not None:
            limit_standstill(self._pipe, start_s + self._standstill.seconds)


def _rebuilt(name: str, kind: str, message: str, trace: str) -> TrainableError:
    if kind in NAMED_ERRORS:
        named = NAMED_ERRORS[kind](message)
        named.__cause__ = WorkerError(f"in {name}\n\n{trace}")
        return named
    return WorkerError(f"{name} raised {kind}: {message}\n\n{trace}")


# ---- the child's end -----------------------------------------------------------------------------

_asked: tuple[Pipe, int]  # where it is answered, and the number of the request


def note(content: Any) -> None:
    """Say something to the parent before the answer; for a server within a request."""
    pipe, number = _asked
    pipe.send((number, "note", content))


def _serve(
    pipe: Pipe,
    stack: Pipe,
    parent: int,
    make: Callable[[], Any],
    resources: ResourcesConfig | None,
    log: Callable[[], None] | None,
) -> None:
    """Answer requests until one asks to end, or nobody is left to ask.

    `pipe` carries (number, method, arguments) here and (number, kind, content) back; `stack` takes
    where the threads are, when SIGUSR1 comes.
    """
    global _asked  # noqa: PLW0603 there is one parent
    faulthandler.register(signal.SIGUSR1, file=stack.fileno())
    become_program(is_main=False)
    die_with_parent(parent)
    lose_what_is_not_taken()
    limit_child(resources)
    if log:
        log()
    server: Any = None
    while True:
        try:
            number, method, args = pipe.recv()
        except EOFError:
            return
        _asked = (pipe, number)
        try:
            if server is None and method != END:
                server = make()
            pipe.send((number, "ok", getattr(server, method)(*args)))
        except BaseException as error:  # noqa: BLE001 whatever it is, the parent must hear of it
            pipe.send((number, "error", _described(error, resources)))
        if method == END:
            leave()


def _log(name: str, config: LogConfig, are_shown: bool) -> None:
    set_level(config)
    if are_shown:
        show(name)


def _described(error: BaseException, resources: ResourcesConfig | None) -> tuple[str, str, str]:
    """Kind, message and traceback; with the quota where memory ran out, however deep down."""
    message = str(error)
    cause: BaseException | None = error
    while resources and cause is not None:
        if isinstance(cause, MemoryError):
            message += f"; memory_per_worker: {resources.memory_per_worker} bytes, 0: no limit"
            break
        cause = cause.__cause__
    return type(error).__name__, message, traceback.format_exc()
