"""A small program that starts workers for a parent, and ends all that they leave behind.

    python -I -S reaper.py PARENT      # `reaping` starts it, with a socket for requests

Processes that a trial starts become children of this process when their own parent is gone, even if
they are in a session of their own, as servers and simulators are (PR_SET_CHILD_SUBREAPER). So when
a worker ends, all its descendants are killed, and then the parent gets the exit code; when the
parent ends for any reason, so do all workers. If this process itself is killed, the kernel ends its
workers.

It is two processes of one thread each, which hold no file of the parent's and import as little as
they can. The first one waits for the second, which does the work. If the second is killed, the
kernel ends the workers, and the first one inherits and kills their descendants.
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

#: True for type checkers alone. Importing `typing` would double this program's start-up time.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import NoReturn

#: Options of prctl(2).
SET_DEATH_SIGNAL, _SET_SUBREAPER = 1, 36
_SIGKILL, _SIGCONT = 9, 18
#: Number of files at the head of a request: status pipe, the request itself, working folder.
_FIXED = 3
#: Largest number of files in a request.
_MOST_FILES = 250
#: File descriptor of the socket for requests.
_REQUESTS = 3
#: Upper bound of file descriptor numbers.
_MAX_FILE_NUMBER = 1 << 20
#: Seconds that resource trackers have to clean up, and that the kernel has to end processes which
#: wait for a disk. After these the parent gets the exit code all the same.
TIDY_S, LEAVE_S = 2.0, 10.0
#: Pause between two looks for children that have ended, seconds.
_POLL_S = 0.002
#: Parts of the command line by which resource trackers are recognised.
_TRACKER_MARKS = (b"resource_tracker", b"processes.tidying")

#: Linux's function that sets attributes of a process.
prctl = ctypes.CDLL(None).prctl


def children(pid: int) -> set[int]:
    """Return the pids of a process's children, zombies included; empty if it is gone."""
    pids: set[int] = set()
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                pids.update(map(int, file.read().split()))
    except FileNotFoundError:
        if os.path.exists(f"/proc/{pid}"):  # a kernel without such files
            pids.update(child for child in _all_pids() if _parent(child) == pid)
    except (ProcessLookupError, PermissionError):
        pass
    return pids


def _all_pids() -> "Iterator[int]":
    """Return the pids of all processes."""
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def _parent(pid: int) -> int:
    """Return the pid of a process's parent; 0 if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:
        return 0


def is_tracker(pid: int) -> bool:
    """Return whether a process is a resource tracker, which deletes what killed processes left."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            line = file.read()
    except OSError:
        return False
    return any(name in line for name in _TRACKER_MARKS)


def kill_descendants(spared: set[int]) -> None:
    """Kill all descendants of this process, a subreaper, and wait for their end.

    Resource trackers get `TIDY_S` seconds to clean up first. Children with `spared` pids stay, with
    all their descendants. Gives up after `LEAVE_S`.
    """
    begun = time.monotonic()
    empty = 0
    while empty < 2:  # while processes end, the kernel's list may lack one that does not
        living = children(os.getpid()) - spared
        empty = 0 if living else empty + 1
        waited = time.monotonic() - begun
        if waited > LEAVE_S:
            return
        doomed = list(living)
        for pid in doomed:  # it grows meanwhile
            doomed += children(pid)
            if waited > TIDY_S or not is_tracker(pid):
                try:
                    os.kill(pid, _SIGKILL)
                except OSError:  # it is gone, or of another user
                    pass
        if living and not sum(_reap(pid) for pid in living):
            time.sleep(_POLL_S)


