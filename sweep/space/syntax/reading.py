"""What the readers of a parameter share: what stands there, and how a mistake in it is answered."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sweep.errors import KeyPath, Source

#: Whole numbers up to here are exact as floating-point numbers, which samplers compute with.
LARGEST_INT = 2**53


@dataclass(frozen=True)
class Reading:
    """A parameter as it is written, in our words."""

    name: str
    kind: str
    """The word that says what it is, such as ``uniform``."""
    raw: Mapping[str, Any]
    """Word → what stands beside it."""
    where: Source
    """The source, seen from the parameter."""
    places: Mapping[KeyPath, KeyPath] = field(default_factory=dict)
    """Where it was written in other words: path in `raw` → path in the file."""

    @property
    def value(self) -> Any:
        """What stands beside the kind."""
        return self.raw[self.kind]

    def refuse(self, value: object, allowed: str, hint: str = "", *below: str | int) -> Exception:
        """The error for a mistake below the kind."""
        return self.refuse_at((self.kind, *below), value, allowed, hint)

    def refuse_at(
        self, path: KeyPath, value: object, allowed: str, hint: str = "", problem: str = ""
    ) -> Exception:
        """The error for a mistake at `path` in `raw`."""
        return self.where.refuse(self.places.get(path, path), value, allowed, hint, problem)


def real(value: Any) -> str:
    """What `value` should be instead; empty: it is a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "a number"
    if isinstance(value, int):
        return "" if abs(value) <= LARGEST_INT else "a whole number within ±2**53"
    return "" if math.isfinite(value) else "a finite number"


def whole(value: Any) -> str:
    """What `value` should be instead; empty: it is a whole number that samplers can represent."""
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > LARGEST_INT:
        return "a whole number within ±2**53, written without a point"
    return ""


def plain(value: Any, path: KeyPath, where: Source) -> Any:
    """`value`, if it is plain data that JSON can hold; numbers finite and of 64 bits."""
    match value:
        case None | bool() | str():
            pass
        case int() if abs(value) < 2**63:
            pass
        case float() if math.isfinite(value):
            pass
        case list() | tuple():
            for index, item in enumerate(value):
                plain(item, (*path, index), where)
        case dict() if all(isinstance(key, str) for key in value):
            for key, item in value.items():
                plain(item, (*path, key), where)
        case _:
            raise where.refuse(
                path, value, "text, a finite number, true, false, null, or these in lists"
            )
    return value
