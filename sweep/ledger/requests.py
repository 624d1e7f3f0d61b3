"""Requests of users to a running driver: a table of the ledger with one row for each request.

Another process inserts a row. The driver reads it at its next tick, carries out the request in one
transaction of events, and writes its answer into the row in the same transaction. So a request is
carried out once or not at all, whenever the driver is killed. The next driver reads rows that have
no answer.
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from sweep.ledger import codec, storage, tables
from sweep.ledger.tables import Connection


class Verb(StrEnum):
    """The kind of a request."""

    STOP = "stop"
    PAUSE = "pause"
    UNPAUSE = "unpause"
    CLONE = "clone"
    SET = "set"
    SUGGEST = "suggest"


@dataclass(frozen=True)
class Request:
    """A request that has no answer yet."""

    verb: Verb
    """Kind of the request."""
    body: Mapping[str, Any]
    """Arguments of the verb, with the fields of `_Body`."""
    number: int = 0
    """Number of the request's row in the ledger; 0 before it is written."""
    term: int = 0
    """Term in which the request was made."""


@dataclass(frozen=True)
class Answer:
    """The driver's answer, written into the row of the request."""

    granted: bool
    """True if the request takes effect; False if it is refused."""
    text: str
    """One sentence about the effect, or about the reason for a refusal."""
    trials: tuple[int, ...] = ()
    """Numbers of the affected trials."""


@dataclass(frozen=True)
class _Body:
    """The allowed fields in the body of any request, used to check their types."""

    trials_named: tuple[int, ...] = ()
    """Numbers of the trials that the request is about; empty for the sweep."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of `suggest` and `clone`: searched parameter → value."""
    from_checkpoint: bool = False
    """True if a clone starts from a checkpoint of its trial."""
    trials: int | None = None
    """New total number of searched settings, for `set`."""
    jobs: int | None = None
    """New number of slots, for `set`."""
    budget: Mapping[str, float | None] = field(default_factory=dict)
    """Key of the spec's budget → new value, for `set`; None removes the limit."""
    max_disk: int | None = None
    """New limit of the checkpoints' size in bytes, for `set`."""
    author: str = ""
    """Author of the request."""
    reason: str = ""
    """Reason that the author gave."""


class Requests:
    """The requests of one sweep; `path` is the ledger's file."""

    def __init__(self, path: Path) -> None:
        self._database = storage.open_database(path)
        self._looked_at = float("-inf")

    def close(self) -> None:
        """Close the database; the next call reopens it."""
        self._database.close()

    def ask(self, verb: Verb, body: Mapping[str, Any]) -> int:
        """Insert a request durably and return its number."""
        row = (time.time(), verb, json.dumps(dict(body)))

        def insert(is_retry: bool) -> int:
            with self._database.writing() as connection:
                found = connection.execute(_SAME, row).fetchone() if is_retry else None
                return int((found or connection.execute(_INSERT, row).fetchone())[0])

        return tables.call_repeatedly(insert)

    def poll(self, every_s: float) -> list[Request]:
        """Return the `pending` requests, or none within `every_s` seconds of the last query."""
        now = time.monotonic()
        if now - self._looked_at < every_s:
            return []
        self._looked_at = now
        return self.pending()

    @tables.retried
    def pending(self) -> list[Request]:
        """Return the requests without an answer, in the order of their numbers."""
        with self._database.reading() as connection:
            return [_decode_request(*row) for row in connection.execute(_PENDING)]

    @tables.retried
    def answer_to(self, number: int) -> Answer | None:
        """Return the answer to a request, or None if it has none yet."""
        query = "SELECT answer FROM requests WHERE number = ?"
        with self._database.reading() as connection:
            (text,) = connection.execute(query, (number,)).fetchone() or (None,)
            return None if text is None else codec.read(Answer, codec.parse(text))


_INSERT = (
    "INSERT INTO requests (number, epoch, at, verb, body) "
    "VALUES ((SELECT coalesce(max(number), 0) + 1 FROM requests), "
    "(SELECT coalesce(max(epoch), 0) FROM events), ?, ?, ?) RETURNING number"
)
_SAME = "SELECT number FROM requests WHERE at = ? AND verb = ? AND body = ?"
_PENDING = "SELECT number, epoch, verb, body FROM requests WHERE answer IS NULL ORDER BY number"


def _decode_request(number: int, epoch: object, verb: object, text: object) -> Request:
    """Return the request of a row; DecodeError if the row is not valid."""
    body, term = codec.parse(text), codec.read(int, epoch)
    codec.read(_Body, body)
    return Request(codec.read(Verb, verb), body, number, term)


def answer_writer(answers: Mapping[int, Answer]) -> Callable[[Connection], None]:
    """Return a function that writes answers (request number → answer) in a given transaction."""

    def write(connection: Connection) -> None:
        for number, answer in answers.items():
            connection.execute(
                "UPDATE requests SET answered_at = ?, answer = ? WHERE number = ?",
                (time.time(), json.dumps(asdict(answer)), number),
            )

    return write
