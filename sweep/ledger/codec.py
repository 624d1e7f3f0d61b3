"""Events as plain data, the way the ledger keeps them, and back.

Rows of results have a table of their own and are handed over beside the body. What is read is
checked against the types of `sweep.history.events`, since a ledger may come from anywhere.
"""

import contextlib
import json
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, fields, is_dataclass, replace
from enum import StrEnum
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

from sweep.history.events import (
    Changed,
    Closed,
    Created,
    Event,
    FinalEvaluationBegan,
    Row,
    Saved,
    TermBegan,
)
from sweep.spec import sections

# -------------------------------------------------------------------------------------------------
# Plain data read as dataclasses, field by field against their types; what does not fit is
# refused.
#
# Whole numbers are 0 to 2**63 - 1. A mapping whose type says no more may hold any plain data, at
# most `DEEPEST` lists and mappings deep.

#: Lists and mappings inside each other.
DEEPEST = 64
_END = 2**63
_SHOWN = 40

Reader = Callable[[Any], Any]


class DecodeError(ValueError):
    """Data of another shape; says where, and what it is."""


def parse(text: object) -> Any:
    """What a text of JSON holds; DecodeError where it holds none, or nests too deep."""
    if not isinstance(text, str):
        raise DecodeError(f"{_described(text)}, not text")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DecodeError(f"no JSON ({str(error)[:80]})") from error
    if text.count("[") + text.count("{") > DEEPEST and _is_deeper(value):
        raise DecodeError(f"more than {DEEPEST} lists and mappings in each other")
    return value


def read(cls: Any, raw: Any) -> Any:
    """A value of a type, such as a dataclass from a mapping with its fields.

    Raises:
        DecodeError: it is none.
    """
    reader: Reader = _reader(cls)
    return reader(raw)


def _is_deeper(value: Any) -> bool:
    level = [value]
    for _ in range(DEEPEST + 1):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


# ---- a reader for each type ---------------------------------------------------------------------


@cache
def _reader(hint: Any) -> Reader:
    """What reads a value of this type."""
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    origin = get_origin(hint)
    if origin in (types.UnionType, typing.Union):
        return _either(hint)
    if origin is tuple:
        return _many(_reader(get_args(hint)[0]))
    if origin is not None and issubclass(origin, Mapping):
        return _mapping(get_args(hint)[1])
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return _one_of(hint)
    if is_dataclass(hint) and isinstance(hint, type):
        return _fields(hint)
    raise TypeError(f"no reader for {hint}")


def _fields(cls: type[Any]) -> Reader:
    hints = get_type_hints(cls)
    readers = {field.name: _reader(hints[field.name]) for field in fields(cls)}
    needed = frozenset(
        f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING
    )

    def read(raw: Any) -> Any:
        if type(raw) is not dict:
            raise DecodeError(f"{_described(raw)}, not a mapping")
        if not needed <= raw.keys():
            raise DecodeError(f"no {min(needed - raw.keys())}")
        if not raw.keys() <= readers.keys():
            raise DecodeError(
                f"{shown(min(raw.keys() - readers.keys()))}, which no {cls.__name__} has"
            )
        values = {}
        for name, value in raw.items():
            try:
                values[name] = readers[name](value)
            except DecodeError as error:
                raise DecodeError(f"{name}: {error}") from None
        return cls(**values)

    return read


def _either(hint: Any) -> Reader:
    """``X | None``, or one of several."""
    first, *others = (_reader(part) for part in get_args(hint) if part is not type(None))
    empty = type(None) in get_args(hint)

    def read(raw: Any) -> Any:
        if raw is None and empty:
            return None
        for inner in others:
            with contextlib.suppress(DecodeError):
                return inner(raw)
        return first(raw)

    return read


def _many(inner: Reader) -> Reader:
    def read(raw: Any) -> tuple[Any, ...]:
        if type(raw) is not list:
            raise DecodeError(f"{_described(raw)}, not a list")
        return tuple([inner(item) for item in raw])

    return read


