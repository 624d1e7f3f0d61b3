"""Conditions of results other than the spec: versions, the trainable's source, the processor."""

import importlib.metadata
import inspect
import platform
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from sweep.core.version import __version__
from sweep.history.events import TrainableReplaced
from sweep.ledger.ledger import Ledger
from trainables.errors import printable
from trainables.trainable import Trainable

#: Distributions whose versions, in addition to ours, may change the results of a resumed trial.
RECORDED = ("torch", "numpy", "gymnasium", "optuna")
#: File in which Linux describes the processors.
_PROCESSORS = Path("/proc/cpuinfo")


def current(trainable: type[Trainable], source: str | None = None) -> dict[str, Any]:
    """Return what may change results besides the spec: ``versions``, ``source``, ``processor``.

    They are library, ``python`` or ``sweep`` → version, the digest of the trainable's code, and
    the processor's model name.

    Args:
        source: that digest; None to compute it from the trainable's source file.
    """
    versions = {"python": platform.python_version()}
    versions |= {name: importlib.metadata.version(name) for name in RECORDED}
    versions["sweep"] = __version__
    return {
        "versions": versions,
        "source": _source_digest(trainable) if source is None else source,
        "processor": _processor(),
    }


def read(ledger: Ledger) -> dict[str, Any]:
    """Return a sweep's provenance at its creation, but ``source`` of its present trainable.

    The keys are those of `current` and further ones that were written when the ledger was created.
    """
    newest = ledger.newest(TrainableReplaced.kind)
    recoded = {"source": newest.source} if isinstance(newest, TrainableReplaced) else {}
    return {**ledger.provenance, **recoded}


def changes(
    before: Mapping[str, Any], present: Mapping[str, Any], subject: str = "source file"
) -> list[str]:
    """Return a text for each difference between two results of `current`; empty if they are equal.

    An unknown earlier processor is no difference. `subject` names the trainable's code in the text.
    """
    changed = [
        f"{name} was {before['versions'].get(name)}, is {version}"
        for name, version in present["versions"].items()
        if before["versions"].get(name) != version
    ]
    if before["source"] != present["source"]:
        changed.append(f"the trainable's {subject} has changed")
    if before["processor"] not in ("", present["processor"]):
        changed.append(
            f"the processor was {printable(before['processor'])}, is {present['processor']}"
        )
    return changed


def _processor() -> str:
    """Return the processor's model name, since other models may round sums differently.

    If it is unknown, the name of the architecture is returned, such as ``x86_64``.
    """
    try:
        lines = _PROCESSORS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())


def _source_digest(trainable: type[Trainable]) -> str:
    """Return the SHA-256 of the file that defines the trainable, in hexadecimal.

    It is empty without one.
    """
    file = inspect.getsourcefile(inspect.unwrap(trainable))
    return sha256(Path(file).read_bytes()).hexdigest() if file else ""
