import io
import os
import tarfile
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.support.trainers import SMALL, differences, make, only_worker, run
from trainables.algorithms.dqn import DQN
from trainables.algorithms.ppo import PPO, Config
from trainables.algorithms.sac import SAC
from trainables.algorithms.td3 import TD3
from trainables.core.settings import parse
from trainables.errors import CheckpointError, ConfigError, TrainableError
from trainables.rollout.workers.access import DEFAULT_POLICY_ID
from trainables.rollout.workers.worker_set import LocalWorkers
from trainables.trainer.config import (
    TrainerConfig,
    default_config,
    with_base_config,
    with_common_config,
)
from trainables.trainer.trainer import Trainer

TWO: dict[str, Any] = {"num_workers": 2, "train_batch_size": None, "evaluation_interval": None}


# ---- the trainer -----------------------------------------------------------------------------


def test_T1_the_environment_is_an_argument_or_a_setting() -> None:
    trainer = PPO(env="CartPole-v1")
    assert trainer.settings.environment.env == "CartPole-v1"
    trainer.stop()


def test_T4_the_users_settings_stay_as_they_were_given() -> None:
    given = {**SMALL, "model": {"hidden": [8]}}
    trainer = PPO(given)
    trainer.raw_user_config["model"]["hidden"].append(9)
    assert trainer.raw_user_config == given
    assert trainer.settings.model.hidden == (8,)
    assert trainer.settings.gamma == 0.99
    trainer.stop()


def test_T5_configs_are_merged_deeply_into_copies() -> None:
    base = {"model": {"hidden": [64], "activation": "tanh"}, "lr": 1.0}
    merged = with_base_config(base, {"model": {"hidden": [8]}, "env": "CartPole-v1"})
    assert merged == {
        "model": {"hidden": [8], "activation": "tanh"},
        "lr": 1.0,
        "env": "CartPole-v1",
    }
    merged["model"]["hidden"].append(1)
    assert base == {"model": {"hidden": [64], "activation": "tanh"}, "lr": 1.0}


def test_T5_the_defaults_make_the_default_settings() -> None:
    defaults = default_config(Config)
    assert defaults["num_envs_per_worker"] == 8
    assert parse(Config, {**defaults, "env": "CartPole-v1"}) == parse(
        Config, {"env": "CartPole-v1"}
    )
    common = with_common_config({"my_key": 1, "model": {"hidden": [4]}})
    assert common["my_key"] == 1
    assert common["model"] == {**defaults["model"], "hidden": [4]}
    assert "clip_param" not in common
    assert "my_key" not in default_config(TrainerConfig)


def test_T20_a_missing_piece_is_named() -> None:
    class Nothing(Trainer):
        pass

    class NoLearner(Trainer):
        config_class = Config

    with pytest.raises(NotImplementedError, match="config_class, make_policy, training_step"):
        Nothing(SMALL)
    with pytest.raises(NotImplementedError, match="must define make_policy, training_step"):
        NoLearner(SMALL)


def test_T23_resource_help_names_the_keys_and_shows_the_settings() -> None:
    text = PPO.resource_help({"num_workers": 77})
    assert "num_workers" in text
    assert "num_gpus" in text
    assert "77" in text


@pytest.mark.slow
def test_T8_all_workers_know_how_many_steps_were_sampled_before_each_iteration() -> None:
    trainer = make(TWO)
    try:
        trainer.train()
        trainer.train()
        seen = trainer.workers.foreach_worker(
            lambda worker: (worker.get_global_vars(), worker.for_policy(timestep))
        )
        expected = 2 * 3 * 16
        assert seen == [({"timestep": expected}, expected)] * 2
        assert trainer.policy.global_timestep == expected
    finally:
        trainer.stop()


def timestep(policy: Any) -> int:
    return int(policy.global_timestep)


# ---- weights ---------------------------------------------------------------------------------


