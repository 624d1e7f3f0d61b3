"""A small program that starts workers for a parent, and ends all that they leave behind.

    python -I -S reaper.py PARENT      # `reaping` starts it, with a socket for requests

Whatever a trial starts becomes a child of this process when its own parent is gone: also what went
into a session of its own, as servers and simulators do (PR_SET_CHILD_SUBREAPER). So when a worker
ends, all that stood below it is killed, and then the parent is told; when the parent ends, in
whatever way, so do all workers. If this process itself is killed, the kernel ends its workers.

It is two processes of one thread each, which hold no file of the parent's and import as little as
they can. The first one waits for the second, which does the work, and does it in its place if that
is killed: then the kernel ends the workers, and what they leave behind comes to the first one.
"""

import _socket
import array
import ctypes
import errno
import fcntl
import marshal
import os
import resource
import select
import sys
import time

#: For type checkers alone: a module costs this program as much as all that it does at its start.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import NoReturn

SET_DEATH_SIGNAL, _SET_SUBREAPER = 1, 36
_SIGKILL, _SIGCONT = 9, 18
#: Files that come with a request: how it ended, the request itself, the working folder.
_FIXED = 3
_MOST_FILES = 250
#: The socket's descriptor.
_REQUESTS = 3
#: More files than a process has.
_MOST = 1 << 20
#: Seconds that the processes have that tidy up shared memory after what was killed; and for the
#: kernel to end what waits for a disk. Then the parent is told all the same.
TIDY_S, LEAVE_S = 2.0, 10.0
_POLL_S = 0.002
#: Names in the command line of a process that tidies up.
_TIDIES = (b"resource_tracker", b"processes.tidying")

prctl = ctypes.CDLL(None).prctl


def children(pid: int) -> set[int]:
    """Return the children of a process, zombies as well; none where it is gone."""
    found: set[int] = set()
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found.update(map(int, file.read().split()))
    except FileNotFoundError:
        if os.path.exists(f"/proc/{pid}"):  # a kernel without such files
            found.update(child for child in _all() if _parent(child) == pid)
    except (ProcessLookupError, PermissionError):
        pass
    return found


