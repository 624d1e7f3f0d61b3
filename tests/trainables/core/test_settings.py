from typing import Any

import numpy as np
import pytest

from tests.support.trainers import make
from trainables.algorithms.a2c import A2C
from trainables.algorithms.dqn import DQN
from trainables.algorithms.ppo import PPO, Config
from trainables.algorithms.sac import SAC
from trainables.algorithms.td3 import TD3
from trainables.core import legacy_names
from trainables.core.legacy_names import Renamed
from trainables.core.resources import MOST_WORKERS
from trainables.core.settings import known_keys, parse
from trainables.errors import ConfigError
from trainables.trainer.trainer import Trainer


def refusal(config: dict[str, Any]) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        PPO.check_config({"env": "CartPole-v1", **config})
    return caught.value


TRAINERS = (PPO, A2C, DQN, SAC, TD3)


@pytest.mark.parametrize("place", sorted({key for table in legacy_names.TABLES for key in table}))
def test_T24_every_old_name_is_answered_with_a_key_that_exists(place: str) -> None:
    answered = set()
    for trainer in TRAINERS:
        keys = known_keys(trainer.config_class)
        entry = legacy_names.find_entry(place, keys)
        if place in keys or entry is None:
            continue
        if isinstance(entry, Renamed):
            today, _, nested = entry.new_name.partition(".")
            assert today in keys or "." in place
            field = trainer.config_class.model_fields.get(today)
            kind: Any = field.annotation if nested and field else None
            assert kind is None or nested in kind.model_fields
        answered.add(str(entry))
        outer, _, inner = place.partition(".")
        given = {"env": "CartPole-v1", outer: {inner: 1} if inner else 1}
        with pytest.raises(ConfigError) as caught:
            trainer.check_config(given)
        assert str(entry) in str(caught.value)
    assert answered


@pytest.mark.parametrize(
    ("trainer", "key", "today"),
    [
        (DQN, "batch_size", "replay_batch_size"),
        (SAC, "batch_size", "replay_batch_size"),
        (TD3, "batch_size", "replay_batch_size"),
        (PPO, "batch_size", "sgd_minibatch_size"),
        (SAC, "ent_coef", "initial_alpha"),
        (A2C, "ent_coef", "entropy_coeff"),
        (DQN, "target_update_interval", "target_network_update_freq"),
        (DQN, "exploration_fraction", "exploration_config"),
        (TD3, "action_noise", "exploration_config"),
        (DQN, "n_steps", "n_step"),
        (PPO, "n_steps", "rollout_fragment_length"),
    ],
)
def test_a_word_leads_to_the_key_that_the_trainer_has(
    trainer: type[Trainer], key: str, today: str
) -> None:
    with pytest.raises(ConfigError, match=f"use {today} instead(;|$)"):
        trainer.check_config({"env": "CartPole-v1", key: 1})
    assert today in known_keys(trainer.config_class)


@pytest.mark.parametrize(("trainer", "key"), [(DQN, "ent_coef"), (TD3, "gae_lambda")])
def test_a_word_without_a_counterpart_is_said_to_have_none(
    trainer: type[Trainer], key: str
) -> None:
    with pytest.raises(ConfigError, match=f"{key}: .*no such setting; remove the key"):
        trainer.check_config({"env": "CartPole-v1", key: 1})


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("gpu", "write num_gpus: 0 or num_gpus: 1"),
        ("gpu_fraction", "such as num_gpus: 0.5"),
        ("use_gpu_for_workers", "write num_gpus_per_worker: 1"),
        ("eager", "torch; remove the key"),
        ("sample_batch_size", "use rollout_fragment_length instead"),
        ("n_steps", "use rollout_fragment_length instead"),
        ("clip_coef", "use clip_param instead"),
        ("num_env_runners", "use num_workers instead"),
    ],
)
def test_T24_old_names_are_refused_with_todays(key: str, words: str) -> None:
    assert words in str(refusal({key: 1}))


def test_T24_estimators_are_a_list_of_strings() -> None:
    error = refusal({"input_evaluation": "is"})
    assert "a list in which each entry is one of" in str(error)
    assert "'is'" in str(error)