def test_T21_weights_by_policy() -> None:
    one, other = make(seed=1), make(seed=2)
    policy = one.get_policy()
    assert policy is not None
    assert policy.model is one.policy.model
    assert one.get_policy("nobody") is None
    weights = one.get_weights()
    assert list(weights) == [DEFAULT_POLICY_ID]
    assert one.get_weights([]) == {}
    other.set_weights(weights)
    observation = np.full(4, 0.1)
    assert differences(other.get_weights(), weights) == []
    assert other.compute_action(observation) == one.compute_action(observation)
    assert differences(only_worker(other).get_weights(), weights) == []
    with pytest.raises(ConfigError, match="one of default_policy"):
        one.get_weights(["nobody"])
    with pytest.raises(ConfigError, match=r"actor\.0\.weight is missing"):
        one.set_weights({DEFAULT_POLICY_ID: {}})
    one.stop()
    other.stop()


def test_weights_may_be_lists_of_numbers() -> None:
    one, other = make(seed=1), make(seed=2)
    its, policy = one.get_weights()[DEFAULT_POLICY_ID], other.get_policy()
    assert policy is not None
    policy.set_weights({name: weight.tolist() for name, weight in its.items()})
    assert differences(other.get_weights(), one.get_weights()) == []
    assert differences(only_worker(other).get_weights(), one.get_weights()) == []
    misfits: list[tuple[Any, str]] = [
        ([[1.0], [1.0, 2.0]], "is no array"),
        (np.full(its["actor.0.weight"].shape, "1"), "has values of type <U1; expected numbers"),
    ]
    for wrong, problem in misfits:
        with pytest.raises(ConfigError, match=rf"actor\.0\.weight {problem}"):
            policy.set_weights({**its, "actor.0.weight": wrong})
    one.stop()
    other.stop()


def test_T22_policies_are_exported_by_format(tmp_path: Path) -> None:
    trainer = make()
    trainer.train()
    paths = trainer.export_model(["model", "checkpoint"], tmp_path)
    assert paths == {name: str(tmp_path / name) for name in ("model", "checkpoint")}
    assert (tmp_path / "model" / "policy.onnx").is_file()
    assert (tmp_path / "checkpoint" / "model.safetensors").is_file()
    with pytest.raises(ConfigError, match="onnx, safetensors, torch-export, model or checkpoint"):
        trainer.export_model("h5", tmp_path)
    trainer.stop()


def test_B16_weights_come_back_from_a_file_and_bad_files_change_nothing(tmp_path: Path) -> None:
    one, other = make(seed=1), make(seed=2)
    path = one.export_policy_checkpoint(str(tmp_path), "mine")
    assert path == str(tmp_path / "mine.safetensors")
    other.import_model(path)
    expected = one.get_weights()[DEFAULT_POLICY_ID]
    assert differences(dict(other.get_weights()[DEFAULT_POLICY_ID]), dict(expected)) == []
    bias = "actor.0.bias"
    bad = {
        "is missing": {name: w for name, w in expected.items() if name != bias},
        "has shape": {**expected, bias: np.zeros(3, np.float32)},
        "NaN": {**expected, bias: np.full_like(expected[bias], np.nan)},
        "no extra": {**expected, "extra": np.zeros(1, np.float32)},
    }
    for words, weights in bad.items():
        save_file(weights, path)
        with pytest.raises(CheckpointError, match=words):
            other.import_policy_weights(path)
    (tmp_path / "noise.safetensors").write_bytes(b"noise")
    with pytest.raises(CheckpointError, match="not a safetensors file"):
        other.import_policy_weights(tmp_path / "noise.safetensors")
    assert differences(dict(other.get_weights()[DEFAULT_POLICY_ID]), dict(expected)) == []
    one.stop()
    other.stop()


def test_B7_B8_computed_and_applied_gradients_are_what_learning_on_the_batch_does() -> None:
    one, other = make(), make()
    batch = one.learning_rows([f for s in one.workers.sample() for f in s.fragments])
    gradients, info = one.compute_gradients(batch)
    assert info["batch_count"] == len(batch) == 96
    norm = one.apply_gradients(gradients)
    learnt = other.learn_on_batch(batch)
    assert list(learnt) == [DEFAULT_POLICY_ID]
    assert learnt[DEFAULT_POLICY_ID]["grad_norm"] == norm
    assert learnt[DEFAULT_POLICY_ID]["policy_loss"] == info["policy_loss"]
    assert differences(one.get_weights(), other.get_weights()) == []
    assert differences(one.get_weights(), make().get_weights()) != []
    one.stop()
    other.stop()


