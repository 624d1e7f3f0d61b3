"""Policies that come and go while a trainer works: in workers, evaluations and checkpoints."""

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from gymnasium import spaces

from tests.trainables.trainer.test_multi_agent import made, numbers, result
from trainables.algorithms.dqn import DQN
from trainables.algorithms.ppo import PPO
from trainables.core import rng
from trainables.errors import ConfigError
from trainables.rollout.callbacks import Callbacks
from trainables.trainer.trainer import Trainer

MAIN = {"policies": {"main": None}}
AGAINST = {"left": "main", "right": "past", "brief": "main"}
ALL = {"left": "main", "right": "main", "brief": "main"}


def several(algorithm: type[Trainer] = PPO, agents: Mapping[str, Any] = MAIN, **more: Any) -> Any:
    """A trainer of several policies."""
    return made(agents, algorithm, **more)


def add_past(trainer: Any) -> None:
    """The opponent is what `main` is now, and stays so."""
    state = trainer.get_policy("main").get_state()
    config = {"lr": 1e-3}
    more = {"policy_mapping_fn": AGAINST, "policies_to_train": ["main"]}
    trainer.add_policy("past", PPO, config=config, policy_state=state, **more)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"observation_filter": "MeanStdFilter", "evaluation_num_workers": 1},
        {"num_workers": 2, "observation_filter": "MeanStdFilter"},
        {"batch_mode": "complete_episodes", "env_level": "B"},
        {"synchronize_filters": False, "observation_filter": "MeanStdFilter"},
        {"model": {"use_lstm": True}},
    ],
)
def test_E14_what_came_and_went_is_restored_to_the_bit(
    more: dict[str, Any], tmp_path: Path
) -> None:
    config = {"evaluation_interval": 1, "evaluation_num_episodes": 2, **more}
    trainer, restored = several(**config), several(**config)
    assert set(trainer.train()["policy_reward_mean"]) == {"main"}
    add_past(trainer)
    frozen = numbers(trainer)["past"]
    assert frozen == numbers(trainer)["main"]
    trainer.train()
    with_past = trainer.train()
    assert numbers(trainer)["past"] == frozen != numbers(trainer)["main"]
    assert set(with_past["policy_reward_mean"]) == {"main", "past"}
    assert set(with_past["evaluation"]["policy_reward_mean"]) == {"main", "past"}
    assert set(with_past["learner"]) == {"main"}
    path = trainer.save(tmp_path / "with")
    went_on = [result(trainer) for _ in range(2)]
    restored.restore(path)
    assert [result(restored) for _ in range(2)] == went_on
    assert numbers(restored) == numbers(trainer)

    for one in (trainer, restored):
        one.remove_policy("past", policy_mapping_fn=ALL)
    path = trainer.save(tmp_path / "without")
    went_on = [result(trainer) for _ in range(2)]
    assert [result(restored) for _ in range(2)] == went_on
    assert set(went_on[-1]["evaluation"]["policy_reward_mean"]) == {"main"}
    restored.restore(path)
    assert [result(restored) for _ in range(2)] == went_on
    assert trainer.get_policy("past") is None
    assert trainer.get_weights().keys() == {"main"}
    trainer.stop()
    restored.stop()


def test_E14_a_policy_that_nobody_has_changes_nothing_of_the_others() -> None:
    trainer, alone = several(), several()
    trainer.train()
    alone.train()
    state = trainer.get_policy("main").get_state()
    streams = repr(rng.capture_global())
    trainer.add_policy("spare", policy_state=state)  # all agents keep theirs
    assert repr(rng.capture_global()) == streams
    assert trainer.train()["policy_reward_mean"].keys() == {"main"}
    alone.train()
    trainer.remove_policy("spare")
    assert result(trainer) == result(alone)
    assert numbers(trainer) == numbers(alone)
    trainer.stop()
    alone.stop()


class Leagues(Callbacks):
    """After the first iteration a snapshot comes, after the second another one for it."""

    def on_train_result(self, *, trainer: Any, result: dict[str, Any]) -> None:
        if (done := result["training_iteration"]) > 2:
            return
        state = trainer.get_policy("main").get_state()
        mapping = {"left": "main", "right": f"past_{done}", "brief": "main"}
        more = {"policy_mapping_fn": mapping, "policies_to_train": ["main"]}
        trainer.add_policy(f"past_{done}", policy_state=state, **more)
        if done == 2:
            trainer.remove_policy("past_1")


@pytest.mark.parametrize("algorithm", [PPO, DQN])
def test_E14_a_callback_lets_policies_come_and_go(algorithm: type[Trainer], tmp_path: Path) -> None:
    config: dict[str, Any] = {"callbacks": f"{__name__}:Leagues"}
    if algorithm is DQN:
        config["learning_starts"] = 10
    trainer, other = several(algorithm, **config), several(algorithm, **config)
    trainer.train()
    assert trainer.get_weights().keys() == {"main", "past_1"}
    trainer.train()
    assert trainer.get_weights().keys() == {"main", "past_2"}
    other.restore(trainer.save(tmp_path))
    went_on = [result(trainer) for _ in range(2)]
    assert {"main", "past_2"} <= went_on[-1]["policy_reward_mean"].keys()
    assert [result(other) for _ in range(2)] == went_on
    trainer.stop()
    other.stop()


