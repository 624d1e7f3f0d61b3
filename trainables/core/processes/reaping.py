"""The parent's side of the reaper: asks it to start commands, and hears how they ended.

`start` may be called long before the first command, since the reaper's own start takes a while.
"""

import array
import contextlib
import marshal
import os
import resource
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from multiprocessing import connection
from pathlib import Path
from typing import Final

from trainables.core.processes.program import TERMINAL_SIGNALS

_PROGRAM: Final = Path(__file__).with_name("reaper.py")
#: Where it finds the socket.
_REQUESTS: Final = 3
_LENGTH: Final = 8
#: How a command ended that the kernel has ended with the reaper.
_KILLED: Final = -9


class Command:
    """A command that the reaper runs.

    Args:
        words: the command, by its path.
        keep: files that it has under the same numbers, beside the standard ones.
        env: all its variables.

    Raises:
        OSError: the system lets no further process begin.
    """

    def __init__(self, words: Sequence[str], keep: Sequence[int], env: Mapping[str, str]) -> None:
        targets = [*(number for number in range(3) if _is_open(number)), *keep]
        said = {os.fsencode(name): os.fsencode(value) for name, value in env.items()}
        most = resource.getrlimit(resource.RLIMIT_NOFILE)
        request = marshal.dumps(([os.fsencode(word) for word in words], said, targets, most))
        self.told, tells = os.pipe()
        """Can be read when it has ended, and all that stood below it."""
        asked, asks = os.pipe()
        folder = os.open(".", os.O_PATH)
        try:
            _reaper.send([tells, asked, folder, *targets])
        finally:
            for descriptor in (tells, asked, folder):
                os.close(descriptor)
        with os.fdopen(asks, "wb") as pipe:
            pipe.write(request)
        self.pid = self._hear()
        self._lock = threading.Lock()
        self._exitcode: int | None = None
        if self.pid <= 0:
            os.close(self.told)
            raise OSError(-self.pid, os.strerror(-self.pid))

    def exitcode(self, waits: bool) -> int | None:
        """Return how it ended, minus the signal that killed it; None while it runs."""
        with self._lock:
            patience = None if waits else 0
            if self._exitcode is None and connection.wait([self.told], patience):
                self._exitcode = self._hear()
            return self._exitcode

    def _hear(self) -> int:
        said = os.read(self.told, _LENGTH)
        return int.from_bytes(said, "little", signed=True) if said else _KILLED


class _Reaper:
    """The one of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests = -1
        """A descriptor, which nobody closes before this process ends: then the reaper ends, too."""
        self._parent = 0

    def start(self, *, anew: bool = False) -> int:
        """Return the socket for requests; it is started unless it runs."""
        with self._lock:
            if anew or self._parent != os.getpid():
                ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                with theirs:
                    os.posix_spawn(
                        sys.executable,
                        [sys.executable, "-I", "-S", str(_PROGRAM), str(os.getpid())],
                        os.environ,
                        file_actions=[(os.POSIX_SPAWN_DUP2, theirs.fileno(), _REQUESTS)],
                        setpgroup=0,  # what ends our group does not end it
                        setsigmask=TERMINAL_SIGNALS,
                    )
                self._requests, self._parent = ours.detach(), os.getpid()
            return self._requests

    def send(self, files: Sequence[int]) -> None:
        """Hand it the files of a request."""
        try:
            _send(self.start(), files)
        except OSError:  # it was killed, and with it all that it had started
            os.close(self._requests)
            _send(self.start(anew=True), files)


def _send(requests: int, files: Sequence[int]) -> None:
    with socket.socket(fileno=os.dup(requests)) as sender:
        message = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))
        sender.sendmsg([b"."], [message])


_reaper = _Reaper()


def start() -> None:
    """Start the reaper of this process, unless it runs."""
    _reaper.start()


def _is_open(number: int) -> bool:
    with contextlib.suppress(OSError):
        os.fstat(number)
        return True
    return False
