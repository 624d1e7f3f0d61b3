"""A process that saves checkpoints, for tests that kill it or make its system calls fail.

    python -m benchmarks.chaos.store_saver FOLDER

The process creates the folder first, so that a trace shows the beginning of saving. After each
acknowledged save it prints a line of JSON: the checkpoints that are named from now on, newest
first, as (name, digest, variant). Then it deletes the other files. A save that the disk refuses is
printed as ``null`` and skipped, as in a slice.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.chaos.store_crashes import small_segments, state_of
from sweep.slices import retention
from trainables.checkpoint import file

SAVES = 4

Named = list[tuple[str, str, int]]
"""Named checkpoints, newest first, as (name, digest, variant)."""


def save(folder: Path, say: Callable[[Named | None], None]) -> None:
    """Save some states into `folder`; `say` gets the named checkpoints after each save."""
    named: Named = []
    for number in range(SAVES):
        variant = number % 3
        try:
            saved = file.write(folder, number, {}, state_of(variant))
        except OSError:
            say(None)
            continue
        named = [(saved.path.name, saved.digest, variant), *named][: retention.ALWAYS_KEPT]
        say(named)
        try:
            retention.sweep_up(folder, [name for name, *_ in named])
        except OSError:
            continue


def _print(named: Named | None) -> None:
    os.writev(
        1, [json.dumps(named).encode() + b"\n"]
    )  # this system call is not among those that fail


if __name__ == "__main__":
    Path(sys.argv[1]).mkdir()
    with small_segments():
        save(Path(sys.argv[1]), _print)
