"""Files of finished runs: one line of JSON each, appended when the run ends."""

import json
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, as_completed
from pathlib import Path
from typing import Any

Run = dict[str, Any]


def read(file: Path) -> list[Run]:
    """Return all runs in a file; none if it does not exist."""
    lines = file.read_text("utf-8").splitlines() if file.exists() else []
    return [json.loads(line) for line in lines]


def by_version(file: Path) -> dict[tuple[str, str, int], Run]:
    """Return (name of the row, version, seed) → run, for all runs in a file."""
    return {(run["row"], run["version"], run["seed"]): run for run in read(file)}


def append(file: Path, runs: Sequence[Future[Run]], text: Callable[[Run], str]) -> None:
    """Append runs to a file as they end, and print a line with the `text` of each."""
    for done, future in enumerate(as_completed(runs), 1):
        run = future.result()
        with file.open("a", encoding="utf-8") as opened:
            opened.write(json.dumps(run) + "\n")
        sys.stdout.write(f"{done} of {len(runs)}: {text(run)}\n")
        sys.stdout.flush()
