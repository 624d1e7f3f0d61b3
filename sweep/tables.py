"""The ledger's tables, and how an SQLite file of ours is opened."""

import sqlite3
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from sweep.errors import OutsideError

SCHEMA_VERSION = 1

metadata = sa.MetaData()
sweep = sa.Table(
    "sweep",
    metadata,
    sa.Column("id", sa.String, primary_key=True),
    sa.Column("schema_version", sa.Integer, nullable=False),
    sa.Column("name", sa.String, nullable=False),
    sa.Column("spec", sa.Text, nullable=False),
    sa.Column("provenance", sa.Text, nullable=False),
    sa.Column("created_at", sa.Float, nullable=False),
)
events = sa.Table(
    "events",
    metadata,
    sa.Column("k", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("epoch", sa.Integer, nullable=False),
    sa.Column("at", sa.Float, nullable=False),
    sa.Column("kind", sa.String, nullable=False),
    sa.Column("trial", sa.Integer, index=True),
    sa.Column("body", sa.Text, nullable=False),
)
results = sa.Table(
    "results",
    metadata,
    sa.Column("trial", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("replica", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("iteration", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("k", sa.Integer, nullable=False, index=True),
    sa.Column("metrics", sa.Text, nullable=False),
)
superseded = sa.Table(
    "superseded",
    metadata,
    sa.Column("k", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("trial", sa.Integer, nullable=False),
    sa.Column("replica", sa.Integer, nullable=False),
    sa.Column("iteration", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("metrics", sa.Text, nullable=False),
)
replicas = sa.Table(
    "replicas",
    metadata,
    sa.Column("trial", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("replica", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("status", sa.String, nullable=False),
)
published = sa.Table(
    "published",
    metadata,
    sa.Column("tracker", sa.String, primary_key=True),
    sa.Column("k", sa.Integer, nullable=False),
)
requests = sa.Table(
    "requests",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("epoch", sa.Integer, nullable=False),
    sa.Column("at", sa.Float, nullable=False),
    sa.Column("verb", sa.String, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("answered_at", sa.Float),
    sa.Column("answer", sa.Text),
)


def connect(path: Path) -> sa.Engine:
    """An engine for an SQLite file with the settings that every file of ours needs.

    WAL lets readers work while the driver writes; full sync makes a commit survive a power cut;
    transactions take the write lock at once, since one that reads first cannot wait for it later.
    """
    engine = sa.create_engine(sa.URL.create("sqlite", database=str(path)))

    @sa.event.listens_for(engine, "connect")
    def _on_connect(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # we say BEGIN ourselves
        for pragma in (
            "busy_timeout=60000",
            "journal_mode=WAL",
            "synchronous=FULL",
            "foreign_keys=ON",
            "trusted_schema=OFF",
        ):
            connection.execute(f"PRAGMA {pragma}")

    @sa.event.listens_for(engine, "begin")
    def _on_begin(connection: sa.Connection) -> None:
        immediate = connection.get_execution_options().get("write", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")

    return engine


def writing(engine: sa.Engine) -> AbstractContextManager[sa.Connection]:
    """A transaction that has the write lock from its beginning."""
    return engine.execution_options(write=True).begin()


class outside:  # noqa: N801 reads as a phrase: with outside(path)
    """Turns what a database reports into one sentence that names the file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, sa.exc.SQLAlchemyError):
            raise OutsideError(f"the database {self._path}: {reason(error)}") from error


def reason(error: sa.exc.SQLAlchemyError) -> str:
    """What the database says, on one line."""
    cause = error.orig if isinstance(error, sa.exc.DBAPIError) else error
    return str(cause).splitlines()[0]


def unreadable(path: Path) -> str:
    """Why an SQLite file cannot be read, or what is damaged in it; empty: it is whole."""
    if not path.exists():
        return f"{path.name} is gone"
    try:
        address = f"{path.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, timeout=60.0)) as database:
            (told,) = database.execute("PRAGMA integrity_check(1)").fetchone()
    except sqlite3.Error as error:
        return f"{path.name} cannot be read ({error})"
    return "" if told == "ok" else f"{path.name} is damaged ({told})"
