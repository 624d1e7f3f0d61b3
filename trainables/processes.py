"""Child processes that die with their parents.

A child watches its parent in two ways, since each has a gap: the kernel's parent-death signal fires
when the *thread* that started the child ends and is lost on fork; a watching thread cannot run
while C code holds the interpreter. Both are set by `die_with_parent`, which a child calls first.
"""

import ctypes
import os
import select
import signal
import threading

_PR_SET_PDEATHSIG = 1

#: What a terminal or a service manager sends to all processes of a group.
TERMINAL_SIGNALS = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)


def die_with_parent(parent: int) -> None:
    """End this process with SIGKILL as soon as process `parent` is gone.

    Args:
        parent: pid of the parent, taken by the parent itself before it started this process.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the signal was set
        os.kill(os.getpid(), signal.SIGKILL)
    threading.Thread(
        target=_wait_for_end, args=(os.pidfd_open(parent),), name="parent-watch", daemon=True
    ).start()


def ignore_terminal_signals() -> None:
    """Leave Ctrl-C, a closed terminal and SIGTERM to the parent, which decides what is saved.

    SIGTERM reaches a whole process group where timeout(1), systemd or Slurm send it. It gets a
    handler, since an ignored one would be ignored by every program that a trainable starts.
    """
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda _number, _frame: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, TERMINAL_SIGNALS)


def _wait_for_end(pidfd: int) -> None:
    select.select([pidfd], [], [])
    os.kill(os.getpid(), signal.SIGKILL)
