"""Environments of EnvPool's: refused where it is missing, stepped as one object, never exact."""

import sys
import types
from collections.abc import Callable
from contextlib import closing
from typing import Any

import gymnasium
import numpy as np
import pytest

from tests.support.trainers import make
from trainables.envs.exactness.measuring import resolve
from trainables.envs.make import EnvironmentConfig, make_env
from trainables.envs.vector.config import VectorConfig, why_separate
from trainables.envs.vector.factory import make_vector_env
from trainables.errors import ConfigError

POOL = EnvironmentConfig(env="CartPole-v1", env_engine="envpool", native_vector_env=True)


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """A module that makes gymnasium's own vector environment; the arguments it was given."""
    given: list[dict[str, Any]] = []

    def made(env: str, env_type: str, **arguments: Any) -> Any:
        given.append({"env": env, "env_type": env_type, **arguments})
        if "wrong" in arguments:
            raise TypeError("wrong is not a setting")
        return gymnasium.make_vec(
            env, arguments["num_envs"], vectorization_mode="vector_entry_point"
        )

    module = types.SimpleNamespace(make=made, list_all_envs=lambda: ["CartPole-v1", "Pong-v5"])
    monkeypatch.setitem(sys.modules, "envpool", module)
    return given


@pytest.mark.parametrize("made", [make_env, lambda config: make_vector_env(config, 3)])
def test_without_the_package_the_engine_is_refused_with_what_to_install(
    made: Callable[[EnvironmentConfig], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "envpool", None)
    with pytest.raises(ConfigError, match=r"env_engine: .*sweep-rl\[envpool\]") as caught:
        made(POOL)
    assert "\n" not in str(caught.value)


def test_its_environments_are_one_object_with_one_thread_and_arguments_of_ones_own(
    pretended: list[dict[str, Any]],
) -> None:
    config = POOL.model_copy(update={"env_config": {"max_episode_steps": 9}})
    with closing(make_vector_env(config, 3)) as envs:
        assert (envs.count, envs.sub_env_count) == (3, 1)
        assert envs.reset([7]).shape == (3, 4)
    first = {
        "env": "CartPole-v1",
        "env_type": "gymnasium",
        "num_threads": 1,
        "max_episode_steps": 9,
        "num_envs": 3,
    }
    assert pretended == [first, {**first, "seed": 7}]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"env": "Pong-v4"}, r"env: .*EnvPool.*Pong-v5"),
        ({"env_config": {"wrong": 1}}, r"env_config: .*TypeError: wrong is not a setting"),
    ],
)
@pytest.mark.usefixtures("pretended")
def test_what_it_cannot_make_is_refused_with_its_own_words(
    change: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        make_vector_env(POOL.model_copy(update=change), 2)


def test_it_is_at_level_d_without_a_measurement_and_no_better_one_is_promised() -> None:
    def measured(_: EnvironmentConfig) -> Any:
        raise AssertionError("nothing is to be measured")

    for asked in ("auto", "C"):
        made, level = resolve(POOL.model_copy(update={"env_level": asked}), measured=measured)
        assert (made.env_level, level) == ("C", "D")
    with pytest.raises(
        ConfigError, match=r"env_level: A cannot be used .*EnvPool.*; set it to auto or C"
    ):
        resolve(POOL.model_copy(update={"env_level": "A"}), measured=measured)


def test_auto_steps_any_number_of_them_as_one_object_unless_each_is_asked_for() -> None:
    pool = POOL.model_copy(update={"native_vector_env": "auto"})
    assert why_separate(pool, VectorConfig(), 1) == ""
    restarts = VectorConfig(restart_failed_sub_environments=True)
    assert "restart_failed" in why_separate(pool, restarts, 1)


@pytest.mark.parametrize("native", ["auto", False])
def test_a_trainer_learns_evaluates_and_comes_back_with_the_package_itself(native: Any) -> None:
    pytest.importorskip("envpool")
    settings = {
        "env": "CartPole-v1",
        "env_engine": "envpool",
        "native_vector_env": native,
        "num_envs_per_worker": 4,
        "rollout_fragment_length": 64,
        "evaluation_interval": 1,
        "evaluation_num_episodes": 2,
    }
    trainer = make(settings)
    result = trainer.train()
    assert trainer.level == "D"
    assert 0 < result["timesteps_total"] <= 256
    assert np.isfinite(result["evaluation"]["episode_reward_mean"])
    assert np.isfinite(result["episode_reward_mean"])
    state = trainer.get_state()
    trainer.set_state(state)
    assert trainer.train()["timesteps_total"] > result["timesteps_total"]
    trainer.stop()
