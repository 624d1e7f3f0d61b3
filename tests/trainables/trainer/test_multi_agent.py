"""Several policies in one trainer: they learn, come back to the bit, and leave each other alone."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from tests.support.agents import Dicts
from tests.support.trainers import only_worker
from trainables.algorithms.dqn import DQN
from trainables.algorithms.impala import IMPALA
from trainables.algorithms.ppo import PPO
from trainables.algorithms.sac import SAC
from trainables.errors import ConfigError
from trainables.rollout.agents.worker import MultiAgentBatch
from trainables.rollout.callbacks import Callbacks
from trainables.rollout.workers.worker import RolloutWorker
from trainables.trainer.multi_agent.trainer import multi_agent_class
from trainables.trainer.trainer import Trainer

HERE = "tests.support.agents"
SHARED = {"policies": {"shared": None}}
EACH = {"policies": {"left": {"lr": 1e-3}, "right": None, "brief": {"model": {"hidden": [16]}}}}
EACH_PLAYER = {"policies": ["player_1", "player_2"]}
SMALL = {"num_envs_per_worker": 2, "rollout_fragment_length": 11, "sgd_minibatch_size": 16}
WITHOUT_SGD = {key: one for key, one in SMALL.items() if not key.startswith("sgd")}


def made(
    multiagent: Mapping[str, Any] = SHARED, algorithm: type[Trainer] = PPO, **more: Any
) -> Trainer:
    config = {"env": f"{HERE}:Targets", "multiagent": multiagent, "env_level": "A"}
    return algorithm({**config, **(SMALL if algorithm is PPO else WITHOUT_SGD), **more})


def numbers(trainer: Trainer | RolloutWorker) -> dict[str, dict[str, Any]]:
    weights = trainer.get_weights()
    return {pid: {k: v.tolist() for k, v in one.items()} for pid, one in weights.items()}


def result(trainer: Trainer) -> dict[str, Any]:
    keys = ("timesteps_total", "agent_timesteps_total", "hist_stats", "policy_reward_mean")
    found = trainer.train()
    return {key: found.get(key) for key in (*keys, "episodes_total", "learner", "evaluation")}


# ---- learning ------------------------------------------------------------------------------------


def test_agents_learn_and_results_say_how_well_each_policy_does() -> None:
    sizes: dict[str, Any] = {"rollout_fragment_length": 64, "sgd_minibatch_size": 64, "lr": 5e-3}
    trainer = made({"policies": [*EACH["policies"]]}, evaluation_interval=20, **sizes)
    for _ in range(20):
        last = trainer.train()
    trainer.stop()
    chance = {"left": 8 / 3, "right": 8 / 3, "brief": 4 / 3}
    most = {"left": 8.0, "right": 8.0, "brief": 4.0}
    for pid, mean in last["policy_reward_mean"].items():
        assert chance[pid] * 1.5 < mean <= most[pid]
    played = last["evaluation"]["policy_reward_mean"]
    assert played["left"] == played["right"] == 8.0
    assert np.isclose(last["episode_reward_mean"], sum(last["policy_reward_mean"].values()))
    # "brief" acts in half of the steps, the others in all.
    assert last["agent_timesteps_total"] == pytest.approx(2.5 * last["timesteps_total"], rel=0.01)
    assert set(last["learner"]) == set(EACH["policies"])


@pytest.mark.parametrize(
    ("algorithm", "env", "more"),
    [
        (PPO, "Targets", {}),
        (PPO, "Targets", {"batch_mode": "complete_episodes"}),
        (PPO, "Targets", {"num_workers": 2}),
        (PPO, "Targets", {"model": {"use_lstm": True}}),
        (PPO, "Targets", {"observation_filter": "MeanStdFilter"}),
        (PPO, "Targets", {"env_level": "B"}),
        (PPO, "Targets", {"normalize_rewards": True, "multiagent": EACH}),
        (PPO, "Targets", {"normalize_rewards": True, "num_workers": 2}),
        (DQN, "Targets", {"learning_starts": 20, "n_step": 3, "multiagent": EACH}),
        (SAC, "Reaching", {"learning_starts": 20}),
        (IMPALA, "Targets", {"multiagent": EACH}),
        (IMPALA, "Targets", {"multiagent": EACH, "num_workers": 2}),
    ],
)
def test_K8_what_is_restored_goes_on_to_the_bit(
    algorithm: type[Trainer], env: str, more: dict[str, Any], tmp_path: Path
) -> None:
    config = {
        "env": f"{HERE}:{env}",
        "evaluation_interval": 2,
        "evaluation_num_episodes": 2,
        **more,
    }
    trainer = made(algorithm=algorithm, **config)
    begun = numbers(trainer)
    for _ in range(2):
        trainer.train()
    assert not trainer.gives_copies  # a member may have a replay
    path = trainer.save(tmp_path)
    went_on = [result(trainer) for _ in range(2)]
    restored = made(algorithm=algorithm, **config)
    restored.restore(path)
    assert [result(restored) for _ in range(2)] == went_on
    assert numbers(restored) == numbers(trainer) != begun
    assert trainer.exactness[0] == more.get("env_level", "A")
    trainer.stop()
    restored.stop()


def test_W19_B8_a_policy_that_is_not_trained_is_not_touched() -> None:
    agents = {**EACH, "policies_to_train": ["left", "brief"]}
    trainer = made(agents, observation_filter="MeanStdFilter")
    before = trainer.save_checkpoint("")["members"]["right"]
    learnt = numbers(trainer)
    for _ in range(2):
        last = trainer.train()
    after = trainer.save_checkpoint("")["members"]["right"]
    for part in ("policy", "filters", "streams"):
        assert repr(after[part]) == repr(before[part])
    assert numbers(trainer)["right"] == learnt["right"]
    assert numbers(trainer)["left"] != learnt["left"]
    assert set(last["learner"]) == {"left", "brief"}
    assert "right" in last["policy_reward_mean"]
    trainer.stop()


@pytest.mark.parametrize("batch_mode", ["truncate_episodes", "complete_episodes"])
def test_rewards_are_scaled_by_the_returns_of_each_agent(batch_mode: str) -> None:
    """As recorded without it, each trajectory discounted for itself, the deviation that of all."""
    config: dict[str, Any] = {"gamma": 0.9, "batch_mode": batch_mode}
    scaling, plain = made(normalize_rewards=True, **config), made(**config)
    (fragments,), (raw,) = (
        [
            one.policy_batches["shared"].fragments
            for one in samples
            if isinstance(one, MultiAgentBatch)
        ]
        for samples in (scaling.workers.sample(), plain.workers.sample())
    )
    counted: list[float] = []
    for scaled, fragment in zip(fragments, raw, strict=True):
        returns = np.zeros(fragment.valid.shape[1])
        for t, rewards in enumerate(fragment.rewards):
            there = ~fragment.autoreset[t]
            returns[there] = returns[there] * 0.9 + rewards[there]
            counted += returns[there].tolist()
            assert np.allclose(scaled.rewards[t, there], rewards[there] / np.std(counted)), t
            returns[fragment.terminated[t]] = 0.0
    assert len(fragments) == 1
    assert len(counted) == sum(one.steps for one in raw) > 40
    scaling.stop()
    plain.stop()


def test_the_filter_of_a_policy_that_is_not_trained_counts_nothing() -> None:
    agents = {"policies": ["left", "right", "brief"], "policies_to_train": ["left"]}
    trainer = made(agents, observation_filter="MeanStdFilter")
    trainer.workers.sample()
    filters: Any = only_worker(trainer)._filters
    trainer.stop()
    assert filters["left"].row_count > 0
    assert filters["right"].row_count == filters["brief"].row_count == 0


def test_a_sum_of_rewards_is_clipped_for_the_learner() -> None:
    config: dict[str, Any] = {"env": f"{HERE}:Turns", "env_level": "C", "clip_rewards": 2.5}
    trainer = made({"policies": ["a", "b"]}, **config)
    (sample,) = trainer.workers.sample()
    trainer.stop()
    assert isinstance(sample, MultiAgentBatch)
    for one in sample.policy_batches.values():
        (fragment,) = one.fragments
        assert set(fragment.rewards[~fragment.autoreset].tolist()) == {2.5}  # of 1 and 10


def test_a_policy_learns_by_its_own_settings() -> None:
    agents = {"policies": {"left": {"lr": 1e-3}, "right": {"lr": 3e-5}, "brief": None}}
    trainer = made(agents, lr=2e-4)
    learner = trainer.train()["learner"]
    trainer.stop()
    assert {pid: one["lr"] for pid, one in learner.items()} == {
        "left": 1e-3,
        "right": 3e-5,
        "brief": 2e-4,
    }


def test_B7_B8_gradients_and_steps_are_by_policy_and_leave_out_what_is_not_trained() -> None:
    trainer = made({**EACH, "policies_to_train": ["left"]})
    samples = trainer.workers.sample()
    shares = trainer._samples_by_policy(samples)  # type: ignore[attr-defined]  # of several policies
    members: Any = trainer.members
    batch = {pid: members[pid].learning_rows(shares[pid][0].fragments) for pid in ("left", "right")}
    before = numbers(trainer)
    gradients, info = trainer.compute_gradients(batch)  # type: ignore[arg-type]  # by policy
    assert set(gradients) == {"left"}
    assert info["left"]["batch_count"] == len(batch["left"])  # type: ignore[index]  # by policy
    assert set(trainer.apply_gradients(gradients)) == {"left"}  # type: ignore[call-overload]
    assert set(trainer.learn_on_batch(batch)) == {"left"}  # type: ignore[arg-type]  # by policy
    after = numbers(trainer)
    assert {pid for pid in after if after[pid] != before[pid]} == {"left"}
    trainer.stop()


class Watching(Callbacks):
    """Counts the steps in which the left agent was right, and what its episodes brought."""

    def on_episode_start(self, *, worker: Any, episode: Any) -> None:
        assert set(episode.last_observation) == {"left", "right", "brief"}
        assert worker.get_policy("shared") is not None

    def on_episode_step(self, *, worker: Any, episode: Any) -> None:
        count = episode.user_data.get("steps", 0) + 1
        episode.user_data["steps"] = count

    def on_episode_end(self, *, worker: Any, episode: Any, error: Exception | None) -> None:
        assert episode.total_reward == sum(episode.agent_rewards.values())
        episode.custom_metrics["steps"] = episode.user_data["steps"]
        episode.custom_metrics["left"] = episode.agent_rewards["left"]


def test_E8_callbacks_see_agents_and_what_they_write_is_restored(tmp_path: Path) -> None:
    config: dict[str, Any] = {"callbacks": f"{__name__}:Watching", "evaluation_interval": 2}
    trainer = made(**config)
    trainer.train()
    path = trainer.save(tmp_path)
    last = trainer.train()
    assert last["custom_metrics"]["steps_mean"] == 8
    returns = [left for left, _, _ in batched(last["hist_stats"]["policy_shared_reward"])]
    assert last["custom_metrics"]["left_max"] >= max(returns)
    assert last["evaluation"]["custom_metrics"]["steps_min"] == 8
    restored = made(**config)
    restored.restore(path)
    assert restored.train()["custom_metrics"] == last["custom_metrics"]
    trainer.stop()
    restored.stop()
    with pytest.raises(ConfigError, match="on_postprocess_traj"):
        made(callbacks={"on_postprocess_traj": print})


class Informed(Callbacks):
    """Writes down what is common to all agents, and for whom there are infos."""

    def on_episode_step(self, *, worker: Any, episode: Any) -> None:
        assert "__common__" not in episode.last_info["agents"]
        episode.hist_data.setdefault("t", []).append(episode.last_info["common"]["t"])

    def on_episode_end(self, *, worker: Any, episode: Any, error: Exception | None) -> None:
        episode.custom_metrics["agents"] = len(episode.last_info["agents"])


def test_E5_what_concerns_all_agents_reaches_callbacks() -> None:
    more: dict[str, Any] = {"evaluation_interval": 1, "evaluation_num_episodes": 1}
    trainer = made(env=f"{HERE}:Informed", callbacks=f"{__name__}:Informed", **more)
    result = trainer.train()
    trainer.stop()
    for one in (result, result["evaluation"]):
        assert one["hist_stats"]["t"][:8] == list(range(1, 9))
        assert one["custom_metrics"]["agents_mean"] == 2


def batched(returns: list[float]) -> list[list[float]]:
    """By episode, of its three agents."""
    return [returns[i : i + 3] for i in range(0, len(returns), 3)]


# ---- policies from outside -----------------------------------------------------------------------


def test_policies_are_reached_by_their_names(tmp_path: Path) -> None:
    trainer, other = made(EACH), made(EACH, seed=7)
    assert numbers(trainer)["left"] != numbers(other)["left"]
    trainer.set_weights({"left": other.get_weights(["left"])["left"]})
    assert numbers(trainer)["left"] == numbers(other)["left"]
    assert trainer.get_policy("nobody") is None
    assert trainer.get_policy("right") is not None
    actions = trainer.compute_actions({"left": 0, "right": 2})
    assert actions["left"] == other.compute_action(0, policy_id="left")
    path = other.export_policy_checkpoint(str(tmp_path), policy_id="right")
    trainer.import_policy_weights(path, "right")
    assert numbers(trainer)["right"] == numbers(other)["right"]
    with pytest.raises(ConfigError, match="one of brief, left, right"):
        trainer.compute_action(0)
    trainer.train()
    files = trainer.export_model("onnx", tmp_path / "model")
    assert {Path(one).relative_to(tmp_path / "model").as_posix() for one in files.values()} == {
        f"{pid}/policy.onnx" for pid in EACH["policies"]
    }
    trainer.stop()
    other.stop()


def test_weights_of_which_one_does_not_fit_change_no_policy() -> None:
    trainer, other = made(EACH), made(EACH, seed=7)
    worker = only_worker(trainer)
    before, workers_before = numbers(trainer), numbers(worker)
    fits = {"left": other.get_weights(["left"])["left"]}
    misfits: list[dict[str, Any]] = [{"right": {}}, {"nobody": {}}]
    for misfit in misfits:
        with pytest.raises(ConfigError):
            trainer.set_weights({**fits, **misfit})
    assert numbers(trainer) == before
    with pytest.raises(ConfigError, match="one of brief, left, right"):
        worker.set_weights({**fits, "nobody": {}})
    assert numbers(worker) == workers_before
    trainer.stop()
    other.stop()


def test_a_worker_stores_weights_for_its_only_policy_under_its_name() -> None:
    trainer = made()
    worker = only_worker(trainer)
    zeros = {name: one * 0 for name, one in trainer.get_weights()["shared"].items()}
    worker.set_weights({"": zeros})
    assert list(worker.get_weights()) == ["shared"]
    assert not any(one.any() for one in worker.get_weights()["shared"].values())
    trainer.stop()


def test_T21_T22_a_model_comes_and_goes_by_its_policys_name(tmp_path: Path) -> None:
    trainer, other = made(EACH), made(EACH, seed=7)
    path = other.export_policy_checkpoint(str(tmp_path), "model", "right")
    before = numbers(trainer)
    trainer.import_model(path, "right")
    found = numbers(trainer)
    assert found == {**before, "right": numbers(other)["right"]}
    assert found["right"] != before["right"]
    trainer.train()
    for pid in EACH["policies"]:
        exported = Path(trainer.export_policy_model(str(tmp_path / pid), pid))
        assert exported == tmp_path / pid / "policy.onnx"
        assert exported.is_file()
    calls: list[Callable[[], object]] = [
        lambda: trainer.import_model(path),
        lambda: trainer.import_model(path, "nobody"),
        lambda: trainer.export_policy_model(str(tmp_path), "nobody"),
    ]
    for call in calls:
        with pytest.raises(ConfigError, match="one of brief, left, right"):
            call()
    trainer.stop()
    other.stop()


def test_a_method_with_two_names_is_one_method_with_several_policies() -> None:
    kind = multi_agent_class(PPO)
    names: dict[Any, list[str]] = {}
    for name, one in vars(Trainer).items():
        if callable(one):
            names.setdefault(one, []).append(name)
    twice = [both for both in names.values() if len(both) > 1]
    assert sorted(map(sorted, twice)) == [
        ["compute_action", "compute_single_action"],
        ["import_model", "import_policy_weights"],
    ]
    for first, second in twice:
        assert getattr(kind, first) is getattr(kind, second)


def test_T19_arguments_stand_in_the_same_order_with_several_policies() -> None:
    trainer, other = made(EACH, model={"use_lstm": True, "lstm_use_prev_reward": True}), made(EACH)
    first = trainer.get_initial_state("left")
    assert [part.shape for part in first] == [(64,), (64,), (1,)]
    named: Any = trainer.compute_action(
        1, state=first, prev_reward=1.0, policy_id="left", full_fetch=True
    )
    in_order: Any = trainer.compute_action(1, first, None, 1.0, None, "left", True, False)
    assert repr(in_order) == repr(named)
    of_right: Any = trainer.compute_single_action(1, first, None, 1.0, None, "right", True)
    assert of_right[2]["value"] != named[2]["value"]
    assert other.get_initial_state("left") == []
    for ask in (trainer.get_initial_state, lambda: trainer.compute_action(0, first)):
        with pytest.raises(ConfigError, match="one of brief, left, right"):
            ask()
    trainer.stop()
    other.stop()


def test_T19_T21_T22_a_policy_that_is_alone_need_not_be_named(tmp_path: Path) -> None:
    trainer = made(callbacks=Looking, evaluation_interval=1)
    trainer.train()
    policy = trainer.get_policy()
    assert policy is not None
    assert policy.compute_single_action(1)[0] == trainer.compute_action(1)
    assert trainer.get_initial_state() == []
    exported = Path(trainer.export_policy_model(str(tmp_path)))
    assert exported.is_file()
    weights = Path(trainer.export_policy_checkpoint(str(tmp_path)))
    before = numbers(trainer)
    trainer.set_weights(
        {"shared": {n: one * 0 for n, one in trainer.get_weights()["shared"].items()}}
    )
    assert numbers(trainer) != before
    trainer.import_policy_weights(weights)
    assert numbers(trainer) == before
    with pytest.raises(ConfigError, match="is the last policy"):
        trainer.remove_policy("")  # type: ignore[attr-defined]  # of those with policies
    assert trainer.get_policy("nobody") is None
    trainer.stop()


class Looking(Callbacks):
    """Asks for the only policy where agents play."""

    def on_episode_start(self, *, worker: Any, episode: Any, **more: Any) -> None:
        assert worker.get_policy() is worker.get_policy("shared")
        assert worker.get_policy() is not None


def test_B12_workers_take_the_weights_of_several_policies_or_of_the_only_one() -> None:
    trainer, alone = made({**EACH, "policies_to_train": ["left"]}), made()
    assert trainer.workers.foreach_trainable_policy(lambda _, name: name) == ["left"]
    zero = {n: one * 0 for n, one in trainer.get_weights()["left"].items()}
    trainer.workers.sync_weights({"left": zero})
    (held,) = trainer.workers.foreach_worker(lambda one: one.get_weights())
    assert not any(one.any() for one in held["left"].values())
    assert any(one.any() for one in held["right"].values())
    with pytest.raises(ConfigError, match="one of brief, left, right"):
        trainer.workers.sync_weights(zero)
    alone.workers.sync_weights({n: one * 0 for n, one in alone.get_weights()["shared"].items()})
    (held,) = alone.workers.foreach_worker(lambda one: one.get_weights())
    assert not any(one.any() for one in held["shared"].values())
    (size,) = alone.workers.foreach_worker(
        lambda one: one.for_policy(lambda policy: policy.memory_size)
    )
    assert size == 0
    trainer.stop()
    alone.stop()


def everything(observations: Mapping[str, Any]) -> dict[str, Any]:
    """What all are shown, to each of them; nothing of one that has left."""
    seen = [observations.get(agent, -1) for agent in ("left", "right", "brief")]
    return {agent: np.array(seen, dtype=np.float32) for agent in observations}


def _three(agent: str, given: Mapping[str, spaces.Space[Any]]) -> spaces.Space[Any]:
    assert isinstance(given[agent], spaces.Discrete)
    return spaces.Box(-1.0, 2.0, (3,), np.float32)


everything.observation_space = _three  # type: ignore[attr-defined]  # where its caller looks


def test_W19_agents_see_what_a_function_of_all_observations_gives_them() -> None:
    trainer = made(observation_fn=f"{__name__}:everything", evaluation_interval=1)
    result = trainer.train()
    (sample,) = trainer.workers.sample()
    trainer.stop()
    assert result["evaluation"]["episodes"] == 10
    assert isinstance(sample, MultiAgentBatch)
    (fragment,) = sample.policy_batches["shared"].fragments
    rows = fragment.observations[~fragment.autoreset]
    assert rows.shape[1] == 3
    assert {-1.0, 0.0, 1.0, 2.0} == set(rows.ravel().tolist())
    with pytest.raises(ConfigError, match=r"observation_fn: .*one agent"):
        PPO.check_config({"env": "CartPole-v1", "observation_fn": f"{__name__}:everything"})


@pytest.mark.parametrize("algorithm", [PPO, DQN])
def test_players_of_a_game_of_turns_choose_what_their_masks_allow(algorithm: type[Trainer]) -> None:
    config: dict[str, Any] = {
        "env": "pettingzoo.classic.tictactoe.tictactoe:raw_env",
        "env_level": "C",
    }
    config |= {"action_mask": "observation", "observation_filter": "MeanStdFilter"}
    trainer = made(EACH_PLAYER, algorithm, **config, evaluation_interval=2)
    # Without a mask the game itself raises at the first square that is taken.
    last = [trainer.train() for _ in range(2)][-1]
    trainer.stop()
    assert last["agent_timesteps_total"] >= 40
    assert last["episode_len_mean"] >= 5
    played = last["evaluation"]["policy_reward_mean"]
    assert set(played) == {"player_1", "player_2"}
    assert sum(played.values()) == 0
    with pytest.raises(ConfigError, match="info cannot be used with several agents"):
        made(EACH_PLAYER, algorithm, **{**config, "action_mask": "info"})


def test_a_target_is_copied_in_a_round_in_which_its_policy_has_no_row() -> None:
    config: dict[str, Any] = {"env_level": "C", "num_envs_per_worker": 1, "tau": None}
    config |= {"rollout_fragment_length": 1, "timesteps_per_iteration": 1}
    config |= {"learning_starts": 1, "target_network_update_freq": 4, "env": f"{HERE}:Turns"}
    trainer: Any = made({"policies": ["a", "b"]}, DQN, **config)
    rounds: dict[str, list[int]] = {"a": [], "b": []}
    for pid, member in trainer.members.items():
        member.target.update_targets = lambda _, pid=pid: rounds[pid].append(trainer.iteration + 1)
    for _ in range(12):
        trainer.train()
    trainer.stop()
    assert rounds == {"a": [4, 8, 12], "b": [4, 8, 12]}


class SelfPlay(Callbacks):
    """The opponent becomes what is learnt, every other iteration."""

    def on_train_result(self, *, trainer: Any, result: dict[str, Any]) -> None:
        if result["training_iteration"] % 2 == 0:
            trainer.set_weights({"past": trainer.get_weights(["main"])["main"]})


def test_a_policy_plays_against_snapshots_of_itself_to_the_bit(tmp_path: Path) -> None:
    mapping = {"left": "main", "right": "past", "brief": "past"}
    agents = {"policies": ["main", "past"], "policy_mapping_fn": mapping}
    config: dict[str, Any] = {"multiagent": {**agents, "policies_to_train": ["main"]}}
    trainer = made(**config, callbacks=f"{__name__}:SelfPlay")
    begun = numbers(trainer)["past"]
    trainer.train()
    assert numbers(trainer)["past"] == begun
    trainer.train()
    taken = numbers(trainer)
    assert taken["past"] == taken["main"] != begun
    path = trainer.save(tmp_path)
    went_on = result(trainer)
    assert numbers(trainer)["past"] == taken["main"] != numbers(trainer)["main"]
    restored = made(**config, callbacks=f"{__name__}:SelfPlay")
    restored.restore(path)
    assert result(restored) == went_on
    trainer.stop()
    restored.stop()


def test_a_filter_keeps_what_a_policy_saw_that_does_not_know_yet_what_follows() -> None:
    goes_on: Any = ({"a": 1}, {}, {"__all__": False}, {"__all__": False}, {})
    Dicts.script = [goes_on] * 3 + [({"a": 1, "b": 1}, {}, {"__all__": True}, {}, {})]
    agents = {"policies": ["a", "b", "c"]}
    config: dict[str, Any] = {"observation_filter": "MeanStdFilter", "num_envs_per_worker": 1}
    config |= {"env_level": "C", "rollout_fragment_length": 2, "sgd_minibatch_size": 1}
    trainer: Any = made(agents, env=f"{HERE}:Dicts", **config)
    counted = []
    for _ in range(4):
        trainer.train()
        counted.append([trainer.members[pid].filters["observation"].row_count for pid in "ab"])
    trainer.stop()
    assert counted == [[2, 1], [4, 1], [6, 2], [8, 2]]


def by_chance(agent: str, rng: np.random.Generator) -> str:
    return ["main", "past"][int(rng.integers(2))]


def test_policies_are_drawn_anew_in_episodes_of_an_evaluation_that_begin_alike() -> None:
    Dicts.script = [({"a": 1, "b": 1}, {}, {"__all__": True}, {"__all__": False}, {})]
    agents = {"policies": ["main", "past"], "policy_mapping_fn": f"{__name__}:by_chance"}
    config: dict[str, Any] = {"env_level": "C", "evaluation_num_episodes": 20}
    trainer = made(agents, env=f"{HERE}:Dicts", sgd_minibatch_size=1, **config)
    evaluation, seen = trainer.evaluation, []
    for width in (1, 20):
        plan = replace(evaluation._plan(0), width=width)
        played = evaluation.workers.play(trainer.inference, plan, 7)
        rewards = [one.metrics.agent_rewards or {} for one in played]
        seen.append([tuple(pid for pid, _ in one.values()) for one in rewards])
    trainer.stop()
    assert seen[0] == seen[1]
    assert len(set(seen[0])) == 4


def test_a_minibatch_may_have_the_rows_of_all_agents_of_a_policy() -> None:
    sizes: dict[str, Any] = {"num_envs_per_worker": 1, "rollout_fragment_length": 4}
    trainer = made(**{**sizes, "sgd_minibatch_size": 10})  # left and right always, brief in half
    learnt = trainer.train()["learner"]["shared"]
    assert learnt["grad_norm"] > 0
    trainer.stop()
    with pytest.raises(ConfigError, match=r"sgd_minibatch_size: 13 is more than the 12 rows"):
        made(**{**sizes, "sgd_minibatch_size": 13})
    with pytest.raises(ConfigError, match=r"sgd_minibatch_size: 5 is more than the 4 rows"):
        made({"policies": [*EACH["policies"]]}, **{**sizes, "sgd_minibatch_size": 5})
    by_steps = {**SHARED, "count_steps_by": "agent_steps"}
    one_step = {**sizes, "rollout_fragment_length": 1, "sgd_minibatch_size": 1}
    trainer = made(by_steps, **one_step)  # all agents act in it, so there are several rows
    assert trainer.train()["agent_timesteps_total"] > 1
    trainer.stop()


# ---- what is refused -----------------------------------------------------------------------------


def nowhere(agent: str) -> str:
    """A mapping to a policy that is not there."""
    return "nobody"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (
            {"env": "CartPole-v1"},
            r"CartPole-v1 has one agent, but multiagent.policies defines \['shared'\]",
        ),
        ({"multiagent": {"policies": {"a": None, "b": None}}}, "it returned .* for agent 'left'"),
        (
            {"multiagent": {**SHARED, "policy_mapping_fn": f"{__name__}:nowhere"}},
            "it returned 'nobody' .*; expected one of shared",
        ),
        (
            {"multiagent": {**SHARED, "policy_mapping_fn": {"left": ["shared"]}}},
            r"policy_mapping_fn\.left: \['shared'\] is not a policy; expected one of shared",
        ),
        (
            {"multiagent": {**SHARED, "policies_to_train": [["shared"]]}},
            r"policies_to_train: .*'shared'",
        ),
        ({"multiagent": {"policies": {"a": {"num_workers": 2}}}}, "for all policies"),
        ({"multiagent": {"policies": {"a": {"lrr": 1e-3}}}}, "policies.a.lrr: .*'lr'"),
        ({"multiagent": {"policies": {"a": {"lr": -1.0}}}}, "policies.a.lr: -1.0"),
        ({"sample_async": True}, "sample_async: true cannot be used with several policies"),
        ({"soft_horizon": True}, "soft_horizon: true"),
        ({"native_vector_env": True}, "no vector form"),
    ],
)
def test_W13_P20_what_cannot_be_is_refused_in_one_line(more: dict[str, Any], words: str) -> None:
    config = {"env": f"{HERE}:Targets", "multiagent": SHARED, **more}
    with pytest.raises(ConfigError, match=words) as refusal:
        PPO.check_config(config)
    assert "\n" not in str(refusal.value)


def test_a_checkpoint_of_other_policies_is_refused(tmp_path: Path) -> None:
    trainer, other = made(), made(EACH)
    path = trainer.save(tmp_path)
    with pytest.raises(ConfigError, match="differs from the checkpoint's shared"):
        other.restore(path)
    trainer.stop()
    other.stop()
