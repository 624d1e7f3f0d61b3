"""Convert events to the plain data that the ledger stores, and back.

Result rows have a table of their own and are passed separately from the body. All data read is
checked against the types of `sweep.history.events`, since a ledger may come from anywhere.
"""

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, get_args

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, SchemaValidator, core_schema, from_json

from sweep.history.events import (
    Closed,
    Created,
    Event,
    FinalEvaluationBegan,
    LimitsChanged,
    Reported,
    Row,
    Saved,
    TermBegan,
)
from sweep.spec import sections

# -------------------------------------------------------------------------------------------------
# Plain data read as dataclasses: pydantic makes them, and converts nothing.
#
# Whole numbers are 0 to 2**63 - 1, and a whole number stays one where any number may stand. A
# mapping whose type says no more may hold any plain data, at most `DEEPEST` lists and mappings
# deep.

#: Maximum nesting depth of lists and mappings.
DEEPEST = 64
#: Integers in the ledger are at least -`_END` and below `_END`.
_END = 2**63
#: Maximum number of characters of a value in a message.
_SHOWN = 40
#: Pattern of the name of a checkpoint's file, in a slice's folder or not.
_FILE = re.compile(r"([0-9]{1,19}/)?(?!\.\.?\Z)[^/\0]+")

#: Schema of an integer of 64 bits or a float.
_NUMBER = core_schema.union_schema(
    [core_schema.int_schema(strict=True, ge=-_END, lt=_END), core_schema.is_instance_schema(float)],
    custom_error_type="number",
    custom_error_message="a number",
)
#: Type of a pydantic core schema → options that replace its own; JSON lists become tuples.
_EXACT: Final[Mapping[str, Mapping[str, Any]]] = {
    "int": {"strict": True, "ge": 0, "lt": _END},
    "float": {**_NUMBER},
    "bool": {"strict": True},
    "str": {"strict": True},
    "dict": {"strict": True},
    "dataclass-args": {"extra_behavior": "forbid"},
}
#: Type of a pydantic error → description of the value that was expected.
_EXPECTED: Final[Mapping[str, str]] = {
    **dict.fromkeys(("dict_type", "dataclass_type"), "a mapping"),
    "tuple_type": "a list",
    "string_type": "text",
    "bool_type": "true or false",
    "number": "a number",
    "enum": "one of {expected}",
}


class DecodeError(ValueError):
    """Stored data that does not have the expected form.

    The message says in which field, what was found, and what was expected.
    """


def parse(text: object) -> Any:
    """Return the value of a JSON text read from the ledger.

    NaN and infinities are accepted as numbers. Raises DecodeError if `text` is not a string, not
    JSON, or nests deeper than `DEEPEST`.
    """
    if not isinstance(text, str):
        raise DecodeError(f"{_describe(text)}, not text")
    try:
        try:
            value = from_json(text, allow_inf_nan=False)
        except ValueError:  # NaN, half a surrogate pair as in names of files, or no JSON
            value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DecodeError(f"not JSON ({str(error)[:80]})") from error
    if text.count("[") + text.count("{") > DEEPEST and _is_deeper(value):
        raise DecodeError(f"more than {DEEPEST} nested lists and mappings")
    return value


def read(cls: Any, raw: Any) -> Any:
    """Return plain data as a value of type `cls`, such as a dataclass from a mapping of its fields.

    Nothing is converted, and unknown keys are refused. Raises DecodeError if `raw` does not fit
    `cls`; the message describes the first mistake.
    """
    try:
        return _validator(cls).validate_python(raw)
    except ValidationError as error:
        raise DecodeError(_describe_error(error.errors(include_url=False)[0])) from None


def _is_deeper(value: Any) -> bool:
    """Return whether lists and mappings in `value` nest deeper than `DEEPEST` levels."""
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


@cache
def _adapter(cls: Any) -> TypeAdapter[Any]:
    """Return pydantic's adapter for a type, made at the first call."""
    return TypeAdapter(cls)


@cache
def _validator(cls: Any) -> SchemaValidator:
    """Return pydantic's strict validator for a type, made at the first call.

    It converts nothing and refuses unknown keys.
    """
    return SchemaValidator(_make_strict(_adapter(cls).core_schema))


