"""A package of somebody else's brings a part of each kind; no line of ours names it.

The whole command line runs in processes of its own. The package is on their import path, or lies
beside the spec file.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import REPOSITORY
from tests.support.installed import install

PACKAGE = "outsider"
SEEN = '''
"""Notes which part was used, in a file for each."""

import os
import pathlib


def seen(what):
    pathlib.Path(os.environ["SEEN"], what).touch()
'''
SCHEDULER = """
from pydantic import BaseModel, ConfigDict

from outsider.seen import seen
from sweep import schedulers
from sweep.history.events import Goal
from sweep.schedulers import NewTrial, Plan


class Options(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    at_once: int


class Scheduler(schedulers.Scheduler):
    Options = Options
    pauses = False

    def __init__(self, options, context):
        self.at_once = options.at_once

    def plan(self, history, free):
        seen("scheduler")
        count = min(free, self.at_once, history.uncreated_trials)
        return Plan(fresh=(NewTrial(Goal(), "a slot was free"),) * count)
"""
SEARCHER = """
from outsider.seen import seen
from sweep import searchers


class Searcher(searchers.Searcher):
    Options = searchers.SearcherOptions
    supports = searchers.Supports("draws", "drawn", "drawn", "does not look at them")

    def suggest(self, request):
        seen("searcher")
        return request.space.draw(request.seed)
"""
POOL = """
from outsider.seen import seen
from sweep.pools import loky


class Pool(loky.Pool):
    def submit(self, spec):
        seen("pool")
        return super().submit(spec)
"""
TRACKER = """
from outsider.seen import seen
from sweep import trackers


class Tracker(trackers.Tracker):
    def __init__(self, where):
        pass

    def publish(self, records):
        seen("tracker")

    def close(self):
        pass
"""
TRAINABLE = """
from outsider.seen import seen
from trainables.algorithms.ppo import PPO


class Trainable(PPO):
    def step(self):
        seen("trainable")
        return super().step()
"""
ENVIRONMENT = """
import gymnasium
import numpy as np

from outsider.seen import seen


class Environment(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0.0, 9.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        seen("environment")
        self.at += 1
        return np.full(1, self.at, np.float32), float(action), self.at == 5, False, {}
"""
FILTER = """
from outsider.seen import seen
from trainables.policies.filters import MeanStdFilter


class Filter(MeanStdFilter):
    def __init__(self, shape):
        super().__init__(shape, 10.0)

    def __call__(self, x, update=True):
        seen("filter")
        return super().__call__(x, update)
"""
#: Module → its text; the class in it is called like the module.
FILES = {
    "scheduler": SCHEDULER,
    "searcher": SEARCHER,
    "pool": POOL,
    "tracker": TRACKER,
    "trainable": TRAINABLE,
    "environment": ENVIRONMENT,
    "filter": FILTER,
}
GROUPS = {
    "scheduler": "sweep.schedulers",
    "searcher": "sweep.searchers",
    "pool": "sweep.pools",
    "tracker": "sweep.trackers",
    "trainable": "trainables.algorithms",
    "environment": "trainables.envs",
    "filter": "trainables.filters",
}
#: How a spec can name a part of the package.
WRITTEN: dict[str, Callable[[str], str]] = {
    "entry point": lambda kind: f"outside-{kind}",
    "path": lambda kind: f"{PACKAGE}.{kind}:{kind.capitalize()}",
}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder of installed packages with one that has a part of each kind."""
    path, name = WRITTEN["path"], WRITTEN["entry point"]
    points = {group: {name(kind): path(kind)} for kind, group in GROUPS.items()}
    install(tmp_path / "site", PACKAGE, {"seen": SEEN, **FILES}, points)
    return tmp_path / "site"


def spec(part: Callable[[str], str]) -> dict[str, Any]:
    return {
        "name": "demo",
        "trials": 1,
        "trainable": part("trainable"),
        "metric": "episode_reward_mean",
        "mode": "max",
        "config": {
            "env": part("environment"),
            "observation_filter": part("filter"),
            "num_envs_per_worker": 1,
            "rollout_fragment_length": 16,
            "sgd_minibatch_size": 16,
            "train_batch_size": 16,
            "num_sgd_iter": 1,
            "model": {"hidden": [4]},
        },
        "space": {"lr": {"loguniform": [1e-4, 1e-3]}},
        "stop": {"training_iteration": 1},
        "scheduler": {"name": part("scheduler"), "at_once": 1},
        "searcher": part("searcher"),
        "trackers": [part("tracker")],
    }


@pytest.mark.slow
@pytest.mark.parametrize("written", WRITTEN)
def test_each_part_of_a_package_is_used_by_a_sweep_that_names_it(
    written: str, site: Path, tmp_path: Path
) -> None:
    part, is_installed = WRITTEN[written], written == "entry point"
    marks = tmp_path / "seen"
    path = os.pathsep.join([str(REPOSITORY), *([str(site)] if is_installed else [])])
    environment = {**os.environ, "PYTHONPATH": path, "SEEN": str(marks)}

    def sweep(*words: str) -> tuple[str, set[str]]:
        """What a command says, and which parts it used."""
        marks.mkdir(exist_ok=True)
        for mark in marks.iterdir():
            mark.unlink()
        command = [sys.executable, "-m", "sweep.cli.main", *words, "--root", "sweeps"]
        ended = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout + ended.stderr, {mark.name for mark in marks.iterdir()}

    file = (tmp_path if is_installed else site) / "spec.yaml"
    file.write_text(json.dumps(spec(part)))  # JSON is YAML
    assert sweep("run", str(file), "--jobs", "1", "--pool", part("pool"))[1] == set(GROUPS)
    assert sweep("resume", "demo", "--trials", "2")[1] == set(GROUPS)
    told, used = sweep("results", "demo", "--json")
    assert [trial["status"] for trial in json.loads(told)["trials"]] == ["COMPLETED"] * 2
    assert not used
    told, used = sweep("verify", "demo")
    not_compared = (
        "has no method differences()" if is_installed else "given as a path to Python code"
    )
    assert not_compared in told
    assert not used
