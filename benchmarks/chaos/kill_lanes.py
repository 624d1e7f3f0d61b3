"""kill -9 of a sweep whose trials are lanes of one program, at any instant.

    python -m benchmarks.chaos.kill_lanes [--out DIR] [--rounds KILLS] [--seed S]

A case is one sweep with `--pool stack` that is killed repeatedly until it is finished. In
successive sweeps the victim is the driver's whole process group, the process of the pool, with
which the slices of all lanes are lost, or the driver alone. At the end the oracle compares the
sweep with an undisturbed one. A round is one kill.
"""

import itertools
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.chaos import oracle
from benchmarks.chaos.kills import Course, kill_until_finished, raise_if_wrong, temporary_folder
from benchmarks.chaos.store_cases import Cases, Failed, main
from benchmarks.chaos.victims import Sweep, Victim
from benchmarks.chaos.workload import JOBS, LANES, Step
from sweep.history.events import Closed
from sweep.history.seeds import replica_name
from trainables.core import rng

#: Victims of successive sweeps.
_TURNS = (Victim.GROUP, Victim.WORKER, Victim.DRIVER)
#: Longest time from a recorded slice to the kill, in seconds. Within this time there are several
#: slices, or the start of a new process and its compilation.
_LATEST_S = 2.0


class LaneSweep(Sweep):
    """A sweep on the pool of lanes; as lanes log no steps, recorded results are used instead."""

    def __init__(self, root: Path, cache: Path) -> None:
        """Create the sweep in a new folder `root`; compiled programs are kept in `cache`."""
        super().__init__(root, LANES, {"XDG_CACHE_HOME": str(cache)}, ("--pool", "stack"))

    def steps(self) -> list[Step]:
        """Return a step for each recorded result."""
        if not self.folder.ledger.exists():
            return []
        return [
            Step(0, replica_name(record.event.trial, record.event.replica), row.iteration)
            for record in oracle.read(self.folder)
            if isinstance(record.event, Closed)
            for row in record.event.rows
        ]


def run(out: Path, rounds: int, seed: int) -> int:
    """Make `rounds` kills; return the number of failed sweeps."""
    cases = Cases(out, "kill_lanes")
    with temporary_folder() as root:
        undisturbed: list[LaneSweep] = []
        for number in itertools.count():
            kills = sum(line.get("kills", 0) for line in cases.done.values())
            if kills >= rounds and number >= len(cases.done):  # failed cases are run again
                break
            victim = _TURNS[number % len(_TURNS)]
            stream = rng.generator(seed, "kills of lanes", number)
            case = partial(_campaign, root, undisturbed, victim, stream)
            cases.run(f"{victim}, {number}", case)
    return cases.close()


def _campaign(
    root: Path, undisturbed: list[LaneSweep], victim: Victim, stream: np.random.Generator
) -> dict[str, float]:
    """Kill one sweep until it is finished, and compare it; return its figures.

    Args:
        root: folder of the undisturbed sweep.
        undisturbed: the undisturbed sweep; empty at first, and filled by the first call.
    """
    if not undisturbed:
        undisturbed.append(_run_undisturbed(root))
    reference = undisturbed[0].folder
    with temporary_folder() as own:
        sweep = LaneSweep(own / "killed", root / "cache")
        course = kill_until_finished(sweep, victim, stream, len(undisturbed[0].steps()), _LATEST_S)
        raise_if_wrong(
            sweep, [*_errors(sweep, victim, course), *oracle.errors(sweep.folder, reference)]
        )
        lost = sum(oracle.lost_slices(oracle.read(sweep.folder)).values())
        return {
            "kills": len(course.kills),
            "lost": lost,
            "gone_s": round(max((kill.gone_s for kill in course.kills), default=0.0), 3),
        }


def _run_undisturbed(root: Path) -> LaneSweep:
    """Run the undisturbed sweep and return it."""
    sweep = LaneSweep(root / "undisturbed", root / "cache")
    sweep.start()
    if sweep.await_end() != 0:
        raise Failed((sweep.root / "output").read_text()[-500:])
    return sweep


def _errors(sweep: Sweep, victim: Victim, course: Course) -> Iterator[str]:
    """Yield errors: slices that were lost without a kill, crashes and leftover processes."""
    records = oracle.read(sweep.folder)
    lost = sum(oracle.lost_slices(records).values())
    allowed = len(course.kills) * JOBS if victim is Victim.WORKER else 0
    if lost > allowed:
        yield f"{lost} slices were lost, {allowed} at most"
    if crashes := oracle.count_crashes(records):
        yield f"{crashes} slices crashed"
    if left := sweep.left():
        yield f"processes are left: {left}"
    if "Traceback" in (sweep.root / "output").read_text():
        yield "a traceback was shown"


if __name__ == "__main__":
    main(run, rounds=60)
