"""kill -9 at any instant: the sweep that was killed and resumed is the one that nobody killed.

    python -m benchmarks.chaos.kills [--out DIR] [--rounds KILLS] [--seed S] --victim KIND

A case is one sweep that is killed again and again until it is finished, at steps and instants drawn
from a stream; then the oracle compares it with the same sweep, run without a kill. A victim is the
driver's whole process group, the driver alone, a worker of the pool, or a rollout worker of a
trainer. A round is one kill.
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

#: Of one sweep.
KILLS = 5
#: Seconds from the step at which a kill is due to the kill, at most.
LATEST_S = 0.03
_KINDS = tuple(KINDS)
#: Which kinds of sweeps are killed so, in turn: short runs of all victims meet most of them.
_TURNS = {
    Victim.GROUP: _KINDS,
    Victim.DRIVER: _KINDS[3:] + _KINDS[:3],
    Victim.WORKER: _KINDS[5:] + _KINDS[:5],
    Victim.ROLLOUT: tuple(TRAINERS),
}
#: Slices that one kill may make begin anew.
_SLICES = {Victim.GROUP: JOBS, Victim.DRIVER: JOBS, Victim.WORKER: 1, Victim.ROLLOUT: 1}


def run(out: Path, rounds: int, seed: int, victim: Victim = Victim.GROUP) -> int:
    """So many kills of a kind; returns how many sweeps failed."""
    cases = Cases(out, f"kill_{victim}")
    with straight_sweeps() as straight:
        for number in itertools.count():
            kills = sum(line.get("kills", 0) for line in cases.done.values())
            if kills >= rounds and number >= len(cases.done):  # what failed is run again
                break
            kind = _TURNS[victim][number % len(_TURNS[victim])]
            stream = rng.generator(seed, "kills", list(Victim).index(victim), number)
            case = partial(campaign, kind, victim, stream, straight)
            cases.run(f"{kind}, {number}", case)
    return cases.close()


@dataclass
class Kill:
    """One kill."""

    pid: int
    gone_s: float
    """Until everything was gone that had to go."""


@dataclass
class Course:
    """The kills and starts of one sweep."""

    kills: list[Kill] = field(default_factory=list)
    starts: int = 1


Straight = Callable[[str], tuple[Folder, int]]


def campaign(
    kind: str, victim: Victim, stream: np.random.Generator, straight: Straight
) -> dict[str, float]:
    """Kill one sweep until it is finished, and compare it; returns figures."""
    reference, length = straight(kind)
    with scratch() as root:
        sweep = Sweep(root / "killed", KINDS[kind])
        course = kill_to_the_end(sweep, victim, stream, length)
        refuse(
            sweep,
            [*_wrong_on_the_way(sweep, victim, course), *oracle.wrongs(sweep.folder, reference)],
        )
        slices, steps = oracle.done_again(sweep.steps())
        return {
            "kills": len(course.kills),
            "slices_again": slices,
            "steps_again": steps,
            "gone_s": round(max((kill.gone_s for kill in course.kills), default=0.0), 3),
        }


def refuse(sweep: Sweep, wrong: list[str]) -> None:
    """Raise Failed where something is wrong, and keep the sweep."""
    if wrong:
        kept = Path(tempfile.mkdtemp(prefix="chaos-"))
        shutil.copytree(sweep.root, kept, dirs_exist_ok=True)
        raise Failed(f"{'; '.join(wrong[:5])} (kept in {kept})")


def kill_to_the_end(
    sweep: Sweep,
    victim: Victim,
    stream: np.random.Generator,
    length: int,
    latest_s: float = LATEST_S,
) -> Course:
    """Run a sweep to its end, and kill `victim` up to `KILLS` times on the way.

    Args:
        sweep: the sweep, not started yet.
        victim: process to kill.
        stream: source of the instants of the kills.
        length: number of steps of the sweep without kills.
        latest_s: longest time from the step at which a kill is due to the kill, in seconds.

    Raises:
        Failed: the last driver ended with an error, or there was nothing to kill.
    """
    course, due = Course(), 0
    sweep.start()
    while (left := KILLS - len(course.kills)) > 0:
        passed = max(due, len(sweep.steps()))
        # Among the steps that are left: those of other workers go on.
        due = passed + int(stream.integers(0, max((length - passed) // (left + 1), 1)))
        wait = float(stream.uniform(0.0, latest_s))
        if not sweep.await_steps(due) or (pid := _choose(sweep, victim, stream, wait)) is None:
            break
        course.kills.append(Kill(pid, sweep.kill(victim, pid)))
        if victim is Victim.GROUP:
            sweep.start()
    code = sweep.await_rest() or sweep.sync()
    if code != 0:
        raise Failed(f"exit code {code}: {(sweep.root / 'said').read_text()[-500:]}")
    return course


def _choose(sweep: Sweep, victim: Victim, stream: np.random.Generator, wait: float) -> int | None:
    """A process of that kind, after so many seconds; None: the driver has ended."""
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


def _wrong_on_the_way(sweep: Sweep, victim: Victim, course: Course) -> Iterator[str]:
    """Yield wrong charges, repeated work and leftover processes."""
    records, kills = oracle.read(sweep.folder), len(course.kills)
    # Each process that was killed costs one slice, the one that it ran; its number says which.
    victims = [kill.pid for kill in course.kills if victim in (Victim.WORKER, Victim.ROLLOUT)]
    for pid, count in oracle.lost_with(records).items():
        if count > victims.count(pid):
            yield f"{count} slices were charged for process {pid}, of the victims {victims}"
    if crashes := oracle.crashes(records):
        yield f"{crashes} slices crashed"
    slices, _ = oracle.done_again(sweep.steps())
    if slices > kills * _SLICES[victim]:
        yield f"{slices} slices were done again after {kills} kills"
    if left := sweep.left():
        yield f"processes are left: {left}"
    if "Traceback" in (sweep.root / "said").read_text():
        yield "a traceback was shown"


# ---- the sweeps that nobody kills --------------------------------------------------------------


@contextmanager
def straight_sweeps(kinds: Mapping[str, str] = KINDS) -> Iterator[Straight]:
    """Kind → the sweep without a kill and its number of steps, run when first asked for."""
    with scratch() as root:
        made: dict[str, tuple[Folder, int]] = {}

        def straight(kind: str) -> tuple[Folder, int]:
            if kind not in made:
                sweep = Sweep(root / kind.replace(" ", "-"), kinds[kind])
                sweep.start()
                if sweep.await_rest() != 0:
                    raise RuntimeError((sweep.root / "said").read_text())
                made[kind] = (sweep.folder, len(sweep.steps()))
            return made[kind]

        yield straight


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder for as long as this is entered."""
    root = Path(tempfile.mkdtemp(prefix="chaos-"))
    try:
        yield root
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main(run, rounds=200, what="victim", choices=list(Victim))
