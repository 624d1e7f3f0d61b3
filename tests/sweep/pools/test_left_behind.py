"""All processes of a trial end with its slot's process, and with the driver, however that ends."""

import contextlib
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from sweep.slices import isolated
from tests.support.command_line import start, write_spec
from tests.support.leftovers import Marked
from tests.support.waiting import wait_until


def spec_of(folder: Path, **changes: object) -> Path:
    return write_spec(
        folder,
        **{
            "trainable": "tests.support.leftovers:leave",
            "metric": "value",
            "mode": "max",
            "trials": 2,
            "searcher": "random",
            "space": {"k": {"uniform": [0, 1]}},
            "config": {},
            "stop": {},
            "scheduler": "fifo",
            "deterministic": None,
            **changes,
        },
    )


def left_by(folder: Path) -> list[list[int]]:
    """The processes that each trial has left, by the file that it writes."""
    with contextlib.suppress(ValueError):  # half-written
        files = sorted(folder.glob("sweeps/demo/trials/*/left.json"))
        return [json.loads(file.read_text()) for file in files]
    return []


Which = Callable[[int, dict[int, str]], list[int]]


def _reapers(commands: dict[int, str]) -> list[int]:
    return sorted(pid for pid, command in commands.items() if "reaper.py" in command)


def _workers(commands: dict[int, str]) -> list[int]:
    return sorted(pid for pid, command in commands.items() if "popen_loky_posix" in command)


def _is_stopped(pid: int) -> bool:
    with contextlib.suppress(OSError):  # it has ended meanwhile
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    return False


def _is_of_a_slot(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip() != isolated.NAME
    return False


VICTIMS: dict[str, Which] = {
    "driver": lambda driver, _: [driver],
    "workers": lambda _, commands: _workers(commands),
    "first_reaper": lambda _, commands: _reapers(commands)[:1],
    "second_reaper": lambda _, commands: _reapers(commands)[1:],
    "driver_and_workers": lambda driver, commands: [driver, *_workers(commands)],
    "workers_then_driver": lambda driver, commands: [*_workers(commands), driver],
    "all_but_one_reaper": lambda driver, commands: [
        driver,
        *_reapers(commands)[1:],
        *_workers(commands),
    ],
}


@pytest.mark.parametrize("victims", list(VICTIMS))
def test_no_process_of_a_trial_is_left_whatever_is_killed(
    tmp_path: Path, marked: Marked, victims: str
) -> None:
    driver = start("run", spec_of(tmp_path), "--jobs", 2, cwd=tmp_path, start_new_session=True)
    wait_until(lambda: len(left_by(tmp_path)) == 2)
    left = {pid for pids in left_by(tmp_path) for pid in pids}
    wait_until(lambda: left <= set(marked.pids()))  # one that is being started has no variables
    for pid in VICTIMS[victims](driver.pid, marked.commands()):
        with contextlib.suppress(ProcessLookupError):  # the death of another may have ended it
            os.kill(pid, signal.SIGKILL)
    if victims == "first_reaper":  # the second one goes on with its work
        driver.kill()
    wait_until(lambda: not left & set(marked.pids()))
    driver.kill()
    driver.communicate()  # nobody holds its output open
    wait_until(lambda: not marked.pids())


def test_no_process_is_left_where_a_suspended_sweep_is_killed(
    tmp_path: Path, marked: Marked
) -> None:
    driver = start("run", spec_of(tmp_path), "--jobs", 2, cwd=tmp_path, start_new_session=True)
    wait_until(lambda: len(left_by(tmp_path)) == 2)
    driver.send_signal(signal.SIGTSTP)
    wait_until(lambda: all(map(_is_stopped, [driver.pid, *_workers(marked.commands())])))
    driver.kill()
    driver.communicate()
    wait_until(lambda: not marked.pids())


def test_no_process_is_left_where_the_group_of_the_driver_is_killed(
    tmp_path: Path, marked: Marked
) -> None:
    driver = start("run", spec_of(tmp_path), "--jobs", 2, cwd=tmp_path, start_new_session=True)
    wait_until(lambda: len(left_by(tmp_path)) == 2)
    os.killpg(driver.pid, signal.SIGKILL)
    driver.communicate()
    wait_until(lambda: not marked.pids())


@pytest.mark.parametrize("trainable", ["leave", "Leaves"])
def test_what_a_trial_left_is_gone_when_its_slot_runs_the_next(
    tmp_path: Path, marked: Marked, trainable: str
) -> None:
    spec = spec_of(
        tmp_path,
        trainable=f"tests.support.leftovers:{trainable}",
        space={"reports": {"choice": [3, 1_000_000]}},
        initial=[{"reports": 3}, {"reports": 1_000_000}],
    )
    driver = start("run", spec, "--jobs", 1, cwd=tmp_path, start_new_session=True)
    wait_until(lambda: len(left_by(tmp_path)) == 2)
    first, second = left_by(tmp_path)
    assert not set(marked.pids()) & set(first)
    wait_until(lambda: set(marked.pids()) >= set(second))
    driver.kill()
    driver.communicate()
    wait_until(lambda: not marked.pids())


@pytest.mark.parametrize("trainable", ["leave", "Leaves"])
def test_what_a_trial_left_is_gone_when_it_is_pruned_though_its_slot_has_nothing_to_run(
    tmp_path: Path, marked: Marked, trainable: str
) -> None:
    spec = spec_of(
        tmp_path,
        trainable=f"tests.support.leftovers:{trainable}",
        space={"k": {"choice": [0.0, 1.0]}},
        initial=[{"k": 0.0}, {"k": 1.0}],
        scheduler={"name": "threshold", "lower": 0.5, "n_warmup_steps": 5},
        stop={"training_iteration": 1_000_000},
        checkpoint={"every": 5},
    )
    driver = start("run", spec, "--jobs", 2, cwd=tmp_path, start_new_session=True)
    wait_until(lambda: len(left_by(tmp_path)) == 2)
    pruned, goes_on = left_by(tmp_path)
    wait_until(lambda: not set(marked.pids()) & set(pruned))
    wait_until(lambda: set(marked.pids()) >= set(goes_on))
    assert len([pid for pid in _workers(marked.commands()) if _is_of_a_slot(pid)]) >= 2
    driver.kill()
    driver.communicate()
    wait_until(lambda: not marked.pids())
