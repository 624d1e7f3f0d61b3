"""Trials that start processes in various ways: killed and resumed, all of them end correctly.

    python -m benchmarks.chaos.programs [--out DIR] [--rounds TRIALS] [--seed S]

A case is a sweep whose trials start processes in one way (`tests.support.programs`), in two slots.
The process group of its driver is killed a random time after a third of the trials have ended; then
the sweep is resumed. A round is one trial of each way.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.chaos.store_cases import Cases, Failed, main
from sweep.history.events import Status
from sweep.ledger.folder import Folder
from tests.support import sweeps
from tests.support.command_line import REPOSITORY, write_spec
from tests.support.leftovers import Marked
from tests.support.programs import GOOD, WAYS
from trainables.core import rng

#: Seconds within which a trial begins or ends, on a busy machine.
PATIENCE_S = 180.0
#: Seconds between the end of a trial and the kill, at most.
LATEST_S = 1.0
#: Seconds after which no process of a killed driver may be left.
GONE_S = 20.0


def run(out: Path, rounds: int, seed: int) -> int:
    """Run `rounds` trials of each way; return the number of failed ways."""
    cases = Cases(out, "programs")
    for number, way in enumerate(WAYS):
        case = partial(campaign, (way,), rounds, rng.generator(seed, "programs", number))
        cases.run(way, case)
    return cases.close()


def campaign(
    ways: Sequence[str],
    trials: int,
    stream: np.random.Generator,
    pool: Sequence[str] = (),
    marked: Marked | None = None,
) -> dict[str, Any]:
    """Run, kill and resume a sweep; return its figures.

    Args:
        ways: ways in which trials start processes.
        trials: number of trials of each way.
        pool: options that choose the pool; by default the slots are on this machine.
        marked: marks of processes; those of a cluster that exists before are kept.

    Raises:
        Failed: a trial hung, failed or returned a wrong result, or a process was left.
    """
    root = Path(tempfile.mkdtemp(prefix="programs-"))
    marked = marked or Marked()
    stay = marked.pids()
    try:
        figures = _killed_once(root, ways, trials, stream, marked.variables, pool)
        wait = time.monotonic() + GONE_S
        while (left := marked.commands(stay)) and time.monotonic() < wait:
            time.sleep(0.05)
        if left:
            raise Failed(f"processes are left: {left}")
        return figures
    finally:
        marked.kill(stay)
        shutil.rmtree(root)


def _killed_once(
    root: Path,
    ways: Sequence[str],
    trials: int,
    stream: np.random.Generator,
    variables: Mapping[str, str],
    pool: Sequence[str],
) -> dict[str, Any]:
    total = trials * len(ways)
    spec = write_spec(
        root,
        trainable="tests.support.programs:run",
        metric="found",
        mode="max",
        trials=total,
        searcher={"name": "grid", "duplicates": True},
        space={"way": {"grid": list(ways)}},
        config={},
        stop={},
        scheduler="fifo",
        deterministic=None,
    )
    folder = Folder(root / "sweeps", "demo")
    with _driving(root, ("run", spec, *pool), variables) as driver:
        _await(driver, root, lambda: _ended(root) > total // 3)
        time.sleep(stream.uniform(0.0, LATEST_S))
        killed = driver.poll() is None
    if not folder.ledger.exists():
        raise Failed(f"no sweep was created; output: {_output(root)[-2000:]}")
    before = sweeps.history(folder).trials
    begun = sum(trial.status is Status.RUNNING for trial in before)
    with _driving(root, ("resume", "demo", *pool), variables) as driver:
        _await(driver, root)
    trials_after = sweeps.history(folder).trials
    wrong = {
        f"{trial.config['way']} {trial.number}": (str(trial.status), trial.score, trial.reason)
        for trial in trials_after
        if trial.status is not Status.COMPLETED or trial.score != GOOD
    }
    if wrong or len(trials_after) != total:
        raise Failed(f"{len(trials_after)} trials; wrong: {wrong}; output: {_output(root)[-2000:]}")
    return {"trials": total, "kills": int(killed), "interrupted": begun}


@contextlib.contextmanager
def _driving(
    root: Path, words: Sequence[object], variables: Mapping[str, str]
) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a command in two slots, and kill its group at the end of the block."""
    command = [sys.executable, "-m", "sweep.cli.main", *map(str, words), "--jobs", "2"]
    paths = [str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]
    with (root / "output").open("ab") as output:
        driver = subprocess.Popen(  # noqa: S603 ours
            command,
            cwd=root,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **variables},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield driver
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()


def _await(
    driver: "subprocess.Popen[bytes]", root: Path, is_done: Callable[[], bool] = lambda: False
) -> None:
    """Wait for a condition or the driver's end.

    Raises Failed if the driver printed no line for `PATIENCE_S` seconds.
    """
    before, end = "", time.monotonic() + PATIENCE_S
    while not is_done() and driver.poll() is None:
        if (output := _output(root)) != before:
            before, end = output, time.monotonic() + PATIENCE_S
        if time.monotonic() > end:
            raise Failed(f"it hangs: {output[-2000:]}")
        time.sleep(0.05)


def _ended(root: Path) -> int:
    return _output(root).count("finished after")


def _output(root: Path) -> str:
    return (root / "output").read_text("utf-8", "replace")


if __name__ == "__main__":
    main(run, rounds=20)
