"""What the next event costs driver and ledger in a sweep of so many trials: CPU milliseconds.

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

RUNGS = {"stop": {"training_iteration": 9}}
POPULATION = {"name": "pbt", "perturbation_interval": 2, "synch": False}
BUDGET = {"timesteps": 1e12, "cpu_hours": 1e6, "target": 1e6, "patience": 100_000}
RACE = {"replicas": 3, "racing": True}
#: Keys of the spec, and whether the trials before wait for a decision.
SWEEPS: Mapping[str, tuple[Mapping[str, Any], bool]] = {
    "fifo": ({"scheduler": "fifo"}, False),
    "asha": ({"scheduler": "asha", **RUNGS}, True),
    "stopping": ({"scheduler": {"name": "asha", "type": "stopping"}, **RUNGS}, False),
    "hyperband": ({"scheduler": "hyperband", **RUNGS}, False),
    "population": ({"scheduler": POPULATION, **RUNGS}, False),
    "budget": ({"scheduler": "fifo", "budget": BUDGET}, False),
    "disk": ({"scheduler": "fifo", "checkpoint": {"max_disk": "1MB"}}, False),
    "qmc": ({"scheduler": "fifo", "searcher": "qmc"}, False),
    "race": ({"scheduler": "asha", **RACE, **RUNGS}, True),
    "race-at-the-end": ({"scheduler": "fifo", **RACE}, False),
}
#: Turns of the driver that are measured, and those before: what is made once is made then, and the
#: first races are decided.
COUNTED, FIRST = 40, 60


def main() -> None:
    """Measure some turns of a driver in which nothing trains."""
    name, trials = sys.argv[1], int(sys.argv[2])
    changes, wait = SWEEPS[name]
    with tempfile.TemporaryDirectory(dir=".") as place:
        folder = large.make(Path(place), trials, wait=wait, **changes)
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
