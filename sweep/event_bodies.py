"""Events as plain data, the way the ledger keeps them, and back.

Rows of results have a table of their own and are handed over beside the body.
"""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, get_args

from sweep.events import (
    Birth,
    Closed,
    Created,
    End,
    Event,
    ExamBegan,
    Goal,
    Moved,
    Opened,
    Row,
    Saved,
    Status,
    Warmed,
)
from sweep.wishes import Dropped, Held, Hold

_KINDS: Mapping[str, type[Any]] = {cls.kind: cls for cls in get_args(Event)}


#: Kind → its fields that are tuples, lists where they are kept.
_TUPLES: Mapping[str, tuple[str, ...]] = {
    Warmed.kind: ("trials", "left_out"),
    ExamBegan.kind: ("trials",),
    Dropped.kind: ("digests",),
}


def to_body(event: Event) -> dict[str, Any]:
    """The event as plain data, without its kind; rows have a table of their own."""
    slim = replace(event, rows=()) if isinstance(event, Closed) else event
    body = asdict(slim)
    body.pop("rows", None)
    return body


def from_body(kind: str, body: Mapping[str, Any], rows: tuple[Row, ...] = ()) -> Event:
    """The event that `to_body` described."""
    values = dict(body)
    if kind == Created.kind:
        births = (Birth(**{**b, "saved": Saved(**b["saved"])}) for b in values["births"])
        values["births"] = tuple(births)
    if kind == Opened.kind:
        values["goal"] = Goal(**values["goal"])
    if kind == Closed.kind:
        values |= {
            "end": End(values["end"]),
            "status": Status(values["status"]),
            "skipped": tuple(values["skipped"]),
            "dropped": tuple(values["dropped"]),
            "saved": tuple(Saved(**saved) for saved in values["saved"]),
            "rows": rows,
        }
    if kind == Moved.kind:
        values["status"] = Status(values["status"])
    if kind == Held.kind:
        values["hold"] = Hold(values["hold"])
    values |= {key: tuple(values[key]) for key in _TUPLES.get(kind, ())}
    event: Event = _KINDS[kind](**values)
    return event
