"""kill -9 of any part of a cluster at any instant: the sweep is the one that nobody disturbed.

    python -m benchmarks.chaos.kill_cluster [--out DIR] [--rounds KILLS] [--seed S] --victim PART

A case is one sweep on a Dask cluster with checkpoints in S3 (`team`). One of its parts is killed
again and again, at steps and instants drawn from a stream, and brought back; with the victim `any`
the ledger lies in PostgreSQL, and it is another part each time. What ends the driver with code 4 is
followed by `sweep resume`. At the end the oracle compares the sweep with one on a single machine
that nobody disturbed. A round is one kill.
"""

import itertools
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.chaos import oracle
from benchmarks.chaos.kills import LATEST_S, Straight, refuse, straight_sweeps
from benchmarks.chaos.store_cases import Cases, Failed, main
from benchmarks.chaos.team import Part, Team, standing
from benchmarks.chaos.victims import Sweep
from benchmarks.chaos.workload import JOBS, KINDS
from trainables.core import rng

#: What is killed under which name.
VICTIMS = {
    "scheduler": (Part.SCHEDULER,),
    "worker": (Part.WORKER, Part.SLICE),
    "driver": (Part.DRIVER,),
    "storage": (Part.STORAGE,),
    "any": tuple(Part),
}
#: Of one sweep.
KILLS = 10
_SWEEPS = ("asha", "pbt", "hyperband", "seeds", "bohb", "cmaes")
#: Slices that one kill may make begin anew, and how many of them it may charge to their trials.
_COST = {
    Part.SCHEDULER: (JOBS, 0),
    Part.WORKER: (1, 1),
    Part.SLICE: (1, 1),
    Part.DRIVER: (JOBS, 0),
    Part.STORAGE: (0, 0),
    Part.DATABASE: (0, 0),
}
#: The exit code of a driver that a service has left.
_SERVICE_GONE = 4


def run(out: Path, rounds: int, seed: int, victim: str = "any") -> int:
    """So many kills; returns how many sweeps failed."""
    cases = Cases(out, f"cluster_{victim}")
    parts = VICTIMS[victim]
    with (
        standing(database=Part.DATABASE in parts, nannies=Part.WORKER in parts) as team,
        straight_sweeps() as straight,
    ):
        for number in itertools.count():
            kills = sum(line.get("kills", 0) for line in cases.done.values())
            if kills >= rounds and number >= len(cases.done):  # what failed is run again
                break
            kind = _SWEEPS[number % len(_SWEEPS)]
            stream = rng.generator(seed, "kills in a cluster", victim, number)
            case = partial(campaign, kind, parts, team, stream, straight)
            cases.run(f"{kind}, {number}", case)
    return cases.close()


def campaign(
    kind: str, parts: tuple[Part, ...], team: Team, stream: np.random.Generator, straight: Straight
) -> dict[str, float]:
    """Kill parts of a team until its sweep is finished, and compare it; returns figures."""
    reference, length = straight(kind)
    sweep = team.sweep(KINDS[kind])
    try:
        killed = _to_the_end(team, sweep, parts, stream, length)
        wrong = [*_wrong_on_the_way(sweep, killed), *team.left()]
        refuse(sweep, [*wrong, *oracle.wrongs(sweep.folder, reference)])
    except Failed:
        sweep.driver.kill()
        team.renew_cluster(kill=True)
        raise
    slices, steps = oracle.done_again(sweep.steps())
    return {
        "kills": killed.total(),
        **{f"kills_{part}": killed[part] for part in parts},
        "slices_again": slices,
        "steps_again": steps,
    }


def _to_the_end(
    team: Team, sweep: Sweep, parts: tuple[Part, ...], stream: np.random.Generator, length: int
) -> Counter[Part]:
    """Kill parts and bring them back until the sweep is finished; returns how often which."""
    killed: Counter[Part] = Counter()
    due = int(stream.integers(0, 3))
    sweep.start()
    while True:
        if killed.total() < KILLS and sweep.await_steps(due):
            time.sleep(float(stream.uniform(0.0, LATEST_S)))
            part = parts[int(stream.integers(len(parts)))]
            if team.kill(part, sweep, stream):
                killed[part] += 1
                team.mend(part, sweep, stream)
            # Somebody must have gone on: what is killed again before anybody saw it is away.
            due = len(sweep.steps()) + int(stream.integers(1, max(length // KILLS, 2)))
        elif (code := sweep.await_rest()) == 0:
            return killed
        elif code == _SERVICE_GONE and Part.SCHEDULER in parts:
            sweep.start()
        else:
            raise Failed(f"exit code {code}: {(sweep.root / 'said').read_text()[-500:]}")


def _wrong_on_the_way(sweep: Sweep, killed: Counter[Part]) -> Iterator[str]:
    """Yield the costs of the kills beyond the allowed ones."""
    records = oracle.read(sweep.folder)
    slices, _ = oracle.done_again(sweep.steps())
    if slices > (most := sum(_COST[part][0] * count for part, count in killed.items())):
        yield f"{slices} slices were done again, {most} at most by {dict(killed)}"
    charged = oracle.lost_with(records).total()
    if charged > (most := sum(_COST[part][1] * count for part, count in killed.items())):
        yield f"{charged} slices were charged, {most} at most by {dict(killed)}"
    if crashes := oracle.crashes(records):
        yield f"{crashes} slices crashed"
    if "Traceback" in (sweep.root / "said").read_text():
        yield "a traceback was shown"


if __name__ == "__main__":
    main(run, rounds=30, what="victim", choices=VICTIMS)
