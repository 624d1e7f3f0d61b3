"""Python arguments as plain data, as YAML would give them.

    to_plain_data({"layers": np.array([64, 64]), "since": date(2026, 1, 2)}, "config")
        → {"layers": [64, 64], "since": "2026-01-02"}

Numbers and arrays of numpy, torch and pandas become numbers and lists; dates and times become ISO
8601 texts; a dataclass or pydantic model becomes a mapping of its fields, a member of an Enum its
value, a path a text. Everything else is refused with advice on how to write it.
"""

import enum
import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from numbers import Real
from pathlib import PurePath
from typing import Any

from pydantic import BaseModel

from sweep.core.errors import BadConfig

#: Maximum nesting depth of mappings and lists.
DEEPEST = 32
#: Rule for Python values, for messages.
_ALLOWED = "finite numbers, text, true, false, none, lists, and mappings with text as keys"
#: Types of refused values with advice; the first that fits counts.
_REMEDIES: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (float, "leave it out, or write none"),
    (timedelta, "write its seconds: {name}.total_seconds()"),
    ((Decimal, Real), "write float({name}), or str({name}) for text"),
    (complex, "write its real and its imaginary part, as a list of two numbers"),
    ((bytes, bytearray, memoryview), "write text: {name}.decode()"),
    (Set, "write sorted({name}), a list"),
    (Mapping, "write its keys as text: {{str(key): value for key, value in {name}.items()}}"),
    (Iterable, "write list({name})"),
)


def to_plain_data(value: Any, place: str, depth: int = 0) -> Any:
    """Return a Python argument as plain data; `place` is its key in messages, `depth` its nesting.

    Sequences become lists; mappings are copied, with keys of text. `_to_builtin` says how other
    parts become plain. Raises BadConfig for NaN, infinity, nesting beyond `DEEPEST`, and other
    types, such as bytes, sets and functions; the message says which, and how to write it.
    """
    value = _to_builtin(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if depth < DEEPEST and isinstance(value, Mapping):
        keys = [_to_builtin(key) for key in value]
        if all(isinstance(key, str) for key in keys):
            pairs = zip(keys, value.values(), strict=True)
            return {key: to_plain_data(inner, f"{place}.{key}", depth + 1) for key, inner in pairs}
    elif depth < DEEPEST and isinstance(value, Sequence) and not _is_bytes(value):
        return [to_plain_data(inner, f"{place}[{n}]", depth + 1) for n, inner in enumerate(value)]
    raise BadConfig(place, value, _ALLOWED, _remedy(value, place, depth))


def _to_builtin(value: Any) -> Any:
    """Return the outermost level of a value as a built-in number, text, list or mapping.

    Arrays become lists, their scalars numbers, dates and times ISO 8601 texts, paths texts, enums
    their values, and dataclasses and pydantic models mappings of their fields. Other values are
    returned unchanged.
    """
    value = value.value if isinstance(value, enum.Enum) else value
    if isinstance(value, type):
        return value
    if callable(getattr(value, "tolist", None)):  # numbers and arrays of numpy, torch and pandas
        kind = getattr(getattr(value, "dtype", None), "kind", "")
        dates = kind in ("M", "m")  # these would become integers if counted in nanoseconds
        value = (value.astype(f"{kind}8[us]") if dates else value).tolist()
    if isinstance(value, date | datetime | time):
        return value.isoformat()
    if isinstance(value, str | PurePath):
        return str(value)
    if isinstance(value, BaseModel):
        return value.model_dump()
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return value


def _is_bytes(value: object) -> bool:
    """Return whether `value` is bytes, a bytearray or a memoryview."""
    return isinstance(value, bytes | bytearray | memoryview)


def _remedy(value: object, place: str, depth: int) -> str:
    """Return advice on how to write a value that was refused at the key `place`.

    `depth` is the number of lists and mappings around it.
    """
    if depth >= DEEPEST and isinstance(value, Mapping | Sequence):
        return f"at most {DEEPEST} lists and mappings are nested in each other"
    if hasattr(value, "__qualname__") and hasattr(value, "__module__"):
        module, name = value.__module__, value.__qualname__
        if module == "__main__" or "<" in name:
            return "define it at the top of a module, and write its path as text: 'module:Name'"
        return f"write its path as text: '{module}:{name}'"
    found = (remedy for kind, remedy in _REMEDIES if isinstance(value, kind))
    name = place.rpartition(".")[2]
    said = "write the numbers and texts that it is made of, as a mapping"
    return next(found, said).format(name=name if name.isidentifier() else "value")
