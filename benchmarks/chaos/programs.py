"""Trials that start processes, in each way in which programs do: killed and resumed, all end well.

    python -m benchmarks.chaos.programs [--out DIR] [--rounds TRIALS] [--seed S]

A case is a sweep whose trials start processes in one way (`tests.support.programs`), in two slots.
The group of its driver is killed when a third of them have ended, or an instant later that is drawn
by chance; then it is resumed. A round is one trial of each way.
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

#: Seconds in which a trial begins or ends, on a machine that does much else.
PATIENCE_S = 180.0
#: Seconds between the end of a trial and the kill, at most.
LATEST_S = 1.0
#: Seconds after which nothing may be left of a driver that was killed.
GONE_S = 20.0


def run(out: Path, rounds: int, seed: int) -> int:
    """So many trials of each way; returns how many ways failed."""
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
    """Run, kill and resume a sweep of so many trials of each of these ways; returns figures.

    The options `pool` choose where its slots are, by default on this machine. `marked` names the
    processes of a cluster that is there before and stays.

    Raises:
        Failed: a trial hung, failed or found something else, or a process was left.
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
        raise Failed(f"no sweep was begun; it said: {_said(root)[-2000:]}")
    before = sweeps.history(folder).trials
    begun = sum(trial.status is Status.RUNNING for trial in before)
    with _driving(root, ("resume", "demo", *pool), variables) as driver:
        _await(driver, root)
    found = sweeps.history(folder).trials
    wrong = {
        f"{trial.config['way']} {trial.number}": (str(trial.status), trial.score, trial.reason)
        for trial in found
        if trial.status is not Status.COMPLETED or trial.score != GOOD
    }
    if wrong or len(found) != total:
        raise Failed(f"{len(found)} trials; wrong: {wrong}; it said: {_said(root)[-2000:]}")
    return {"trials": total, "kills": int(killed), "interrupted": begun}


@contextlib.contextmanager
def _driving(
    root: Path, words: Sequence[object], variables: Mapping[str, str]
) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a command in two slots, and kill its group at the end of the block."""
    command = [sys.executable, "-m", "sweep.cli.main", *map(str, words), "--jobs", "2"]
    found = [str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]
    with (root / "said").open("ab") as said:
        driver = subprocess.Popen(  # noqa: S603 ours
            command,
            cwd=root,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(found), **variables},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
    try:
        yield driver
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()


def _await(
    driver: "subprocess.Popen[bytes]", root: Path, is_so: Callable[[], bool] = lambda: False
) -> None:
    """Wait for something as long as trials begin and end, or until the driver has ended."""
    seen, end = "", time.monotonic() + PATIENCE_S
    while not is_so() and driver.poll() is None:
        if (said := _said(root)) != seen:
            seen, end = said, time.monotonic() + PATIENCE_S
        if time.monotonic() > end:
            raise Failed(f"it hangs: {said[-2000:]}")
        time.sleep(0.05)


def _ended(root: Path) -> int:
    return _said(root).count("finished after")


def _said(root: Path) -> str:
    return (root / "said").read_text("utf-8", "replace")


if __name__ == "__main__":
    main(run, rounds=20)
