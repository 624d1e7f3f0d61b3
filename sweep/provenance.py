"""What results depend on beside the spec: versions, the trainable's source, the processor."""

import importlib.metadata
import inspect
import platform
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from sweep import __version__
from trainables.errors import printable
from trainables.trainable import Trainable

#: Distributions whose versions decide, beside ours, whether a resumed trial can be exact.
RECORDED = ("torch", "numpy", "gymnasium", "optuna")
_PROCESSORS = Path("/proc/cpuinfo")


def of(trainable: type[Trainable]) -> dict[str, Any]:
    """Entries ``versions``, ``source`` (a digest), and ``processor``."""
    versions = {"python": platform.python_version()}
    versions |= {name: importlib.metadata.version(name) for name in RECORDED}
    versions["sweep"] = __version__
    return {
        "versions": versions,
        "source": _source_digest(trainable),
        "processor": _processor(),
    }


def _processor() -> str:
    """What the processor calls itself: on another type the same sums are rounded otherwise."""
    try:
        lines = _PROCESSORS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())


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
    if before["processor"] not in ("", now["processor"]):
        changed.append(f"the processor was {printable(before['processor'])}, is {now['processor']}")
    return changed
