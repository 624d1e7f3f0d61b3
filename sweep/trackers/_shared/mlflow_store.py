"""The MLflow store that a sweep is copied to: the file of its root, or a server.

Without a tracking URI it is ``mlflow.db`` in the sweep's root, shared by all sweeps there, in WAL
mode so that an open MLflow page never blocks the writer. Its rows are written with SQL, each batch
in one transaction: MLflow's own store needs 0.1 ms of CPU for each row, thirty times as much, and
its import takes 2 s and 200 MB. A file whose tables have a revision that is not in `REVISIONS`, and
a server, are written through MLflow's client.
"""

import fcntl
import logging
import math
import os
import shutil
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from importlib import metadata
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar
from urllib.parse import unquote, urlsplit

from sweep.core.errors import StorageError
from sweep.ledger import tables
from sweep.ledger.folder import Folder, require_regular_file
from sweep.trackers import TrackerContext
from sweep.trackers._shared.mlflow_content import Value
from trainables.checkpoint import disk
from trainables.core.importing import large_import

if TYPE_CHECKING:
    import sqlalchemy as sa
    from mlflow import MlflowClient
    from mlflow.entities import Run

T = TypeVar("T")
logger = logging.getLogger(__name__)

#: Maximum number of runs in one answer of MLflow.
RUNS_PER_PAGE = 1000
#: File with MLflow's empty tables; its first line names the release.
TABLES = Path(__file__).with_name("mlflow_tables.sql")
#: Maximum number of rows in one request for MLflow; with the longest keys they stay below its 1 MB.
ROWS_AT_ONCE = 1000
#: Number of settings in one request; 20 of the longest values stay below 1 MB.
PARAMETERS_AT_ONCE = 20
#: MLflow's environment variables, unless the user has set them. The outbox retries instead of the
#: client, which would create a second run after a lost response.
ENVIRONMENT = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
#: Loggers that would repeat on standard error what the outbox reports in one sentence.
NOISY = ("mlflow.store", "alembic", "urllib3.connection", "urllib3.connectionpool")
#: MLflow's tag with the ID of the parent run.
PARENT = "mlflow.parentRunId"
#: Tags that tell MLflow's page the kind of experiment, so that it need not guess.
EXPERIMENT_TAGS = {"mlflow.experimentKind": "custom_model_development"}
#: Tables of MLflow that `FileStore` reads and writes.
WRITTEN = (
    *("experiments", "experiment_tags", "runs", "tags", "params"),
    *("metrics", "latest_metrics"),
)
#: Revision of MLflow's tables → the release that makes them, for those in which the tables of
#: `WRITTEN` are the same (`make mlflow-releases` shows it).
REVISIONS = {"b7e2c1a4d9f3": "3.16", "dc11669786a5": "3.17", "f4a9b2c7d1e6": "3.18"}


class StoredRow(NamedTuple):
    """Row of a curve as it is in MLflow."""

    key: str
    """Name of the curve."""
    time: int
    """Time in milliseconds since 1970."""
    step: int
    """Value on the horizontal axis of the curve."""
    value: float
    """Value on the vertical axis of the curve."""


@dataclass
class StoredRun:
    """Run as it is in MLflow; methods of a store update it."""

    id: str
    """Id of the run in MLflow."""
    title: str
    """Title that MLflow's page shows."""
    status: str = "RUNNING"
    """Status in MLflow's words, such as ``RUNNING``."""
    deleted: bool = False
    """True if a user or sweep has marked the run as deleted."""
    tags: dict[str, str] = field(default_factory=dict)
    """Name of a tag → its text."""
    parameters: dict[str, str] = field(default_factory=dict)
    """Name → value of each parameter, as text."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Name of a curve → value of its newest row."""
    ended: int | None = None
    """End of the run in milliseconds since 1970; None while it runs. On a server, a run that
    continues keeps its former end."""

    @property
    def name(self) -> str:
        """Name of the run within its sweep (`run_name`); empty for the sweep's own run."""
        return self.tags.get("sweep.run", self.tags.get("sweep.trial", ""))


#: The runs of one sweep; writes inside `writing` may form one transaction.
Store: TypeAlias = "FileStore | ServerStore"


