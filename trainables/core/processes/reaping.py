"""The parent's side of the reaper: asks it to start commands, and reads how they ended.

`start` may be called long before the first command, since starting the reaper takes a while.
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

#: Path of the reaper's program.
_PROGRAM: Final = Path(__file__).with_name("reaper.py")
#: File descriptor under which the reaper finds the socket for requests.
_REQUESTS: Final = 3
#: Length of a status message, bytes.
_LENGTH: Final = 8
#: Exit code of a command that the kernel has killed together with the reaper.
_KILLED: Final = -9


class Command:
    """A command that the reaper starts as its child, and whose descendants it kills at the end.

    Args:
        words: the command; the first word is a path.
        keep: file descriptors that it keeps under the same numbers, besides the standard ones.
        env: all its environment variables.

    Raises:
        OSError: the system cannot start another process.
    """

    def __init__(self, words: Sequence[str], keep: Sequence[int], env: Mapping[str, str]) -> None:
        targets = [*(number for number in range(3) if _is_open(number)), *keep]
        said = {os.fsencode(name): os.fsencode(value) for name, value in env.items()}
        most = resource.getrlimit(resource.RLIMIT_NOFILE)
        request = marshal.dumps(([os.fsencode(word) for word in words], said, targets, most))
        self.end_handle, tells = os.pipe()
        """Descriptor that becomes readable when the command and all its descendants have ended."""
        asked, asks = os.pipe()
        folder = os.open(".", os.O_PATH)
        try:
            _reaper.send([tells, asked, folder, *targets])
        finally:
            for descriptor in (tells, asked, folder):
                os.close(descriptor)
        with os.fdopen(asks, "wb") as pipe:
            pipe.write(request)
        #: Process id of the command.
        self.pid = self._read_status()
        self._lock = threading.Lock()
        self._exitcode: int | None = None
        if self.pid <= 0:
            os.close(self.end_handle)
            raise OSError(-self.pid, os.strerror(-self.pid))

    def exitcode(self, waits: bool) -> int | None:
        """Return the exit code, or minus the signal that killed the command.

        Returns None while it runs; with `waits`, blocks until it has ended.
        """
        with self._lock:
            patience = None if waits else 0
            if self._exitcode is None and connection.wait([self.end_handle], patience):
                self._exitcode = self._read_status()
            return self._exitcode

    def _read_status(self) -> int:
        """Read one status message: at first the pid or minus an errno, later the exit code.

        Returns -9 if the reaper was killed and there is none.
        """
        said = os.read(self.end_handle, _LENGTH)
        return int.from_bytes(said, "little", signed=True) if said else _KILLED


class _Reaper:
    """The connection of this process to its reaper, which is started when it is first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests = -1
        """Socket for requests; -1 before the reaper is started. It stays open until this process
        ends, which ends the reaper, too."""
        #: Pid of the process that started the reaper, 0 before; another one after a fork.
        self._parent = 0

    def start(self, *, restarts: bool = False) -> int:
        """Return the socket for requests; starts the reaper if there is none, or if `restarts`."""
        with self._lock:
            if restarts or self._parent != os.getpid():
                ours, reaper_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                with reaper_end:
                    os.posix_spawn(
                        sys.executable,
                        [sys.executable, "-I", "-S", str(_PROGRAM), str(os.getpid())],
                        os.environ,
                        file_actions=[(os.POSIX_SPAWN_DUP2, reaper_end.fileno(), _REQUESTS)],
                        setpgroup=0,  # what ends our group does not end it
                        setsigmask=TERMINAL_SIGNALS,
                    )
                self._requests, self._parent = ours.detach(), os.getpid()
            return self._requests

    def send(self, files: Sequence[int]) -> None:
        """Send the file descriptors of a request; restarts the reaper if it was killed."""
        try:
            _send(self.start(), files)
        except OSError:  # it was killed, and with it all that it had started
            os.close(self._requests)
            _send(self.start(restarts=True), files)


def _send(requests: int, files: Sequence[int]) -> None:
    """Send file descriptors over the socket `requests`."""
    with socket.socket(fileno=os.dup(requests)) as sender:
        message = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))
        sender.sendmsg([b"."], [message])


#: The reaper of this process.
_reaper = _Reaper()


def start() -> None:
    """Start the reaper of this process in advance, unless it runs already."""
    _reaper.start()


def _is_open(number: int) -> bool:
    """Return whether this process has a file open under this number."""
    with contextlib.suppress(OSError):
        os.fstat(number)
        return True
    return False
