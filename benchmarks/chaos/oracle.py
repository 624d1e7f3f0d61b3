"""Conditions of a sweep after kills of its processes, beside one that nobody touched.

Each check gives what is wrong in words; a sweep is right where there is none.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.chaos.workload import Step
from sweep.history.events import FINISHED, Closed, End, Recorded, Status, TermBegan
from sweep.history.seeds import replica_name
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.operations import verify
from tests.support import sweeps

#: The process that a reason names.
_PID = re.compile(r"(?:worker process |pid )(\d+)")


def wrongs(folder: Folder, straight: Folder) -> list[str]:
    """Return the faults of the sweep in `folder` itself, and its differences from `straight`."""
    return [
        *_decisions(folder, straight),
        *_numbers(folder),
        *_ledger(folder),
        *_files(folder),
        *_memory(folder),
    ]


def _decisions(folder: Folder, straight: Folder) -> Iterator[str]:
    """Settings, scores, curves and final states, to the bit."""
    expected, seen = sweeps.decisions(straight), sweeps.decisions(folder)
    if len(expected) != len(seen):
        yield f"{len(seen)} trials, not {len(expected)}"
    names = ("number", "settings", "config", "status", "score", "final states", "curves")
    for its, other in zip(seen, expected, strict=False):
        for name, mine, wanted in zip(names, its, other, strict=True):
            if mine != wanted:
                yield f"trial {its[0]}: another {name} than in the sweep that nobody killed"


def _numbers(folder: Folder) -> Iterator[str]:
    """Each trial once and finished; each iteration once, without a gap."""
    past = sweeps.history(folder)
    if [trial.number for trial in past.trials] != list(range(len(past.trials))):
        yield f"trials are numbered {[trial.number for trial in past.trials]}"
    for replica in [*past.replicas(*Status), *past.tests(*Status)]:
        name = replica_name(replica.trial, replica.index)
        if replica.status not in FINISHED:
            yield f"trial {name} is {replica.status}"
        iterations = [row.iteration for row in sweeps.curve(folder, replica.trial, replica.index)]
        first = replica.iteration - len(iterations) + 1
        if iterations != list(range(first, replica.iteration + 1)):
            yield f"trial {name} has the iterations {iterations}"


def _ledger(folder: Folder) -> Iterator[str]:
    """Epochs that never go back: who is dead writes nothing."""
    epochs = [record.term for record in read(folder)]
    if epochs != sorted(epochs):
        yield f"an epoch wrote after its successor: {epochs}"


def _files(folder: Folder) -> Iterator[str]:
    """Checkpoints, copies in Optuna and MLflow, and no file that nobody names."""
    found = verify.verify(folder)
    yield from (
        f"verify: {damage.part}: {damage.place}: {damage.problem}" for damage in found.damages
    )
    yield from (f"verify: {note}" for note in found.notes)


def _memory(folder: Folder) -> Iterator[str]:
    """No semaphore of any of its drivers."""
    for record in read(folder):
        if isinstance(record.event, TermBegan):
            left = list(Path("/dev/shm").glob(f"sem.loky-{record.event.pid}-*"))  # noqa: S108
            if left:
                yield f"driver {record.event.pid} left {len(left)} semaphores"


def read(folder: Folder) -> list[Recorded]:
    """All events."""
    return Ledger(folder.ledger).read()


# ---- who was charged, what was done again ------------------------------------------------------


def lost_with(records: Sequence[Recorded]) -> Counter[int]:
    """Process → how many slices were charged to their trials because it died."""
    found: Counter[int] = Counter()
    for record in records:
        if isinstance(record.event, Closed) and record.event.end is End.LOST:
            pid = _PID.search(record.event.reason)
            found[int(pid[1]) if pid else 0] += 1
    return found


def crashes(records: Sequence[Recorded]) -> int:
    """Return how many slices raised something."""
    return sum(isinstance(r.event, Closed) and r.event.end is End.CRASHED for r in records)


def done_again(steps: Sequence[Step]) -> tuple[int, int]:
    """Return how many slices were begun anew after some of their steps, and the steps' number."""
    slices, cost = 0, 0
    newest: dict[str, int] = {}
    for step in (step for step, is_late in _marked(steps) if not is_late):
        lost = newest.get(step.trial, 0) - step.iteration + 1
        slices, cost = slices + (lost > 0), cost + max(lost, 0)
        newest[step.trial] = step.iteration
    return slices, cost


def late(steps: Sequence[Step]) -> int:
    """Return how many steps processes made after another one had begun their slice anew."""
    return sum(is_late for _, is_late in _marked(steps))


def _marked(steps: Sequence[Step]) -> Iterator[tuple[Step, bool]]:
    """Each step, and whether its process was cut off: it goes on where it was, beside another."""
    runs: dict[str, int] = {}
    stands: dict[tuple[str, int], int] = {}
    for step in steps:
        goes_on = stands.get((step.trial, step.pid)) == step.iteration - 1
        beside = runs.get(step.trial, step.pid) != step.pid
        stands[step.trial, step.pid] = step.iteration
        yield step, goes_on and beside
        if not (goes_on and beside):
            runs[step.trial] = step.pid