def connect(context: TrackerContext) -> "Store":
    """Return the store of a sweep's runs: the server of its tracking URI, or else the root's file.

    The file with its tables, and the experiment, are created if missing, while other sweeps wait.
    An experiment that was deleted is restored. Raises UsageError if a link or the like is in the
    file's place, and StorageError if its tables cannot be made.
    """
    if context.tracking_uri is not None:
        return ServerStore(context, _experiment(open_client(context), context.name, None))
    database = context.folder.mlflow.absolute()
    require_regular_file(database)
    artifacts = (database.parent / "mlartifacts").as_uri()
    with _locked(database.with_name(f"{database.name}.lock")) as lock:
        if not database.exists():
            _make(database, lock)
        with (
            closing(sqlite3.connect(database, timeout=60.0)) as connection,
            # another process has it open: keep the mode until later
            suppress(sqlite3.OperationalError),
        ):
            connection.execute(f"PRAGMA journal_mode={tables.journal(database)}")
        if _is_known(database):
            store = FileStore(context, _opened(database))
            store.find_or_create(artifacts)
            return store
        return ServerStore(context, _experiment(open_client(context), context.name, artifacts))


def find_store(context: TrackerContext, only_read: bool) -> "Store | None":
    """Return the store of a sweep's runs; None if the sweep has no experiment there.

    With `only_read`, a database file is opened read-only. A file, or tables in it, are never
    created. Raises `sqlite3.Error` if the file cannot be read.
    """
    database = context.folder.mlflow
    if context.tracking_uri is None:
        if not database.exists() or not tables.has(database, "experiments"):
            return None  # MLflow's client would create the tables
        if _is_known(database):
            opened = tables.connect_read_only(database) if only_read else _opened(database)
            store = FileStore(context, opened)
            if store.find():
                return store
            store.close()
            return None
    experiment = open_client(context).get_experiment_by_name(context.name)
    return ServerStore(context, experiment.experiment_id) if experiment else None


# ---- file ---------------------------------------------------------------------------------------


def store_url(folder: Folder) -> str:
    """Return the URL of MLflow's database file in the sweep's root, valid for any path.

    The URL names the SQLite driver because MLflow treats a bare ``sqlite:///`` URL as text,
    including escapes, and creates a folder with that name.
    """
    return _url(folder.mlflow).render_as_string(hide_password=False)


def _url(database: Path) -> "sa.URL":
    """Return SQLAlchemy's URL of an SQLite file."""
    import sqlalchemy as sa

    return sa.URL.create("sqlite+pysqlite", database=str(database.absolute()))


def _is_known(database: Path) -> bool:
    """Return whether a database file has a revision of MLflow's tables known to `FileStore`.

    Returns False if it cannot be read.
    """
    try:
        with closing(tables.connect_read_only(database)) as connection:
            found = connection.execute("SELECT version_num FROM alembic_version").fetchall()
    except sqlite3.Error:
        return False
    return len(found) == 1 and found[0][0] in REVISIONS


def _opened(database: Path) -> sqlite3.Connection:
    """Return a connection to a database file that begins no transaction by itself."""
    return sqlite3.connect(database, timeout=60.0, isolation_level=None)


