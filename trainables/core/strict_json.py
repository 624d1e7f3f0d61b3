"""JSON from outside: no duplicate keys, no NaN, no huge numbers, no deep nesting."""

import json
import math
from collections.abc import Mapping
from typing import Any, Final, NoReturn

#: Largest nesting depth of lists and objects.
MAX_DEPTH: Final = 32
#: Largest number of digits of an integer.
MAX_DIGITS: Final = 40
#: Types of values that need no check.
_SCALARS = frozenset({str, int, float, bool, type(None)})


def parse(text: bytes) -> Any:
    """Return the value of the JSON `text`.

    Raises:
        ValueError: it is invalid, is nested deeper than `MAX_DEPTH`, has a duplicate key, or holds
            NaN, infinity or a huge number.
        RecursionError: it is nested too deeply for Python's parser.
    """
    value = json.loads(
        text.decode("utf-8"),
        object_pairs_hook=_without_duplicates,
        parse_constant=_refuse_constant,
        parse_int=_short_int,
        parse_float=_finite,
    )
    check_depth(value)
    return value


def canonical(value: Mapping[str, Any]) -> bytes:
    """Return the canonical JSON of `value`: sorted keys, no spaces, ASCII.

    Raises:
        TypeError: a value has no JSON form.
        ValueError: a number is NaN or infinite.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def check_depth(value: Any, depth: int = 0) -> None:
    """Raise ValueError if `value` is nested deeper than `MAX_DEPTH`.

    `depth` is the number of containers around it.
    """
    if depth > MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH}")
    if isinstance(value, dict | Mapping):  # a dict is one, but it takes longer to see
        value = value.values()
    elif not isinstance(value, list | tuple):
        return
    for item in value:
        if type(item) not in _SCALARS or depth == MAX_DEPTH:
            check_depth(item, depth + 1)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return `pairs` as a dict; raises ValueError if a key occurs twice."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key occurs twice")
    return found


def _refuse_constant(name: str) -> NoReturn:
    """Raise ValueError for NaN and infinities, which are not JSON."""
    raise ValueError(f"{name} is not a JSON number")


def _short_int(digits: str) -> int:
    """Return the integer of `digits`; raises ValueError if it has too many digits."""
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"a number has {len(digits)} digits; at most {MAX_DIGITS} are allowed")
    return int(digits)


def _finite(text: str) -> float:
    """Return the number of `text`; raises ValueError if it overflows to infinity."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:MAX_DIGITS]} is too large")
    return number
