"""kill -9 of a sweep whose trials are lanes of one program, at any instant.

    python -m benchmarks.chaos.kill_lanes [--out DIR] [--rounds KILLS] [--seed S]

A case is one sweep with `--pool stack` that is killed again and again until it is finished: in turn
the driver's whole process group, the driver alone, and the process of the pool, which takes the
slices of all lanes with it. At the end the oracle compares the sweep with one that ran without a
kill. A round is one kill.
"""

import itertools
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.chaos import oracle
from benchmarks.chaos.kills import Course, kill_to_the_end, refuse, scratch
from benchmarks.chaos.store_cases import Cases, Failed, main
from benchmarks.chaos.victims import Sweep, Victim
from benchmarks.chaos.workload import JOBS, LANES, Step
from sweep.history.events import Closed
from sweep.history.seeds import replica_name
from trainables.core import rng

#: Processes that are killed, sweep by sweep.
_TURNS = (Victim.GROUP, Victim.WORKER, Victim.DRIVER)
#: Longest time from a recorded slice to the kill, in seconds. It covers several slices, and the
#: start and the compiler's work in a new process.
_LATEST_S = 2.0


class LaneSweep(Sweep):
    """A sweep on the pool of lanes. Its lanes report no steps, so its recorded results count."""

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
    """Kill sweeps of lanes `rounds` times in all; return the number of sweeps that failed."""
    cases = Cases(out, "kill_lanes")
    with scratch() as root:
        straight: list[LaneSweep] = []
        for number in itertools.count():
            kills = sum(line.get("kills", 0) for line in cases.done.values())
            if kills >= rounds and number >= len(cases.done):  # what failed is run again
                break
            victim = _TURNS[number % len(_TURNS)]
            stream = rng.generator(seed, "kills of lanes", number)
            case = partial(_campaign, root, straight, victim, stream)
            cases.run(f"{victim}, {number}", case)
    return cases.close()


def _campaign(
    root: Path, straight: list[LaneSweep], victim: Victim, stream: np.random.Generator
) -> dict[str, float]:
    """Kill one sweep until it is finished, and compare it with the one in `straight`.

    The first campaign runs that sweep and puts it there.

    Returns:
        Figures of the case.
    """
    if not straight:
        straight.append(_run_straight(root))
    reference = straight[0].folder
    with scratch() as own:
        sweep = LaneSweep(own / "killed", root / "cache")
        course = kill_to_the_end(sweep, victim, stream, len(straight[0].steps()), _LATEST_S)
        refuse(sweep, [*_faults(sweep, victim, course), *oracle.wrongs(sweep.folder, reference)])
        lost = sum(oracle.lost_with(oracle.read(sweep.folder)).values())
        return {
            "kills": len(course.kills),
            "lost": lost,
            "gone_s": round(max((kill.gone_s for kill in course.kills), default=0.0), 3),
        }


def _run_straight(root: Path) -> LaneSweep:
    """Run the sweep that nobody kills."""
    sweep = LaneSweep(root / "straight", root / "cache")
    sweep.start()
    if sweep.await_rest() != 0:
        raise Failed((sweep.root / "said").read_text()[-500:])
    return sweep


def _faults(sweep: Sweep, victim: Victim, course: Course) -> Iterator[str]:
    """Yield slices that were lost without a kill, crashes and leftover processes."""
    records = oracle.read(sweep.folder)
    lost = sum(oracle.lost_with(records).values())
    most = len(course.kills) * JOBS if victim is Victim.WORKER else 0
    if lost > most:
        yield f"{lost} slices were lost, not at most {most}"
    if crashes := oracle.crashes(records):
        yield f"{crashes} slices crashed"
    if left := sweep.left():
        yield f"processes are left: {left}"
    if "Traceback" in (sweep.root / "said").read_text():
        yield "a traceback was shown"


if __name__ == "__main__":
    main(run, rounds=60)
