"""Environments that misbehave: the right trial fails, with the cause, and the sweep completes."""

from pathlib import Path
from typing import Any

import pytest

from sweep.history.events import Status
from sweep.history.trial import Trial
from sweep.ledger.folder import Folder
from tests.support import sweeps
from tests.support.misbehaving import SETTINGS

#: What an environment does → what is said of it; each with where it is and what was seen.
CAUSES = {
    "raise": ("worker 0, environment 0: step() raised ZeroDivisionError: the world ended",),
    "NaN seen": ("worker 0, environment 0: observation [nan nan nan nan] is not finite",),
    "inf": ("worker 0, environment 0: reward inf is not finite",),
    "shape": ("worker 0, environment 0: step() returned", "shape (3,)", "expected shape (4,)"),
    "reward of two": ("step() returned the reward [1.0, 2.0], a list", "one real number"),
}
FINE = ("well", "slow")


def make(root: Path, name: str, whats: tuple[str, ...], key: str, **changes: Any) -> Folder:
    """A trial for each of `whats`."""
    given: dict[str, Any] = {
        "trials": len(whats),
        "mode": "max",
        "stop": {"training_iteration": 4},
        "space": {key: {"grid": list(whats)}},
        "searcher": "random",
        "scheduler": "fifo",
        "deterministic": None,
        "trackers": [],
        "limits": {"max_failures": 0},
    }
    return sweeps.make(root, **{"name": name, **given, **changes})


@pytest.mark.slow
def test_R15_what_an_environment_does_costs_its_own_trial_alone_and_is_named(
    tmp_path: Path,
) -> None:
    ppo: dict[str, Any] = {"trainable": "ppo", "metric": "training_iteration"}
    ppo["config"] = {**SETTINGS, "env_level": "C"}  # nothing is measured, and nothing is resumed
    whats = ("well", *CAUSES, "slow")
    folder = make(tmp_path, "all", whats, "env_config.what", **ppo)
    assert sweeps.run(folder) == "finished"
    for what, trial in zip(whats, sweeps.history(folder).trials, strict=True):
        if what in FINE:
            assert (trial.status, trial.iteration) == (Status.COMPLETED, 4)
            continue
        assert (trial.status, trial.iteration) == (Status.FAILED, 2)
        assert trial.reason.startswith("iteration 3 raised ")
        for text in CAUSES[what]:
            assert text in trial.reason
    alone = make(tmp_path, "alone", ("well",), "env_config.what", **ppo)
    assert sweeps.run(alone) == "finished"
    assert sweeps.curve(folder, 0) == sweeps.curve(alone, 0)


def light(root: Path, whats: tuple[str, ...], limits: dict[str, Any]) -> list[Trial]:
    """What comes of trials without torch, in two processes; those that do well are exact."""
    options: dict[str, Any] = {
        "trainable": "tests.support.misbehaving:Light",
        "metric": "value",
        "config": {},
        "space": {"what": {"choice": sorted(set(whats))}},
        "initial": [{"what": what} for what in whats],
        "limits": limits,
    }
    folder = make(root, "light", whats, "what", **options)
    assert sweeps.run(folder, slots=2, pool="loky") == "finished"
    trials = sweeps.history(folder).trials
    for trial in trials:
        if trial.config["what"] == "well":
            assert (trial.status, trial.slices) == (Status.COMPLETED, 1)
            values = [row.metrics["value"] for row in sweeps.curve(folder, trial.number)]
            assert values == [1.0, 2.0, 3.0, 4.0]
    return trials


@pytest.mark.slow
def test_R15_a_segfault_and_a_hang_in_C_end_their_own_processes_alone(tmp_path: Path) -> None:
    limits = {"no_progress_s": 6.0, "max_failures": 0}
    segfault, _, hang, _ = light(tmp_path, ("segfault", "well", "hang", "well"), limits)
    assert (segfault.status, hang.status) == (Status.FAILED, Status.FAILED)
    assert "died with exit code -11" in segfault.reason
    assert "made no progress for 6 s" in hang.reason


def test_R16_who_needs_more_memory_than_there_is_is_tried_again_and_fails_alone(
    tmp_path: Path,
) -> None:
    whats = ("exhaust", "well", "exhaust", "well", "exhaust", "well")
    for trial in light(tmp_path, whats, {"max_failures": 2})[::2]:
        assert (trial.status, trial.slices) == (Status.FAILED, 2)
        assert "MemoryError" in trial.reason