REPLAYS: dict[str, tuple[type[Trainer], dict[str, Any]]] = {
    "dqn": (DQN, {"env": "CartPole-v1"}),
    "dqn in torch": (DQN, {"env": "CartPole-v1", "learner": "torch", "n_step": 2}),
    "dqn by priorities": (DQN, {"env": "CartPole-v1", "prioritized_replay": True}),
    "sac": (SAC, {"env": "Pendulum-v1"}),
    "td3 in torch": (TD3, {"env": "Pendulum-v1", "learner": "torch"}),
}


@pytest.mark.parametrize("case", REPLAYS)
def test_B8_an_algorithm_with_a_replay_learns_on_rows_of_it(case: str) -> None:
    kind, config = REPLAYS[case]
    config = {"learning_starts": 1000, "observation_filter": "MeanStdFilter", **config}
    one, other = (kind({**config, "rollout_fragment_length": 32, "seed": 5}) for _ in range(2))
    for trainer in (one, other):
        trainer.train()
    before = one.get_weights()
    rows: Any = one.replay.sample(16)  # type: ignore[attr-defined]  # of those with a replay
    (learnt,) = one.learn_on_batch(rows).values()
    assert learnt["batch_count"] == 16
    assert differences(before, one.get_weights()) != []
    held = one.workers.foreach_worker(lambda worker: worker.get_weights())[0]
    mine = one.policy.acting_weights()
    assert differences(dict(held[DEFAULT_POLICY_ID]), mine) == []
    seen = other.filter_rows(rows, getattr(getattr(other, "n_step", None), "weight", 1.0))
    assert other.update(seen).items() <= learnt.items()  # type: ignore[attr-defined]  # likewise
    assert differences(one.get_weights(), other.get_weights()) == []
    unknown: Any = {name: column for name, column in rows.items() if name != "indices"}
    one.learn_on_batch(unknown)
    one.stop()
    other.stop()


def test_B7_dqn_gives_the_gradients_that_it_learns_by_and_sac_has_no_single_one() -> None:
    config = {"learning_starts": 1000, "rollout_fragment_length": 32, "seed": 5}
    one, other = (DQN({"env": "CartPole-v1", "learner": "torch", **config}) for _ in range(2))
    for trainer in (one, other):
        trainer.train()
    rows = one.replay.sample(16)
    gradients, info = one.compute_gradients(rows)  # type: ignore[arg-type]  # rows of a replay
    assert info["batch_count"] == 16
    norm = one.apply_gradients(gradients)
    (learnt,) = other.learn_on_batch(rows).values()
    assert (learnt["grad_norm"], learnt["mean_q"]) == (norm, info["mean_q"])
    assert differences(one.get_weights(), other.get_weights()) == []
    one.stop()
    other.stop()
    sac = SAC({"env": "Pendulum-v1", **config})
    for ask in (sac.compute_gradients, sac.apply_gradients):
        with pytest.raises(NotImplementedError, match="SAC learns by several optimisers"):
            ask({})
    sac.stop()


# ---- workers ---------------------------------------------------------------------------------


def test_B12_functions_of_workers_environments_and_policies_run_where_those_live() -> None:
    trainer = make(TWO)
    try:
        workers = trainer.workers
        assert workers.foreach_worker(lambda worker: worker.spec.index) == [0, 1]
        kinds = workers.foreach_env(lambda env: type(env).__name__)
        assert kinds == [["CartPoleEnv"] * 3] * 2
        shapes = workers.foreach_policy(lambda policy, pid: (pid, policy.global_timestep))
        assert shapes == [(DEFAULT_POLICY_ID, 0)] * 2
        lock = threading.Lock()
        with pytest.raises(TrainableError, match="cannot be sent to a child process"):
            workers.foreach_worker(lambda _: lock)
        with pytest.raises(TrainableError, match="which cannot be sent back"):
            workers.foreach_worker(lambda _: threading.Lock())
        with pytest.raises(TrainableError, match="worker 0: the function raised Zero"):
            workers.foreach_worker(lambda worker: 1 / worker.spec.index)
        trainer.train()
    finally:
        trainer.stop()


