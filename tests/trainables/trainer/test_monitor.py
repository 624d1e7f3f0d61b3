import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.trainers import SMALL, run
from trainables.algorithms.ppo import PPO
from trainables.trainable import TrialContext
from trainables.trainer.reporting import FILE

HERE = "tests.support.environments"


def make(folder: Path, name: str = "default", **config: Any) -> PPO:
    recorded = {**SMALL, "monitor": True, "evaluation_interval": None, **config}
    return PPO(recorded, TrialContext(seed=7, trial_name=name, logdir=folder))


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / FILE).read_text().splitlines()]


def test_W8_every_finished_episode_is_a_line_of_the_record(tmp_path: Path) -> None:
    trainer = make(tmp_path)
    results = run(trainer, 4)
    trainer.stop()
    recorded = lines(tmp_path)
    assert [one["episode"] for one in recorded] == list(range(1, len(recorded) + 1))
    assert len(recorded) == results[-1]["episodes_total"] > 0
    told = [reward for one in results for reward in one.get("hist_stats", {})["episode_reward"]]
    assert [one["total_reward"] for one in recorded] == told
    assert all(one["length"] == one["total_reward"] for one in recorded), "CartPole pays 1 a step"


def test_W8_a_restored_trial_goes_on_with_the_record_and_repeats_nothing(tmp_path: Path) -> None:
    whole = make(tmp_path / "whole")
    run(whole, 4)
    killed = make(tmp_path / "killed")
    run(killed, 2)
    saved = killed.get_state()
    run(killed, 1)  # what it wrote here is written again
    again = make(tmp_path / "killed")
    again.set_state(saved)
    run(again, 2)
    assert lines(tmp_path / "killed") == lines(tmp_path / "whole")
    for trainer in (whole, killed, again):
        trainer.stop()


def test_the_record_of_a_trial_that_continues_anothers_checkpoint_is_its_own(
    tmp_path: Path,
) -> None:
    parent = make(tmp_path / "parent", "parent")
    run(parent, 2)
    saved = parent.get_state()
    parent.stop()
    for _ in range(2):  # the first one is killed before it has a checkpoint
        offspring = make(tmp_path / "offspring", "offspring")
        offspring.set_state(saved)
        results = run(offspring, 4)
        offspring.stop()
    told = sum(one["episodes_this_iter"] for one in results)
    numbers = [one["episode"] for one in lines(tmp_path / "offspring")]
    assert numbers == list(range(1, told + 1))


@pytest.mark.slow
def test_W8_faulty_episodes_are_recorded_as_such(tmp_path: Path) -> None:
    config: dict[str, Any] = {"env": f"{HERE}:Mishap", "restart_failed_sub_environments": True}
    trainer = make(tmp_path, **config, num_envs_per_worker=1, train_batch_size=16)
    run(trainer, 1)
    trainer.stop()
    assert [one["faulty"] for one in lines(tmp_path)][:2] == [False, True]


def test_nothing_is_recorded_unless_asked_for(tmp_path: Path) -> None:
    trainer = make(tmp_path, monitor=False)
    run(trainer, 1)
    trainer.stop()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileNotFoundError):
        lines(tmp_path)
