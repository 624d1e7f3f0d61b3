"""What stands in an output after something was restored: nothing is lost, twice there or mixed."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.trainers import PLAIN
from trainables.algorithms.ppo import PPO
from trainables.offline.config import OfflineConfig
from trainables.offline.writer import JsonWriter
from trainables.trainable import TrialContext

COUNTING: dict[str, Any] = {
    **PLAIN,
    "env": "tests.support.environments:Counting",
    "env_config": {"length": 7},
    "output": "logdir",
}
AGENTS: dict[str, Any] = {
    "env": "tests.support.agents:Reaching",
    "env_level": "A",
    "multiagent": {
        "policies": {"ones": None, "others": None},
        "policy_mapping_fn": {"left": "ones", "right": "others", "brief": "others"},
    },
    "num_envs_per_worker": 2,
    "rollout_fragment_length": 11,
    "sgd_minibatch_size": 16,
    "output": "logdir",
}


def trainer_in(folder: Path, seed: int = 7, **config: Any) -> Any:
    return PPO({**COUNTING, **config}, TrialContext(seed, logdir=folder))


def lines(folder: Path) -> list[str]:
    paths = sorted(folder.rglob("output-*.json"))
    return [line for path in paths for line in path.read_text().splitlines()]


def places(folder: Path) -> list[tuple[str, int, int, int]]:
    """Policy, agent, episode and step of all rows."""
    found: list[tuple[str, int, int, int]] = []
    for line in map(json.loads, lines(folder)):
        for pid, columns in line.get("policy_batches", {"": line}).items():
            names = ("agent_index", "eps_id", "t")
            found += [(pid, *row) for row in zip(*(columns[n] for n in names), strict=True)]
    return found


def unrolls(folder: Path) -> list[tuple[str, int]]:
    """Policy and number of each piece."""
    batches = [json.loads(line) for line in lines(folder)]
    by_policy = [one.get("policy_batches", {"": one}).items() for one in batches]
    return [(pid, i) for one in by_policy for pid, c in one for i in sorted({*c["unroll_id"]})]


def test_a_checkpoint_of_another_trainer_of_the_same_name_removes_nothing(tmp_path: Path) -> None:
    donor = trainer_in(tmp_path / "a", seed=1)
    donor.train()
    saved = donor.save(tmp_path / "checkpoints")
    donor.stop()
    first = trainer_in(tmp_path / "b", seed=2)
    for _ in range(3):
        first.train()
    first.stop()
    before = lines(tmp_path / "b")
    again = trainer_in(tmp_path / "b", seed=2)
    found = []
    for _ in range(2):
        again.restore(saved)
        again.train()
        found.append(lines(tmp_path / "b"))
    again.stop()
    assert found[0][:3] == before
    assert len(found[0]) == 4
    assert found[1] == found[0]  # the same rows, once


def test_a_checkpoint_of_the_same_seed_and_name_is_told_by_what_was_written(tmp_path: Path) -> None:
    """As where a folder is copied, or used for another run of the same settings."""
    donor = trainer_in(tmp_path / "a", env_config={"length": 4})
    donor.train()
    saved = donor.save(tmp_path / "checkpoints")
    donor.stop()
    trainer = trainer_in(tmp_path / "b")
    for _ in range(3):
        trainer.train()
    before = lines(tmp_path / "b")
    trainer.restore(saved)
    trainer.train()
    trainer.stop()
    assert lines(tmp_path / "b")[:3] == before
    assert len(lines(tmp_path / "b")) == 4


def test_a_second_restore_of_a_checkpoint_writes_its_rows_once(tmp_path: Path) -> None:
    """Also after more rows than the second time, which are then sampled again."""
    donor = trainer_in(tmp_path / "a", seed=1)
    donor.train()
    saved = donor.save(tmp_path / "checkpoints")
    donor.stop()
    trainer = trainer_in(tmp_path / "b")
    trainer.train()
    before = lines(tmp_path / "b")
    for rounds in (2, 1, 3):
        trainer.restore(saved)
        for _ in range(rounds):
            trainer.train()
    trainer.stop()
    once = trainer_in(tmp_path / "once")
    once.train()
    once.restore(saved)
    for _ in range(3):
        once.train()
    once.stop()
    assert lines(tmp_path / "b") == lines(tmp_path / "once")
    assert lines(tmp_path / "b")[:1] == before
    assert len(places(tmp_path / "b")) == len(set(places(tmp_path / "b")))


@pytest.mark.parametrize("same_process", [True, False])
def test_rows_that_a_checkpoint_holds_stay_whatever_is_restored(
    same_process: bool, tmp_path: Path
) -> None:
    donor = trainer_in(tmp_path / "a", seed=1)
    donor.train()
    saved = donor.save(tmp_path / "checkpoints")
    donor.stop()
    trainer = trainer_in(tmp_path / "b")
    trainer.restore(saved)
    for _ in range(2):
        trainer.train()
    mine = trainer.save(tmp_path / "mine")
    before = lines(tmp_path / "b")
    if not same_process:
        trainer.stop()
        trainer = trainer_in(tmp_path / "b")
    trainer.restore(saved)
    trainer.train()
    assert lines(tmp_path / "b")[:2] == before
    assert len(lines(tmp_path / "b")) == 3
    assert len(places(tmp_path / "b")) == len(set(places(tmp_path / "b")))
    trainer.stop()
    last = trainer_in(tmp_path / "b")
    last.restore(mine)  # what came after it never happened
    last.train()
    last.stop()
    assert lines(tmp_path / "b")[:2] == before
    assert len(lines(tmp_path / "b")) == 3


def test_a_slice_that_is_retried_writes_again_what_a_lost_checkpoint_held(tmp_path: Path) -> None:
    """Of a sweep: a checkpoint that its ledger does not have is lost with its slice."""
    donor = {"owner": "another", "series": 0, "file": 0, "bytes": 9, "last": [9, 1], "nth": 0}
    for _ in range(2):
        config = OfflineConfig(output="logdir")
        writer = JsonWriter(config, lambda: tmp_path, "me", False, is_retried=True)
        writer.set_state(donor, 500)
        writer.write({"obs": np.zeros(1)})
        writer.get_state()
    assert len(lines(tmp_path)) == 1


@pytest.mark.parametrize(
    ("config", "more"),
    [
        (COUNTING, {"num_envs_per_worker": 3}),
        (COUNTING, {"num_workers": 2, "train_batch_size": 48}),
        (COUNTING, {"batch_mode": "complete_episodes"}),
        (AGENTS, {"num_envs_per_worker": 3}),
    ],
    ids=["environments", "workers", "whole episodes", "agents"],
)
def test_other_workers_begin_episodes_with_numbers_of_their_own(
    config: dict[str, Any], more: dict[str, Any], tmp_path: Path
) -> None:
    def made(**more: Any) -> Any:
        return PPO({**config, **more}, TrialContext(7, logdir=tmp_path))

    trainer = made()
    for _ in range(3):
        trainer.train()
    saved = trainer.save(tmp_path / "checkpoints")
    trainer.stop()
    before = len(places(tmp_path))
    for _ in range(2):  # the second time from the new trainer's own checkpoint
        other = made(**more)
        other.restore(saved)
        for _ in range(2):
            other.train()
        saved = other.save(tmp_path / "checkpoints")
        other.stop()
    found = places(tmp_path)
    assert len(found) > before
    assert len(found) == len(set(found))
    assert len(unrolls(tmp_path)) == len(set(unrolls(tmp_path)))


def test_episodes_of_another_trials_checkpoint_have_numbers_of_their_own(tmp_path: Path) -> None:
    donor = trainer_in(tmp_path / "a", seed=1)
    donor.train()
    saved = donor.save(tmp_path / "checkpoints")
    donor.stop()
    trainer = trainer_in(tmp_path / "b")
    for _ in range(3):
        trainer.train()
    trainer.restore(saved)
    for _ in range(3):
        trainer.train()
    trainer.stop()
    found = places(tmp_path / "b")
    assert len(found) == len(set(found)) == 6 * 24
    assert len(unrolls(tmp_path / "b")) == len(set(unrolls(tmp_path / "b")))
