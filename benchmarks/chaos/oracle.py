"""Conditions of a sweep after kills of its processes, compared with an undisturbed sweep.

Each check yields errors as text; a sweep without errors is correct.
"""

import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence

from benchmarks.chaos.victims import LEAVE_S, semaphores_of
from benchmarks.chaos.workload import Step
from sweep.history.events import FINISHED, Closed, End, Recorded, Status, TermBegan
from sweep.history.seeds import replica_name
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.operations.upkeep import verify
from tests.support import sweeps

_POLL_S = 0.05
#: Finds the process that a reason names.
_PID = re.compile(r"(?:worker process |pid )(\d+)")


def errors(folder: Folder, undisturbed: Folder) -> list[str]:
    """Return the errors of the sweep in `folder`, and its differences from `undisturbed`."""
    return [
        *_decisions(folder, undisturbed),
        *_numbers(folder),
        *_ledger(folder),
        *_files(folder),
        *_memory(folder),
    ]


def _decisions(folder: Folder, undisturbed: Folder) -> Iterator[str]:
    """Yield differences of settings, scores, curves and final states, to the bit."""
    expected, found = sweeps.decisions(undisturbed), sweeps.decisions(folder)
    if len(expected) != len(found):
        yield f"{len(found)} trials, not {len(expected)}"
    names = ("number", "settings", "config", "status", "score", "final states", "curves")
    for trial, expected_trial in zip(found, expected, strict=False):
        for name, one, other in zip(names, trial, expected_trial, strict=True):
            if one != other:
                yield f"trial {trial[0]}: its {name} differs from that of the undisturbed sweep"


def _numbers(folder: Folder) -> Iterator[str]:
    """Yield trials that are missing or unfinished, and gaps or repetitions of iterations."""
    history = sweeps.history(folder)
    if [trial.number for trial in history.trials] != list(range(len(history.trials))):
        yield f"trials are numbered {[trial.number for trial in history.trials]}"
    for replica in [*history.replicas(*Status), *history.test_replicas(*Status)]:
        name = replica_name(replica.trial, replica.index)
        if replica.status not in FINISHED:
            yield f"trial {name} is {replica.status}"
        iterations = [row.iteration for row in sweeps.curve(folder, replica.trial, replica.index)]
        first = replica.iteration - len(iterations) + 1
        if iterations != list(range(first, replica.iteration + 1)):
            yield f"trial {name} has the iterations {iterations}"


def _ledger(folder: Folder) -> Iterator[str]:
    """Yield an error if a driver wrote events after its successor."""
    terms = [record.term for record in read(folder)]
    if terms != sorted(terms):
        yield f"a driver wrote after its successor: terms {terms}"


def _files(folder: Folder) -> Iterator[str]:
    """Yield damaged checkpoints, wrong copies in Optuna and MLflow, and files without a row."""
    found = verify.verify(folder)
    yield from (
        f"verify: {damage.part}: {damage.place}: {damage.problem}" for damage in found.damages
    )
    yield from (f"verify: {note}" for note in found.notes)


def _memory(folder: Folder) -> Iterator[str]:
    """Yield semaphores of a driver that are still there `LEAVE_S` seconds after its end.

    A process of its own removes them, which may be slow on a busy machine.
    """
    end, records = time.monotonic() + LEAVE_S, read(folder)
    for record in records:
        if isinstance(record.event, TermBegan):
            pid, began = record.event.pid, records[0].time
            while (left := semaphores_of(pid, began)) and time.monotonic() < end:
                time.sleep(_POLL_S)
            if left:
                yield f"driver {pid} left {len(left)} semaphores"


def read(folder: Folder) -> list[Recorded]:
    """Return all events of a sweep."""
    return Ledger(folder.ledger).read()


# ---- lost and repeated slices ----------------------------------------------------------------


def lost_slices(records: Sequence[Recorded]) -> Counter[int]:
    """Return process → number of slices that were lost with it."""
    found: Counter[int] = Counter()
    for record in records:
        if isinstance(record.event, Closed) and record.event.end is End.LOST:
            pid = _PID.search(record.event.reason)
            found[int(pid[1]) if pid else 0] += 1
    return found


def count_crashes(records: Sequence[Recorded]) -> int:
    """Return the number of slices that ended with an exception."""
    return sum(isinstance(r.event, Closed) and r.event.end is End.CRASHED for r in records)


def count_repeated(steps: Sequence[Step]) -> tuple[int, int]:
    """Return the numbers of slices and of steps that were repeated."""
    slices, cost = 0, 0
    newest: dict[str, int] = {}
    for step in (step for step, is_late in _marked(steps) if not is_late):
        lost = newest.get(step.trial, 0) - step.iteration + 1
        slices, cost = slices + (lost > 0), cost + max(lost, 0)
        newest[step.trial] = step.iteration
    return slices, cost


def count_late_steps(steps: Sequence[Step]) -> int:
    """Return the number of steps of processes whose slice another process has taken over."""
    return sum(is_late for _, is_late in _marked(steps))


def _marked(steps: Sequence[Step]) -> Iterator[tuple[Step, bool]]:
    """Yield each step and whether it is late: its process continues although another took over."""
    runs: dict[str, int] = {}
    iterations: dict[tuple[str, int], int] = {}
    for step in steps:
        continues = iterations.get((step.trial, step.pid)) == step.iteration - 1
        is_replaced = runs.get(step.trial, step.pid) != step.pid
        iterations[step.trial, step.pid] = step.iteration
        yield step, continues and is_replaced
        if not (continues and is_replaced):
            runs[step.trial] = step.pid
