"""Environments whose close() raises: it is logged in one line, and nothing else becomes of it."""

import gc
import logging
from collections.abc import Iterator
from functools import partial
from typing import Any, Literal

import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from tests.support.environments import Counting, Unclosable
from tests.support.external import CartPole
from tests.support.trainers import PLAIN, make
from trainables.envs.check import check
from trainables.envs.exactness.measuring import Inquiry
from trainables.envs.external.server import PolicyServer
from trainables.envs.make import EnvironmentConfig
from trainables.envs.registry import EnvContext
from trainables.envs.vector.base import VectorEnv, WorkerContext
from trainables.envs.vector.config import VectorConfig
from trainables.envs.vector.factory import make_vector_env

UNCLOSABLE = "tests.support.environments:Unclosable"
WHY = "close() raised ConnectionError: the simulator has gone; it counts as closed"


def vector(num_envs: int) -> SyncVectorEnv:
    made = [partial(Unclosable, after=True)] * num_envs
    return SyncVectorEnv(made, autoreset_mode=AutoresetMode.DISABLED)


def envs_of(env: str, native: bool = False, **settings: Any) -> VectorEnv:
    environment = EnvironmentConfig(env=env, native_vector_env=native)
    return make_vector_env(environment, 2, VectorConfig(**settings), WorkerContext(seed=5))


class PlayedByItself(CartPole):
    """Calls the trainer, and raises when it is closed."""

    def close(self) -> None:
        super().close()
        raise ConnectionError("the simulator\nhas gone")


def lines(text: str) -> list[str]:
    """What was said of environments that were closed."""
    return [line for line in text.splitlines() if "close()" in line]


@pytest.mark.parametrize(("after", "level"), [(False, "A"), (True, "A"), (True, "B")])
def test_measuring_continues_after_close_raises_and_reports_it_once(
    after: bool, level: Literal["A", "B"], capfd: pytest.CaptureFixture[str]
) -> None:
    config = EnvironmentConfig(env=UNCLOSABLE, env_config={"after": after}, env_level=level)
    inquiry = Inquiry(config, always_measures=True)
    try:
        assert inquiry.inspect().spaces.row_shape == (1,)
        assert inquiry.measured().level == level
    finally:
        inquiry.close()
    (line,) = lines(capfd.readouterr().err)
    assert line.endswith(WHY)


@pytest.mark.parametrize("after", [False, True])
def test_an_environment_is_checked_though_its_close_raises(after: bool) -> None:
    report = check(UNCLOSABLE, {"after": after}, steps=20)
    assert report["level"] == "A"
    assert report["steps_per_s"] is not None


def test_all_environments_of_a_process_are_closed_and_each_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    envs = envs_of(UNCLOSABLE)
    envs.reset([1, 2])
    with caplog.at_level(logging.WARNING):
        envs.close()
    assert caplog.messages == [f"worker 0, environment {i}: {WHY}" for i in range(2)]


def test_a_native_vector_environment_is_named(caplog: pytest.LogCaptureFixture) -> None:
    envs = envs_of(f"{__name__}:vector", native=True)
    envs.reset([1])
    with caplog.at_level(logging.WARNING):
        envs.close()
    assert caplog.messages == [f"worker 0, native vector environment: {WHY}"]


def test_an_environment_in_a_process_of_its_own_says_so_there(
    capfd: pytest.CaptureFixture[str],
) -> None:
    envs = envs_of(UNCLOSABLE, remote_worker_envs=True)
    envs.reset([1, 2])
    envs.close()
    assert sorted(lines(capfd.readouterr().err)) == [f"environment 0-{i}: {WHY}" for i in range(2)]


def test_an_environment_without_spaces_is_refused_though_its_close_raises(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Unclosable, "observation_space", None, raising=False)
    monkeypatch.setattr(Counting, "__init__", lambda self: None)
    with pytest.raises(Exception, match=r"is missing or not a gymnasium\.spaces\.Space"):
        envs_of(UNCLOSABLE)
    assert lines(caplog.text)


def test_episodes_that_are_replayed_say_it_once_for_each_environment(
    caplog: pytest.LogCaptureFixture,
) -> None:
    environment = EnvironmentConfig(env=UNCLOSABLE, env_level="B")
    envs = make_vector_env(environment, 2)
    for _ in range(3):
        envs.reset([1, 2])
    assert caplog.messages == [f"Unclosable: {WHY}"] * 2


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Settings of a trainer on environments that nobody has to measure."""
    yield {**PLAIN, "env": UNCLOSABLE, "env_level": "C"}
    gc.collect()  # what nobody closed would be, and would say so


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"num_workers": 1},
        {"remote_worker_envs": True},
        {"env": f"{__name__}:vector", "native_vector_env": True},
        {"sample_async": True},
        {"restart_failed_sub_environments": True},
        {"record_env": "rollout", "record_every": 1},
        {"env": f"{__name__}:PlayedByItself", "num_envs_per_worker": 1, "env_level": "auto"},
        {"evaluation_interval": 1, "evaluation_num_episodes": 1, "record_env": "evaluation"},
        {"evaluation_interval": 1, "evaluation_num_episodes": 1, "evaluation_num_workers": 1},
    ],
)
def test_B16_a_trainer_trains_evaluates_and_stops(
    settings: dict[str, Any], quick: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    trainer = make({**quick, **settings})
    trainer.train()
    trainer.stop()
    assert "Traceback" not in capfd.readouterr().err


def test_the_spaces_of_a_policy_server_are_those_of_an_environment_whose_close_raises(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = PolicyServer(EnvContext({"spaces_of": UNCLOSABLE}))
    assert server.observation_space.shape == (1,)
    assert caplog.messages == [f"{UNCLOSABLE}: {WHY}"]
