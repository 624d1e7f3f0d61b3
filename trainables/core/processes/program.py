"""Make a child process look, to the code that runs in it, like a program that a person started.

A trial's code may start processes in any way: `multiprocessing` with each of its contexts, torch's
data loaders, executors, programs. So it must not see how its own process was started. As loky makes
it, a worker has loky's context as the default, the module that started it as `__main__`, its
parent's tracker of shared memory, and signal handlers that its children inherit.
"""

import multiprocessing
import os
import signal
import sys
import threading
from multiprocessing import process, resource_tracker
from types import FrameType
from typing import Any

#: Signals that a terminal or a service manager sends to all processes of a group.
TERMINAL_SIGNALS = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)


def become_program(*, is_main: bool = True) -> None:
    """Turn this child of multiprocessing into a process like one that a shell has started.

    The process gets its own group, so that Ctrl-C in a terminal reaches neither it nor any program
    that it starts. It ignores SIGINT, SIGHUP and SIGTERM, and may start processes. Its input
    becomes empty, since a terminal stops a process of another group that reads from it.

    Args:
        is_main: True to also become a main process for multiprocessing; False to keep name and
            parent.
    """
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    leave_signals_to_parent()
    multiprocessing.set_start_method(None, force=True)  # the platform's own default
    current: Any = process.current_process()
    current._config["daemon"] = False  # a daemon may start no processes
    if is_main:
        current._name, current._identity = "MainProcess", ()
        process._parent_process = None  # type: ignore[attr-defined]
    _forget_tracker()
    main: Any = sys.modules["__main__"]
    main.__spec__ = None  # a spawned child would import the module that started this process
    main.__dict__.pop("__file__", None)


def leave_signals_to_parent() -> None:
    """Ignore Ctrl-C, a closed terminal and SIGTERM here: the parent decides when this process ends.

    timeout(1), systemd and Slurm send SIGTERM to all processes. Forked children get the default
    handlers back, since an executor ends its workers with SIGTERM.
    """
    os.register_at_fork(
        before=_hold_signals, after_in_parent=_release_signals, after_in_child=_restore_handlers
    )
    ignore_terminal_signals()


def ignore_terminal_signals() -> None:
    """Install handlers that ignore SIGINT, SIGHUP and SIGTERM, and unblock these signals."""
    for number in TERMINAL_SIGNALS:
        signal.signal(number, _ignore)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, TERMINAL_SIGNALS)


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """Handle a signal by doing nothing; started programs would inherit SIG_IGN, but not this."""


def is_ctrl_c(error: BaseException) -> bool:
    """Return whether an error is a KeyboardInterrupt that a person may have caused by a signal.

    In a process that ignores such signals, a KeyboardInterrupt comes from the trial's code.
    """
    handler = signal.getsignal(signal.SIGINT)
    return isinstance(error, KeyboardInterrupt) and handler is signal.default_int_handler


_forking = threading.local()
"""Values of this thread; `mask` is its signal mask before it forked."""


def _hold_signals() -> None:
    """Block SIGINT, SIGHUP and SIGTERM in this thread before it forks.

    The former mask is kept for `_release_signals`.
    """
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, TERMINAL_SIGNALS)


def _release_signals() -> None:
    """Restore this thread's signal mask from before the fork, in parent and child."""
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def _restore_handlers() -> None:
    """Restore the default signal handlers in a forked child, then unblock the signals.

    A handler that the trial's own code has set stays.
    """
    for number in TERMINAL_SIGNALS:
        if signal.getsignal(number) is _ignore:  # not one that the trial's code has set
            is_interrupt = number == signal.SIGINT
            signal.signal(number, signal.default_int_handler if is_interrupt else signal.SIG_DFL)
    _release_signals()


def _forget_tracker() -> None:
    """Close a forked child's pipe to the parent's resource tracker, so that it starts its own."""
    tracker: Any = resource_tracker._resource_tracker
    if tracker._fd is not None:
        os.close(tracker._fd)
        tracker._fd = tracker._pid = None
