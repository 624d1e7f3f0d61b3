"""Trivial trials per second of a whole `sweep run` with MLflow and 2 slots."""

import tempfile
import time
from pathlib import Path

from benchmarks.engine import __main__ as engine
from benchmarks.speed.measures import clock

TRIALS = 300


def main() -> None:
    """Run the sweep once; its command ends when all results are recorded."""
    with tempfile.TemporaryDirectory(dir=".") as place:
        began = time.perf_counter()
        for _ in engine.throughput(Path(place), TRIALS):
            pass
        clock.print_figure(TRIALS / (time.perf_counter() - began))


if __name__ == "__main__":
    main()