NEUTRAL: dict[str, Any] = {
    "monitor": False,
    "optimizer": {},
    "num_gpus": 0,
    "num_gpus_per_worker": 0,
    "custom_resources_per_worker": {},
    "memory": 0,
    "memory_per_worker": 0,
    "object_store_memory": 0,
    "object_store_memory_per_worker": 0,
    "extra_python_environs": {},
    "tf_session_args": {"intra_op_parallelism_threads": 2, "inter_op_parallelism_threads": 2},
    "local_tf_session_args": {},
    "input": "sampler",
    "input_evaluation": ["is", "wis"],
    "postprocess_inputs": False,
    "shuffle_buffer_size": 0,
    "output": None,
    "output_compress_columns": ["obs", "new_obs"],
    "output_max_file_size": 64 * 2**20,
    "multiagent": {"policies": {}, "policies_to_train": None},
    "observation_fn": None,
    "evaluation_interval": None,
    "evaluation_num_episodes": 10,
    "evaluation_config": {},
}


def test_K7_K8_neutral_values_of_the_classic_keys_are_accepted() -> None:
    PPO.check_config({"env": "CartPole-v1", **NEUTRAL})


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"multiagent": {"replay_mode": "lockstep"}}, "the same time steps for all policies is"),
        ({"multiagent": {"policy_map_capacity": 2}}, "all policies stay in memory"),
        ({"multiagent": {"policy_map_cache": "cache"}}, "all policies stay in memory"),
    ],
)
def test_K7_K8_other_values_are_refused_with_what_is_missing(
    config: dict[str, Any], words: str
) -> None:
    error = refusal(config)
    ((key, inner),) = config.items()
    assert error.place == f"{key}.{next(iter(inner))}"
    assert words in str(error)


@pytest.mark.parametrize(
    ("config", "place", "words"),
    [
        ({"object_store_memory": 5}, "object_store_memory", "memory_per_worker limits a worker"),
        (
            {"custom_resources_per_worker": {"tpu": 1}},
            "custom_resources_per_worker",
            "tpu cannot be requested",
        ),
        (
            {"tf_session_args": {"allow_growth": 1}},
            "tf_session_args.allow_growth",
            "expected one of",
        ),
        ({"optimizer": {"betas": [0.9, 1.0]}}, "optimizer.betas.1", "less than 1"),
        ({"optimizer": {"beta": [0.9, 1.0]}}, "optimizer.beta", "'betas'"),
        ({"clip_rewards": "yes"}, "clip_rewards", "true or false or a number"),
        ({"num_workers": 10**6}, "num_workers", f"at most {MOST_WORKERS}"),
        ({"extra_python_environs": {"A": [1]}}, "extra_python_environs.A", "expected text"),
        ({"extra_python_environs": {"": 1}}, "extra_python_environs", "not empty"),
        ({"extra_python_environs": {"A=B": 1}}, "extra_python_environs", "has no ="),
        ({"extra_python_environs": {"A": 1, "B": "\0"}}, "extra_python_environs", "no NUL"),
        ({"evaluation_num_workers": False}, "evaluation_num_workers", "a whole number"),
    ],
)
def test_K5_K6_values_that_cannot_be_are_refused_by_their_place(
    config: dict[str, Any], place: str, words: str
) -> None:
    error = refusal(config)
    assert error.place == place
    assert words in str(error)
    assert "\n" not in str(error)
    assert "\0" not in str(error)


def test_T4_numbers_of_numpy_are_numbers() -> None:
    config = parse(
        Config,
        {
            "env": "CartPole-v1",
            "lr": np.float64(0.5),
            "num_workers": np.int64(2),
            "normalize_rewards": np.bool_(True),
            "model": {"hidden": [np.int32(8), 4]},
        },
    )
    assert config.schedule.lr == 0.5
    assert type(config.workers.num_workers) is int
    assert config.filters.normalize_rewards is True
    assert config.model.hidden == (8, 4)


def test_K2_the_optimizers_settings_reach_it() -> None:
    trainer = make({"optimizer": {"betas": [0.5, 0.75], "eps": 0.25, "weight_decay": 0.125}})
    group = trainer.policy.get_hyperparameters()
    assert (group.betas, group.eps, group.weight_decay) == ((0.5, 0.75), 0.25, 0.125)
    trainer.stop()


def test_T7_resources_of_the_trainer_and_of_its_children() -> None:
    config = {
        "env": "CartPole-v1",
        "num_workers": 3,
        "num_cpus_per_worker": 2,
        "num_gpus": 0.5,
        "memory": 1000,
        "memory_per_worker": 10,
        "evaluation_interval": 1,
        "evaluation_num_workers": 1,
    }
    assert PPO.default_resource_request(config) == {
        "cpu": 1.0,
        "gpu": 0.5,
        "memory": 1000.0,
        "extra_cpu": 8.0,
        "extra_gpu": 0.0,
        "extra_memory": 40.0,
    }
