"""Levels of gymnasium's classic control are known, and what is known is what is measured."""

from dataclasses import replace
from typing import Any

import gymnasium
import pytest
from gymnasium.envs.classic_control import CartPoleEnv

from tests.support.trainers import make
from trainables.core.processes import child
from trainables.envs import check, registry
from trainables.envs.exactness.known import EXACT_STATE, GYMNASIUM, known_level
from trainables.envs.exactness.levels import Measured, examine
from trainables.envs.exactness.measuring import Inquiry
from trainables.envs.make import EnvironmentConfig, ObservationSettings

NATIVE = [name for name, registered in EXACT_STATE.items() if registered.vector_entry_point]


def test_the_version_that_is_known_is_the_one_that_is_tested() -> None:
    assert gymnasium.__version__ == GYMNASIUM


@pytest.mark.parametrize(
    ("env", "native"),
    [*((env, False) for env in EXACT_STATE), *((env, True) for env in NATIVE)],
)
@pytest.mark.parametrize("restarts", [False, True])
def test_what_is_known_of_an_environment_is_measured_again(
    env: str, native: bool, restarts: bool
) -> None:
    config = EnvironmentConfig(env=env, native_vector_env=native)
    assert known_level(config) == examine(config, restarts) == Measured("A")


def test_no_process_is_started_for_an_environment_that_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[str] = []
    plain = child.ChildProcess.__init__

    def noting(self: child.ChildProcess, name: str, *rest: Any) -> None:
        started.append(name)
        plain(self, name, *rest)

    monkeypatch.setattr(child.ChildProcess, "__init__", noting)
    monkeypatch.setattr("trainables.envs.exactness.measuring._measured", {})
    trainer = make({"env": "CartPole-v1"})
    trainer.train()
    assert (started, trainer.exactness) == ([], "A exact state")
    trainer.stop()
    with_arguments = EnvironmentConfig(env="CartPole-v1", env_config={"sutton_barto_reward": True})
    Inquiry(with_arguments).close()
    assert len(started) == 1
    Inquiry(EnvironmentConfig(env="CartPole-v1")).measured()
    assert len(started) == 1
    check.check("CartPole-v1", steps=10)  # though this process knows it by now
    assert started == ["environment measured"] * 2


@pytest.mark.parametrize(
    "given",
    [
        {"env_config": {"sutton_barto_reward": True}},
        {"env_level": "B"},
        {"connectors": ("FrameStack",)},
        {"action_mask": "info"},
        {"env": "Pendulum-v1", "native_vector_env": True},
        {"env": "Taxi-v4"},
    ],
)
def test_an_environment_that_is_asked_for_otherwise_is_measured(given: dict[str, Any]) -> None:
    assert known_level(EnvironmentConfig(**{"env": "CartPole-v1", **given})) is None


def test_an_environment_of_which_a_policy_sees_more_is_measured() -> None:
    seen = EnvironmentConfig(env="CartPole-v1").with_observation_settings(
        ObservationSettings(previous=(True, False))
    )
    assert known_level(seen) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"entry_point": "somebody.elses:CartPoleEnv"},
        {"vector_entry_point": None},
        {"kwargs": {"sutton_barto_reward": True}},
        {"additional_wrappers": (object(),)},
    ],
)
def test_an_environment_that_is_registered_otherwise_is_measured(
    changed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = replace(gymnasium.registry["CartPole-v1"], **changed)
    monkeypatch.setitem(gymnasium.registry, "CartPole-v1", spec)
    assert known_level(EnvironmentConfig(env="CartPole-v1")) is None


def test_an_environment_of_ones_own_by_that_name_is_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "find", lambda _name: CartPoleEnv)
    assert known_level(EnvironmentConfig(env="CartPole-v1")) is None


def test_an_environment_of_another_version_of_gymnasium_is_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gymnasium, "__version__", "1.4.1")
    assert known_level(EnvironmentConfig(env="CartPole-v1")) is None