def test_E14_an_episode_with_a_removed_policy_is_dropped_and_others_go_on(tmp_path: Path) -> None:
    """Of one worker's two environments one has the policy that goes."""
    trainer = several(agents={"policies": ["main", "past"], "policy_mapping_fn": by_turns})
    worker = trainer.workers.local_worker()
    trainer.train()
    sampler = worker._sampler
    has = ["past" in one.policies.values() for one in sampler._running.values()]
    before = [one.number for one in sampler._running.values()]
    assert sorted(has) == [False, True]
    trainer.remove_policy("past", policy_mapping_fn=ALL)
    after = [one.number for one in sampler._running.values()]
    assert [a == b for a, b in zip(after, before, strict=True)] == [not one for one in has]
    dropped = before[has.index(True)]
    assert {row.episode for row in sampler._transitions["main"].rows if not row.dropped} & {
        dropped
    } == set()
    # What is restored into a trainer as it began, or into one that has changed, is the same.
    path = trainer.save(tmp_path)
    went_on = result(trainer)
    trainer.restore(path)
    assert result(trainer) == went_on
    trainer.stop()


def by_turns(agent: str, rng: Any) -> str:
    """Agent `right` of every other episode has the policy `past`."""
    return "past" if agent == "right" and rng.random() < 0.5 else "main"


def test_E14_a_child_that_dies_is_replaced_by_one_with_the_same_policies() -> None:
    config: dict[str, Any] = {"num_workers": 2, "recreate_failed_workers": True}
    trainer, other = several(**config), several(**config)
    for one in (trainer, other):
        one.train()
        add_past(one)
    os.kill(trainer.workers.pids()[1], signal.SIGKILL)
    assert result(trainer) == result(other)
    os.kill(trainer.workers.pids()[0], signal.SIGKILL)
    assert result(trainer) == result(other)
    trainer.stop()
    other.stop()


def test_E14_what_is_given_to_one_policy_reaches_its_workers() -> None:
    trainer, other = several(), several(seed=3)
    state = other.get_policy("main").get_state()
    trainer.get_policy("main").set_state(state)
    (weights,) = trainer.workers.foreach_worker(lambda worker: worker.get_weights()["main"])
    assert all((weights[name] == one).all() for name, one in state["weights"].items())
    trainer.stop()
    other.stop()


NUMBER, OTHER = spaces.Discrete(3), spaces.Discrete(7)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.add_policy("main"), "there is a policy 'main' already"),
        (lambda t: t.add_policy("a/b"), "'a/b' cannot be the name"),
        (lambda t: t.add_policy("a", DQN), "policy_cls: .*leave it out, or give PPO"),
        (lambda t: t.add_policy("a", config={"lrr": 1}), "policies.a.lrr: .*'lr'"),
        (lambda t: t.add_policy("a", config={"num_workers": 1}), "for all policies"),
        (
            lambda t: t.add_policy("a", observation_space=OTHER, action_space=NUMBER),
            r"spaces of a: no agent has .*; give those of one of the agents left, right, brief",
        ),
        (
            lambda t: t.add_policy("a", policy_mapping_fn=lambda _: "a"),
            "cannot be imported by its name, which checkpoints",
        ),
        (lambda t: t.add_policy("a", policy_mapping_fn={"left": "b"}), "left: 'b' is not a policy"),
        (lambda t: t.add_policy("a", policies_to_train=["b"]), "policies_to_train: 'b' is not"),
        (lambda t: t.remove_policy("nobody"), "there is no policy 'nobody'; expected one of main"),
        (
            lambda t: t.remove_policy("past"),
            "right: 'past' is not a policy; expected one of main",
        ),
        (
            lambda t: t.remove_policy("past", policy_mapping_fn=by_name),
            "it returned 'left' for agent 'left', which is not a policy; expected one of main",
        ),
    ],
)
def test_E14_what_cannot_be_is_refused_in_one_line_and_changes_nothing(
    change: Any, words: str
) -> None:
    trainer, other = several(), several()
    for one in (trainer, other):
        add_past(one)
    with pytest.raises(ConfigError, match=words) as refusal:
        change(trainer)
    assert "\n" not in str(refusal.value)
    assert result(trainer) == result(other)
    trainer.stop()
    other.stop()


def by_name(agent: str) -> str:
    """Each agent has a policy of its name."""
    return agent


def test_E14_the_last_policy_and_states_of_another_are_refused() -> None:
    trainer = several()
    with pytest.raises(ConfigError, match="is the last policy"):
        trainer.remove_policy("main")
    state = {**trainer.get_policy("main").get_state(), "weights": {}}
    with pytest.raises(ValueError, match="the state belongs to another policy"):
        trainer.add_policy("past", policy_state=state)
    assert trainer.get_weights().keys() == {"main"}
    assert trainer.train()["policy_reward_mean"].keys() == {"main"}
    trainer.stop()


