"""Results as the ledger holds them: one level of scalars, paths joined with ``/``."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sweep.history.events import Metrics, Scalar
from trainables.core.results import VOLATILE_KEYS
from trainables.errors import printable, shorten

#: Characters of a text value that are kept.
LONGEST_TEXT = 200
#: A whole number that is not between these may be more than a float holds, and is then kept as one:
#: Python reads none of more than 4300 digits.
_LEAST, _LARGEST = -(2**1023), 2**1023
#: What `instead_of_number` calls a result that is there and has no value yet.
NOTHING = "None"
#: Values that need not be looked at.
_PLAIN = frozenset({bool, float})


def flatten(result: Mapping[str, Any], prefix: str = "") -> dict[str, Scalar]:
    """Nested results as one level with ``/`` between; only scalars, and no settings."""
    flat: dict[str, Scalar] = {}
    for key, value in result.items():
        path = f"{prefix}{key}"
        if path == "config":
            continue
        if type(value) is str:
            flat[path] = value[:LONGEST_TEXT]
        elif type(value) in _PLAIN or (type(value) is int and _LEAST < value < _LARGEST):
            flat[path] = value
        elif type(value) is dict or isinstance(value, Mapping):
            flat.update(flatten(value, f"{path}/"))
        elif (scalar := _scalar(value)) is not None:
            flat[path] = scalar
    return flat


def _scalar(value: Any) -> Scalar | None:
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        value = value.item()
    if isinstance(value, str):
        return value[:LONGEST_TEXT]
    if isinstance(value, int) and not _LEAST < value < _LARGEST:
        return number(value)
    return value if isinstance(value, bool | int | float) else None


def instead_of_number(result: Mapping[str, Any], path: str, prefix: str = "") -> str:
    """Return the value at `path` of a nested result, in words, if it is no number; else nothing."""
    for key, value in result.items():
        here = f"{prefix}{key}"
        if here == path:
            return _described(value)
        if isinstance(value, Mapping) and path.startswith(f"{here}/"):
            return instead_of_number(value, path, f"{here}/")
    return ""


def _described(value: Any) -> str:
    if number(_scalar(value)) is not None:
        return ""
    if isinstance(value, str):
        return f"a text, {shorten(value, 40)}"
    if isinstance(value, Mapping):
        return f"a nested dict with {', '.join(printable(str(key)) for key in value) or 'nothing'}"
    shape = getattr(value, "shape", None)
    if shape is not None:
        return f"an array of shape {tuple(shape)}"
    if isinstance(value, Sequence):
        return f"a {type(value).__name__} of {len(value)}"
    return NOTHING if value is None else f"of type {type(value).__name__}"


def numbers(results: Iterable[Metrics]) -> set[str]:
    """The names under which results have numbers, without times, dates and the like."""
    return {
        name
        for metrics in results
        for name, value in metrics.items()
        if name.split("/")[0] not in VOLATILE_KEYS and not isinstance(value, bool | str)
    }


def number(value: Scalar | None) -> float | None:
    """The value as a float; None if there is none, or if it is text."""
    if isinstance(value, float):
        return value
    if not isinstance(value, int):
        return None
    try:
        return float(value)
    except OverflowError:  # a whole number of more than 308 digits
        return math.inf if value > 0 else -math.inf
