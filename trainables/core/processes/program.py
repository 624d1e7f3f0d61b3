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
    """Make this child process look like a program: multiprocessing, `__main__`, signals, input.

    The process gets its own group, so that Ctrl-C in a terminal reaches neither it nor any program
    that it starts. Its input becomes empty, since a terminal stops a process of another group that
    reads from it.

    Args:
        is_main: True to look like a program's main process; False to keep its name and parent.
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
    """Ignore Ctrl-C, a closed terminal and SIGTERM: the parent decides what is saved.

    timeout(1), systemd and Slurm send SIGTERM to all processes. Forked children get the default
    handlers back, since an executor ends its workers with SIGTERM.
    """
    os.register_at_fork(
        before=_hold_signals, after_in_parent=_release_signals, after_in_child=_restore_handlers
    )
    ignore_terminal_signals()


def ignore_terminal_signals() -> None:
    """Install handlers that ignore the terminal's signals in this process, and unblock them."""
    for number in TERMINAL_SIGNALS:
        signal.signal(number, _ignore)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, TERMINAL_SIGNALS)


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """Do nothing; started programs would inherit SIG_IGN, but not this handler."""


def is_ctrl_c(error: BaseException) -> bool:
    """Return whether an error is a KeyboardInterrupt that a person may have caused by a signal.

    In a process that ignores such signals, a KeyboardInterrupt comes from the trial's code.
    """
    handler = signal.getsignal(signal.SIGINT)
    return isinstance(error, KeyboardInterrupt) and handler is signal.default_int_handler


_forking = threading.local()  # `mask`: this thread's signal mask before it forked


def _hold_signals() -> None:
    """Block the signals while this thread forks, until the child has its own handlers."""
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, TERMINAL_SIGNALS)


def _release_signals() -> None:
    """Restore the signal mask from before the fork."""
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def _restore_handlers() -> None:
    """Restore the default handlers in a forked child, except where its code has set others."""
    for number in TERMINAL_SIGNALS:
        if signal.getsignal(number) is _ignore:  # not one that the trial's code has set
            is_interrupt = number == signal.SIGINT
            signal.signal(number, signal.default_int_handler if is_interrupt else signal.SIG_DFL)
    _release_signals()


def _forget_tracker() -> None:
    """Disconnect from the parent's resource tracker; the first use starts one of this process."""
    tracker: Any = resource_tracker._resource_tracker
    if tracker._fd is not None:
        os.close(tracker._fd)
        tracker._fd = tracker._pid = None
