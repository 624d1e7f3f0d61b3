"""Reader of hostile checkpoints in a `jail`, like a slice; see `store_hostile`."""

from pathlib import Path
from typing import Any

from benchmarks.chaos.jail import Reader, serve
from trainables.checkpoint import file
from trainables.checkpoint.state import pack
from trainables.errors import CheckpointError


def _read(path: Path) -> Any:
    return file.read(path).state


def _warm_up() -> None:
    import psutil  # noqa: F401
    import torch  # noqa: F401


def main() -> None:
    """Read the files that standard input names; `pack` raises for objects that are not data."""
    serve(Reader(_read, (CheckpointError,), check=pack), _warm_up)


if __name__ == "__main__":
    main()
