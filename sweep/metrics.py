"""Results as the ledger holds them: one level of scalars, paths joined with ``/``."""

from collections.abc import Mapping
from typing import Any

from sweep.events import Scalar

#: Characters of a text value that are kept.
LONGEST_TEXT = 200


def flatten(result: Mapping[str, Any], prefix: str = "") -> dict[str, Scalar]:
    """Nested results as one level with ``/`` between; only scalars, and no settings."""
    flat: dict[str, Scalar] = {}
    for key, value in result.items():
        path = f"{prefix}{key}"
        if path == "config":
            continue
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{path}/")
        elif (scalar := _scalar(value)) is not None:
            flat[path] = scalar
    return flat


def _scalar(value: Any) -> Scalar | None:
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        value = value.item()
    if isinstance(value, str):
        return value[:LONGEST_TEXT]
    return value if isinstance(value, bool | int | float) else None


def number(value: Scalar | None) -> float | None:
    """The value as a float; None if there is none, or if it is text."""
    return float(value) if isinstance(value, int | float) else None
