"""Wall seconds of a command that only reads sweeps, including the start of its process.

    python -m benchmarks.speed.measures.reading_commands long|ten COMMAND

``long``: a sweep of 5,000 trials with 100 results each; ``ten``: ten sweeps of 20 trials.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.engine import large
from benchmarks.speed.measures import clock
from benchmarks.speed.measures.command import SWEEP


def main() -> None:
    """Create the sweeps and run the command twice; the second time counts."""
    kind, command = sys.argv[1:]
    count, trials, results = (1, 5_000, 100) if kind == "long" else (10, 20, 10)
    with tempfile.TemporaryDirectory(dir=".") as place:
        for number in range(count):
            large.make(Path(place), trials, iterations=results, name=f"sweep-{number}")
        names = [] if command == "ls" else ["sweep-0"]
        for _ in range(2):
            began = time.perf_counter()
            subprocess.run(  # noqa: S603 our own command
                [SWEEP, command, *names, "--root", place], check=True, stdout=subprocess.DEVNULL
            )
            seconds = time.perf_counter() - began
        clock.print_figure(seconds)


if __name__ == "__main__":
    main()
