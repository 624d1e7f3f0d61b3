"""Starting child processes that end with their parents from their first instant on.

A child's interpreter imports for seconds on a busy machine before `ending` can set anything in it.
So it begins as a small program that asks the kernel to end it with its parent, and then becomes
loky's. The processes that tidy up after killed ones are started here too, and are kept quiet: what
they find is no news after a kill.
"""

import contextlib
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing import resource_tracker
from typing import Any, Final, TypeAlias

from joblib.externals.loky.backend import context, fork_exec, process
from joblib.externals.loky.backend import resource_tracker as loky_tracker

from trainables.core.processes.program import TERMINAL_SIGNALS

#: Variables of a child that computes: trials run side by side, each child on a core of its own.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
#: The small program: PR_SET_PDEATHSIG with SIGKILL, unless the parent is gone already. Its
#: arguments are the parent's pid and the command that follows. It imports as little as it can.
_GUARD: Final = (
    "import ctypes, os, sys\n"
    "ctypes.CDLL(None).prctl(1, 9)\n"
    "if os.getppid() != int(sys.argv[1]): os.kill(os.getpid(), 9)\n"
    "os.execv(sys.argv[2], sys.argv[2:])\n"
)
#: Runs a module as ``python -m`` does, though not one of the current folder, where a person may
#: have a `sweep.py`. Python looks for no garbage in what it imports: all of that stays, and to look
#: through it again and again takes a third of the time until a child can work.
_BOOT: Final = (
    "import sys\n"
    "if sys.path and not sys.path[0]: del sys.path[0]\n"
    "import gc, runpy\n"
    "gc.disable()\n"
    "runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)\n"
)
_SAFE_PATH: Final = "PYTHONSAFEPATH"
#: For the processes that tidy up; as after ``python -W``.
_QUIET: Final = "ignore:resource_tracker:UserWarning"


def guarded(command: Sequence[str]) -> list[str]:
    """A command, by its path, that the kernel ends with the *thread* that starts it."""
    return [sys.executable, "-I", "-S", "-c", _GUARD, str(os.getpid()), *command]


def booted(command: Sequence[str]) -> Sequence[str]:
    """A command of loky's with a module, as one that imports it without looking for garbage."""
    python, flag, module, *arguments = command
    return [python, "-c", _BOOT, module, *arguments] if flag == "-m" else command


#: The module that loky's process imports its `main` from: the same one, without all of joblib.
loky_tracker.main.__module__ = "trainables.core.processes.tidying"

_child = threading.local()  # `launch`: what starts a child of loky's in place of loky, here
#: How loky starts a command with these files and variables; returns its pid.
launch = fork_exec.fork_exec
Launch: TypeAlias = Callable[[Sequence[str], Sequence[int], Mapping[str, str] | None], int]


def _fork_exec(
    command: Sequence[str], keep: Sequence[int], env: Mapping[str, str] | None = None
) -> int:
    """Start a process for loky: by `launch`, or by the function in its place (`launching`)."""
    found: Launch = getattr(_child, "launch", None) or launch
    return int(found(command, keep, env))


fork_exec.fork_exec = _fork_exec


@contextlib.contextmanager
def launching(by: Launch) -> Iterator[None]:
    """While it is entered, this thread starts loky's processes by this function."""
    start_trackers()  # before: not as children that are guarded, which end with what was killed
    _child.launch = by
    try:
        yield
    finally:
        _child.launch = None


class Process(process.LokyProcess):  # type: ignore[misc]  # loky has no types
    """A child of loky's kind that ends with its parent, and imports without looking for garbage."""

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """Take the parent's state, in the child: to unpickle it has imported all that it needs."""
        self.__dict__.update(state)
        gc.freeze()
        gc.enable()

    @staticmethod
    def _Popen(process_obj: Any) -> Any:  # noqa: N802 multiprocessing's name
        with launching(_guarded_launch):
            return process.LokyProcess._Popen(process_obj)


def _guarded_launch(
    command: Sequence[str], keep: Sequence[int], env: Mapping[str, str] | None
) -> int:
    # The kernel's signal comes when the *thread* ends that has started the child.
    in_main = threading.current_thread() is threading.main_thread()
    return int(launch(guarded(booted(command)) if in_main else booted(command), keep, env))


_context = context.LokyContext()
_context.Process = Process


def child_context() -> Any:
    """The multiprocessing context that all children are started from; it works in all of them."""
    return _context


def start_trackers() -> None:
    """Start what tidies up after killed processes, Python's and loky's, if they do not run.

    What a terminal sends must not end them. Starting Python's lets signals through again.
    """
    with _quiet():
        for tracker in (resource_tracker, loky_tracker):
            with blocked(*TERMINAL_SIGNALS), _installed_first(tracker):
                tracker.ensure_running()


@contextlib.contextmanager
def _installed_first(tracker: Any) -> Iterator[None]:
    """Start a tracker without the current folder first on its path, as `_BOOT` does."""
    if tracker._resource_tracker._fd is not None or _SAFE_PATH in os.environ:
        yield
        return
    os.environ[_SAFE_PATH] = "1"
    try:
        yield
    finally:
        del os.environ[_SAFE_PATH]


@contextlib.contextmanager
def blocked(*numbers: signal.Signals) -> Iterator[None]:
    """While it is entered, signals wait; in processes started in it, until they are unblocked."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    sys.warnoptions.append(_QUIET)
    try:
        yield
    finally:
        sys.warnoptions.remove(_QUIET)
