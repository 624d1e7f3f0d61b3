"""CPU milliseconds of driver and ledger for one more trial, or event, after many trials.

python -m benchmarks.speed.measures.engine_cost trial|asha|seeds TRIALS
"""

import sys
import tempfile
from pathlib import Path

from benchmarks.engine import __main__ as engine
from benchmarks.speed.measures import clock


def main() -> None:
    """Measure some turns of a driver with simulated trials."""
    with tempfile.TemporaryDirectory(dir=".") as place:
        clock.print_figure(engine.cost(Path(place), sys.argv[1], int(sys.argv[2])))


if __name__ == "__main__":
    main()
