"""What the next event costs driver and ledger where so many trials wait: CPU milliseconds.

python -m benchmarks.speed.measures.event_cost SWEEP TRIALS
"""

import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.engine import __main__ as engine
from benchmarks.engine import large
from benchmarks.speed.measures import clock

ASHA = {"scheduler": "asha", "stop": {"training_iteration": 9}}
SWEEPS: Mapping[str, Mapping[str, Any]] = {
    "asha": ASHA,
    "race": {**ASHA, "replicas": 3, "racing": True},
}
#: Turns of the driver that are measured, and those before: what is made once is made then, and the
#: first races are decided.
COUNTED, FIRST = 40, 60


def main() -> None:
    """Measure some turns of a driver in which nothing trains."""
    name, trials = sys.argv[1], int(sys.argv[2])
    with tempfile.TemporaryDirectory(dir=".") as place:
        folder = large.make(Path(place), trials, wait=True, **SWEEPS[name])
        with engine.stepping(folder, trials + 2 * (COUNTED + FIRST)) as (history, turns):
            for _ in range(FIRST):
                next(turns)
            events, began = history.k, time.process_time()
            for _ in range(COUNTED):
                next(turns)
            spent = time.process_time() - began
            clock.tell(1e3 * spent / (history.k - events))


if __name__ == "__main__":
    main()
