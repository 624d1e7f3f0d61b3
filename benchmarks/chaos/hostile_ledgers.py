"""Hostile ledgers: random changes of the columns, bodies and tables of a valid ledger."""

import contextlib
import copy
import json
import sqlite3
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.support import sweeps

#: Values that replace that of a column.
VALUES: Sequence[Any] = (
    *(None, -1, 0, 3, 10**9, 2**63 - 1, 1e308, -1.5, float("inf"), "", "x", "\u202e\x1b[2J"),
    *(
        "[]",
        "{}",
        "null",
        "3",
        '"x"',
        '{"a": NaN}',
        '{"why": "\\u202e\\u001b[2J"}',
        b"\xff\xfe\x00",
    ),
    *(
        "[" * 100_000 + "]" * 100_000,
        '{"a":' * 5000 + "1" + "}" * 5000,
        '{"a": 1' + "0" * 5000 + "}",
    ),
    '"' + "x" * 3_000_000 + '"',
)
#: Values that replace that of a field in a body.
FIELDS: Sequence[Any] = (
    *(None, True, -1, 0, 10**9, 2**70, 1e308, "", "\u202e\x1b[2J", "../../etc/passwd", "x" * 3000),
    *([], {}, [[1]], [None], {"a": 1}, {"\u202e": {}}, {"a" * 3000: 1}, [{"saved": 1}]),
)
#: Statements that change whole tables.
STATEMENTS = (
    *(f"DROP TABLE {name}" for name in ("sweep", "events", "results", "replicas", "requests")),
    *("DELETE FROM sweep", "DELETE FROM events WHERE k = 3", "UPDATE events SET k = k + 7"),
    "UPDATE events SET k = 9223372036854775807 WHERE k = (SELECT max(k) FROM events)",
    "ALTER TABLE events DROP COLUMN kind",
    "INSERT INTO sweep SELECT 'x', 1, name, spec, provenance, 1 FROM sweep",
    "CREATE TRIGGER t AFTER INSERT ON events BEGIN DELETE FROM events; END",
    "ALTER TABLE events RENAME TO e; CREATE VIEW events AS WITH RECURSIVE n(k) AS "
    "(SELECT 1 UNION ALL SELECT k + 1 FROM n) SELECT k, 1 AS epoch, 1.0 AS at, 'x' AS kind, "
    "1 AS trial, '{}' AS body FROM n",
)
_COLUMNS = {
    "sweep": ("id", "schema_version", "name", "spec", "provenance", "created_at"),
    "events": ("epoch", "at", "kind", "trial", "body"),
    "results": ("trial", "replica", "iteration", "k", "metrics"),
    "replicas": ("trial", "replica", "status"),
}


def sample() -> bytes:
    """Return the ledger of a small finished sweep."""
    with tempfile.TemporaryDirectory() as root:
        folder = sweeps.make(Path(root), trials=3, trackers=[])
        sweeps.run(folder)
        with contextlib.closing(sqlite3.connect(folder.ledger)) as database:
            database.execute("PRAGMA journal_mode=DELETE")
        return folder.ledger.read_bytes()


def change_ledger(stream: np.random.Generator, ledger: bytes) -> bytes:
    """Return the ledger with one random change."""
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        database.deserialize(ledger)
        kind = int(stream.integers(10))
        with contextlib.suppress(sqlite3.Error, OverflowError), database:
            if kind == 0:
                database.executescript(_choose(stream, STATEMENTS))
            elif kind < 4:
                _change_column(stream, database)
            else:
                _change_field(stream, database)
        content = bytearray(database.serialize())
    if kind == 9:
        for _ in range(3):
            content[int(stream.integers(len(content)))] = int(stream.integers(256))
    return bytes(content)


def _choose(stream: np.random.Generator, values: Sequence[Any]) -> Any:
    return values[int(stream.integers(len(values)))]


def _change_column(stream: np.random.Generator, database: sqlite3.Connection) -> None:
    table = _choose(stream, list(_COLUMNS))
    column = _choose(stream, _COLUMNS[table])
    row = _choose(stream, database.execute(f"SELECT rowid FROM {table}").fetchall())[0]  # noqa: S608 our own names
    update = f"UPDATE {table} SET {column} = ? WHERE rowid = ?"  # noqa: S608 our own names
    database.execute(update, (_choose(stream, VALUES), row))


def _change_field(stream: np.random.Generator, database: sqlite3.Connection) -> None:
    """Change a random value in the body of an event, the spec, or a result."""
    places = (("events", "body"), ("events", "body"), ("sweep", "spec"), ("sweep", "provenance"))
    table, column = _choose(stream, (*places, ("results", "metrics")))
    query = f"SELECT rowid, {column} FROM {table}"  # noqa: S608 our own names
    row, text = _choose(stream, database.execute(query).fetchall())
    body = copy.deepcopy(json.loads(text))
    inner = body
    key = _choose(stream, list(inner)) if inner else "x"
    while isinstance(inner.get(key), dict) and inner[key] and stream.random() < 0.5:
        inner = inner[key]
        key = _choose(stream, list(inner))
    if stream.random() < 0.15:
        inner.pop(key, None)
    else:
        inner[key] = _choose(stream, FIELDS)
    changed = (json.dumps(body), row)
    update = f"UPDATE {table} SET {column} = ? WHERE rowid = ?"  # noqa: S608 our own names
    database.execute(update, changed)
