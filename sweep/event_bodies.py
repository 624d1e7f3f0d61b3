"""Events as plain data, the way the ledger keeps them, and back.

Rows of results have a table of their own and are handed over beside the body. What is read is
checked against the types of `sweep.events`, since a ledger may come from anywhere.
"""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, get_args

from sweep import typed
from sweep.events import Closed, Created, EpochBegan, Event, ExamBegan, Row, Saved
from sweep.spec import replication
from sweep.typed import Misfit
from sweep.wishes import Changed

_KINDS: Mapping[str, type[Any]] = {cls.kind: cls for cls in get_args(Event)}
_SCALARS = frozenset({bool, int, float, str})


def to_body(event: Event) -> dict[str, Any]:
    """The event as plain data, without its kind; rows have a table of their own."""
    slim = replace(event, rows=()) if isinstance(event, Closed) else event
    body = asdict(slim)
    body.pop("rows", None)
    return body


def from_body(kind: object, body: object, rows: tuple[Row, ...] = ()) -> Event:
    """The event that a row of the ledger holds; `body` is JSON.

    Raises:
        Misfit: no event is written so; says what is wrong.
    """
    if not isinstance(kind, str) or kind not in _KINDS:
        raise Misfit(f"{typed.shown(kind)} is no kind of event")
    event: Event = typed.read(_KINDS[kind], typed.parse(body))
    if isinstance(event, Closed):
        if event.rows:
            raise Misfit("rows: they have a table of their own")
        for saved in event.saved:
            _check_saved(saved)
        return replace(event, rows=rows) if rows else event
    if isinstance(event, Created):
        _check_created(event)
    if isinstance(event, EpochBegan | ExamBegan | Changed) and event.jobs == 0:
        raise Misfit("jobs: 0, not at least 1")
    return event


def read_row(iteration: object, metrics: object) -> Row:
    """The result that a row of the ledger holds; `metrics` is JSON.

    Raises:
        Misfit: no result is written so.
    """
    raw = typed.parse(metrics)
    if type(iteration) is not int or type(raw) is not dict:
        raise Misfit(f"no result of iteration {typed.shown(iteration)}")
    if not {type(value) for value in raw.values()} <= _SCALARS:
        raise Misfit(f"iteration {iteration}: what is neither a number nor text")
    return Row(iteration, raw)


def _check_created(event: Created) -> None:
    if not 1 <= event.replicas <= replication.MOST:
        raise Misfit(f"replicas: {event.replicas}, not 1 to {replication.MOST}")
    if event.births and len(event.births) != event.replicas:
        raise Misfit(f"births: {len(event.births)}, and {event.replicas} replicas")
    for birth in event.births:
        _check_saved(birth.saved)


def _check_saved(saved: Saved) -> None:
    """The file of a checkpoint lies in the trial's folder itself."""
    if not saved.file or "/" in saved.file or "\0" in saved.file or saved.file in (".", ".."):
        raise Misfit(f"file: {typed.shown(saved.file)}, not the name of a file alone")