def test_B12_the_local_worker_takes_the_same_functions() -> None:
    trainer = make()
    assert trainer.workers.foreach_worker(lambda worker: worker.spec.index) == [0]
    assert len(trainer.workers.foreach_env(lambda env: env)[0]) == 3
    worker = only_worker(trainer)
    assert worker.get_policy("nobody") is None
    assert worker.foreach_trainable_policy(lambda policy, pid: pid) == [DEFAULT_POLICY_ID]
    assert worker.apply(lambda one: one is worker)
    trainer.stop()


def test_B6_B15_weights_bring_global_variables_along() -> None:
    one, other = make(seed=1), make(seed=2)
    worker = only_worker(other)
    worker.set_weights(only_worker(one).get_weights(), {"timestep": 5})
    assert worker.get_global_vars() == {"timestep": 5}
    assert worker.for_policy(timestep) == 5
    assert differences(worker.get_weights(), only_worker(one).get_weights()) == []
    worker.set_weights(worker.get_weights())
    assert worker.get_global_vars() == {"timestep": 5}
    with pytest.raises(ConfigError, match="one of default_policy"):
        worker.set_weights({DEFAULT_POLICY_ID: {}, "nobody": {}}, {"timestep": 6})
    assert differences(worker.get_weights(), only_worker(one).get_weights()) == []
    assert worker.get_global_vars() == {"timestep": 5}
    one.stop()
    other.stop()


def test_B14_a_worker_gives_back_filters_and_policy() -> None:
    one, other = make(seed=1), make(seed=2)
    run(one, 1)
    saved = only_worker(one).save()
    assert set(saved) == {"filters", "state"}
    only_worker(other).restore(saved)
    assert differences(only_worker(other).save(), saved) == []
    one.stop()
    other.stop()


# ---- as classic trainers --------------------------------------------------------------------


LSTM = {"model": {"use_lstm": True, "lstm_cell_size": 4}, "env": "CartPole-v1"}


@pytest.mark.parametrize("config", [{}, LSTM], ids=["plain", "lstm"])
def test_T21_a_policy_answers_many_observations_as_it_answers_each(config: Any) -> None:
    trainer = make(config)
    trainer.train()
    policy = trainer.get_policy()
    assert policy is not None
    seen = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    actions, states, fetches = policy.compute_actions(list(seen))
    again, _, _ = policy.compute_actions(list(seen[::-1]), [part[::-1] for part in states])
    for i, obs in enumerate(seen):
        action, state, single = policy.compute_single_action(obs)
        assert actions[i] == action
        assert policy.action_space.contains(action)
        for part, each in zip(state, states, strict=True):
            np.testing.assert_allclose(each[i], part, atol=1e-6)
        assert single == pytest.approx({name: each[i] for name, each in fetches.items()}, abs=1e-5)
        assert again[4 - i] == policy.compute_single_action(obs, state)[0]
    with pytest.raises(ValueError, match="no observations; give at least one"):
        policy.compute_actions([])
    trainer.stop()


def test_T21_actions_by_name_are_those_of_each() -> None:
    trainer = make()
    seen = {"a": np.zeros(4, np.float32), "b": np.ones(4, np.float32)}
    single = {name: trainer.compute_single_action(obs) for name, obs in seen.items()}
    assert trainer.compute_actions(seen) == single
    assert trainer.compute_actions({}) == {}
    drawn = {trainer.compute_actions(seen, explore=True)["a"] for _ in range(50)}
    assert drawn == {0, 1}
    trainer.stop()


