"""A child process that answers one request at a time: both ends of the protocol.

`ChildProcess` is the parent's end. The child's end is a server: an object that the child makes at
the first request, and whose methods are the only possible requests. Requests and answers are
numbered, so that the late answer to an abandoned request is not taken for the next one's. Times are
in seconds.
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
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple, TypeAlias

from trainables.core.logs import LogConfig, is_shown, set_level, show
from trainables.core.processes.ending import (
    die_with_parent,
    exit_process,
    kill_at_exit,
    limit_standstill,
)
from trainables.core.processes.printing import ignore_full_disk
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

#: Time that a child has to end by itself before it is killed, seconds.
STOP_TIMEOUT_S = 5.0
#: Time to wait for the next part of a hanging child's stack, seconds.
STACK_TIMEOUT_S = 0.5
#: Extra time for a child's first answer, while it imports and makes environments, seconds.
START_TIMEOUT_S = 60.0

#: Errors that keep their class when they reach the parent; every other becomes a WorkerError.
NAMED_ERRORS: Mapping[str, type[TrainableError]] = {
    one.__name__: one for one in (CallbackError, EnvError, ExchangeError, NotFiniteError)
}
#: The request that ends a child; its server must have a method of this name, too.
END = "end"

#: End of a pipe between two processes.
Pipe: TypeAlias = "connection.Connection[Any, Any]"


class Patience(NamedTuple):
    """The longest wait for a child's answer, and the setting from which it comes."""

    seconds: float | None = None
    """Limit in seconds, or None to wait without limit."""
    setting: str = ""
    """Name of the setting that gives the limit, for the error message."""


# ---- the parent's end ----------------------------------------------------------------------------