class FileStore:
    """Runs of a sweep in MLflow's tables in an SQLite file, written with SQL in transactions."""

    def __init__(self, context: TrackerContext, database: sqlite3.Connection) -> None:
        self._context = context
        self._database = database
        self._experiment = 0
        self._artifacts = ""

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def find(self) -> bool:
        """Return whether the sweep's experiment exists, even deleted, and remember its ID."""
        query = "SELECT experiment_id, artifact_location FROM experiments WHERE name = ?"
        found = self._database.execute(query, (self._context.name,)).fetchone()
        if found is not None:
            self._experiment, self._artifacts = int(found[0]), str(found[1])
        return found is not None

    def find_or_create(self, artifacts: str) -> None:
        """Create the sweep's experiment, or restore it with its runs if it was deleted.

        Its ID is remembered. `artifacts` is the URL of the folder for files of runs.
        """
        now = int(time.time() * 1000)
        with self.writing() as database:
            if self.find():
                deleted = "experiment_id = ? AND lifecycle_stage = 'deleted'"
                change = f"UPDATE experiments SET lifecycle_stage = 'active' WHERE {deleted}"  # noqa: S608 ours
                if database.execute(change, (self._experiment,)).rowcount:
                    database.execute(
                        "UPDATE runs SET lifecycle_stage = 'active', deleted_time = NULL "
                        "WHERE experiment_id = ?",
                        (self._experiment,),
                    )
                return
            rows: list[tuple[Any, ...]] = [(None, self._context.name, artifacts, now, now)]
            if database.execute("SELECT 1 FROM experiments").fetchone() is None:
                rows.insert(0, (0, "Default", f"{artifacts}/0", now, now))  # MLflow expects it
            database.executemany(
                "INSERT INTO experiments (experiment_id, name, artifact_location, "
                "lifecycle_stage, creation_time, last_update_time) "
                "VALUES (?, ?, ?, 'active', ?, ?)",
                rows,
            )
            self.find()
        for key, value in EXPERIMENT_TAGS.items():
            self.tag_experiment(key, value)

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Run the block in one transaction, which an exception rolls back; yield the connection.

        Within another such block, it is part of that transaction.
        """
        if self._database.in_transaction:
            yield self._database
            return
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield self._database
            self._database.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):  # SQLite may have rolled back already
                self._database.execute("ROLLBACK")
            raise

    def runs(self) -> list[StoredRun]:
        """Return all runs of the sweep, even deleted ones.

        They have their tags, parameters and the newest value of each curve.
        """
        its = (
            "SELECT run_uuid FROM tags WHERE key = 'sweep.id' AND value = :sweep AND run_uuid IN "
            "(SELECT run_uuid FROM runs WHERE experiment_id = :experiment)"
        )
        place = {"sweep": self._context.sweep_id, "experiment": self._experiment}

        def of(columns: str, table: str) -> Iterator[tuple[Any, ...]]:
            """Return these columns of the table's rows about the runs."""
            query = f"SELECT {columns} FROM {table} WHERE run_uuid IN ({its})"  # noqa: S608 ours
            return iter(self._database.execute(query, place).fetchall())

        columns = "run_uuid, name, status, lifecycle_stage = 'deleted', end_time"
        runs = {
            run: StoredRun(run, title, status, bool(deleted), ended=ended)
            for run, title, status, deleted, ended in of(columns, "runs")
        }
        for run, name, text in of("run_uuid, key, value", "tags"):
            runs[run].tags[name] = text
        for run, name, text in of("run_uuid, key, value", "params"):
            runs[run].parameters[name] = text
        for run, name, value in of("run_uuid, key, value", "latest_metrics"):
            runs[run].metrics[name] = value
        return list(runs.values())

    def rows(self, run: StoredRun, keys: Collection[str]) -> list[StoredRow]:
        """Return the rows of a run's curves with these names."""
        query = (
            "SELECT key, timestamp, step, value, is_nan FROM metrics WHERE run_uuid = ? AND key = ?"
        )
        return [
            StoredRow(key, at, step, math.nan if nan else value)
            for one in sorted(keys)
            for key, at, step, value, nan in self._database.execute(query, (run.id, one))
        ]

    def create(self, title: str, started: int, tags: Mapping[str, str]) -> StoredRun:
        """Create a run and return it; `started` is its start in milliseconds since 1970.

        It is RUNNING, and has these tags.
        """
        run = StoredRun(uuid.uuid4().hex, title)
        artifacts = f"{self._artifacts}/{run.id}/artifacts"
        user = tags.get("mlflow.user", "unknown")
        with self.writing() as database:
            database.execute(
                "INSERT INTO runs (run_uuid, name, source_type, source_name, entry_point_name, "
                "user_id, status, start_time, source_version, lifecycle_stage, artifact_uri, "
                "experiment_id) VALUES (?, ?, 'UNKNOWN', '', '', ?, 'RUNNING', ?, '', 'active', "
                "?, ?)",
                (run.id, title, user, started, artifacts, self._experiment),
            )
            self.log(run, (), {**tags, "mlflow.runName": title}, {})
        return run

    def log(
        self,
        run: StoredRun,
        rows: Sequence[Value],
        tags: Mapping[str, str],
        parameters: Mapping[str, str],
    ) -> None:
        """Add rows, tags and parameters to a run; tags replace older ones of the same name.

        A row that is there already is not added again, and a parameter that is there keeps its
        value. A run that a user deleted is only marked as deleted in `run`.
        """
        with self.writing() as database:
            stage = "SELECT lifecycle_stage FROM runs WHERE run_uuid = ?"
            run.deleted = database.execute(stage, (run.id,)).fetchone() != ("active",)
            if run.deleted:
                return
            self._insert(run.id, rows)
            database.executemany(
                "INSERT OR IGNORE INTO params (run_uuid, key, value) VALUES (?, ?, ?)",
                [(run.id, name, text) for name, text in parameters.items()],
            )
            database.executemany(
                "INSERT INTO tags (run_uuid, key, value) VALUES (?, ?, ?) "
                "ON CONFLICT DO UPDATE SET value = excluded.value",
                [(run.id, name, text) for name, text in tags.items()],
            )
        run.parameters.update(parameters)
        run.tags.update(tags)

    def _insert(self, run: str, rows: Sequence[Value]) -> None:
        """Insert rows, and update the newest row of each curve in MLflow's table of these.

        Rows that are there already stay as they are.
        """
        stored = [
            (key, 0.0 if value != value else value, at, run, step, value != value)
            for key, _, value, step, at in rows
        ]
        stored.sort(key=itemgetter(0))  # keeps neighbours in the table's index together
        newest: dict[str, tuple[Any, ...]] = {}
        for row in stored:
            known = newest.get(row[0])
            if known is None or (row[4], row[2], row[1]) > (known[4], known[2], known[1]):
                newest[row[0]] = row
        columns = "(key, value, timestamp, run_uuid, step, is_nan) VALUES (?, ?, ?, ?, ?, ?)"
        self._database.executemany(f"INSERT OR IGNORE INTO metrics {columns}", stored)
        self._database.executemany(
            f"INSERT INTO latest_metrics {columns} ON CONFLICT DO UPDATE SET value = "
            "excluded.value, timestamp = excluded.timestamp, step = excluded.step, is_nan = "
            "excluded.is_nan WHERE (excluded.step, excluded.timestamp, excluded.value) > "
            "(latest_metrics.step, latest_metrics.timestamp, latest_metrics.value)",
            list(newest.values()),
        )

    def replace(self, run: StoredRun, rows: Sequence[Value]) -> None:
        """Change the values of rows that exist, found by key and time."""
        sets = "SET value = ?, is_nan = ? WHERE run_uuid = ? AND key = ? AND timestamp = ?"
        with self.writing() as database:
            for table in ("metrics", "latest_metrics"):
                database.executemany(
                    f"UPDATE {table} {sets}",
                    [
                        (0.0 if value != value else value, value != value, run.id, key, at)
                        for key, _, value, _, at in rows
                    ],
                )

    def set_status(self, run: StoredRun, status: str, end_ms: int | None, title: str) -> None:
        """Set status and title of a run.

        `end_ms` is its end in milliseconds since 1970, None while it runs.
        """
        with self.writing() as database:
            database.execute(
                "UPDATE runs SET status = ?, end_time = ?, name = ? WHERE run_uuid = ?",
                (status, end_ms, title, run.id),
            )
            self.log(run, (), {"mlflow.runName": title}, {})
        run.status, run.title, run.ended = status, title, end_ms

    def delete(self, run: StoredRun) -> None:
        """Mark a run as deleted, as MLflow's page does."""
        now = int(time.time() * 1000)
        change = "UPDATE runs SET lifecycle_stage = 'deleted', deleted_time = ? WHERE run_uuid = ?"
        with self.writing() as database:
            database.execute(change, (now, run.id))
        run.deleted = True

    def tag_experiment(self, key: str, value: str) -> None:
        """Set a tag of the sweep's experiment."""
        with self.writing() as database:
            database.execute(
                "INSERT INTO experiment_tags (experiment_id, key, value) VALUES (?, ?, ?) "
                "ON CONFLICT DO UPDATE SET value = excluded.value",
                (self._experiment, key, value),
            )

    def attach(self, run: StoredRun, file: Path, subfolder: str = "") -> None:
        """Copy a file to a run's artifacts, if these are in a local folder; else do nothing.

        `subfolder` is the folder in them; empty for the top. An older copy is replaced.

        Raises:
            NotRegular: `file` is a link or no regular file.
        """
        place = "SELECT artifact_uri FROM runs WHERE run_uuid = ?"
        parts = urlsplit(self._database.execute(place, (run.id,)).fetchone()[0])
        if parts.scheme == "file":
            folder = Path(unquote(parts.path)) / subfolder
            folder.mkdir(parents=True, exist_ok=True)
            draft = folder / f".{file.name}.new"
            with (
                disk.open_regular_file(file) as (found, _),
                open(found, "rb", closefd=False) as source,
                draft.open("wb") as copy,
            ):
                shutil.copyfileobj(source, copy)
            draft.replace(folder / file.name)


