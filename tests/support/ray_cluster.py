"""A Ray cluster of real processes on this machine, for tests; every request needs its token."""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil

from tests.support.command_line import environment
from tests.support.ports import free_port
from tests.support.waiting import wait_until

#: Ray's command line.
RAY = (sys.executable, "-c", "from ray.scripts.scripts import main; main()")
TOKEN = "0123456789abcdef" * 4
#: A node that takes little, and stays until it is killed.
SMALL = ("--object-store-memory", "80000000", "--include-log-monitor", "false", "--block")


class RayCluster:
    """A head and its nodes; `close` ends all that was started."""

    def __init__(self, folder: Path, *options: str, **env: str) -> None:
        self.folder = folder
        self.env = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_TOKEN": TOKEN, **env}
        self.env.setdefault("RAY_AUTH_MODE", "token")
        self.nodes: dict[str, subprocess.Popen[bytes]] = {}
        self.address = f"127.0.0.1:{free_port()}"
        port = self.address.rpartition(":")[2]
        self.add("head", "--head", "--port", port, "--include-dashboard", "false", *options)

    def add(self, name: str, *options: str) -> None:
        """One more node, which joins a while after this returns."""
        where = () if "--head" in options else ("--address", self.address)
        own = ("--node-name", name, "--temp-dir", str(self.folder / name[0]))
        with (self.folder / "ray.txt").open("ab") as log:
            self.nodes[name] = subprocess.Popen(
                [*RAY, "start", "--node-ip-address", "127.0.0.1", *where, *own, *SMALL, *options],
                env={**environment(), **self.env},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def processes(self, name: str, like: str = "") -> list[psutil.Process]:
        """What runs for a node, its workers' children too, whose command has `like` in it."""
        return in_session(self.nodes[name].pid, like)

    def up(self, name: str = "head") -> bool:
        """Whether the node has begun to start workers."""
        assert self.nodes[name].poll() is None, (self.folder / "ray.txt").read_text()
        return bool(self.processes(name, "ray::"))

    def stop(self, name: str) -> None:
        """Have a node leave, as `ray stop` does on its machine."""
        (raylet,) = self.processes(name, "raylet_socket_name=")
        raylet.terminate()

    def kill(self, name: str) -> None:
        """As if its machine were switched off."""
        kill_session(self.nodes[name].pid)
        self.nodes.pop(name).wait()

    def close(self) -> None:
        for name in [*self.nodes]:
            self.kill(name)


def in_session(leader: int, like: str = "") -> list[psutil.Process]:
    """The processes of a session whose command has `like` in it."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            if os.getsid(process.pid) == leader and like in " ".join(process.cmdline()):
                found.append(process)
    return found


def kill_session(leader: int) -> None:
    """Kill the processes of a session, with those that they start meanwhile."""
    while found := in_session(leader):
        for process in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


@contextlib.contextmanager
def running(slots: int, *options: str, **env: str) -> Iterator[RayCluster]:
    """A cluster whose head has so many slots; the path of a socket has room for a short folder."""
    with tempfile.TemporaryDirectory(prefix="r", ignore_cleanup_errors=True) as folder:
        slot = ("--num-cpus", str(slots))
        with contextlib.closing(RayCluster(Path(folder), *slot, *options, **env)) as cluster:
            wait_until(cluster.up)
            yield cluster