# ---- policies that were trained elsewhere --------------------------------------------------------


def against(source: Any) -> dict[str, Any]:
    """``multiagent`` with an opponent that was trained elsewhere."""
    policies = {"main": None, "past": {"restore": source}}
    return {"policies": policies, "policy_mapping_fn": AGAINST, "policies_to_train": ["main"]}


@pytest.mark.parametrize("source", ["checkpoint", "folder", "weights", "exported"])
def test_E14_a_policy_that_was_trained_elsewhere_is_loaded_by_its_path(
    source: str, tmp_path: Path
) -> None:
    teacher = several(seed=5)
    teacher.train()
    begun = teacher.save(tmp_path / "trial")
    (tmp_path / "trial" / "notes.txt").touch()
    teacher.train()
    written = {
        "checkpoint": begun,
        "weights": teacher.export_policy_checkpoint(str(tmp_path), policy_id="main"),
        "folder": teacher.save(tmp_path / "trial").parent,
        "exported": tmp_path / "exported",
    }
    teacher.export_model("safetensors", written["exported"])
    if source == "checkpoint":
        teacher.restore(begun)
    expected = numbers(teacher)["main"]
    agents = against({"path": str(written[source]), "policy": "main"})
    PPO.check_config({"env": "tests.support.agents:Targets", "multiagent": agents})
    trainer = several(agents=agents)
    trainer.train()
    assert numbers(trainer)["past"] == expected
    (mine,) = trainer.workers.foreach_worker(lambda worker: worker.get_weights()["past"])
    assert {name: one.tolist() for name, one in mine.items()} == expected
    teacher.stop()
    trainer.stop()


def test_E14_a_trial_that_is_restored_needs_the_file_no_more(tmp_path: Path) -> None:
    teacher = several(seed=5)
    path = Path(teacher.export_policy_checkpoint(str(tmp_path), policy_id="main"))
    agents = against(str(path))
    trainer = several(agents=agents)
    trainer.train()
    saved = trainer.save(tmp_path)
    went_on = result(trainer)
    path.unlink()
    restored, begun = several(agents=agents), several(agents=agents)
    restored.restore(saved)
    assert result(restored) == went_on
    with pytest.raises(ConfigError, match=r"policies\.past\.restore"):
        begun.train()
    for one in (teacher, trainer, restored, begun):
        one.stop()


def test_E14_a_policy_loaded_while_training_brings_its_filter(tmp_path: Path) -> None:
    filtered: dict[str, Any] = {"observation_filter": "MeanStdFilter"}
    teacher, trainer = several(seed=5, **filtered), several(**filtered)
    teacher.train()
    config = {"restore": str(teacher.save(tmp_path))}
    more = {"policy_mapping_fn": AGAINST, "policies_to_train": ["main"]}
    trainer.add_policy("past", config=config, **more)
    seen = teacher.members["main"].filters["observation"].get_state()
    assert seen["base"]["count"] > 0
    for one in (trainer.members["past"].filters["observation"], worker_filter(trainer)):
        assert repr(one.get_state()["base"]) == repr(seen["base"])
    trainer.train()
    assert repr(worker_filter(trainer).get_state()["base"]) == repr(seen["base"])
    teacher.stop()
    trainer.stop()


def worker_filter(trainer: Any) -> Any:
    """The filter of `past` in the only worker."""
    return trainer.workers.local_worker()._filters["past"]


def test_E14_files_that_hold_no_such_policy_are_refused_by_their_key(tmp_path: Path) -> None:
    filtered = several(observation_filter="MeanStdFilter")
    small = several(model={"hidden": [4]})
    trainer = several()
    filtered.train()
    (tmp_path / "empty").mkdir()
    hostile = tmp_path / "hostile.safetensors"
    hostile.write_bytes(b"\x08\x00\x00\x00\x00\x00\x00\x00{'a': 1}")
    foreign = tmp_path / "ckpt-0000000001-0.swck"
    foreign.write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    filtered.export_model("safetensors", tmp_path / "exported")
    cases = {
        str(tmp_path / "none"): "no such file",
        str(tmp_path / "empty"): "neither a checkpoint nor a safetensors file",
        str(hostile): "not a safetensors file",
        str(foreign): "ckpt-0000000001",
        str(tmp_path / "exported" / "main"): "the filter in this file cannot be trained further",
        str(filtered.save(tmp_path / "filtered")): "another observation_filter",
        str(small.save(tmp_path / "small")): "has shape",
    }
    for path, words in cases.items():
        with pytest.raises(ConfigError, match=f"policies.past.restore: .*{words}") as refusal:
            trainer.add_policy("past", config={"restore": path})
        assert "\n" not in str(refusal.value)
        assert trainer.get_weights().keys() == {"main"}
    for source, words in (
        (str(tmp_path / "none"), "past.restore"),
        (3, "past.restore: 3 .* a path"),
    ):
        with pytest.raises(ConfigError, match=words):
            PPO.check_config({"env": "tests.support.agents:Targets", "multiagent": against(source)})
    for one in (filtered, small, trainer):
        one.stop()
