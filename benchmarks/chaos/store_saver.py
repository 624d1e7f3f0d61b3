"""A process that saves, for tests that make its calls fail or kill it; it is told where.

    python -m benchmarks.chaos.store_saver FOLDER

Makes the folder first, so that whoever traces it sees where the saving begins. Prints one line of
JSON whenever something is acknowledged: the checkpoints that are named from then on, newest first,
as (name, digest, variant). Only then does it delete what is no longer named. A save that the disk
refuses is printed as ``null`` and left out, as a slice does.
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


def save(folder: Path, say: Callable[[Named | None], None]) -> None:
    """Save some states into `folder`, and tell what is acknowledged."""
    named: Named = []
    for number in range(SAVES):
        variant = number % 3
        try:
            saved = file.write(folder, number, {}, state_of(variant))
        except OSError:
            say(None)
            continue
        kept = [(saved.path.name, saved.digest, variant), *named][: retention.ALWAYS_KEPT]
        named = kept
        say(named)
        try:
            retention.sweep_up(folder, [name for name, *_ in named])
        except OSError:
            continue


def _print(named: Named | None) -> None:
    os.writev(1, [json.dumps(named).encode() + b"\n"])  # a call that is not made to fail


if __name__ == "__main__":
    Path(sys.argv[1]).mkdir()
    with small_segments():
        save(Path(sys.argv[1]), _print)
