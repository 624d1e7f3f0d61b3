"""Settings that a parent's checkpoint hangs on: its children have them as it had them."""

from pathlib import Path
from typing import Any

import pytest

import sweep
from sweep import spec as specs
from sweep.core.errors import BadConfig, UsageError
from sweep.driver.proposals import Proposer
from sweep.driver.start.creation import resolving
from sweep.ledger.folder import Folder
from sweep.testing import Simulation, curves, simulate
from sweep.views import lookup
from tests.support.searches import build
from tests.sweep.schedulers.test_pbt import SPEC, curve, with_scheduler
from trainables.algorithms.ppo import PPO
from trainables.trainer.agreement import COLLECTING, FILTERING

SPACE = {"x": {"uniform": [0.1, 1.0]}, "workers": {"choice": [0, 1, 2]}}
BREEDING = ["pbt", "pb2"]


@pytest.fixture
def fixed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curves.Played, "fixed_keys", frozenset({"workers"}))


def test_a_trainer_names_them() -> None:
    assert {*COLLECTING, *FILTERING, "restore"} < PPO.fixed_keys
    assert {"num_workers", "num_envs_per_worker", "observation_filter"} < PPO.fixed_keys


@pytest.mark.parametrize("name", BREEDING)
@pytest.mark.parametrize("synch", [True, False])
@pytest.mark.usefixtures("fixed")
def test_children_inherit_them_and_change_the_others(name: str, synch: bool) -> None:
    asked = with_scheduler(name=name, synch=synch)
    trials = simulate({**asked, "space": SPACE}, curve, slots=3).history.trials
    children = [trial for trial in trials if trial.parent is not None]
    assert children
    for child in children:
        parent = trials[child.parent or 0]
        assert child.searched["workers"] == parent.searched["workers"]
        assert child.searched["x"] != parent.searched["x"]


@pytest.mark.parametrize("name", BREEDING)
@pytest.mark.usefixtures("fixed")
def test_who_asks_for_their_mutation_is_refused_in_one_line(name: str) -> None:
    asked = with_scheduler(name=name, hyperparam_mutations=["x", "workers"])
    with pytest.raises(
        BadConfig, match=r"workers cannot change from parent to child, .*; expected one of x$"
    ) as refusal:
        simulate({**asked, "space": SPACE}, curve)
    assert "\n" not in str(refusal.value)


@pytest.mark.usefixtures("fixed")
def test_a_space_of_nothing_else_is_refused() -> None:
    with pytest.raises(BadConfig, match="none of workers can change from parent"):
        simulate({**SPEC, "space": {"workers": SPACE["workers"]}}, curve)


def test_a_population_of_trainers_may_not_change_how_they_collect() -> None:
    spec: dict[str, Any] = {
        "name": "demo",
        "trainable": "ppo",
        "config": {"env": "CartPole-v1"},
        "space": {"lr": {"loguniform": [1e-4, 1e-3]}, "num_workers": {"choice": [0, 1]}},
        "trials": 4,
        "metric": "episode_reward_mean",
        "mode": "max",
        "stop": {"training_iteration": 8},
        "searcher": "random",
    }
    changes = {"name": "pbt", "perturbation_interval": 2, "hyperparam_mutations": ["num_workers"]}
    text = "\n".join(f"{key}: {value}" for key, value in {**spec, "scheduler": changes}.items())
    with pytest.raises(
        BadConfig, match=r"num_workers cannot change from parent to child, .*; expected one of lr$"
    ):
        resolving.resolve(specs.parse(text, "test.yaml"), ())


def test_the_children_of_trainers_have_the_networks_of_their_parents(tmp_path: Path) -> None:
    found = sweep.run(
        "ppo",
        name="networks",
        root=tmp_path,
        pool="inline",
        config={
            "env": "CartPole-v1",
            "rollout_fragment_length": 64,
            "sgd_minibatch_size": 64,
            "evaluation_interval": 1,
            "evaluation_num_episodes": 1,
        },
        space={
            "lr": {"loguniform": [1e-4, 1e-2]},
            "model.hidden": {"choice": [[8], [16], [32]]},
            "_relu": {"choice": [True, False]},
            "model.activation": {"value": "'relu' if _relu else 'tanh'"},
            "optimizer": {"name": {"choice": ["adam", "rmsprop"]}},
        },
        trials=4,
        metric="evaluation/episode_reward_mean",
        mode="max",
        stop={"training_iteration": 4},
        searcher="random",
        scheduler={"name": "pbt", "perturbation_interval": 1},
        trackers=[],
        progress=False,
    )
    assert {trial.status for trial in found.trials} == {"COMPLETED", "PRUNED"}
    rows = lookup.read(Folder(tmp_path, "networks")).history.trials
    children = [trial for trial in rows if trial.parent is not None]
    assert children
    for child in children:
        parent = rows[child.parent or 0]
        changed = {n for n in child.searched if child.searched[n] != parent.searched[n]}
        assert changed == {"lr"}


@pytest.mark.usefixtures("fixed")
def test_a_schedule_that_changes_one_is_refused() -> None:
    steps: list[dict[str, Any]] = [
        {"from": at, "settings": {"x": 0.5, "workers": workers}} for at, workers in ((0, 1), (3, 2))
    ]
    scheduler = {"name": "pbt_replay", "schedule": steps}
    spec = {**SPEC, "space": SPACE, "trials": 1, "scheduler": scheduler}
    with pytest.raises(UsageError, match=r"workers: workers cannot change or begin"):
        simulate(spec, curve)
    del steps[0]["settings"]["workers"]  # it would be proposed
    with pytest.raises(UsageError, match=r"workers: workers cannot .*; the steps have \[2\]"):
        simulate(spec, curve)


def test_a_clone_from_a_checkpoint_has_them_as_its_parent() -> None:
    spec = {**SPEC, "space": SPACE, "scheduler": "fifo", "searcher": "random"}
    with Simulation(spec, curve, slots=3) as simulation:
        history = simulation.run().history
    made = specs.parse(
        str({**spec, "name": "demo", "trainable": "ppo", "metric": "score", "mode": "max"}),
        "test.yaml",
    )
    proposer = Proposer(made, build("random"), (), dict, frozenset({"workers"}))
    parent = history.trials[0]
    other = {"workers": (parent.searched["workers"] + 1) % 3}
    with pytest.raises(
        BadConfig, match="--set workers: the clone continues from a checkpoint of trial"
    ):
        proposer.clone(history, parent, other, from_checkpoint=True)
    assert (
        proposer.clone(history, parent, other, from_checkpoint=False).searched["workers"]
        == (other["workers"])
    )
