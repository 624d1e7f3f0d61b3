"""Results have the names of classic trainers where a switch, or a sweep's metric, asks for them."""

import re
from pathlib import Path
from typing import Any

import pytest

import sweep
from tests.support.trainers import SMALL, differences, final_state, make
from trainables.algorithms.ppo import PPO
from trainables.trainer.classic import RESULTS

PAGE = (Path(__file__).parents[3] / "docs/metrics.md").read_text()


def test_the_classic_names_stand_beside_ours_and_change_nothing_else() -> None:
    ours, both = make(), make({"classic_results": True})
    for _ in range(2):
        plain, result = ours.train(), both.train()
    assert result.keys() - plain.keys() == set(RESULTS)
    assert result["info"] == {
        "learner": {"default_policy": result["learner"]},
        "num_steps_sampled": result["timesteps_total"],
    }
    for kind in ("mean", "min", "max"):
        of_policy = {"default_policy": result[f"episode_reward_{kind}"]}
        assert result[f"policy_reward_{kind}"] == of_policy
        assert result["sampler_results"][f"policy_reward_{kind}"] == of_policy
    for name in ("episode_reward_mean", "episode_len_mean", "episodes_this_iter", "hist_stats"):
        assert result["sampler_results"][name] == result[name]
    assert differences(final_state(ours), final_state(both)) == []
    for one in (ours, both):
        one.stop()


def test_before_the_first_episode_there_is_no_reward_by_any_name() -> None:
    trainer = make({"classic_results": True, "train_batch_size": 3, "rollout_fragment_length": 1})
    result = trainer.train()
    assert "episode_reward_mean" not in result
    assert result.keys() & set(RESULTS) == {"info", "sampler_results"}
    assert "policy_reward_mean" not in result["sampler_results"]
    trainer.stop()


@pytest.mark.parametrize("name", ["policy_reward_mean/default_policy", "info/num_steps_sampled"])
def test_a_metric_of_a_classic_name_sets_the_switch(name: str) -> None:
    assert PPO.show_metrics({"lr": 1.0}, {"episode_reward_mean", name})["classic_results"] is True
    assert PPO.show_metrics({"lr": 1.0}, {"episode_reward_mean", "policy_rewards"}) == {"lr": 1.0}
    assert PPO.show_metrics({}, {"policy_reward_mean/hunters"}) == {}  # of several policies
    given = {"classic_results": False}
    assert PPO.show_metrics(given, {name}) == given


SPEC: dict[str, Any] = {
    "name": "classic",
    "trials": 1,
    "mode": "max",
    "space": {"lr": {"loguniform": [1e-3, 1e-2]}},
    "config": {**SMALL, "evaluation_interval": None, "lr_schedule": "constant"},
    "scheduler": "fifo",
    "trackers": [],
}
del SPEC["config"]["lr"]


def test_a_sweep_is_compared_by_a_classic_name_and_stops_by_one(tmp_path: Path) -> None:
    stop = {"info/num_steps_sampled": 150}
    metric = "sampler_results/episode_len_mean"
    given = {**SPEC, "metric": metric, "stop": stop}
    done = sweep.run("ppo", pool="inline", progress=False, root=tmp_path, **given)
    (trial,) = done.trials
    assert trial.iterations == 2
    assert trial.score is not None
    assert trial.config["classic_results"] is True


def test_the_page_names_all_that_a_result_holds() -> None:
    trainer = make({"classic_results": True, "evaluation_interval": 1, "log_sys_usage": True})
    held = trainer.train()
    named = {name.partition("/")[0] for name in re.findall(r"`([a-z_]+)", PAGE)}
    named |= {f"episode_reward{kind}" for kind in ("_min", "_max")}
    assert held.keys() - named == set()
    trainer.stop()
