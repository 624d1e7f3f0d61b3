"""Opens or creates the MLflow store that a sweep is copied to, and its experiment.

Without a tracking URI it is ``mlflow.db`` in the sweep's root, one for all sweeps there, in WAL
mode so that an open MLflow page never blocks the writer. MLflow is imported on the first use.
"""

import fcntl
import logging
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http import HTTPStatus
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweep.ledger.folder import Folder, plain
from sweep.trackers import TrackerContext
from trainables.core.importing import large_import

if TYPE_CHECKING:
    import sqlalchemy as sa
    from mlflow import MlflowClient
    from mlflow.entities import Run

RUNS_PER_PAGE = 1000
#: MLflow's empty tables, and in the first line of which release.
TABLES = Path(__file__).with_name("mlflow_tables.sql")
#: MLflow's settings, unless a person has set them. The outbox retries, not the client, which would
#: create a second run after a lost answer.
ENVIRONMENT = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
#: Loggers that repeat on standard error what the outbox says in one sentence.
NOISY = ("mlflow.store", "alembic", "urllib3.connection", "urllib3.connectionpool")
#: MLflow's tag that names the run above one.
PARENT = "mlflow.parentRunId"
#: For the MLflow page: what is in the experiment, so that it need not guess.
EXPERIMENT_TAGS = {"mlflow.experimentKind": "custom_model_development"}


def store_url(folder: Folder) -> str:
    """The URL of the root's database, for any path.

    The driver is named because MLflow splits a bare ``sqlite:///`` URL as text, escapes included,
    and makes a folder of that name.
    """
    return _url(folder.mlflow).render_as_string(hide_password=False)


def _url(database: Path) -> "sa.URL":
    import sqlalchemy as sa

    return sa.URL.create("sqlite+pysqlite", database=str(database.absolute()))


def connect(where: TrackerContext) -> "tuple[MlflowClient, str]":
    """A client, and the id of the sweep's experiment in its store."""
    if where.tracking_uri is not None:
        client = open_client(where)
        return client, _experiment(client, where.name, None)
    database = where.folder.mlflow.absolute()
    plain(database)
    artifacts = (database.parent / "mlartifacts").as_uri()
    with _locked(database.with_name(f"{database.name}.lock")):
        if not database.exists():
            _make(database)
        with closing(sqlite3.connect(database, timeout=60.0)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
        client = open_client(where)
        return client, _experiment(client, where.name, artifacts)


def open_client(where: TrackerContext) -> "MlflowClient":
    """A client; it makes the tables if the file has none."""
    with large_import():
        _prepare()
        from mlflow import MlflowClient

        url = store_url(where.folder) if where.tracking_uri is None else where.tracking_uri
        return MlflowClient(url, url)  # it imports more


def _prepare() -> None:
    """Import MLflow with our settings, without its logs, and with our check of answers."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    from mlflow.utils import rest_utils

    for name in NOISY:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    if rest_utils.verify_rest_response is not _whole:
        _verified.append(rest_utils.verify_rest_response)
        rest_utils.verify_rest_response = _whole


_verified: list[Callable[..., Any]] = []
"""MLflow's own check of an answer."""


def _whole(response: Any, endpoint: str, *args: Any, **options: Any) -> Any:
    """Refuse an answer without a body, which MLflow would read as ``{}``.

    A connection that breaks within the headers leaves such an answer: a search would find no runs,
    and they would be created a second time.
    """
    if response.status_code == HTTPStatus.OK and not response.content:
        raise ConnectionError(f"the answer of {endpoint} was cut off")
    return _verified[-1](response, endpoint, *args, **options)


def _experiment(client: "MlflowClient", name: str, artifacts: str | None) -> str:
    """The experiment of this name; one that was deleted is restored, with its runs."""
    found = client.get_experiment_by_name(name)
    if found is None:
        created: str = client.create_experiment(name, artifacts, EXPERIMENT_TAGS)
        return created
    experiment_id: str = found.experiment_id
    if found.lifecycle_stage == "deleted":
        client.restore_experiment(experiment_id)
    return experiment_id


def search(client: "MlflowClient", experiment: str, sweep_id: str) -> "Iterator[Run]":
    """All runs of a sweep, deleted ones included."""
    from mlflow.entities import ViewType

    token: str | None = None
    while token != "":
        page = client.search_runs(
            [experiment],
            f"tags.`sweep.id` = '{sweep_id}'",
            run_view_type=ViewType.ALL,
            max_results=RUNS_PER_PAGE,
            page_token=token,
        )
        yield from page
        token = page.token or ""


def name_of(run: "Run") -> str:
    """The name of a run within its sweep (`run_name`); empty for the sweep's own."""
    name: str = run.data.tags.get("sweep.run", run.data.tags.get("sweep.history.trial", ""))
    return name


def _make(database: Path) -> None:
    """Make the tables in another file, and rename it when they are complete.

    They are those that the migrations of MLflow make, written down for the release that we ship
    with. Those of another release are run, for seconds; they are no transaction: after a kill they
    cannot continue.
    """
    draft = database.with_name(f"{database.name}.new")
    for left in (draft, draft.with_name(f"{draft.name}-journal")):
        left.unlink(missing_ok=True)
    release, _, tables = TABLES.read_text(encoding="utf-8").partition("\n")
    if release == f"-- MLflow {metadata.version('mlflow')}":
        with closing(sqlite3.connect(draft)) as connection:
            connection.executescript(tables)
    else:
        _migrate(draft)
    draft.replace(database)


def _migrate(draft: Path) -> None:
    _prepare()
    import sqlalchemy as sa
    from mlflow.store.db import utils

    engine = sa.create_engine(_url(draft))
    try:
        utils._initialize_tables(engine)
    finally:
        engine.dispose()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the file's lock: two sweeps that start at once must not both make the tables."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
