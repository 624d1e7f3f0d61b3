"""Sizes in bytes, as people write and read them: ``4GB``, ``1.5GiB``, ``4.2 GB``."""

import re
from typing import Annotated, Any

from pydantic import BeforeValidator

_UNITS = {"": 1, "B": 1}
_UNITS |= {f"{letter}B": 1000**n for n, letter in enumerate("KMGT", start=1)}
_UNITS |= {f"{letter}IB": 1024**n for n, letter in enumerate("KMGT", start=1)}
#: SQL has whole numbers of 64 bits.
_LARGEST = 2**63
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*")


def _read_size(raw: Any) -> Any:
    if raw is None:
        return raw
    whole = isinstance(raw, int) and not isinstance(raw, bool)
    match = _SIZE.fullmatch(raw) if isinstance(raw, str) else None
    size = raw if whole else float(match[1]) * _UNITS.get(match[2].upper(), 0) if match else 0
    if not 0.5 < size < _LARGEST:
        raise ValueError("a size such as 4GB, 512MB or 1.5GiB")
    return round(size)


def in_words(size: float) -> str:
    """Bytes with the largest unit of which there is at least one: ``4.2 GB``."""
    for unit in ("TB", "GB", "MB", "KB"):
        if size >= _UNITS[unit]:
            return f"{size / _UNITS[unit]:.3g} {unit}"
    return f"{size:.0f} B"


Size = Annotated[int | None, BeforeValidator(_read_size)]
