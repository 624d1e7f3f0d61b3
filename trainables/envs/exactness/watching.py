"""Notices that a call of an environment does not come back, and says which one it is.

Code that plays an environment only to measure it calls `beat` before each call of the environment.
A child process passes the beats on to its parent, which ends the child when none comes; in this
process a thread listens, which can only end the process, since nothing else ends a call that hangs.
Times are seconds.
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

#: The exit code of a process that is ended because an environment hangs in it: a setting is wrong.
EXIT_CODE = 2
#: How much later a process ends in which no python can run, as a call holds the interpreter.
LATER_S = 5.0
#: What an environment is asked for, as a function around it may have any name.
CALLS = ("__init__", "reset", "step", "render", "close")
#: The watching thread looks so often while an environment is given this long.
LOOKS = 10

_OURS = str(Path(__file__).parents[1])
_GYMNASIUM = Path(gymnasium.__file__).parent
#: One entry of a stack: file, line and function.
StackFrame = traceback.FrameSummary
#: Layers around an environment, which are not what hangs.
_LAYERS = tuple(
    str(_GYMNASIUM / part) for part in ("core.py", "wrappers", "envs/registration.py", "vector")
)
_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<name>.*)$', re.MULTILINE)


class Hangs(ConfigError):
    """A call of an environment that did not come back."""


#: What is called at each beat.
_listeners: list[Callable[[], None]] = []


def beat() -> None:
    """Announce that a call of an environment is about to begin."""
    for listener in reversed(_listeners):
        listener()


@contextlib.contextmanager
def heard_by(listener: Callable[[], None]) -> Iterator[None]:
    """While it is entered, `listener` is called at each beat, before those entered earlier."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


@contextlib.contextmanager
def watched(config: EnvironmentConfig) -> Iterator[None]:
    """End this process, with a message, when a call of the environment hangs meanwhile."""
    watch = _Watch(config, threading.get_ident())
    with heard_by(watch.hear), watch:
        yield


def refusal(config: EnvironmentConfig, stack: Sequence[StackFrame], doing: str) -> Hangs:
    """The error of an environment that hangs; its `stack` begins outermost, empty if unknown."""
    call, where = hung_call(stack)
    return hangs(
        config,
        f"its {call} has not within {config.env_measure_timeout_s:g} s (env_measure_timeout_s) "
        f"while {doing}{where}; env_level: C measures nothing",
    )


def hangs(config: EnvironmentConfig, words: str) -> Hangs:
    """The error of an environment that hangs, in `words` that another process has written."""
    return Hangs("env", config.env, "an environment whose calls return", words)


def hung_call(stack: Sequence[StackFrame]) -> tuple[str, str]:
    """The call of the environment in a stack, such as ``step()``, and where it stands, in words."""
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
    """The main thread's stack, outermost first, in what `faulthandler` wrote."""
    blocks = [block for block in dumped.split("\n\n") if _FRAME.search(block)]
    found = _FRAME.finditer(blocks[-1]) if blocks else ()
    return [StackFrame(one["file"], int(one["line"]), one["name"]) for one in found][::-1]


class _Watch:
    """A thread that ends the process when a call in `thread` takes too long: there is no beat."""

    def __init__(self, config: EnvironmentConfig, thread: int) -> None:
        self._config = config
        self._thread = thread
        self._limit = config.env_measure_timeout_s
        self._beaten_at = time.monotonic()
        self._over = threading.Event()
        self._watching = threading.Thread(target=self._watch, name="env-watch", daemon=True)

    def hear(self) -> None:
        """Note that a call begins now."""
        self._beaten_at = time.monotonic()

    def __enter__(self) -> None:
        self._watching.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._watching.join()

    def _watch(self) -> None:
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
        stack = traceback.extract_stack(sys._current_frames().get(self._thread))
        words = refusal(self._config, stack, "it was looked at in this process, which ends")
        with contextlib.suppress(OSError):
            os.write(2, f"{words}\n".encode(errors="backslashreplace"))
        os._exit(EXIT_CODE)


@contextlib.contextmanager
def _stderr() -> Iterator[int]:
    """A descriptor of what is standard error now; -1: there is none."""
    try:
        descriptor = os.dup(2)
    except OSError:
        yield -1
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)
