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
    """Kind of a user's request to the driver."""

    STOP = "stop"
    PAUSE = "pause"
    UNPAUSE = "unpause"
    CLONE = "clone"
    SET = "set"
    SUGGEST = "suggest"


@dataclass(frozen=True)
class Request:
    """User's request to the driver that has no answer yet."""

    verb: Verb
    """Kind of the request."""
    body: Mapping[str, Any]
    """Arguments of the verb: a mapping with fields of `_Body`."""
    number: int = 0
    """Number of the request's row in the ledger, from 1; 0 before it is written."""
    term: int = 0
    """Number of the driver's term in which the request was made."""


@dataclass(frozen=True)
class Answer:
    """Driver's answer to a request, stored in the row of the request."""

    granted: bool
    """True if the request takes effect; False if it is refused."""
    text: str
    """One sentence about the effect, or about the reason for a refusal."""
    trials: tuple[int, ...] = ()
    """Numbers of the affected trials."""


@dataclass(frozen=True)
class _Body:
    """Fields that the body of a request may have; used to check their types."""

    trials_named: tuple[int, ...] = ()
    """Numbers of the trials that the request is about; empty if it is about the whole sweep."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Searched parameter → value, for `suggest` and `clone`."""
    from_checkpoint: bool = False
    """True if a clone continues from a checkpoint of its trial; False if it starts from scratch."""
    trials: int | None = None
    """New total number of trials whose settings are searched, for `set`."""
    jobs: int | None = None
    """New number of slices that run at once, for `set`."""
    budget: Mapping[str, float | None] = field(default_factory=dict)
    """Key of the spec's budget → new value, for `set`; None removes the limit."""
    max_disk: int | None = None
    """New limit of the checkpoints' size in bytes, for `set`."""
    author: str = ""
    """Name of the person or agent that made the request."""
    reason: str = ""
    """Reason that the author gave, as a text; may be empty."""


class Requests:
    """Table of requests to the driver of one sweep; `path` is the ledger's file."""

    def __init__(self, path: Path) -> None:
        self._database = storage.open_database(path)
        self._looked_at = float("-inf")

    def close(self) -> None:
        """Close the connection; the next call of another method opens it again."""
        self._database.close()

    def ask(self, verb: Verb, body: Mapping[str, Any]) -> int:
        """Commit a new request for the driver and return its number, without waiting for an answer.

        `body` has the arguments of the verb, which are not checked here.
        """
        row = (time.time(), verb, json.dumps(dict(body)))

        def insert(is_retry: bool) -> int:
            """Insert the request, unless an earlier try has; return its number."""
            with self._database.writing() as connection:
                found = connection.execute(_SAME, row).fetchone() if is_retry else None
                return int((found or connection.execute(_INSERT, row).fetchone())[0])

        return tables.call_repeatedly(insert)

    def poll(self, every_s: float) -> list[Request]:
        """Return the requests without an answer, asking the ledger only every `every_s` seconds.

        Returns an empty list in between.
        """
        now = time.monotonic()
        if now - self._looked_at < every_s:
            return []
        self._looked_at = now
        return self.pending()

    @tables.retried
    def pending(self) -> list[Request]:
        """Return the requests without an answer, in the order of their numbers.

        Raises DamagedLedger if one of them is not valid.
        """
        with self._database.reading() as connection:
            return [_decode_request(*row) for row in connection.execute(_PENDING)]

    @tables.retried
    def answer_to(self, number: int) -> Answer | None:
        """Return the driver's answer to request `number`.

        Returns None if it has none yet, or there is no such request.
        """
        query = "SELECT answer FROM requests WHERE number = ?"
        with self._database.reading() as connection:
            (text,) = connection.execute(query, (number,)).fetchone() or (None,)
            return None if text is None else codec.read(Answer, codec.parse(text))


#: SQL that inserts a request under the next number.
_INSERT = (
    "INSERT INTO requests (number, epoch, at, verb, body) "
    "VALUES ((SELECT coalesce(max(number), 0) + 1 FROM requests), "
    "(SELECT coalesce(max(epoch), 0) FROM events), ?, ?, ?) RETURNING number"
)
#: SQL that selects the number of an equal request.
_SAME = "SELECT number FROM requests WHERE at = ? AND verb = ? AND body = ?"
#: SQL that selects requests without an answer.
_PENDING = "SELECT number, epoch, verb, body FROM requests WHERE answer IS NULL ORDER BY number"


def _decode_request(number: int, epoch: object, verb: object, text: object) -> Request:
    """Return the request in a row of the table.

    Raises DecodeError if the row is not valid.
    """
    body, term = codec.parse(text), codec.read(int, epoch)
    codec.read(_Body, body)
    return Request(codec.read(Verb, verb), body, number, term)


def answer_writer(answers: Mapping[int, Answer]) -> Callable[[Connection], None]:
    """Return a function that writes answers into their requests' rows.

    The function gets a connection in a transaction, and also writes the present time into the rows.
    `answers` maps the number of a request to its answer.
    """

    def write(connection: Connection) -> None:
        """Write all answers in the given transaction."""
        for number, answer in answers.items():
            connection.execute(
                "UPDATE requests SET answered_at = ?, answer = ? WHERE number = ?",
                (time.time(), json.dumps(asdict(answer)), number),
            )

    return write
