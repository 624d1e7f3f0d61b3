"""What the engine itself spends on a trial that comes after so many: CPU milliseconds.

python -m benchmarks.speed.measures.trial_cost NUMBER
"""

import sys
import tempfile
from pathlib import Path

from benchmarks.engine.__main__ import per_trial
from benchmarks.speed.measures import clock


def main() -> None:
    """Driver and ledger, with simulated training."""
    with tempfile.TemporaryDirectory() as folder:
        _wall, cpu = per_trial(Path(folder), int(sys.argv[1]))
    clock.tell(cpu)


if __name__ == "__main__":
    main()