def _all() -> "Iterator[int]":
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def _parent(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:
        return 0


def tidies(pid: int) -> bool:
    """Return whether a process does nothing but tidy up shared memory after killed ones."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            line = file.read()
    except OSError:
        return False
    return any(name in line for name in _TIDIES)


def end_below(top: int, spared: set[int]) -> None:
    """Kill all that stands below process `top`, which is this one, and wait for its end.

    Processes that tidy up after killed ones may do so first: they end when nobody needs them.

    Args:
        top: a process that takes in what its descendants leave behind.
        spared: children that stay, with all that stands below them.
    """
    begun = time.monotonic()
    empty = 0
    while empty < 2:  # while processes end, the kernel's list may lack one that does not
        below = children(top) - spared
        empty = 0 if below else empty + 1
        waited = time.monotonic() - begun
        if waited > LEAVE_S:
            return
        doomed = list(below)
        for pid in doomed:  # it grows meanwhile
            doomed += children(pid)
            if waited > TIDY_S or not tidies(pid):
                try:
                    os.kill(pid, _SIGKILL)
                except OSError:  # it is gone, or of another user
                    pass
        if below and not sum(_reap(pid) for pid in below):
            time.sleep(_POLL_S)


def _reap(pid: int) -> bool:
    """Take the status of a child that has ended; returns False while it runs."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


class _Reaper:
    def __init__(self, parent: int, requests: "_socket.socket") -> None:
        self._parent = parent
        """Can be read when the parent is gone."""
        self._requests = requests
        self._workers: dict[int, tuple[int, int]] = {}
        """Descriptor of a worker → its pid, and where its end is told."""
        self._poll = select.poll()
        for descriptor in (self._parent, requests.fileno()):
            self._poll.register(descriptor, select.POLLIN)

    def serve(self) -> None:
        """Start workers until the parent is gone, or has closed the socket."""
        is_wanted = True
        while is_wanted:
            for descriptor in [descriptor for descriptor, _ in self._poll.poll()]:
                if descriptor in self._workers:
                    self._bury(descriptor)
                else:
                    is_wanted = is_wanted and descriptor != self._parent and self._answer()
        end_below(os.getpid(), set())

    def _bury(self, descriptor: int) -> None:
        """Kill what a worker has left, then tell how it ended."""
        pid, told = self._workers.pop(descriptor)
        self._poll.unregister(descriptor)
        _, status = os.waitpid(pid, 0)
        end_below(os.getpid(), {worker for worker, _ in self._workers.values()})
        _say(told, os.waitstatus_to_exitcode(status))
        os.close(told)
        os.close(descriptor)

    def _answer(self) -> bool:
        """Start a worker; False where nobody can ask any more."""
        size = array.array("i").itemsize
        said, extra, *_ = self._requests.recvmsg(
            1, _socket.CMSG_SPACE(_MOST_FILES * size), _socket.MSG_CMSG_CLOEXEC
        )
        if not said:
            return False
        files = array.array("i")
        for _level, _kind, data in extra:
            files.frombytes(data[: len(data) - len(data) % size])
        told, request, *_ = files
        with open(request, "rb") as file:
            command, env, targets, most = marshal.load(file)  # noqa: S302 the parent wrote it
        reaper = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            _say(told, -(error.errno or errno.EAGAIN))
            os.close(told)
        else:
            if not pid:
                placed = dict(zip(targets, files[_FIXED:], strict=True))
                _become(reaper, command, env, files[2], placed, most)
            descriptor = os.pidfd_open(pid)
            self._workers[descriptor] = (pid, told)
            self._poll.register(descriptor, select.POLLIN)
            _say(told, pid)
        for file_number in files[2:]:
            os.close(file_number)
        return True


def _say(told: int, number: int) -> None:
    try:
        os.write(told, number.to_bytes(8, "little", signed=True))
    except OSError:  # it is not asked about any more
        pass


def _become(
    reaper: int,
    command: list[bytes],
    env: dict[bytes, bytes],
    cwd: int,
    files: dict[int, int],
    most: tuple[int, int],
) -> "NoReturn":
    """Run a command in place of this process, with files under the numbers that it expects.

    It may open as many files as the parent may (`most`, at first and at all).
    """
    try:
        prctl(SET_DEATH_SIGNAL, _SIGKILL)
        prctl(_SET_SUBREAPER, 1)
        above = max((*files, *files.values(), cwd)) + 1
        aside = {to: fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, above) for to, file in files.items()}
        os.fchdir(cwd)
        for to, file in aside.items():
            os.dup2(file, to)
        resource.setrlimit(resource.RLIMIT_NOFILE, most)
        if os.getppid() == reaper:
            os.execve(command[0], command, env)  # noqa: S606 the parent's command
    finally:
        os._exit(127)


def main() -> None:
    """Serve the parent that started this program, unless it is gone."""
    parent = int(sys.argv[1])
    prctl(_SET_SUBREAPER, 1)
    prctl(SET_DEATH_SIGNAL, _SIGCONT)  # suspended with its parent, it goes on when that ends
    os.closerange(_REQUESTS + 1, _MOST)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)  # the parent may have raised its own since
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    os.set_inheritable(_REQUESTS, False)
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in range(_REQUESTS):
        os.dup2(nothing, standard)
    try:
        watched = os.pidfd_open(parent)
    except ProcessLookupError:
        return
    if os.getppid() != parent:  # another process has its number now
        return
    if pid := os.fork():
        _stand_by(watched, pid)
    else:
        prctl(_SET_SUBREAPER, 1)  # which no process has from its parent
        _Reaper(watched, _socket.socket(fileno=_REQUESTS)).serve()


def _stand_by(watched: int, reaper: int) -> None:
    """Wait for the end of the reaper, and kill what it has not."""
    os.close(_REQUESTS)
    poll = select.poll()
    poll.register(watched, select.POLLIN)
    poll.register(own := os.pidfd_open(reaper), select.POLLIN)
    if own not in [descriptor for descriptor, _ in poll.poll()]:
        os.kill(reaper, _SIGCONT)  # it may be suspended, as this process was
    os.waitpid(reaper, 0)
    end_below(os.getpid(), set())


if __name__ == "__main__":
    main()