def _reap(pid: int) -> bool:
    """Collect the exit status of a child; returns False while it runs, else True."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


class _Reaper:
    """The reaper's loop: starts the workers that the parent requests, and cleans up after them.

    `parent` is a pidfd of the parent; requests are read from the socket `requests`.
    """

    def __init__(self, parent: int, requests: "_socket.socket") -> None:
        self._parent = parent
        """Pidfd of the parent: readable when the parent is gone."""
        self._requests = requests
        self._workers: dict[int, tuple[int, int]] = {}
        """Pidfd of a worker → its pid, and the pipe for its status."""
        self._poll = select.poll()
        for descriptor in (self._parent, requests.fileno()):
            self._poll.register(descriptor, select.POLLIN)

    def serve(self) -> None:
        """Start workers until the parent is gone or has closed the socket, then kill them all."""
        is_wanted = True
        while is_wanted:
            for descriptor in [descriptor for descriptor, _ in self._poll.poll()]:
                if descriptor in self._workers:
                    self._finish_worker(descriptor)
                else:
                    is_wanted = is_wanted and descriptor != self._parent and self._answer()
        kill_descendants(set())

    def _finish_worker(self, descriptor: int) -> None:
        """Kill the descendants of an ended worker, then write its exit code to its status pipe.

        `descriptor` is the worker's pidfd.
        """
        pid, status_pipe = self._workers.pop(descriptor)
        self._poll.unregister(descriptor)
        _, status = os.waitpid(pid, 0)
        kill_descendants({worker for worker, _ in self._workers.values()})
        _write_status(status_pipe, os.waitstatus_to_exitcode(status))
        os.close(status_pipe)
        os.close(descriptor)

    def _answer(self) -> bool:
        """Read one request from the socket, and fork its worker; False if the socket is closed.

        The worker's pid, or minus an errno, is written to its status pipe.
        """
        size = array.array("i").itemsize
        said, extra, *_ = self._requests.recvmsg(
            1, _socket.CMSG_SPACE(_MOST_FILES * size), _socket.MSG_CMSG_CLOEXEC
        )
        if not said:
            return False
        files = array.array("i")
        for _level, _kind, data in extra:
            files.frombytes(data[: len(data) - len(data) % size])
        status_pipe, request, *_ = files
        with open(request, "rb") as file:
            command, env, targets, most = marshal.load(file)  # noqa: S302 the parent wrote it
        reaper = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            _write_status(status_pipe, -(error.errno or errno.EAGAIN))
            os.close(status_pipe)
        else:
            if not pid:
                placed = dict(zip(targets, files[_FIXED:], strict=True))
                _run_command(reaper, command, env, files[2], placed, most)
            descriptor = os.pidfd_open(pid)
            self._workers[descriptor] = (pid, status_pipe)
            self._poll.register(descriptor, select.POLLIN)
            _write_status(status_pipe, pid)
        for file_number in files[2:]:
            os.close(file_number)
        return True


def _write_status(status_pipe: int, number: int) -> None:
    """Write a pid or exit code to a status pipe; ignores a pipe that nobody reads any more."""
    try:
        os.write(status_pipe, number.to_bytes(8, "little", signed=True))
    except OSError:  # it is not asked about any more
        pass


def _run_command(
    reaper: int,
    command: list[bytes],
    env: dict[bytes, bytes],
    cwd: int,
    files: dict[int, int],
    limits: tuple[int, int],
) -> "NoReturn":
    """Replace this forked process by `command`, in the folder of descriptor `cwd`; never returns.

    If that fails, the process exits with code 127. `reaper` is the pid of the parent: if that is
    gone, the command is not run. `files` maps descriptor numbers in the command to descriptors
    here. `limits` are the soft and the hard limit of open files.
    """
    try:
        prctl(SET_DEATH_SIGNAL, _SIGKILL)
        prctl(_SET_SUBREAPER, 1)
        above = max((*files, *files.values(), cwd)) + 1
        aside = {to: fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, above) for to, file in files.items()}
        os.fchdir(cwd)
        for to, file in aside.items():
            os.dup2(file, to)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        if os.getppid() == reaper:
            os.execve(command[0], command, env)  # noqa: S606 the parent's command
    finally:
        os._exit(127)


def main() -> None:
    """Run the reaper for the parent whose pid is the first argument, until that parent is gone.

    Closes all files but the socket for requests, and forks the process that does the work; this one
    waits for that and kills what it left. Returns at once if the parent is gone already.
    """
    parent = int(sys.argv[1])
    prctl(_SET_SUBREAPER, 1)
    prctl(SET_DEATH_SIGNAL, _SIGCONT)  # suspended with its parent, it continues when that ends
    os.closerange(_REQUESTS + 1, _MAX_FILE_NUMBER)
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
        _watch_reaper(watched, pid)
    else:
        prctl(_SET_SUBREAPER, 1)  # which no process has from its parent
        _Reaper(watched, _socket.socket(fileno=_REQUESTS)).serve()


def _watch_reaper(watched: int, reaper: int) -> None:
    """Wait until the second process, which does the work, has ended; then kill all that it left.

    If the parent (pidfd `watched`) ends first, a suspended second process (pid `reaper`) is
    continued, so that it notices.
    """
    os.close(_REQUESTS)
    poll = select.poll()
    poll.register(watched, select.POLLIN)
    poll.register(own := os.pidfd_open(reaper), select.POLLIN)
    if own not in [descriptor for descriptor, _ in poll.poll()]:
        os.kill(reaper, _SIGCONT)  # it may be suspended, as this process was
    os.waitpid(reaper, 0)
    kill_descendants(set())


if __name__ == "__main__":
    main()