class ChildProcess:
    """The parent's end of a child process that answers requests; it dies when the parent dies.

    Creating the object starts the process.

    Args:
        name: name of the child in errors.
        server: function that the child calls at the first request; each method of the object that
            it returns is a request.
        args: arguments of `server`; they are sent to the child.
        patience: longest time that a message may be stuck half sent.
        resources: environment variables and memory quota of the child.
        logs: log settings of the child, or None for no logging.
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
        self._pipe, child_end = connection.Pipe()
        self._stack, their_stack = connection.Pipe(duplex=False)
        self._process: Any = child_context().Process(
            target=_serve,
            args=(child_end, their_stack, os.getpid(), partial(server, *args), resources),
            kwargs={"log": partial(_set_up_log, name, logs, is_shown()) if logs else None},
            name=name.replace(" ", "-"),
            daemon=True,
            env={**ONE_THREAD, **(resources.environs if resources else {})},
        )
        self._process.start()
        kill_at_exit(self._process)
        child_end.close()
        their_stack.close()
        #: Process id of the child.
        self.pid = int(self._process.pid)
        self.ends: tuple[Any, Any] = (self._pipe, self._process.sentinel)
        """Handles for `multiprocessing.connection.wait`: ready when the child answers or dies."""
        self.failure = ""
        """Reason why the child can answer no more, as a verb phrase, once a request has found one;
        else empty, also after `close` and `kill`."""
        self.exitcode: int | None = None
        """Exit code once a request has found that the child had died, else None; also None if it
        was killed here."""
        self._error: WorkerError | None = None  # which every later request raises, too
        self._asked_at = time.monotonic()
        self._number = self._answered = 0
        self._begun = False
        self._torn = False  # part of a message may have been read or written
        self._ending = False
        self._limit_standstill(START_TIMEOUT_S)

    @property
    def is_alive(self) -> bool:
        """True if the process runs and accepts requests."""
        return not self._error and self._process is not None and bool(self._process.is_alive())

    def send(self, method: str, *args: Any) -> None:
        """Send the request ``server.method(*args)`` without waiting; `receive` returns its result.

        If the answer to the previous request was not read, it is waited for and dropped first.
        Raises WorkerError if the child has died, hangs or does not take the request in time. If an
        argument cannot be pickled, raises pickle's error and sends nothing.
        """
        if self._answered < self._number:
            # Its answer was not waited for to the end. A child that is writing reads no request.
            self.receive_answer(self._patience)
        self._send_message(method, args)

    def receive(self, patience: Patience) -> Any:
        """Wait for the answer to the latest request, and return the method's result.

        The time limit `patience` begins with the request. If the method raised, raises its error if
        that is one of `NAMED_ERRORS`, else WorkerError. Raises WorkerError, too, if the child died
        or hangs (it is then killed), or a message was interrupted half-way.
        """
        kind, answer = self.receive_answer(patience)
        if kind == "error":
            raise _make_error(self._name, *answer)
        return answer

    def receive_answer(self, patience: Patience) -> tuple[str, Any]:
        """Wait for the answer to the latest request; return it without raising the child's error.

        Returns ``("ok", result)``, or ``("error", (class name, message, traceback))``. Skips notes,
        which the child sends while it works. Raises WorkerError if the child died or hangs, or a
        message was interrupted half-way.
        """
        kind, answer = self.receive_message(patience)
        while kind == "note":
            kind, answer = self.receive_message(patience)
        return kind, answer

    def receive_message(self, patience: Patience) -> tuple[str, Any]:
        """Wait for the next message of the latest request, which may be a note.

        Returns ``("note", content)``, ``("ok", result)``, or ``("error", (class name, message,
        traceback))``. A note restarts the time limit. Raises WorkerError if the child died or
        hangs, or a message was interrupted half-way.
        """
        self._require_whole()
        self._patience = patience
        while True:
            ready = connection.wait(self.ends, self.seconds_left(patience.seconds))
            if not ready:
                raise self._time_out("no answer", patience)
            if self._pipe not in ready:
                # A process that the child started may hold its end open: no end of file would come.
                raise self._death_error()
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
        """Return the `time.monotonic` at which `seconds` since the latest request have passed.

        The first request gets `START_TIMEOUT_S` more. Returns infinity for None.
        """
        if seconds is None:
            return math.inf
        return self._asked_at + seconds + (0.0 if self._begun else START_TIMEOUT_S)

    def seconds_left(self, seconds: float | None) -> float | None:
        """Return the time until `deadline` of these `seconds`, at least 0; None for no limit."""
        if seconds is None:
            return None
        return max(0.0, self.deadline(seconds) - time.monotonic())

    def ask_to_end(self) -> None:
        """Send the request that ends the child, once, without waiting.

        `close` waits for its end.
        """
        if not self._pipe.closed and not self._ending:
            self._ending = True
            with contextlib.suppress(WorkerError):
                self._send_message(END, ())

    def close(self) -> None:
        """End the child: send it the request to end, and kill it if it runs after `STOP_TIMEOUT_S`.

        A second call does nothing.
        """
        self.ask_to_end()
        if not self._pipe.closed:
            self._process.join(STOP_TIMEOUT_S)
        self.kill()

    def kill(self) -> None:
        """Kill the child at once; a second call does nothing."""
        if not self._pipe.closed:
            self._kill_process()
            self._pipe.close()
            self._stack.close()
            self._process = None  # its sentinel is closed with it

    def _send_message(self, method: str, args: tuple[Any, ...]) -> None:
        """Write a numbered request to the pipe.

        Raises WorkerError if the child died or does not read, pickle's error before anything is
        written if an argument cannot be pickled.
        """
        self._require_whole()
        message = ForkingPickler.dumps((self._number + 1, method, args))
        self._asked_at = time.monotonic()
        self._number += 1
        self._torn = True
        try:
            self._pipe.send_bytes(message)
        except BlockingIOError:
            raise self._time_out("it did not accept its request", self._standstill) from None
        except (BrokenPipeError, ConnectionResetError):
            raise self._death_error() from None
        self._torn = False

    def _read(self) -> tuple[int, str, Any]:
        """Read one message (request's number, kind, content) from the pipe.

        Raises WorkerError, and records the failure, if the child died, stopped half-way, or the
        message cannot be unpickled.
        """
        self._torn = True
        try:
            message: tuple[int, str, Any] = self._pipe.recv()
        except BlockingIOError:
            raise self._time_out("it sent only a part of its answer", self._standstill) from None
        except (EOFError, OSError):
            raise self._death_error() from None
        except Exception as error:
            raise self._fail(f"returned garbage: its answer cannot be read: {error!r}") from error
        self._torn = False
        return message

    def _require_whole(self) -> None:
        """Raise WorkerError if the child has failed, or a message was sent or read only in part."""
        if self._error:
            raise self._error
        if self._torn:
            raise self._fail(
                "cannot be used any more, because a message to or from it was interrupted"
            )

    def _fail(self, words: str, kind: type[WorkerError] = WorkerError) -> WorkerError:
        """Record that the child can answer no more, and return the error to raise, of class `kind`.

        `words` is a verb phrase after the child's name, such as ``died; exit code 1``.
        """
        self.failure = words
        self._error = kind(f"{self._name} (pid {self.pid}) {words}")
        return self._error

    def _time_out(self, failure: str, patience: Patience) -> WorkerError:
        """Kill a child that has passed a time limit, and return the WorkerHangs to raise.

        The error has the stacks of the child's threads; `failure` says which message is missing.
        """
        stack = self._read_stack()
        self._kill_process()
        self.failure = f"hangs: {failure} within {patience.seconds} s ({patience.setting})"
        self._error = WorkerHangs(f"{self._name} (pid {self.pid}) {self.failure}\n\n{stack}")
        return self._error

    def _death_error(self) -> WorkerError:
        """Wait for the exit code of a child that has died, and return the WorkerDied to raise."""
        self._process.join(STOP_TIMEOUT_S)
        self.exitcode = self._process.exitcode
        return self._fail(f"died; exit code {self.exitcode}", WorkerDied)

    def _read_stack(self) -> str:
        """Make a hanging child dump the stacks of its threads (SIGUSR1), and return them as text.

        Returns "" if the process is suspended or dead.
        """
        with contextlib.suppress(ProcessLookupError):  # it has died meanwhile
            os.kill(self.pid, signal.SIGUSR1)
        written = b""
        while connection.wait([self._stack], STACK_TIMEOUT_S):
            part = os.read(self._stack.fileno(), 65536)
            if not part:
                break
            written += part
        return written.decode(errors="replace")

    def _kill_process(self) -> None:
        """Kill the process and wait for its end."""
        if self._process.is_alive():
            os.kill(self.pid, signal.SIGKILL)  # a process of loky's context has no kill()
        self._process.join()

    def _limit_standstill(self, start_s: float) -> None:
        """Limit how long a message may be stuck half sent: `start_s` plus the child's patience.

        Does nothing if that has no limit.
        """
        if self._standstill.seconds is not None:
            limit_standstill(self._pipe, start_s + self._standstill.seconds)


def _make_error(name: str, kind: str, message: str, trace: str) -> TrainableError:
    """Return the error to raise in the parent for one that was raised in the child `name`.

    `kind`, `message` and `trace` are its class name, text and traceback. It keeps its class if that
    is one of `NAMED_ERRORS`, with the traceback as its cause; else it is a WorkerError with all
    three.
    """
    if kind in NAMED_ERRORS:
        named = NAMED_ERRORS[kind](message)
        named.__cause__ = WorkerError(f"in {name}\n\n{trace}")
        return named
    return WorkerError(f"{name} raised {kind}: {message}\n\n{trace}")


# ---- the child's end -----------------------------------------------------------------------------

_request: tuple[Pipe, int]  # pipe and number of the request that is being answered


def note(content: Any) -> None:
    """Send `content` to the parent while this child answers a request.

    A server's method calls it.
    """
    pipe, number = _request
    pipe.send((number, "note", content))


def _serve(
    pipe: Pipe,
    stack: Pipe,
    parent: int,
    make: Callable[[], Any],
    resources: ResourcesConfig | None,
    log: Callable[[], None] | None,
) -> None:
    """Answer requests until `END` arrives or the parent is gone; the child's main function.

    Args:
        pipe: carries (number, method, arguments) from the parent and (number, kind, content) back.
        stack: receives the stacks of all threads on SIGUSR1.
        parent: pid of the parent.
        make: makes the server at the first request.
        resources: memory quota of this process; None for no limit.
        log: sets up logging; None for no logging.
    """
    global _request  # noqa: PLW0603 there is one parent
    faulthandler.register(signal.SIGUSR1, file=stack.fileno())
    become_program(is_main=False)
    die_with_parent(parent)
    ignore_full_disk()
    limit_child(resources)
    if log:
        log()
    server: Any = None
    while True:
        try:
            number, method, args = pipe.recv()
        except EOFError:
            return
        _request = (pipe, number)
        try:
            if server is None and method != END:
                server = make()
            pipe.send((number, "ok", getattr(server, method)(*args)))
        except BaseException as error:  # noqa: BLE001 whatever it is, the parent must hear of it
            pipe.send((number, "error", _describe_error(error, resources)))
        if method == END:
            exit_process()


def _set_up_log(name: str, config: LogConfig, are_shown: bool) -> None:
    """Set the log level in the child; if `are_shown`, also write records to standard error.

    They are prefixed with `name`, the child's.
    """
    set_level(config)
    if are_shown:
        show(name)


def _describe_error(
    error: BaseException, resources: ResourcesConfig | None
) -> tuple[str, str, str]:
    """Return the class name, message and traceback of an error.

    If memory ran out in the error or one of its causes, the message names the quota.
    """
    message = str(error)
    cause: BaseException | None = error
    while resources and cause is not None:
        if isinstance(cause, MemoryError):
            message += f"; memory_per_worker: {resources.memory_per_worker} bytes, 0: no limit"
            break
        cause = cause.__cause__
    return type(error).__name__, message, traceback.format_exc()
