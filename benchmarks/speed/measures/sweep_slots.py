"""Use of two slots in the sweep of the 16 settings: ``python -m … busy|outside``.

``busy`` is the share of their time, from the first slice to the last, in which a slice runs.
``outside`` are the milliseconds of a slice that are not spent in `step`, the median of all slices:
the first two also wait for their workers to start.
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
    """The share of the slots' time in which a slice runs."""
    at = [one.at for one in records if isinstance(one.event, Opened | Closed)]
    return sum(_lengths(records).values()) / (slots * (max(at) - min(at)))


def outside(records: Sequence[Recorded], trained: Mapping[int, float]) -> float:
    """Milliseconds of a slice outside `step`; `trained` are each trial's seconds in it."""
    lengths = _lengths(records)
    slices: dict[int, int] = defaultdict(int)
    for trial, _ in lengths:
        slices[trial] += 1
    whole: dict[int, float] = defaultdict(float)
    for (trial, _), length in lengths.items():
        whole[trial] += length
    return 1e3 * statistics.median((whole[t] - trained[t]) / slices[t] for t in slices)


def _lengths(records: Sequence[Recorded]) -> dict[tuple[int, int], float]:
    """Trial and number of a slice → its seconds, as the driver sees them."""
    opened, lengths = {}, {}
    for record in records:
        event = record.event
        if isinstance(event, Opened):
            opened[event.trial, event.slice] = record.at
        elif isinstance(event, Closed):
            key = event.trial, event.slice
            lengths[key] = record.at - opened[key]
    return lengths


def main() -> None:
    """Run the sweep and read its ledger."""
    with tempfile.TemporaryDirectory() as folder:
        sweep_ours.run(Path(folder), STEPS, SLOTS)
        ledger = Ledger(Folder(Path(folder) / "sweeps", "sixteen").ledger)
        with contextlib.closing(ledger):
            records = ledger.read()
            if sys.argv[1] == "busy":
                clock.tell(busy(records, SLOTS))
                return
            trials = {trial for trial, _ in _lengths(records)}
            trained = {
                trial: sum(float(row.metrics["time_this_iter_s"]) for row in ledger.results(trial))
                for trial in trials
            }
            clock.tell(outside(records, trained))


if __name__ == "__main__":
    main()
