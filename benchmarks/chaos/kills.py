"""kill -9 at any instant: a killed and resumed sweep equals an uninterrupted one.

    python -m benchmarks.chaos.kills [--out DIR] [--rounds KILLS] [--seed S] --victim KIND

A case is one sweep that is killed at random steps and instants until it is finished; then the
oracle compares it with the same sweep without kills. A victim is the driver's whole process group,
the driver alone, a worker of the pool, or a rollout worker of a trainer. A round is one kill.
"""

import itertools
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.chaos import oracle
from benchmarks.chaos.store_cases import Cases, Failed, main
from benchmarks.chaos.victims import PATIENCE_S, Sweep, Victim
from benchmarks.chaos.workload import JOBS, KINDS, TRAINERS
from sweep.ledger.folder import Folder
from trainables.core import rng

#: Kills of one sweep.
KILLS = 5
#: Seconds between a step and a kill after it, at most.
LATEST_S = 0.03
_KINDS = tuple(KINDS)
#: Victim → kinds of sweeps, one after the other; short runs with all victims use most kinds.
_TURNS = {
    Victim.GROUP: _KINDS,
    Victim.DRIVER: _KINDS[3:] + _KINDS[:3],
    Victim.WORKER: _KINDS[5:] + _KINDS[:5],
    Victim.ROLLOUT: tuple(TRAINERS),
}
#: Victim → slices that one kill may cause to be repeated, at most.
_SLICES = {Victim.GROUP: JOBS, Victim.DRIVER: JOBS, Victim.WORKER: 1, Victim.ROLLOUT: 1}


def run(out: Path, rounds: int, seed: int, victim: Victim = Victim.GROUP) -> int:
    """Make `rounds` kills of one kind; return the number of failed sweeps."""
    cases = Cases(out, f"kill_{victim}")
    with undisturbed_sweeps() as undisturbed:
        for number in itertools.count():
            kills = sum(line.get("kills", 0) for line in cases.done.values())
            if kills >= rounds and number >= len(cases.done):  # failed cases are run again
                break
            kind = _TURNS[victim][number % len(_TURNS[victim])]
            stream = rng.generator(seed, "kills", list(Victim).index(victim), number)
            case = partial(campaign, kind, victim, stream, undisturbed)
            cases.run(f"{kind}, {number}", case)
    return cases.close()


@dataclass
class Kill:
    """One kill."""

    pid: int
    """Process that was killed."""
    gone_s: float
    """Seconds until all processes had ended that should end with it."""


@dataclass
class Course:
    """The kills of one sweep."""

    kills: list[Kill] = field(default_factory=list)


Undisturbed = Callable[[str], tuple[Folder, int]]
"""Function of a kind that returns the undisturbed sweep and its number of steps."""


def campaign(
    kind: str, victim: Victim, stream: np.random.Generator, undisturbed: Undisturbed
) -> dict[str, float]:
    """Kill one sweep until it is finished, and compare it; return its figures."""
    reference, length = undisturbed(kind)
    with temporary_folder() as root:
        sweep = Sweep(root / "killed", KINDS[kind])
        course = kill_until_finished(sweep, victim, stream, length)
        raise_if_wrong(
            sweep,
            [*_errors_of_kills(sweep, victim, course), *oracle.errors(sweep.folder, reference)],
        )
        slices, steps = oracle.count_repeated(sweep.steps())
        return {
            "kills": len(course.kills),
            "slices_again": slices,
            "steps_again": steps,
            "gone_s": round(max((kill.gone_s for kill in course.kills), default=0.0), 3),
        }


def raise_if_wrong(sweep: Sweep, errors: list[str]) -> None:
    """Raise Failed if there are errors, and keep a copy of the sweep's folder."""
    if errors:
        copy = Path(tempfile.mkdtemp(prefix="chaos-"))
        shutil.copytree(sweep.root, copy, dirs_exist_ok=True)
        raise Failed(f"{'; '.join(errors[:5])} (kept in {copy})")


def kill_until_finished(
    sweep: Sweep,
    victim: Victim,
    stream: np.random.Generator,
    length: int,
    latest_s: float = LATEST_S,
) -> Course:
    """Run a sweep to its end, and kill `victim` up to `KILLS` times meanwhile.

    Args:
        sweep: the sweep, not started yet.
        length: number of steps of the sweep without kills.
        latest_s: seconds between a step and a kill after it, at most.

    Raises:
        Failed: the last driver ended with an error, or there was no process to kill.
    """
    course, due = Course(), 0
    sweep.start()
    while (left := KILLS - len(course.kills)) > 0:
        passed = max(due, len(sweep.steps()))
        # One of the remaining steps; other workers continue meanwhile.
        due = passed + int(stream.integers(0, max((length - passed) // (left + 1), 1)))
        wait = float(stream.uniform(0.0, latest_s))
        if not sweep.await_steps(due) or (pid := _choose(sweep, victim, stream, wait)) is None:
            break
        course.kills.append(Kill(pid, sweep.kill(victim, pid)))
        if victim is Victim.GROUP:
            sweep.start()
    code = sweep.await_end() or sweep.sync()
    if code != 0:
        raise Failed(f"exit code {code}: {(sweep.root / 'said').read_text()[-500:]}")
    return course


def _choose(sweep: Sweep, victim: Victim, stream: np.random.Generator, wait: float) -> int | None:
    """Return a process of this kind after `wait` seconds. Returns None if the driver has ended."""
    time.sleep(wait)
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if sweep.driver.poll() is not None:
            return None
        candidates = sweep.candidates(victim)
        if candidates:
            return candidates[int(stream.integers(len(candidates)))]
        time.sleep(0.003)
    raise Failed(f"there was no {victim} to kill")


def _errors_of_kills(sweep: Sweep, victim: Victim, course: Course) -> Iterator[str]:
    """Yield errors: wrongly counted failures, repeated work, leftover processes, a traceback."""
    records, kills = oracle.read(sweep.folder), len(course.kills)
    # Each killed process loses one slice; the reason of the loss names the process.
    victims = [kill.pid for kill in course.kills if victim in (Victim.WORKER, Victim.ROLLOUT)]
    for pid, count in oracle.lost_slices(records).items():
        if count > victims.count(pid):
            yield f"{count} slices were lost with process {pid}; victims: {victims}"
    if crashes := oracle.count_crashes(records):
        yield f"{crashes} slices crashed"
    slices, _ = oracle.count_repeated(sweep.steps())
    if slices > kills * _SLICES[victim]:
        yield f"{slices} slices were repeated after {kills} kills"
    if left := sweep.left():
        yield f"processes are left: {left}"
    if "Traceback" in (sweep.root / "output").read_text():
        yield "a traceback was shown"


# ---- undisturbed sweeps ----------------------------------------------------------------------


@contextmanager
def undisturbed_sweeps(kinds: Mapping[str, str] = KINDS) -> Iterator[Undisturbed]:
    """Provide kind → undisturbed sweep and its number of steps, run at the first call."""
    with temporary_folder() as root:
        made: dict[str, tuple[Folder, int]] = {}

        def undisturbed(kind: str) -> tuple[Folder, int]:
            if kind not in made:
                sweep = Sweep(root / kind.replace(" ", "-"), kinds[kind])
                sweep.start()
                if sweep.await_end() != 0:
                    raise RuntimeError((sweep.root / "output").read_text())
                made[kind] = (sweep.folder, len(sweep.steps()))
            return made[kind]

        yield undisturbed


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Provide a temporary folder."""
    root = Path(tempfile.mkdtemp(prefix="chaos-"))
    try:
        yield root
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main(run, rounds=200, option="victim", choices=list(Victim))
