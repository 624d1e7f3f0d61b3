"""Notices that a call of an environment does not return, and says which call it is.

Code that plays an environment only to measure it calls `announce_call` before each call of the
environment. A child process sends its parent notes about that; the parent kills the child when none
comes. In this process a thread listens; it can only end the process, since nothing else ends a call
that hangs. Times are in seconds.
"""

import contextlib
import faulthandler
import os
import re
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

import gymnasium

from trainables.envs.make import EnvironmentConfig
from trainables.errors import ConfigError

#: Exit code of a process that ends because an environment hangs: a setting is wrong.
EXIT_CODE = 2
#: Additional time after which a process ends whose interpreter is blocked by the call, seconds.
LATER_S = 5.0
#: Names of an environment's methods; functions around them may have any name.
CALLS = ("__init__", "reset", "step", "render", "close")
#: Number of times that the watching thread looks within the time limit.
LOOKS = 10

#: Folder of this package.
_OURS = str(Path(__file__).parents[1])
#: Folder of the package gymnasium.
_GYMNASIUM = Path(gymnasium.__file__).parent
#: One entry of a stack: file, line and function.
StackFrame = traceback.FrameSummary
#: Files of layers around an environment, which do not hang themselves.
_LAYERS = tuple(
    str(_GYMNASIUM / part) for part in ("core.py", "wrappers", "envs/registration.py", "vector")
)
#: Pattern of a stack's entry as `faulthandler` writes it.
_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<name>.*)$', re.MULTILINE)


class Hangs(ConfigError):
    """An environment of which one call did not return within the time limit."""


#: Functions that `announce_call` calls, those of inner blocks first.
_listeners: list[Callable[[], None]] = []


def announce_call() -> None:
    """Announce that a call of an environment is about to begin, to all listeners (`listening`).

    Every measurement calls this before each call, so that hanging calls can be noticed.
    """
    for listener in reversed(_listeners):
        listener()


@contextlib.contextmanager
def listening(listener: Callable[[], None]) -> Iterator[None]:
    """Make `announce_call` call `listener` inside the block, before outer blocks' listeners."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


@contextlib.contextmanager
def watched(config: EnvironmentConfig) -> Iterator[None]:
    """End this process, with a message, if a call of the environment hangs inside the block.

    A thread watches: a call hangs if no `announce_call` follows within the setting
    ``env_measure_timeout_s``, and the block does not end.
    """
    watch = _Watch(config, threading.get_ident())
    with listening(watch.record_call), watch:
        yield


def hang_error(config: EnvironmentConfig, stack: Sequence[StackFrame], doing: str) -> Hangs:
    """Return the error for an environment that hangs, with the hanging call and its place.

    `stack` is the thread's, outermost first; `doing` completes "while …" in the message.
    """
    call, where = hung_call(stack)
    return hang_from_message(
        config,
        f"its {call} has not returned within {config.env_measure_timeout_s:g} s "
        f"(env_measure_timeout_s) while {doing}{where}; env_level: C measures nothing",
    )


def hang_from_message(config: EnvironmentConfig, message: str) -> Hangs:
    """Return the error for an environment that hangs, with a message of another process."""
    return Hangs("env", config.env, "an environment whose calls return", message)


def hung_call(stack: Sequence[StackFrame]) -> tuple[str, str]:
    """Return the environment's method in a stack, such as ``step()``, and where it is, as text.

    The stack is outermost first. Without one, returns "process" and "".
    """
    if not stack:
        return "process", ""
    ours = [i for i, frame in enumerate(stack) if frame.filename.startswith(_OURS)]
    inside = stack[ours[-1] + 1 :] if ours else stack
    calls = [one for one in inside if not one.filename.startswith(_LAYERS)] or inside or stack
    first = next((frame for frame in calls if frame.name in CALLS), calls[0])
    last = calls[-1]
    deeper = "" if last == first else f", in {last.name} ({last.filename}:{last.lineno})"
    return f"{first.name}()", f": {first.filename}:{first.lineno}{deeper}"


def read_stack(dumped: str) -> list[StackFrame]:
    """Return the main thread's stack, outermost first, from text that `faulthandler` wrote.

    Empty if the text has no stack.
    """
    blocks = [block for block in dumped.split("\n\n") if _FRAME.search(block)]
    found = _FRAME.finditer(blocks[-1]) if blocks else ()
    return [StackFrame(one["file"], int(one["line"]), one["name"]) for one in found][::-1]


class _Watch:
    """A thread that ends this process if the thread `thread` makes no `announce_call` for too long.

    The end of a call is not seen, only the next `announce_call`.
    """

    def __init__(self, config: EnvironmentConfig, thread: int) -> None:
        self._config = config
        self._thread = thread
        self._limit = config.env_measure_timeout_s
        self._beaten_at = time.monotonic()
        self._over = threading.Event()
        self._watching = threading.Thread(target=self._watch, name="env-watch", daemon=True)

    def record_call(self) -> None:
        """Record the time at which a call begins, for `announce_call`."""
        self._beaten_at = time.monotonic()

    def __enter__(self) -> None:
        self._watching.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._watching.join()

    def _watch(self) -> None:
        """End the process when the time limit has passed; the thread's main function.

        It looks regularly, until the watch ends.
        """
        with _stderr() as descriptor:
            while not self._over.wait(min(1.0, self._limit / LOOKS)):
                if descriptor >= 0:  # where a call holds the interpreter, this thread cannot run
                    faulthandler.dump_traceback_later(
                        self._limit + LATER_S, exit=True, file=descriptor
                    )
                if time.monotonic() - self._beaten_at > self._limit:
                    self._end_process()
            if descriptor >= 0:
                faulthandler.cancel_dump_traceback_later()

    def _end_process(self) -> NoReturn:
        """Write the error with the hanging call to standard error, and end the process at once.

        Its exit code is `EXIT_CODE`; nothing is cleaned up.
        """
        stack = traceback.extract_stack(sys._current_frames().get(self._thread))
        words = hang_error(self._config, stack, "it was inspected in this process, which ends")
        with contextlib.suppress(OSError):
            os.write(2, f"{words}\n".encode(errors="backslashreplace"))
        os._exit(EXIT_CODE)


@contextlib.contextmanager
def _stderr() -> Iterator[int]:
    """Yield a duplicate of the standard error's descriptor; -1 if there is none."""
    try:
        descriptor = os.dup(2)
    except OSError:
        yield -1
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)