def _make_strict(schema: Any) -> Any:
    """Return a copy of a pydantic core schema that converts nothing and forbids unknown keys.

    `schema` is the schema or any list or value in it, since the function calls itself.
    """
    if isinstance(schema, list):
        return [_make_strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    over = _EXACT.get(str(schema.get("type")), {})
    return {**{key: _make_strict(part) for key, part in schema.items()}, **over}


def _describe_error(first: ErrorDetails) -> str:
    """Return one line about a pydantic error: path of the field, value found, value expected."""
    *outer_names, last = ("", *(part for part in first["loc"] if isinstance(part, str)))
    if first["type"] == "missing":
        problem = f"no {last}"
    elif first["type"] == "unexpected_keyword_argument":
        problem = f"the unknown key {short_repr(last)}"
    elif first["type"] == "string_unicode":  # a key that is not Unicode
        problem = f"the unknown key {short_repr(first['input'])}"
    else:
        outer_names = [*outer_names, last]
        expected = _EXPECTED.get(first["type"], "a whole number of at least 0")
        problem = f"{_describe(first['input'])}, not {expected.format(**first.get('ctx', {}))}"
    return ": ".join([*(short_repr(name)[1:-1] for name in outer_names if name), problem])


def _describe(raw: object) -> str:
    """Return a short text for a value that does not fit: ``a list of 3``, a number, its `repr`."""
    if isinstance(raw, dict | list):
        return f"a {'mapping' if isinstance(raw, dict) else 'list'} of {len(raw)}"
    if isinstance(raw, int) and not isinstance(raw, bool):
        return str(raw) if -_END <= raw < _END else "a number of more than 64 bits"
    return short_repr(raw)


def short_repr(raw: object) -> str:
    """Return the `repr` of a value, cut to `_SHOWN` characters and an ellipsis."""
    text = repr(raw[: _SHOWN + 1] if isinstance(raw, str | bytes) else raw)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


# -------------------------------------------------------------------------------------------------
# Events and results.

#: Kind of an event, as in the ledger → its class.
_KINDS: Mapping[str, type[Any]] = {cls.kind: cls for cls in get_args(Event)}
#: Types of a result's values.
_SCALARS = frozenset({bool, int, float, str})


def to_body(event: Event) -> dict[str, Any]:
    """Return an event's fields as plain data for JSON, without its kind and its result rows."""
    cls: Any = type(event)
    serializer = _adapter(cls).serializer
    body: dict[str, Any] = serializer.to_python(event, exclude={"rows"}, warnings=False)
    return body


def from_body(kind: object, body: object, rows: tuple[Row, ...] = ()) -> Event:
    """Return the event of kind `kind` with the fields in the JSON text `body`.

    `rows` are its results, which have a table of their own; other kinds than `Reported` and
    `Closed` ignore them. Raises DecodeError if these are no valid event; the message says why.
    """
    if not isinstance(kind, str) or kind not in _KINDS:
        raise DecodeError(f"{short_repr(kind)} is not a kind of event")
    event: Event = read(_KINDS[kind], parse(body))
    if isinstance(event, Reported | Closed):
        if event.rows:
            raise DecodeError("rows: they belong in a separate table")
        for saved in event.saved if isinstance(event, Closed) else ():
            _check_saved(saved)
        object.__setattr__(event, "rows", rows)  # the event is not shared yet
        return event
    if isinstance(event, Created):
        _check_created(event)
    if isinstance(event, TermBegan | FinalEvaluationBegan | LimitsChanged) and event.jobs == 0:
        raise DecodeError("jobs is 0; expected at least 1")
    return event


def read_row(iteration: object, metrics: object) -> Row:
    """Return the result in a row of the table of results; `metrics` is a JSON text.

    Raises DecodeError if the row holds no valid result.
    """
    return read_metrics(iteration, parse(metrics))


def read_metrics(iteration: object, metrics: object) -> Row:
    """Return the result of an iteration with these metrics (name → number or text).

    Raises:
        DecodeError: `iteration` is not an int, or `metrics` is not a flat dict of numbers, bools
            and text.
    """
    if type(iteration) is not int or type(metrics) is not dict:
        raise DecodeError(f"iteration {short_repr(iteration)}: no valid result")
    if not {type(value) for value in metrics.values()} <= _SCALARS:
        raise DecodeError(f"iteration {iteration}: a value that is neither a number nor text")
    return Row(iteration, metrics)


def read_saved(raw: object) -> Saved:
    """Return a checkpoint's record from a mapping of its fields.

    Raises DecodeError if the mapping describes no checkpoint, or its file name is not allowed.
    """
    saved: Saved = read(Saved, raw)
    _check_saved(saved)
    return saved


def _check_created(event: Created) -> None:
    """Raise DecodeError if a new trial has an impossible number of replicas or births.

    The files of the parents' checkpoints are checked too.
    """
    if not 1 <= event.replicas <= sections.MOST:
        raise DecodeError(f"replicas is {event.replicas}; expected 1 to {sections.MOST}")
    if event.births and len(event.births) != event.replicas:
        raise DecodeError(f"births has {len(event.births)} entries for {event.replicas} replicas")
    for birth in event.births:
        _check_saved(birth.saved)


def _check_saved(saved: Saved) -> None:
    """Raise DecodeError unless a checkpoint's file is a bare name or ``NUMBER/NAME``.

    Such a file lies in the trial's folder.
    """
    if not _FILE.fullmatch(saved.file):
        raise DecodeError(f"file is {short_repr(saved.file)}; expected a name without folders")
