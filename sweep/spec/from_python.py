"""Arguments of Python as a spec can hold them: plain data, as YAML would give them.

    plain({"layers": np.array([64, 64]), "since": date(2026, 1, 2)}, "config")
        → {"layers": [64, 64], "since": "2026-01-02"}

Numbers and arrays of numpy, torch and pandas become numbers and lists; dates and times become text
of ISO 8601; a dataclass or a model of pydantic becomes a mapping of its fields, an Enum's member
its value, a path text. Everything else is refused with a way to write it.
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

from sweep.errors import BadConfig

#: Mappings and lists inside each other, at most.
DEEPEST = 32
_ALLOWED = "finite numbers, text, true, false, none, lists, and mappings with text as keys"
#: Kinds of values that are refused, and how to write one; the first that fits counts.
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


def plain(value: Any, place: str, depth: int = 0) -> Any:
    """Return an argument as YAML can hold it.

    Args:
        value: the argument.
        place: its key in the spec, for messages.
        depth: how many mappings and lists it lies in.

    Raises:
        BadConfig: something in it cannot be written; with its place and how to write it.
    """
    value = _without_its_type(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if depth < DEEPEST and isinstance(value, Mapping):
        keys = [_without_its_type(key) for key in value]
        if all(isinstance(key, str) for key in keys):
            pairs = zip(keys, value.values(), strict=True)
            return {key: plain(inner, f"{place}.{key}", depth + 1) for key, inner in pairs}
    elif depth < DEEPEST and isinstance(value, Sequence) and not _is_bytes(value):
        return [plain(inner, f"{place}[{n}]", depth + 1) for n, inner in enumerate(value)]
    raise BadConfig(place, value, _ALLOWED, _remedy(value, place, depth))


def _without_its_type(value: Any) -> Any:
    """Return the number, text, list or mapping that a value of a library's type stands for."""
    value = value.value if isinstance(value, enum.Enum) else value
    if isinstance(value, type):
        return value
    if callable(getattr(value, "tolist", None)):  # numbers and arrays of numpy, torch and pandas
        kind = getattr(getattr(value, "dtype", None), "kind", "")
        dates = kind in ("M", "m")  # which are whole numbers where they count nanoseconds
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
    return isinstance(value, bytes | bytearray | memoryview)


def _remedy(value: object, place: str, depth: int) -> str:
    """Return in words how to write a value that was refused."""
    if depth >= DEEPEST and isinstance(value, Mapping | Sequence):
        return f"at most {DEEPEST} lists and mappings lie in each other"
    if hasattr(value, "__qualname__") and hasattr(value, "__module__"):
        return f"write its path as text: '{value.__module__}:{value.__qualname__}'"
    found = (remedy for kind, remedy in _REMEDIES if isinstance(value, kind))
    name = place.rpartition(".")[2]
    said = "write the numbers and texts that it is made of, as a mapping"
    return next(found, said).format(name=name if name.isidentifier() else "value")
