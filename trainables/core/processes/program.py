"""Make a child process look, to the code that runs in it, like a program that a person started.

A trial's code may start processes in any way: `multiprocessing` with each of its contexts, torch's
data loaders, executors, programs. So nothing of how its own process was started may show. Left as
loky makes it, a worker has loky's context as the default one, the module that started it as
`__main__`, its parent's tracker of shared memory, and signal handlers that its children inherit.
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
    """Take the place of a program: multiprocessing, `__main__`, signals, input.

    The process gets a group of its own, so that a terminal's Ctrl-C reaches neither it nor any
    program that it starts, and an empty input, since a terminal stops a process of another group
    that reads from it.

    Args:
        is_main: the process is the program's main one; else it keeps its name and its parent.
    """
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    pass_over_terminal_signals()
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


def pass_over_terminal_signals() -> None:
    """Leave Ctrl-C, a closed terminal and SIGTERM to the parent, which decides what is saved.

    SIGTERM reaches all processes where timeout(1), systemd or Slurm send it. Forked children get
    the handlers of a program back: an executor ends its workers with SIGTERM.
    """
    os.register_at_fork(
        before=_hold_signals, after_in_parent=_release_signals, after_in_child=_restore_handlers
    )
    take_terminal_signals()


def take_terminal_signals() -> None:
    """Have this process pass them over, also where it was forked from one that does."""
    for number in TERMINAL_SIGNALS:
        signal.signal(number, _pass_over)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, TERMINAL_SIGNALS)


def _pass_over(_number: int, _frame: FrameType | None) -> None:
    """Do nothing; an ignored signal would be ignored by every started program, too."""


def is_ctrl_c(error: BaseException) -> bool:
    """Return whether a person may have raised an error by a signal to this process.

    A KeyboardInterrupt in a process that passes such signals over is one of the trial's code.
    """
    handler = signal.getsignal(signal.SIGINT)
    return isinstance(error, KeyboardInterrupt) and handler is signal.default_int_handler


_forking = threading.local()  # `mask`: the signals that waited before this thread forked


def _hold_signals() -> None:
    """Let signals wait while this thread forks: the child is still to get handlers of its own."""
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, TERMINAL_SIGNALS)


def _release_signals() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def _restore_handlers() -> None:
    for number in TERMINAL_SIGNALS:
        if signal.getsignal(number) is _pass_over:  # not one that the trial's code has set
            is_interrupt = number == signal.SIGINT
            signal.signal(number, signal.default_int_handler if is_interrupt else signal.SIG_DFL)
    _release_signals()


def _forget_tracker() -> None:
    """Let the first use start a tracker of this process's own, which tidies up at its end."""
    tracker: Any = resource_tracker._resource_tracker
    if tracker._fd is not None:
        os.close(tracker._fd)
        tracker._fd = tracker._pid = None
