"""Environments of brax and MuJoCo Playground in a program and alone, with modules of their API."""

import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from gymnasium import spaces

from tests.support import physics_stand_in
from trainables.envs.compiled.gymnasium_env import GymnasiumEnv, make_gymnasium_env
from trainables.envs.compiled.registry import key_of, make
from trainables.errors import ConfigError


@pytest.fixture(autouse=True)
def _packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "brax.envs", physics_stand_in.brax())
    _install_playground(monkeypatch, tmp_path / "robots")


@pytest.fixture(autouse=True)
def _no_cache(request: pytest.FixtureRequest) -> None:
    make.cache_clear()
    request.addfinalizer(make.cache_clear)


def _install_playground(
    monkeypatch: pytest.MonkeyPatch, robots: Path, observed: tuple[str, ...] = ("state", "more")
) -> None:
    package: Any = physics_stand_in.playground(robots, observed)
    monkeypatch.setitem(sys.modules, "mujoco_playground", package)
    monkeypatch.setitem(sys.modules, package.base.__name__, package.base)


def alone(name: str, **config: Any) -> GymnasiumEnv:
    return make_gymnasium_env(name, config)


@pytest.mark.parametrize("name", ["brax:ball", "playground:BallDrop"])
def test_a_fall_terminates_and_the_time_limit_truncates(name: str) -> None:
    env = alone(name, episode_length=5)
    assert env.spec is not None
    assert env.spec.max_episode_steps == 5
    assert env.observation_space.shape == (2,)
    assert env.action_space == spaces.Box(-1.0, 1.0, (1,))
    for action, expected in (
        (0.0, [(False, False)] * 4 + [(False, True)]),
        (-1.0, [(False, False)] * 3 + [(True, False)]),
    ):
        seen, _ = env.reset(seed=0)
        assert 0 <= seen[0] < 1
        steps = [env.step(np.array([action])) for _ in expected]
        assert [step[2:4] for step in steps] == expected
        assert [step[1] for step in steps] == [float(action < 0)] * len(expected)
        assert all(step[0][1] == pytest.approx(step[0][0] ** 2) for step in steps)


def test_the_default_limits_are_those_of_the_packages() -> None:
    assert make(key_of("brax:ball", {})).limit == 1000
    assert make(key_of("playground:BallDrop", {})).limit == 6


def test_gusts_differ_between_steps_and_follow_from_the_seed() -> None:
    env = alone("brax:ball")

    def heights(seed: int) -> list[float]:
        start = env.reset(seed=seed)[0][0]
        return [start, *(env.step(np.zeros(1))[0][0] for _ in range(4))]

    first = heights(0)
    assert len(set(np.diff(first).tolist())) == 4
    assert heights(0) == first
    assert heights(1) != first


def test_lanes_take_the_steps_of_the_environment_alone() -> None:
    of = key_of("playground:BallDrop", {})
    assert of is not None
    env = make(of)
    states = jax.jit(jax.vmap(env.begin))(jax.random.split(jax.random.key(0), 3))
    moved = jax.jit(jax.vmap(env.step))(states, np.full((3, 1), -1.0, np.float32))
    for lane in range(3):
        single = env.step(states[lane], np.full(1, -1.0, np.float32))
        np.testing.assert_array_equal(single.state, moved.state[lane])
        assert single.reward == moved.reward[lane] == 1.0


def test_settings_reach_the_environment() -> None:
    env = alone("brax:ball", floor=-0.5)
    env.reset(seed=0)
    assert [env.step(np.array([-1.0]))[2] for _ in range(2)][-1]


@pytest.mark.parametrize(
    ("name", "config", "message"),
    [
        ("brax:bal", {}, "brax has no environment .bal.; did you mean 'ball'"),
        ("brax:ball", {"flor": 1}, "unexpected keyword argument 'flor'"),
        (
            "playground:BallDrip",
            {},
            "playground has no environment 'BallDrip'; did you mean 'BallDrop'",
        ),
        ("playground:BallDrop", {"flor": 1}, "no key {'flor'}"),
        (
            "playground:BallDrop",
            {"impl": "warp"},
            r"env_config\.impl: warp cannot be used, .*; set it to jax",
        ),
        (
            "playground:Robot",
            {},
            "the robot in playground:Robot are not installed; download them: python -c",
        ),
        ("brax:ball", {"episode_length": 0}, r"env_config\.episode_length: 0 .* a whole number"),
        ("brax:ball", {"observed": ["a", "b"]}, "brax:ball has several observations: a, b"),
    ],
)
def test_mistakes_are_refused_in_one_line(name: str, config: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        alone(name, **config)
    assert len(str(refused.value).splitlines()) == 1


def test_robots_whose_files_are_installed_can_be_used(tmp_path: Path) -> None:
    (tmp_path / "robots").mkdir()
    assert alone("playground:Robot").observation_space.shape == (2,)


@pytest.mark.parametrize(
    ("name", "module", "distribution"),
    [
        ("brax:ball", "brax.envs", "brax"),
        ("playground:BallDrop", "mujoco_playground", "playground"),
    ],
)
def test_a_missing_package_is_named(
    name: str, module: str, distribution: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError, match=f"install it: pip install {distribution}"):
        alone(name)
