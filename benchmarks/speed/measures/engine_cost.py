"""Cost of the next trial, or event, to driver and ledger after many trials: CPU milliseconds.

python -m benchmarks.speed.measures.engine_cost trial|asha|seeds TRIALS
"""

import sys
import tempfile
from pathlib import Path

from benchmarks.engine import __main__ as engine
from benchmarks.speed.measures import clock


def main() -> None:
    """Measure some turns of a driver in which nothing trains."""
    with tempfile.TemporaryDirectory(dir=".") as place:
        clock.tell(engine.cost(Path(place), sys.argv[1], int(sys.argv[2])))


if __name__ == "__main__":
    main()
