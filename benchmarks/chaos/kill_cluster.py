"""kill -9 of any part of a cluster at any instant: the sweep equals an undisturbed one.

    python -m benchmarks.chaos.kill_cluster [--out DIR] [--rounds KILLS] [--seed S] --victim PART

A case is one sweep on a Dask cluster with checkpoints in S3 (`team`). One of its parts is killed
repeatedly, at random steps and instants, and restored. With the victim `any`, the ledger is in
PostgreSQL, and each kill chooses a random part. If the driver ends with code 4, `sweep resume`
follows. At the end the oracle compares the sweep with an undisturbed one on a single machine. A
round is one kill.
"""

import itertools
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.chaos import oracle
from benchmarks.chaos.kills import LATEST_S, Undisturbed, raise_if_wrong, undisturbed_sweeps
from benchmarks.chaos.store_cases import Cases, Failed, main
from benchmarks.chaos.team import Part, Team, running_team
from benchmarks.chaos.victims import Sweep
from benchmarks.chaos.workload import JOBS, KINDS
from trainables.core import rng

#: Value of ``--victim`` → parts that may be killed.
VICTIMS = {
    "scheduler": (Part.SCHEDULER,),
    "worker": (Part.WORKER, Part.SLICE),
    "driver": (Part.DRIVER,),
    "storage": (Part.STORAGE,),
    "any": tuple(Part),
}
#: Kills of one sweep.
KILLS = 10
_SWEEPS = ("asha", "pbt", "hyperband", "seeds", "bohb", "cmaes")
#: Part → slices that one kill may cause to be repeated, and those that count as lost, at most.
_COST = {
    Part.SCHEDULER: (JOBS, 0),
    Part.WORKER: (1, 1),
    Part.SLICE: (1, 1),
    Part.DRIVER: (JOBS, 0),
    Part.STORAGE: (0, 0),
    Part.DATABASE: (0, 0),
}
#: Exit code of a driver whose service is gone.
_SERVICE_GONE = 4


def run(out: Path, rounds: int, seed: int, victim: str = "any") -> int:
    """Make `rounds` kills; return the number of failed sweeps."""
    cases = Cases(out, f"cluster_{victim}")
    parts = VICTIMS[victim]
    with (
        running_team(database=Part.DATABASE in parts, nannies=Part.WORKER in parts) as team,
        undisturbed_sweeps() as undisturbed,
    ):
        for number in itertools.count():
            kills = sum(line.get("kills", 0) for line in cases.done.values())
            if kills >= rounds and number >= len(cases.done):  # failed cases are run again
                break
            kind = _SWEEPS[number % len(_SWEEPS)]
            stream = rng.generator(seed, "kills in a cluster", victim, number)
            case = partial(campaign, kind, parts, team, stream, undisturbed)
            cases.run(f"{kind}, {number}", case)
    return cases.close()


def campaign(
    kind: str,
    parts: tuple[Part, ...],
    team: Team,
    stream: np.random.Generator,
    undisturbed: Undisturbed,
) -> dict[str, float]:
    """Kill parts of a team until its sweep is finished, and compare it; return its figures."""
    reference, length = undisturbed(kind)
    sweep = team.sweep(KINDS[kind])
    try:
        killed = _kill_until_finished(team, sweep, parts, stream, length)
        errors = [*_errors_of_kills(sweep, killed), *team.left()]
        raise_if_wrong(sweep, [*errors, *oracle.errors(sweep.folder, reference)])
    except Failed:
        sweep.driver.kill()
        team.renew_cluster(kill=True)
        raise
    slices, steps = oracle.count_repeated(sweep.steps())
    return {
        "kills": killed.total(),
        **{f"kills_{part}": killed[part] for part in parts},
        "slices_again": slices,
        "steps_again": steps,
    }


def _kill_until_finished(
    team: Team, sweep: Sweep, parts: tuple[Part, ...], stream: np.random.Generator, length: int
) -> Counter[Part]:
    """Kill and restore parts until the sweep is finished; return part → number of kills."""
    killed: Counter[Part] = Counter()
    due = int(stream.integers(0, 3))
    sweep.start()
    while True:
        if killed.total() < KILLS and sweep.await_steps(due):
            time.sleep(float(stream.uniform(0.0, LATEST_S)))
            part = parts[int(stream.integers(len(parts)))]
            if team.kill(part, sweep, stream):
                killed[part] += 1
                team.restore(part, sweep, stream)
            # At least one step later, so that the restored part has worked.
            due = len(sweep.steps()) + int(stream.integers(1, max(length // KILLS, 2)))
        elif (code := sweep.await_end()) == 0:
            return killed
        elif code == _SERVICE_GONE and Part.SCHEDULER in parts:
            sweep.start()
        else:
            raise Failed(f"exit code {code}: {(sweep.root / 'said').read_text()[-500:]}")


def _errors_of_kills(sweep: Sweep, killed: Counter[Part]) -> Iterator[str]:
    """Yield errors: more repeated or lost slices than allowed, crashes, a traceback."""
    records = oracle.read(sweep.folder)
    slices, _ = oracle.count_repeated(sweep.steps())
    if slices > (allowed := sum(_COST[part][0] * count for part, count in killed.items())):
        yield f"{slices} slices were repeated, {allowed} at most by {dict(killed)}"
    charged = oracle.lost_slices(records).total()
    if charged > (allowed := sum(_COST[part][1] * count for part, count in killed.items())):
        yield f"{charged} slices were lost, {allowed} at most by {dict(killed)}"
    if crashes := oracle.count_crashes(records):
        yield f"{crashes} slices crashed"
    if "Traceback" in (sweep.root / "output").read_text():
        yield "a traceback was shown"


if __name__ == "__main__":
    main(run, rounds=30, option="victim", choices=VICTIMS)
