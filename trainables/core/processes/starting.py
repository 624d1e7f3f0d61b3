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
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing import resource_tracker
from typing import Any, Final

from joblib.externals.loky.backend import context, fork_exec, process
from joblib.externals.loky.backend import resource_tracker as loky_tracker

from trainables.core.processes.ending import TERMINAL_SIGNALS

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
#: Runs a module as ``python -m`` does; Python looks for no garbage in what it imports. All of that
#: stays, and to look through it again and again takes a third of the time until a child can work.
_BOOT: Final = (
    "import gc, runpy, sys\n"
    "gc.disable()\n"
    "runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)\n"
)
#: For the processes that tidy up; as after ``python -W``.
_QUIET: Final = "ignore:resource_tracker:UserWarning"


def guarded(command: Sequence[str]) -> list[str]:
    """A command, by its path, that the kernel ends with the *thread* that starts it."""
    return [sys.executable, "-I", "-S", "-c", _GUARD, str(os.getpid()), *command]


def _booted(command: Sequence[str]) -> Sequence[str]:
    python, flag, module, *arguments = command
    return [python, "-c", _BOOT, module, *arguments] if flag == "-m" else command


#: The module that loky's process imports its `main` from: the same one, without all of joblib.
loky_tracker.main.__module__ = "trainables.core.processes.tidying"

_child = threading.local()  # `wrap`: from loky's command to ours, while this thread starts a child
_unguarded = fork_exec.fork_exec


def _fork_exec(
    command: Sequence[str], keep: Sequence[int], env: Mapping[str, str] | None = None
) -> int:
    """What loky starts processes with; those that are ours begin as the small programs."""
    wrap = getattr(_child, "wrap", None)
    return int(_unguarded(wrap(command) if wrap else command, keep, env))


fork_exec.fork_exec = _fork_exec


class _Process(process.LokyProcess):  # type: ignore[misc]  # loky has no types
    """A child of loky's kind that ends with its parent, and imports without looking for garbage."""

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """Take the parent's state, in the child: to unpickle it has imported all that it needs."""
        self.__dict__.update(state)
        gc.freeze()
        gc.enable()

    @staticmethod
    def _Popen(process_obj: Any) -> Any:  # noqa: N802 multiprocessing's name
        start_trackers()  # not as children that are guarded: they outlive what was killed
        # The kernel's signal comes when the *thread* ends that has started the child.
        in_main = threading.current_thread() is threading.main_thread()
        _child.wrap = (lambda command: guarded(_booted(command))) if in_main else _booted
        try:
            return process.LokyProcess._Popen(process_obj)
        finally:
            _child.wrap = None


_context = context.LokyContext()
_context.Process = _Process


def child_context() -> Any:
    """The multiprocessing context that all children are started from; it works in all of them."""
    return _context


def start_trackers() -> None:
    """Start what tidies up after killed processes, Python's and loky's, if they do not run.

    What a terminal sends must not end them. Starting Python's lets signals through again.
    """
    with _quiet():
        for tracker in (resource_tracker, loky_tracker):
            with blocked(*TERMINAL_SIGNALS):
                tracker.ensure_running()


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