#: Script that creates MLflow's tables in a database; it ends with its standard input, so that it
#: does not outlive its parent.
_TABLES = """
import os, sys, threading
threading.Thread(target=lambda: (os.read(0, 1), os._exit(1)), daemon=True).start()
import sqlalchemy
from mlflow.store.db import utils
engine = sqlalchemy.create_engine(sys.argv[1])
utils._initialize_tables(engine)
engine.dispose()
"""


def _make(database: Path, lock: int) -> None:
    """Create MLflow's database file with its tables, whole or not at all.

    The file `TABLES` contains the result of MLflow's migrations for the release that we ship with.
    For another release the migrations are run, which takes seconds; they are not one transaction
    and cannot continue after a kill. `lock` is the descriptor of the locked file. Raises
    StorageError if the migrations fail.
    """
    draft = database.with_name(f"{database.name}.new")
    for left in (draft, draft.with_name(f"{draft.name}-journal")):
        left.unlink(missing_ok=True)
    release, _, statements = TABLES.read_text(encoding="utf-8").partition("\n")
    if release == f"-- MLflow {metadata.version('mlflow')}":
        with closing(sqlite3.connect(draft)) as connection:
            connection.executescript(statements)
    else:
        _migrate(database, draft, lock)
    draft.replace(database)


