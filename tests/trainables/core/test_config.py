from typing import Any

import pytest

from trainables.algorithms.ppo import PPO, Config
from trainables.core.settings import known_keys, parse
from trainables.errors import ConfigError
from trainables.policies.architecture import OptimizerConfig, OptimizerName
from trainables.trainer.config import TrainerConfig

HERE = "tests.support.environments"


@pytest.mark.parametrize(
    ("config", "place", "words"),
    [
        ({"lrr": 1e-3}, "lrr", ["is not a setting of this trainer", "did you mean 'lr'"]),
        ({"model": {"hiden": [64]}}, "model.hiden", ["did you mean 'hidden'"]),
        ({"model": {"hidden": [64, 0]}}, "model.hidden.1", ["greater than 0"]),
        ({"model": 3}, "model", ["a mapping"]),
        ({"lr": "0.1"}, "lr", ["'0.1'", "number"]),
        ({"lr": True}, "lr", ["True", "number"]),
        ({"lr": -1.0}, "lr", ["-1.0", "greater than 0"]),
        ({"lr": float("nan")}, "lr", ["finite"]),
        ({"gamma": 1.5}, "gamma", ["1.5", "less than or equal to 1"]),
        ({"num_sgd_iter": 2.5}, "num_sgd_iter", ["2.5", "whole number"]),
        ({"lr_schedule": "cosine"}, "lr_schedule", ["'constant' or 'linear'"]),
        ({"batch_mode": "pack_episodes"}, "batch_mode", ["use truncate_episodes instead"]),
        ({"observation_filter": 3}, "observation_filter", ["'NoFilter', 'MeanStdFilter'"]),
        ({"env": "CartPole-v9"}, "env", ["did you mean 'CartPole-v1'"]),
        ({"env": 5}, "env", ["a registered id"]),
        ({"env": "no.such.module:Env"}, "env", ["no module 'no.such.module'"]),
        ({"env": f"{HERE}:Countin"}, "env", ["did you mean 'Counting'"]),
        ({"env": f"{HERE}:not_an_environment"}, "env", ["gymnasium.Env", "int"]),
        ({"env": f"{HERE}:Worded"}, "env", ["Box, Discrete", "observation is a Text"]),
        ({"env_config": {"depth": 3}}, "env_config", ["TypeError", "depth"]),
        ({"sgd_minibatch_size": 4096}, "sgd_minibatch_size", ["more than the 1024 rows"]),
        ({"lr_schedule": "linear"}, "schedule_timesteps", ["stop.timesteps_total"]),
        ({"evaluation_config": {"explor": True}}, "evaluation_config.explor", ["'explore'"]),
        ({"env": "Pendulum-v1", "native_vector_env": True}, "native_vector_env", ["false"]),
        ({"horizon": 501}, "horizon", ["limit of 500 steps", "max_episode_steps"]),
        ({"eager": True}, "eager", ["torch"]),
        ({"lambda": 0.9}, "lambda", ["lambda_"]),
    ],
)
def test_settings_that_cannot_work_are_refused_with_place_value_and_remedy(
    config: dict[str, Any], place: str, words: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        PPO.check_config({"env": "CartPole-v1", **config})
    assert caught.value.place == place
    text = str(caught.value)
    assert "\n" not in text
    for word in words:
        assert word in text


def test_a_missing_environment_is_named() -> None:
    with pytest.raises(ConfigError) as caught:
        PPO.check_config({})
    assert caught.value.place == "env"
    assert "env: is missing" in str(caught.value)


def test_checking_good_settings_says_nothing() -> None:
    PPO.check_config({"env": "CartPole-v1", "train_batch_size": 2048, "model": {"hidden": [32]}})


def test_flat_keys_find_their_sections_and_presets_of_the_algorithm_stay() -> None:
    config = parse(Config, {"env": "CartPole-v1", "rollout_fragment_length": 10, "lambda_": 0.5})
    assert config.sampling.rollout_fragment_length == 10
    assert config.sampling.num_envs_per_worker == 8
    assert config.lambda_ == 0.5
    assert config.model.hidden is None
    assert {"env", "lr", "lambda_", "model", "num_workers"} <= set(known_keys(Config))
    assert "sampling" not in known_keys(Config)


def test_every_key_is_described() -> None:
    for name, field in Config.model_fields.items():
        kind: Any = field.annotation
        inner = getattr(kind, "model_fields", {name: field})
        for key, one in inner.items():
            assert one.description, key


def test_the_length_of_a_schedule_is_taken_from_the_stop_once() -> None:
    stop = {"timesteps_total": 5000}
    assert PPO.complete_config({"env": "CartPole-v1"}, stop)["schedule_timesteps"] == 5000
    kept = PPO.complete_config({"schedule_timesteps": 9}, stop)
    assert kept["schedule_timesteps"] == 9
    assert "schedule_timesteps" not in PPO.complete_config({}, {"score": 1.0})


def test_an_evaluation_environment_that_cannot_be_made_is_refused_by_its_place() -> None:
    config = {"env": "CartPole-v1", "evaluation_config": {"env_config": {"bogus": 1}}}
    with pytest.raises(ConfigError) as refusal:
        PPO.check_config(config)
    assert refusal.value.place == "evaluation_config.env_config"


@pytest.mark.parametrize("path", [":X", ".rel:X"])
def test_a_path_that_cannot_be_imported_is_a_config_error(path: str) -> None:
    with pytest.raises(ConfigError, match="cannot be loaded"):
        PPO.check_config({"env": path})


class Heavy(OptimizerConfig):
    """An optimiser with other defaults."""

    momentum: float = 0.9
    name: OptimizerName = "sgd"


def test_a_part_of_a_setting_is_read_over_the_algorithms_own_defaults() -> None:
    class Own(TrainerConfig):
        optimizer: Heavy = Heavy()

    given = {"env": "CartPole-v1", "optimizer": {"weight_decay": 0.1}}
    assert parse(Own, given).optimizer == Heavy(name="sgd", momentum=0.9, weight_decay=0.1)


@pytest.mark.parametrize("preset", [OptimizerConfig(name="sgd", momentum=0.9), Heavy()])
def test_a_preset_that_another_key_would_undo_is_refused(preset: OptimizerConfig) -> None:
    with pytest.raises(TypeError, match=r"Own\.optimizer is .*a subclass of OptimizerConfig"):

        class Own(TrainerConfig):
            optimizer: OptimizerConfig = preset
