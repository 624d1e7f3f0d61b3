"""A PostgreSQL server of the tests' own, on 127.0.0.1, as a user without rights; and its faults."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg

from tests.support.ports import free_port

#: Of the server's one role; it must stand nowhere but in its own file.
PASSWORD = "a-password-that-stands-nowhere"  # noqa: S105 of a server that lives as long as the tests
#: Nobody, where the tests are run by root: the server refuses root.
_USER = 65534 if os.geteuid() == 0 else None
_SETTINGS = (
    "listen_addresses = '127.0.0.1'\nunix_socket_directories = ''\nfsync = off\n"
    "full_page_writes = off\nshared_buffers = 16MB\nmax_connections = 40\n"
    "logging_collector = off\nautovacuum = off\nlc_messages = 'C'\n"
)


def binaries() -> Path | None:
    """The folder of the server's programs; None: none is installed."""
    found = shutil.which("postgres")
    if found is not None:
        return Path(found).parent
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    return debian[-1].parent if debian else None


class Server:
    """A server in a new folder, or in `folder`, which stays; `start` it.

    `settings` are lines of postgresql.conf that replace those of the tests.
    """

    def __init__(self, folder: Path | None = None, settings: str = "") -> None:
        programs = binaries()
        assert programs is not None
        self._programs = programs
        self._stays = folder is not None
        self._folder = folder or Path(tempfile.mkdtemp(prefix="sweep-postgres-"))
        self._data = self._folder / "data"
        self._log = self._folder / "log"
        self._databases = 0
        self.process: subprocess.Popen[bytes] | None = None
        self.passfile = self._folder / "pgpass"
        if self.passfile.exists():
            self.port = int(self.passfile.read_text().split(":")[1])
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self._initialise(settings)
        self.passfile.write_text(f"127.0.0.1:{self.port}:*:sweeper:{PASSWORD}\n")
        self.passfile.chmod(0o600)

    def _initialise(self, settings: str) -> None:
        first = self._folder / "first"
        first.write_text(PASSWORD)
        self._folder.chmod(0o755)
        self._data.mkdir()
        if _USER is not None:
            for path in (self._data, first):
                os.chown(path, _USER, _USER)
        self._run(
            *("initdb", "--pgdata", self._data, "--username", "sweeper", "--pwfile", first),
            *(
                "--auth",
                "scram-sha-256",
                "--no-sync",
                "--wal-segsize",
                "1",
                "--encoding",
                "UTF8",
                "--locale",
                "C",
            ),
        )
        with (self._data / "postgresql.conf").open("a") as file:
            file.write(f"{_SETTINGS}{settings}port = {self.port}\n")  # the last word counts

    def start(self, largest_file: str = "unlimited") -> None:
        """Start it, its files `largest_file` blocks of 512 bytes long; then it answers."""
        script = 'ulimit -f "$1" && shift && exec "$@"'
        words = ["sh", "-c", script, "sh", largest_file]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [*words, self._programs / "postgres", "-D", self._data],
                user=_USER,
                group=_USER,
                cwd="/",
                stdout=log,
                stderr=log,
            )
        self.await_answer()

    def await_answer(self) -> None:
        """Wait until it answers, for example after one of its processes was killed."""
        deadline = time.monotonic() + 120
        while True:
            try:
                with self.admin():
                    return
            except psycopg.OperationalError:
                ended = self.process is None or self.process.poll() is not None
                if ended or time.monotonic() > deadline:
                    raise AssertionError(self._log.read_text()[-2000:]) from None
                time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End it: SIGINT breaks all connections, SIGKILL leaves it no moment."""
        if self.process is not None:
            children = psutil.Process(self.process.pid).children()
            self.process.send_signal(how)
            self.process.wait(120)
            psutil.wait_procs(children, 120)  # a new server waits for none of them
            self.process = None

    def close(self) -> None:
        """End it and delete what it has, unless its folder stays."""
        if self._stays:
            self.stop()
            return
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self._folder, ignore_errors=True)

    def url(self, database: str) -> str:
        """As it is given to `--storage`."""
        return f"postgresql+psycopg://sweeper@127.0.0.1:{self.port}/{database}"

    @contextlib.contextmanager
    def admin(self, database: str = "postgres") -> Iterator[psycopg.Connection]:
        """A connection that may do everything."""
        where = f"host=127.0.0.1 port={self.port} user=sweeper dbname={database}"
        with psycopg.connect(where, password=PASSWORD, autocommit=True) as connection:
            yield connection

    def database(self) -> str:
        """The URL of a new, empty database."""
        self._databases += 1
        name = f"database_{self._databases}"
        with self.admin() as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return self.url(name)

    def backends(self) -> list[int]:
        """The processes that serve sweeps."""
        query = "SELECT pid FROM pg_stat_activity WHERE application_name = 'sweep'"
        with self.admin() as connection:
            return [pid for (pid,) in connection.execute(query)]

    def _run(self, program: str, *words: str | Path) -> None:
        command = [self._programs / program, *words]
        done = subprocess.run(
            command, capture_output=True, check=False, cwd="/", user=_USER, group=_USER
        )
        assert done.returncode == 0, done.stderr.decode()