def _migrate(database: Path, draft: Path, lock: int) -> None:
    """Run MLflow's migrations on the file `draft` in a child process.

    The child process ends with this one and inherits the lock.

    Raises:
        StorageError: the migrations failed.
    """
    url = _url(draft).render_as_string(hide_password=False)
    with subprocess.Popen(  # noqa: S603 ours
        [sys.executable, "-W", "ignore", "-c", _TABLES, url],
        env={**ENVIRONMENT, **os.environ},
        pass_fds=[lock],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        said = child.stderr.read() if child.stderr is not None else ""
        code = child.wait()
    if code != 0:
        why = (said.strip().splitlines() or [f"exit code {code}"])[-1]
        raise StorageError(
            f"{database}: MLflow's tables could not be created: {why}; check MLflow with "
            "`sweep doctor`"
        )


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    """Hold the lock of a file inside the block, and yield its descriptor.

    It waits for other sweeps, so that only one creates MLflow's tables.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


# ---- server -------------------------------------------------------------------------------------


class ServerStore:
    """Runs of a sweep behind MLflow's client, without an active run or global tracking URI."""

    def __init__(self, context: TrackerContext, experiment: str) -> None:
        self._context = context
        self._client = open_client(context)
        self._experiment = experiment

    def close(self) -> None:
        """Do nothing: the client has nothing to close."""

    def writing(self) -> AbstractContextManager[object]:
        """Return a context that does nothing: each request is independent."""
        return nullcontext()

    def runs(self) -> list[StoredRun]:
        """Return all runs of the sweep, even deleted ones.

        They have their tags, parameters and the newest value of each curve.
        """
        return [_stored(run) for run in self._search()]

    def _search(self) -> "Iterator[Run]":
        """Yield all runs of the sweep as MLflow's client returns them, page by page."""
        from mlflow.entities import ViewType

        token: str | None = None
        while token != "":
            page = self._client.search_runs(
                [self._experiment],
                f"tags.`sweep.id` = '{self._context.sweep_id}'",
                run_view_type=ViewType.ALL,
                max_results=RUNS_PER_PAGE,
                page_token=token,
            )
            yield from page
            token = page.token or ""

    def rows(self, run: StoredRun, keys: Collection[str]) -> list[StoredRow]:
        """Return the rows of a run's curves with these names."""
        return [
            StoredRow(row.key, row.timestamp, row.step, row.value)
            for key in sorted(keys)
            for row in self._client.get_metric_history(run.id, key)
        ]

    def create(self, title: str, started: int, tags: Mapping[str, str]) -> StoredRun:
        """Create a run and return it; `started` is its start in milliseconds since 1970."""
        return _stored(self._client.create_run(self._experiment, started, dict(tags), title))

    def log(
        self,
        run: StoredRun,
        rows: Sequence[Value],
        tags: Mapping[str, str],
        parameters: Mapping[str, str],
    ) -> None:
        """Add rows, tags and parameters to a run, in batches.

        Tags replace older ones of the same name.
        """
        from mlflow.entities import Metric, Param, RunTag

        for names in _batches(list(parameters), PARAMETERS_AT_ONCE):
            params = [Param(name, parameters[name]) for name in names]
            self._client.log_batch(run.id, params=params, synchronous=True)
            run.parameters.update({name: parameters[name] for name in names})
        for batch in _batches(rows, ROWS_AT_ONCE):
            # newest first, since the store then finds the newest row of each key at once
            newest_first = [Metric(r.key, r.value, r.time, r.step) for r in reversed(batch)]
            self._client.log_batch(run.id, metrics=newest_first, synchronous=True)
        if tags:
            run_tags = [RunTag(name, text) for name, text in tags.items()]
            self._client.log_batch(run.id, tags=run_tags, synchronous=True)
            run.tags.update(tags)

    def replace(self, run: StoredRun, rows: Sequence[Value]) -> None:
        """Do nothing: a server cannot change rows."""

    def set_status(self, run: StoredRun, status: str, end_ms: int | None, title: str) -> None:
        """Set status and title of a run.

        `end_ms` is its end in milliseconds since 1970, None while it runs. A server keeps the old
        end time of a run that continues until the run ends again.
        """
        if end_ms is None or title != run.title:
            self._client.update_run(run.id, status, title)
        if end_ms is not None:
            self._client.set_terminated(run.id, status, end_ms)
        run.status, run.title, run.ended = status, title, end_ms or run.ended

    def delete(self, run: StoredRun) -> None:
        """Mark a run as deleted, as MLflow's page does."""
        self._client.delete_run(run.id)
        run.deleted = True

    def tag_experiment(self, key: str, value: str) -> None:
        """Set a tag of the sweep's experiment."""
        self._client.set_experiment_tag(self._experiment, key, value)

    def attach(self, run: StoredRun, file: Path, subfolder: str = "") -> None:
        """Send a media file of a trial to a run's artifacts, if the server stores files.

        Only files with a `subfolder` are media files. Many servers accept only rows, and others
        would write to the current folder; other files are ignored. Failures are logged.
        """
        place = self._client.get_run(run.id).info.artifact_uri if subfolder else ""
        if urlsplit(place).scheme not in ("", "file"):
            try:
                self._client.log_artifact(run.id, str(file), subfolder)
            except Exception as error:  # noqa: BLE001 rows must not wait for files
                later = "it will be sent when the sweep has finished"
                logger.warning("%s could not be sent to MLflow: %s; %s", file, error, later)


def _stored(run: "Run") -> StoredRun:
    """Return a run of MLflow's client as a `StoredRun`."""
    info, data = run.info, run.data
    deleted = info.lifecycle_stage == "deleted"
    tags, params, metrics = dict(data.tags), dict(data.params), dict(data.metrics)
    given = (info.run_id, info.run_name, info.status, deleted, tags, params, metrics)
    return StoredRun(*given, ended=info.end_time)


def _batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield the items in parts of at most `size`, in order."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def open_client(context: TrackerContext) -> "MlflowClient":
    """Return MLflow's client for the place to which a sweep is copied.

    It creates the tables if the database file has none.
    """
    return client_of(
        store_url(context.folder) if context.tracking_uri is None else context.tracking_uri
    )


def client_of(url: str) -> "MlflowClient":
    """Return MLflow's client for the server or database at `url`, importing MLflow."""
    with large_import():
        prepare()
        from mlflow import MlflowClient

        return MlflowClient(url, url)  # this imports more


def prepare() -> None:
    """Import MLflow and silence its loggers.

    The variables of `ENVIRONMENT` are set before, unless they are set already. MLflow's check of a
    server's response is replaced by `_whole`.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    from mlflow.utils import rest_utils

    for name in NOISY:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    if rest_utils.verify_rest_response is not _whole:
        _verified.append(rest_utils.verify_rest_response)
        rest_utils.verify_rest_response = _whole


_verified: list[Callable[..., Any]] = []
"""MLflow's own check of a response, as the only item once `prepare` was called."""


def _whole(response: Any, endpoint: str, *args: Any, **options: Any) -> Any:
    """Return a server's response after checking it for MLflow.

    Raises ConnectionError if it has no body. A connection that breaks within the headers leaves
    such a response: a search would find no runs, and they would be created a second time.
    """
    if response.status_code == HTTPStatus.OK and not response.content:
        raise ConnectionError(f"the answer of {endpoint} was cut off")
    return _verified[-1](response, endpoint, *args, **options)


def _experiment(client: "MlflowClient", name: str, artifacts: str | None) -> str:
    """Return the ID of the experiment `name`, created if missing, restored if deleted.

    `artifacts` is the URL of the folder for files of runs; None for the server's own.
    """
    found = client.get_experiment_by_name(name)
    if found is None:
        created: str = client.create_experiment(name, artifacts, EXPERIMENT_TAGS)
        return created
    experiment_id: str = found.experiment_id
    if found.lifecycle_stage == "deleted":
        client.restore_experiment(experiment_id)
    return experiment_id
