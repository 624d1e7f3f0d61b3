"""The networks of one setting are compared on fresh episodes; the best one is handed over."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import sweep
from sweep.core.errors import BadConfig
from sweep.ledger.folder import Folder
from sweep.operations.models import networks
from sweep.operations.models.trained import Choice
from tests.support.command_line import Here, write_spec
from trainables.trainable import Trainable

pytestmark = pytest.mark.slow

#: Three seeds of a small policy, each with its best and its newest checkpoint.
PPO: dict[str, Any] = {
    "trainable": "ppo",
    "metric": "episode_reward_mean",
    "mode": "max",
    "trials": 1,
    "seeds": 3,
    "space": {"lr": {"choice": [0.01]}},
    "config": {
        "env": "CartPole-v1",
        "num_envs_per_worker": 2,
        "rollout_fragment_length": 64,
        "sgd_minibatch_size": 64,
        "num_sgd_iter": 4,
        "model": {"hidden": [8]},
    },
    "stop": {"training_iteration": 10},
    "scheduler": "fifo",
    "checkpoint": {"every": 1, "keep_best": 1},
}


def run(here: Here, folder: Path, **changes: Any) -> Folder:
    assert here("run", write_spec(folder, **PPO | changes), "--pool", "inline")[0] == 0
    return Folder(here.root, "demo")


def card(here: Here, out: Path, *words: object) -> dict[str, Any]:
    assert here("export-model", "demo", "--out", out, *words)[0] == 0
    found: dict[str, Any] = json.loads((out / "card.json").read_text())
    return found


def test_the_best_network_of_a_setting_on_fresh_episodes_is_exported(
    here: Here, tmp_path: Path
) -> None:
    run(here, tmp_path)
    code, said, _ = here("export-model", "demo", "--out", tmp_path / "out", "--episodes", 12)
    assert code == 0
    found = json.loads((tmp_path / "out" / "card.json").read_text())
    rows, fresh = found["played"]["compared"], found["played"]["fresh"]
    assert {row["seed_index"] for row in rows} == {0, 1, 2}
    assert len({row["digest"] for row in rows}) == len(rows) >= 3
    best = max(rows, key=lambda row: row["mean"])
    assert (found["seed_index"], found["checkpoint"]["digest"]) == (
        best["seed_index"],
        best["digest"],
    )
    assert found["checkpoint"]["iteration"] == best["iteration"]
    assert {row["episodes"] for row in rows} == {fresh["episodes"]} == {12}
    assert fresh["mean"] != best["mean"], "the episodes that chose it say too much of it"
    assert fresh["error"] == pytest.approx(fresh["deviation"] / 12**0.5)

    page = (tmp_path / "out" / "card.md").read_text()
    for text in (said, page):
        assert re.search(r"on 12 fresh episodes: mean episode_reward [\d.]+ ± [\d.]+", text)
        assert f"the best of {len(rows)} networks on 12 other episodes" in text
    assert "| 0.1 |" in page

    again = card(here, tmp_path / "again", "--episodes", 12)
    assert again == found, "the same history hands over the same network"
    assert sweep.load("demo", root=here.root).export_model(tmp_path / "api", episodes=12) == {
        key: value for key, value in found.items() if key not in ("mac", "key")
    }


def test_one_checkpoint_that_was_asked_for_plays_fresh_episodes_too(
    here: Here, tmp_path: Path
) -> None:
    run(here, tmp_path)
    asked = card(here, tmp_path / "a", "--checkpoint", "last", "--episodes", 3)["played"]
    assert (asked["compared"], asked["fresh"]["episodes"]) == ([], 3)
    assert asked["remark"] == "only this checkpoint was requested"
    none = card(here, tmp_path / "b", "--episodes", 0)
    assert none["played"] == {
        "asked": 0, "by": None, "fresh": None, "compared": [],
        "remark": "no fresh episodes were requested",
    }  # fmt: skip
    assert none["checkpoint"] == here.json("best", "demo")["checkpoint"]


def test_a_single_network_says_that_there_is_no_other(here: Here, tmp_path: Path) -> None:
    run(here, tmp_path, seeds=1, checkpoint=None, stop={"training_iteration": 1})
    played = card(here, tmp_path / "out", "--episodes", 2)["played"]
    assert played["remark"] == "it is the only network of these settings that has a checkpoint"
    assert (played["compared"], played["fresh"]["episodes"]) == ([], 2)


def test_by_a_metric_that_is_no_mean_of_episodes_networks_are_not_compared(
    here: Here, tmp_path: Path
) -> None:
    run(here, tmp_path, metric="timesteps_total", stop={"training_iteration": 3})
    played = card(here, tmp_path / "out", "--episodes", 2)["played"]
    assert "timesteps_total does not average episodes" in played["remark"]
    assert (played["compared"], played["fresh"]["episodes"]) == ([], 2)


def test_where_less_is_better_the_network_with_less_is_exported(here: Here, tmp_path: Path) -> None:
    run(here, tmp_path, metric="episode_len_mean", mode="min")
    found = card(here, tmp_path / "out", "--episodes", 10)
    rows = found["played"]["compared"]
    assert found["played"]["by"] == "episode_len"
    assert found["checkpoint"]["digest"] == min(rows, key=lambda row: row["mean"])["digest"]


def test_the_cost_is_capped(here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = run(here, tmp_path)
    monkeypatch.setattr(networks, "STEPS_PER_EPISODE", 40)
    with networks.restore_chosen(folder, Choice(checkpoint=networks.COMPARED), 20) as (_, played):
        pass
    assert "environment steps were used up" in played["remark"]
    assert len(played["compared"]) < 3
    assert all(row["episodes"] < 20 for row in played["compared"])


def test_episodes_without_an_end_are_left_out(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {**PPO["config"], "env": "tests.support.environments:Counting"}
    config |= {"env_config": {"length": 10**9}}
    folder = run(
        here, tmp_path, config=config, metric="timesteps_total", stop={"training_iteration": 1}
    )
    monkeypatch.setattr(networks, "STEPS_PER_EPISODE", 50)
    with networks.restore_chosen(folder, Choice(checkpoint=networks.COMPARED), 5) as (_, played):
        assert played["fresh"] is None
        assert "5 episodes take more than 1,000 environment steps" in played["remark"]


def test_a_trainable_without_episodes_hands_over_its_best_by_the_metric(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = run(here, tmp_path)
    asked: list[str] = []

    def play(self: Trainable, *_: object, **__: object) -> list[dict[str, float]]:
        asked.append(self.trial_id)
        raise NotImplementedError("it has no episodes to play")

    monkeypatch.setattr("trainables.trainer.trainer.Trainer.play", play)
    with networks.restore_chosen(folder, Choice(checkpoint=networks.COMPARED), 5) as (
        found,
        played,
    ):
        assert played["remark"] == "its networks were not compared: it has no episodes to play"
        assert found.saved == found.trial.leader.best_checkpoint
    assert len(asked) == 1, "the others cannot either"


def test_what_there_is_to_choose_from_has_a_key(here: Here, tmp_path: Path) -> None:
    run(here, tmp_path)
    trial = sweep.load("demo", root=here.root)._read().history.trials[0]
    before = networks.candidates_digest(trial)
    found = networks.candidates(trial)
    assert found[0].saved == trial.leader.best_checkpoint
    del trial.replicas[-1].checkpoints[found[-1].saved.digest]
    assert networks.candidates_digest(trial) != before


def test_a_wrong_number_of_episodes_or_a_wrong_format_is_refused(
    here: Here, tmp_path: Path
) -> None:
    run(here, tmp_path, stop={"training_iteration": 1})
    loaded = sweep.load("demo", root=here.root)
    with pytest.raises(BadConfig, match="episodes"):
        loaded.export_model(tmp_path / "out", episodes=-1)
    with pytest.raises(BadConfig, match="formats"):
        loaded.export_model(tmp_path / "out", formats=["onx"])
    assert here("export-model", "demo", "--out", tmp_path / "out", "--episodes", "-1")[0] == 2
    assert not (tmp_path / "out").exists()
