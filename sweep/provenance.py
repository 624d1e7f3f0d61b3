"""What a sweep's results depend on beside its spec: versions, and the trainable's source."""

import importlib.metadata
import inspect
import platform
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from trainables.trainable import Trainable

#: Packages whose versions decide whether a resumed trial can be exact.
RECORDED = ("torch", "numpy", "gymnasium", "optuna", "sweep")


def of(trainable: type[Trainable]) -> dict[str, Any]:
    """What the results depend on beside the spec: versions, and the trainable's source."""
    versions = {"python": platform.python_version()}
    versions |= {name: importlib.metadata.version(name) for name in RECORDED}
    return {"versions": versions, "source": _source_digest(trainable)}


def _source_digest(trainable: type[Trainable]) -> str:
    file = inspect.getsourcefile(inspect.unwrap(trainable))
    return sha256(Path(file).read_bytes()).hexdigest() if file else ""


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs between two answers of `of`, in words."""
    changed = [
        f"{name} was {before['versions'].get(name)}, is {version}"
        for name, version in now["versions"].items()
        if before["versions"].get(name) != version
    ]
    if before["source"] != now["source"]:
        changed.append("the trainable's source file has changed")
    return changed
