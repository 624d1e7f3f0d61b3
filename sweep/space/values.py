"""When two values of plain data are the same.

Python takes 1, 1.0 and True for equal, and cannot hash lists and mappings; in canonical JSON all of
them differ.
"""

import json
from typing import Any


def choice_key(value: Any) -> str:
    """The canonical JSON of a value: sorted keys, no spaces; equal values have equal keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def same(one: Any, other: Any) -> bool:
    """Whether two values of plain data are equal; numbers by value: 1, 1.0 and True are."""
    return equality_key(one) == equality_key(other)


def equality_key(value: Any) -> str:
    """Equal for two values exactly if they are `same`."""
    return choice_key(_numbers_alike(value))


def _numbers_alike(value: Any) -> Any:
    match value:
        case dict():
            return {key: _numbers_alike(item) for key, item in value.items()}
        case list() | tuple():
            return [_numbers_alike(item) for item in value]
        case int():
            return int(value)
        case float() if value.is_integer():
            return int(value)
    return value
