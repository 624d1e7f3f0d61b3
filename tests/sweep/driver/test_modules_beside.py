"""Modules beside the spec file: found for whatever settings name, in every process of a sweep."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import Here, write_spec

#: One that no other test has imported, and that is nowhere else.
MODULE = "corridor_beside_the_spec"
TEXT = '''
import os

from tests.support.environments import Counting
from trainables import Callbacks
from trainables.policies.filters import MeanStdFilter


def seen(what):
    """A file for each process in which this was used."""
    with open(os.path.join(os.environ["SEEN"], f"{what}-{os.getpid()}"), "w"):
        pass


class Corridor(Counting):
    def __init__(self):
        seen("env")
        super().__init__(length=5)


class Told(Callbacks):
    def on_episode_end(self, *, worker, episode, error):
        seen("callbacks")


def make_filter(shape):
    seen("filter")
    return MeanStdFilter(shape, 10.0)
'''
PPO: dict[str, Any] = {
    "trainable": "ppo",
    "metric": "episode_reward_mean",
    "mode": "max",
    "trials": 1,
    "space": {"lr": {"loguniform": [1e-4, 1e-3]}},
    "stop": {"training_iteration": 2},
    "scheduler": "fifo",
    "deterministic": None,
}
CONFIG: dict[str, Any] = {
    "env": f"{MODULE}:Corridor",
    "num_envs_per_worker": 1,
    "rollout_fragment_length": 16,
    "sgd_minibatch_size": 16,
    "train_batch_size": 16,
    "num_sgd_iter": 1,
    "model": {"hidden": [4]},
}
#: Every kind of process that a trial has.
EVERYWHERE: dict[str, Any] = {
    "callbacks": f"{MODULE}:Told",
    "observation_filter": f"{MODULE}:make_filter",
    "num_workers": 1,
    "remote_worker_envs": True,
    "evaluation_interval": 1,
    "evaluation_num_episodes": 1,
    "evaluation_num_workers": 1,
}


@pytest.fixture
def seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], set[int]]:
    """The processes in which a part of the module was used."""
    folder = tmp_path / "seen"
    folder.mkdir()
    monkeypatch.setenv("SEEN", str(folder))
    return lambda what: {int(path.name.partition("-")[2]) for path in folder.glob(f"{what}-*")}


@pytest.fixture
def anew(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., str]:
    """Runs a command that succeeds, as a process that has imported nothing yet would."""
    here = Here(capsys, tmp_path / "sweeps")
    path = list(sys.path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)

    def run(*words: object) -> str:
        monkeypatch.setattr(sys, "path", list(path))
        monkeypatch.delitem(sys.modules, MODULE, raising=False)
        code, out, err = here(*words)
        assert code == 0, err
        return out

    return run


def write(tmp_path: Path, **config: Any) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / f"{MODULE}.py").write_text(TEXT)
    return write_spec(folder, **PPO, config={**CONFIG, **config})


@pytest.mark.slow
def test_what_settings_name_is_found_beside_the_spec_in_every_process_of_a_trial(
    anew: Callable[..., str], seen: Callable[[str], set[int]], tmp_path: Path
) -> None:
    spec = write(tmp_path, **EVERYWHERE)
    anew("run", spec, "--dry-run")
    assert sys.path[-2:] == [str(spec.parent), str(Path.cwd())]  # nothing installed is hidden
    before = {what: seen(what) for what in ("env", "callbacks", "filter")}
    anew("run", spec, "--jobs", 1)
    new = {what: seen(what) - processes - {os.getpid()} for what, processes in before.items()}
    assert new["callbacks"]  # a rollout worker
    assert len(new["env"] - new["callbacks"]) >= 2  # environments of it and of an evaluation worker
    assert new["filter"] & new["callbacks"]
    assert new["filter"] - new["callbacks"]  # the trainer, an evaluation worker
    anew("resume", "demo", "--trials", 2, "--jobs", 1)


@pytest.mark.slow
def test_who_comes_later_finds_it_too(
    anew: Callable[..., str], seen: Callable[[str], set[int]], tmp_path: Path
) -> None:
    spec = write(tmp_path)
    anew("validate", spec)
    anew("run", spec, "--pool", "inline")
    anew("resume", "demo", "--trials", 2, "--pool", "inline")
    anew("export-model", "demo", "--out", tmp_path / "out")
    anew("clone", "demo", 0)
    before = seen("env")
    anew("best", "demo", "--test-seeds", 2, "--top", 1, "--jobs", 1, "--pool", "loky")
    assert seen("env") - before  # a worker of the pool
