"""Results in the form of the ledger: one level of scalars, with paths joined by ``/``."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sweep.history.events import Metrics, Scalar
from trainables.core.results import VOLATILE_KEYS
from trainables.errors import printable, shorten, type_of

#: Maximum number of characters kept of a text value.
LONGEST_TEXT = 200
#: Integers outside these bounds are stored as floats: Python parses none of more than 4300 digits.
_LEAST, _LARGEST = -(2**1023), 2**1023
#: Text of `instead_of_number` for a key whose value is None.
NOTHING = "None"
#: Types of values that are kept unchanged.
_PLAIN = frozenset({bool, float})


def flatten(result: Mapping[str, Any], prefix: str = "") -> dict[str, Scalar]:
    """Return a nested result as one level with keys joined by ``/``, without `config`.

    Only scalars are kept: bools, numbers, texts (cut after `LONGEST_TEXT` characters) and arrays of
    shape (). Integers from ±2**1023 on become floats. `config` is left out at the top only.
    `prefix` is the path of the mapping, empty at the top.
    """
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
        elif (scalar := _to_scalar(value)) is not None:
            flat[path] = scalar
    return flat


def _to_scalar(value: Any) -> Scalar | None:
    """Return a value, or the element of an array of shape (), as a scalar for the ledger.

    Texts are cut to `LONGEST_TEXT` characters. Integers from ±2**1023 on become floats, infinite if
    beyond their range. Returns None for anything but a bool, a number and a text.
    """
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        value = value.item()
    if isinstance(value, str):
        return value[:LONGEST_TEXT]
    if isinstance(value, int) and not _LEAST < value < _LARGEST:
        return to_number(value)
    return value if isinstance(value, bool | int | float) else None


def instead_of_number(result: Mapping[str, Any], path: str, prefix: str = "") -> str:
    """Return a description, for an error message, of the value at `path` of a nested result.

    Returns an empty text if it is a number or bool, or absent. `prefix` is the path of the mapping,
    empty at the top.
    """
    for key, value in result.items():
        here = f"{prefix}{key}"
        if here == path:
            return _describe(value)
        if isinstance(value, Mapping) and path.startswith(f"{here}/"):
            return instead_of_number(value, path, f"{here}/")
    return ""


def _describe(value: Any) -> str:
    """Return a description such as ``an array of shape (3,)``; empty for a number or bool.

    It is for an error message, and `NOTHING` for None.
    """
    if to_number(_to_scalar(value)) is not None:
        return ""
    if isinstance(value, str):
        return f"the text {shorten(value, 40)}"
    if isinstance(value, Mapping):
        return f"a nested dict with {', '.join(printable(str(key)) for key in value) or 'nothing'}"
    shape = getattr(value, "shape", None)
    if shape is not None:
        return f"an array of shape {tuple(shape)}"
    if isinstance(value, Sequence):
        return f"{type_of(value)} of {len(value)}"
    return NOTHING if value is None else f"of type {type(value).__name__}"


def numeric_names(results: Iterable[Metrics]) -> set[str]:
    """Return the names under which results have numbers; bools are none here.

    Names whose first part is in `VOLATILE_KEYS` (times, dates, hosts, process ids) are left out.
    """
    return {
        name
        for metrics in results
        for name, value in metrics.items()
        if name.split("/")[0] not in VOLATILE_KEYS and not isinstance(value, bool | str)
    }


def to_number(value: Scalar | None) -> float | None:
    """Return an int, float or bool as a float; None for None and for a text.

    An int beyond the range of floats becomes infinite.
    """
    if isinstance(value, float):
        return value
    if not isinstance(value, int):
        return None
    try:
        return float(value)
    except OverflowError:  # an integer of more than 308 digits
        return math.inf if value > 0 else -math.inf