def test_T21_a_policy_shows_its_spaces_settings_weights_and_state(tmp_path: Path) -> None:
    one, other = make(seed=1), make(seed=2)
    one.train()
    mine, its = one.get_policy(), other.get_policy()
    assert mine is not None
    assert its is not None
    assert mine.observation_space.shape == (4,)
    assert mine.action_space == one.spaces.action
    assert mine.config["lr"] == one.config["lr"]
    one.train()
    assert mine.global_timestep == 96
    its.set_weights(mine.get_weights())
    assert differences(dict(its.get_weights()), dict(mine.get_weights())) == []
    assert (
        differences(only_worker(other).get_weights(), {DEFAULT_POLICY_ID: mine.get_weights()}) == []
    )
    its.set_state(mine.get_state())
    assert differences(its.get_state(), mine.get_state()) == []
    assert Path(mine.export_model(str(tmp_path))).name == "policy.onnx"
    one.stop()
    other.stop()


def test_T18_a_checkpoint_may_be_an_object() -> None:
    one = make()
    one.train()
    packed = one.save_to_object()
    expected = one.train()["learner"]
    other = make()
    other.restore_from_object(packed)
    assert other.train()["learner"] == expected
    for bad in (b"", b"noise" * 999, packed[: len(packed) // 2]):
        with pytest.raises(CheckpointError):
            other.restore_from_object(bad)
    one.stop()
    other.stop()


def test_T18_an_object_writes_nowhere_but_in_its_own_folder(tmp_path: Path) -> None:
    hostile = io.BytesIO()
    with tarfile.open(fileobj=hostile, mode="w") as archive:
        for name in (f"{tmp_path}/absolute", "../../outside"):
            archive.addfile(tarfile.TarInfo(name), io.BytesIO())
    trainer = make()
    with pytest.raises(CheckpointError, match="not an archive of a checkpoint"):
        trainer.restore_from_object(hostile.getvalue())
    assert list(tmp_path.iterdir()) == []
    trainer.stop()


def test_B12_workers_have_indices_and_are_here_or_in_children() -> None:
    here = make()
    assert isinstance(here.workers, LocalWorkers)
    assert here.workers.local_worker() is here.workers.worker
    assert here.workers.remote_workers() == []
    assert here.workers.foreach_worker_with_index(lambda _, index: index) == [0]
    here.workers.sync_weights({n: w * 0 for n, w in here.get_weights()[DEFAULT_POLICY_ID].items()})
    assert not any(w.any() for w in only_worker(here).get_weights()[DEFAULT_POLICY_ID].values())
    here.stop()
    trainer = make(TWO)
    try:
        workers = trainer.workers
        assert workers.local_worker() is None
        remote = workers.remote_workers()
        assert [one.index for one in remote] == [0, 1]
        assert [one.apply(lambda worker: worker.spec.index) for one in remote] == [0, 1]
        pids = [one.apply(lambda _: os.getpid()) for one in remote]
        assert pids == workers.pids()
        names = workers.foreach_trainable_policy(lambda _, name: name)
        assert names == [DEFAULT_POLICY_ID] * 2
        weights = {n: w * 0 for n, w in trainer.get_weights()[DEFAULT_POLICY_ID].items()}
        workers.sync_weights(weights)
        sums = workers.foreach_worker(
            lambda worker: sum(
                np.abs(one).sum() for one in worker.get_weights()[DEFAULT_POLICY_ID].values()
            )
        )
        assert sums == [0.0, 0.0]
    finally:
        trainer.stop()


@pytest.mark.parametrize(
    "config",
    [{"observation_filter": "NoFilter"}, {"normalize_rewards": False}, {"normalize_rewards": True}],
)
def test_the_state_of_a_policy_with_other_filters_is_refused_and_changes_nothing(
    config: dict[str, Any],
) -> None:
    other = {"normalize_rewards": not config.get("normalize_rewards", True)}
    trainer, teacher = make(config), make(other)
    policy, taught = trainer.get_policy(), teacher.get_policy()
    assert policy is not None
    assert taught is not None
    before = policy.get_state()
    states: list[dict[str, Any]] = [taught.get_state(), {"weights": {}}, {}]
    for wrong in states:
        with pytest.raises(ValueError, match=r"other filters|lacks"):
            policy.set_state(wrong)
        assert not differences(policy.get_state(), before)
    trainer.stop()
    teacher.stop()
