"""Use of two slots in the sweep of the 16 settings.

    python -m benchmarks.speed.measures.sweep_slots busy|outside

busy     share of the slots' time, from the first slice to the last, in which a slice runs
outside  milliseconds of a slice outside `step`, the median of all trials; the first two slices
         include the start of their workers
"""

import contextlib
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.speed.measures import clock, sweep_ours
from benchmarks.speed.measures.settings16 import STEPS
from sweep.history.events import Closed, Opened, Recorded
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger

SLOTS = 2


def busy(records: Sequence[Recorded], slots: int) -> float:
    """Return the share of the slots' time in which a slice runs, from 0 to 1."""
    times = [one.time for one in records if isinstance(one.event, Opened | Closed)]
    return sum(_lengths(records).values()) / (slots * (max(times) - min(times)))


def outside(records: Sequence[Recorded], trained: Mapping[int, float]) -> float:
    """Return the milliseconds of a slice outside `step`, the median of all trials.

    Args:
        trained: trial → seconds inside `step`.
    """
    lengths = _lengths(records)
    slices: dict[int, int] = defaultdict(int)
    for trial, _ in lengths:
        slices[trial] += 1
    total: dict[int, float] = defaultdict(float)
    for (trial, _), length in lengths.items():
        total[trial] += length
    return 1e3 * statistics.median((total[t] - trained[t]) / slices[t] for t in slices)


def _lengths(records: Sequence[Recorded]) -> dict[tuple[int, int], float]:
    """Return (trial, number of a slice) → its seconds between the driver's two events."""
    opened, lengths = {}, {}
    for record in records:
        event = record.event
        if isinstance(event, Opened):
            opened[event.trial, event.slice] = record.time
        elif isinstance(event, Closed):
            key = event.trial, event.slice
            lengths[key] = record.time - opened[key]
    return lengths


def main() -> None:
    """Run the sweep and read its ledger."""
    with tempfile.TemporaryDirectory() as folder:
        sweep_ours.run(Path(folder), STEPS, SLOTS)
        ledger = Ledger(Folder(Path(folder) / "sweeps", "sixteen").ledger)
        with contextlib.closing(ledger):
            records = ledger.read()
            if sys.argv[1] == "busy":
                clock.print_figure(busy(records, SLOTS))
                return
            trials = {trial for trial, _ in _lengths(records)}
            trained = {
                trial: sum(float(row.metrics["time_this_iter_s"]) for row in ledger.results(trial))
                for trial in trials
            }
            clock.print_figure(outside(records, trained))


if __name__ == "__main__":
    main()
