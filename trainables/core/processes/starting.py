"""Starting child processes that end with their parents from their first instant on.

A child's interpreter imports for seconds on a busy machine before `ending` can set anything in it.
So it begins as a small program that asks the kernel to end it with its parent, and then becomes
loky's. The trackers that clean up after killed processes are started here too, with their warnings
switched off: leftovers are no news after a kill.
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

#: Environment variables that limit a child to one thread: trials run side by side, one core each.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
#: The small program: sets PR_SET_PDEATHSIG to SIGKILL, unless the parent is gone already. Its
#: arguments are the parent's pid and the command to run. It imports as little as it can.
_GUARD: Final = (
    "import ctypes, os, sys\n"
    "ctypes.CDLL(None).prctl(1, 9)\n"
    "if os.getppid() != int(sys.argv[1]): os.kill(os.getpid(), 9)\n"
    "os.execv(sys.argv[2], sys.argv[2:])\n"
)
#: Program that runs a module as ``python -m`` does, but not one of the current folder, where a user
#: may have a `sweep.py`. Garbage collection is off during imports: all imported objects stay, and
#: collections take a third of the time until a child can work.
_BOOT: Final = (
    "import sys\n"
    "if sys.path and not sys.path[0]: del sys.path[0]\n"
    "import gc, runpy\n"
    "gc.disable()\n"
    "runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)\n"
)
#: Environment variable that keeps the current folder off Python's import path.
_SAFE_PATH: Final = "PYTHONSAFEPATH"
#: Filter that hides the trackers' warnings, as an argument of ``python -W``.
_WARNING_FILTER: Final = "ignore:resource_tracker:UserWarning"


def guard_command(command: Sequence[str]) -> list[str]:
    """Return `command` wrapped so that the kernel kills it when the *thread* that starts it ends.

    The command's first word must be a path.
    """
    return [sys.executable, "-I", "-S", "-c", _GUARD, str(os.getpid()), *command]


def boot_command(command: Sequence[str]) -> Sequence[str]:
    """Return loky's ``python -m module …`` as a command that imports without garbage collection.

    Any other command is returned unchanged.
    """
    python, flag, module, *arguments = command
    return [python, "-c", _BOOT, module, *arguments] if flag == "-m" else command


#: Module from which loky's tracker process imports `main`: a copy that does not import joblib.
loky_tracker.main.__module__ = "trainables.core.processes.tidying"

_child = threading.local()  # `launch`: function that starts loky's children in this thread
#: Loky's own function that starts a command with given files and variables; returns its pid.
launch = fork_exec.fork_exec
#: A function like `launch`: (command, file descriptors to keep, variables) → pid.
Launch: TypeAlias = Callable[[Sequence[str], Sequence[int], Mapping[str, str] | None], int]


def _fork_exec(
    command: Sequence[str], keep: Sequence[int], env: Mapping[str, str] | None = None
) -> int:
    """Start a command for loky, and return its pid; replaces loky's own function of this name.

    Uses the function that `launch_with` has set in this thread, else loky's own.
    """
    found: Launch = getattr(_child, "launch", None) or launch
    return int(found(command, keep, env))


fork_exec.fork_exec = _fork_exec


@contextlib.contextmanager
def launch_with(launch: Launch) -> Iterator[None]:
    """Make loky start this thread's processes with the function `launch` inside the block.

    The resource trackers are started first, without that function.
    """
    start_trackers()  # before: not as children that are guarded, which end with what was killed
    _child.launch = launch
    try:
        yield
    finally:
        _child.launch = None


class Process(process.LokyProcess):  # type: ignore[misc]  # loky has no types
    """A loky process that ends with its parent, and imports without garbage collection."""

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """Take the parent's state in the child, and switch garbage collection on again."""
        self.__dict__.update(state)
        gc.freeze()
        gc.enable()

    @staticmethod
    def _Popen(process_obj: Any) -> Any:  # noqa: N802 multiprocessing's name
        """Start the process, and return multiprocessing's handle of it."""
        with launch_with(_guarded_launch):
            return process.LokyProcess._Popen(process_obj)


def _guarded_launch(
    command: Sequence[str], keep: Sequence[int], env: Mapping[str, str] | None
) -> int:
    """Start a command that imports without garbage collection; return its pid.

    If called in the main thread, the kernel also kills it when this process ends.
    """
    # The kernel's signal comes when the *thread* ends that has started the child.
    in_main = threading.current_thread() is threading.main_thread()
    return int(
        launch(
            guard_command(boot_command(command)) if in_main else boot_command(command), keep, env
        )
    )


_context = context.LokyContext()
_context.Process = Process


def child_context() -> Any:
    """Return the multiprocessing context whose processes end with this one.

    It starts all child processes of trials. It may be used in any thread, and in children.
    """
    return _context


def start_trackers() -> None:
    """Start Python's and loky's resource trackers, which clean up after killed processes.

    Does nothing if they run. Started here, they ignore a terminal's signals; their start leaves
    these signals unblocked in this thread.
    """
    with _hidden_warnings():
        for tracker in (resource_tracker, loky_tracker):
            with block_signals(*TERMINAL_SIGNALS), _safe_import_path(tracker):
                tracker.ensure_running()


@contextlib.contextmanager
def _safe_import_path(tracker: Any) -> Iterator[None]:
    """Set PYTHONSAFEPATH inside the block, in which `tracker` may be started.

    Without it, a tracker might import modules from the current folder. Does nothing if it runs.
    """
    if tracker._resource_tracker._fd is not None or _SAFE_PATH in os.environ:
        yield
        return
    os.environ[_SAFE_PATH] = "1"
    try:
        yield
    finally:
        del os.environ[_SAFE_PATH]


@contextlib.contextmanager
def block_signals(*numbers: signal.Signals) -> Iterator[None]:
    """Block signals in this thread inside the block, and in processes that it starts there."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _hidden_warnings() -> Iterator[None]:
    """Hide the warnings of trackers that are started inside the block."""
    sys.warnoptions.append(_WARNING_FILTER)
    try:
        yield
    finally:
        sys.warnoptions.remove(_WARNING_FILTER)