def _mapping(of: Any) -> Reader:
    inner = _reader(of)

    def read(raw: Any) -> dict[str, Any]:
        if type(raw) is not dict:
            raise DecodeError(f"{_described(raw)}, not a mapping")
        return raw if of is Any else {key: inner(value) for key, value in raw.items()}

    return read


def _one_of(words: type[StrEnum]) -> Reader:
    known = {word.value: word for word in words}

    def read(raw: Any) -> StrEnum:
        if type(raw) is not str or raw not in known:
            raise DecodeError(f"{_described(raw)}, not one of {', '.join(known)}")
        return known[raw]

    return read


def _whole(raw: Any) -> int:
    if type(raw) is not int or not 0 <= raw < _END:
        raise DecodeError(f"{_described(raw)}, not a whole number from 0 on")
    return raw


def _number(raw: Any) -> int | float:
    if type(raw) is not float and (type(raw) is not int or not -_END <= raw < _END):
        raise DecodeError(f"{_described(raw)}, not a number")
    return raw


def _truth(raw: Any) -> bool:
    if type(raw) is not bool:
        raise DecodeError(f"{_described(raw)}, not true or false")
    return raw


def _text(raw: Any) -> str:
    if type(raw) is not str:
        raise DecodeError(f"{_described(raw)}, not text")
    return raw


_SIMPLE: dict[Any, Reader] = {
    int: _whole,
    float: _number,
    bool: _truth,
    str: _text,
    Any: lambda raw: raw,
}


def _described(raw: object) -> str:
    """A value that does not fit, in a few words."""
    if isinstance(raw, dict | list):
        return f"a {'mapping' if isinstance(raw, dict) else 'list'} of {len(raw)}"
    if isinstance(raw, int) and not isinstance(raw, bool):
        return str(raw) if -_END <= raw < _END else "a number of more than 64 bits"
    return shown(raw)


def shown(raw: object) -> str:
    """The beginning of a value."""
    text = repr(raw[: _SHOWN + 1] if isinstance(raw, str | bytes) else raw)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


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
        DecodeError: no event is written so; says what is wrong.
    """
    if not isinstance(kind, str) or kind not in _KINDS:
        raise DecodeError(f"{shown(kind)} is no kind of event")
    event: Event = read(_KINDS[kind], parse(body))
    if isinstance(event, Closed):
        if event.rows:
            raise DecodeError("rows: they have a table of their own")
        for saved in event.saved:
            _check_saved(saved)
        return replace(event, rows=rows) if rows else event
    if isinstance(event, Created):
        _check_created(event)
    if isinstance(event, TermBegan | FinalEvaluationBegan | Changed) and event.jobs == 0:
        raise DecodeError("jobs: 0, not at least 1")
    return event


def read_row(iteration: object, metrics: object) -> Row:
    """The result that a row of the ledger holds; `metrics` is JSON.

    Raises:
        DecodeError: no result is written so.
    """
    raw = parse(metrics)
    if type(iteration) is not int or type(raw) is not dict:
        raise DecodeError(f"no result of iteration {shown(iteration)}")
    if not {type(value) for value in raw.values()} <= _SCALARS:
        raise DecodeError(f"iteration {iteration}: what is neither a number nor text")
    return Row(iteration, raw)


def _check_created(event: Created) -> None:
    if not 1 <= event.replicas <= sections.MOST:
        raise DecodeError(f"replicas: {event.replicas}, not 1 to {sections.MOST}")
    if event.births and len(event.births) != event.replicas:
        raise DecodeError(f"births: {len(event.births)}, and {event.replicas} replicas")
    for birth in event.births:
        _check_saved(birth.saved)


def _check_saved(saved: Saved) -> None:
    """The file of a checkpoint lies in the trial's folder itself."""
    if not saved.file or "/" in saved.file or "\0" in saved.file or saved.file in (".", ".."):
        raise DecodeError(f"file: {shown(saved.file)}, not the name of a file alone")
