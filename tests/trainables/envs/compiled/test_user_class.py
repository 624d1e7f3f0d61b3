"""A class of one's own, or of gymnax, is an environment in a program and by itself."""

import re
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from tests.support import gymnax_stand_in
from tests.support.gymnax_stand_in import Clock, Counter, NewClock, NewCounter
from trainables.envs.compiled.registry import EnvKey, key_of, make
from trainables.envs.compiled.user_class import UserEnvironment
from trainables.envs.make import EnvironmentConfig, make_env
from trainables.envs.state.capture import capture, restore, unsaved_attributes
from trainables.errors import ConfigError

MODULE = "jax:tests.support.corridors"


def alone(name: str, **env_config: Any) -> Any:
    return make_env(EnvironmentConfig(env=name, env_config=env_config))


def test_a_class_is_stepped_as_it_steps_itself() -> None:
    env = alone(f"{MODULE}:Corridor", length=3, gusts=0.0)
    seen, _ = env.reset(seed=1)
    assert seen.shape == env.observation_space.shape == (2,)
    at, lengths = round(3 * float(seen[0])), 0
    terminated = False
    while not terminated:
        seen, reward, terminated, truncated, _ = env.step(np.int64(1))
        at, lengths = at + 1, lengths + 1
        assert seen.tolist() == pytest.approx([at / 3, 0.0])
        assert (reward, terminated, truncated) == ((10.0, True, False) if at == 3 else (-1, 0, 0))
    assert 2 <= lengths <= 3


@pytest.mark.parametrize("top", [255, 1])
def test_pixels_of_a_class_are_divided_by_their_largest_bound(top: int) -> None:
    env = alone(f"{MODULE}:Screen", top=top)
    for seen in (env.reset(seed=0)[0], env.step(np.int64(0))[0]):
        assert set(seen[: 12 * 3].tolist()) == {1.0}
        assert set(seen[12 * 3 :].tolist()) == {0.0}


def test_an_episode_of_a_class_is_truncated_at_its_limit() -> None:
    env = alone(f"{MODULE}:Corridor")
    env.reset(seed=0)
    ends = [env.step(np.int64(0))[2:4] for _ in range(12)]
    assert ends == [(False, False)] * 11 + [(False, True)]
    assert env.spec.max_episode_steps == 12


def test_its_state_is_plain_data_and_all_of_it() -> None:
    env, other = alone(f"{MODULE}:Corridor", gusts=0.5), alone(f"{MODULE}:Corridor", gusts=0.5)
    env.reset(seed=3)
    env.step(np.int64(1))
    assert unsaved_attributes(env) == []
    other.reset(seed=4)
    restore(other, capture(env))
    actions = np.random.default_rng(0).integers(0, 2, 40)
    for action in actions:
        mine, theirs = env.step(action), other.step(action)
        assert mine[0].tolist() == theirs[0].tolist()
        assert mine[1:4] == theirs[1:4]
        if mine[2] or mine[3]:
            assert env.reset()[0].tolist() == other.reset()[0].tolist()


def test_random_numbers_differ_from_step_to_step_and_from_seed_to_seed() -> None:
    def gusts(seed: int) -> list[float]:
        env = alone(f"{MODULE}:Corridor", gusts=0.5)
        env.reset(seed=seed)
        return [float(env.step(np.int64(0))[0][1]) for _ in range(12)]

    assert gusts(1) == gusts(1) != gusts(2)
    assert set(gusts(1)) == {0.0, 0.5}


def test_actions_have_the_bounds_of_their_space_in_each_column() -> None:
    env, of = alone(f"{MODULE}:Points"), make(EnvKey(f"{MODULE}:Points"))
    assert of.bounds == ((-1.0, 0.0), (1.0, 4.0))
    assert env.action_space.high.tolist() == [1.0, 4.0]
    first, _ = env.reset(seed=0)
    moved = env.step(np.array([1.0, 4.0], np.float32))[0]
    assert (moved - first).tolist() == pytest.approx([0.1, -0.4], abs=1e-6)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (f"{MODULE}:NoStep", r"it has no function step; expected step\(key, state, action\)"),
        (f"{MODULE}:NoLimit", "its limit is 0; expected a whole number"),
        (
            f"{MODULE}:OtherShape",
            r"its reset returns an observation of shape \(2, 1\); expected .* \(3,\)",
        ),
        (
            f"{MODULE}:OtherState",
            r"its state\['at'\] is int8\[\] after .* always have the same form",
        ),
        (f"{MODULE}:FiveValues", "returns 5 values; expected .*terminated"),
        (f"{MODULE}:Branches", "its reset raised .*Tracer"),
        (
            f"{MODULE}:Unbounded",
            "its action_space is Box.*; expected a Discrete that begins at 0, or a Box",
        ),
        (f"{MODULE}:Coridor", "did you mean 'Corridor'"),
        ("jax:no_such_module:Corridor", "no module 'no_such_module'"),
        (
            "jax:CartPole-v2",
            "jax:NAME, where NAME is one of .*; did you mean 'CartPole-v1'",
        ),
        ("jax:Corridor", "the path of a class, my_module:Corridor"),
    ],
)
def test_what_is_no_environment_is_refused_in_one_line(name: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected) as refused:
        alone(name)
    assert refused.value.place == "env"
    assert refused.value.value == name
    assert len(str(refused.value).splitlines()) == 1


def test_settings_that_a_class_does_not_take_are_refused() -> None:
    with pytest.raises(ConfigError, match="unexpected keyword argument 'width'") as refused:
        alone(f"{MODULE}:Corridor", width=3)
    assert refused.value.place == "env_config"
    with pytest.raises(ConfigError, match="has no settings in a compiled program"):
        alone("jax:CartPole-v1", sutton_barto_reward=True)


def test_without_jax_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [one for one in sys.modules if one.startswith("trainables.envs.compiled.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(
        ConfigError, match=r"needs JAX, .*; install it: pip install 'sweep-rl\[jax\]'"
    ):
        alone("jax:CartPole-v1")


# ---- gymnax ------------------------------------------------------------------------------------


@pytest.fixture(params=[Counter, NewCounter], ids=["0.0.9", "1.0"])
def _gymnax(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnax", gymnax_stand_in.module(request.param()))
    make.cache_clear()
    request.addfinalizer(make.cache_clear)


@pytest.mark.usefixtures("_gymnax")
def test_gymnaxs_time_limits_are_truncations() -> None:
    env = alone("gymnax:Counter-misc")
    assert env.observation_space.shape == (5,)
    assert env.action_space.n == 3
    assert env.spec.max_episode_steps == 7
    for action, expected in (
        (0, [(False, False)] * 6 + [(False, True)]),
        (2, [(False, False)] * 3),
    ):
        seen, _ = env.reset(seed=0)
        assert seen.tolist() == [1, 0, 0, 0, 0]
        assert [env.step(np.int64(action))[2:4] for _ in expected] == expected
    seen, reward, terminated, truncated, _ = env.step(np.int64(2))
    assert (seen.tolist(), reward, terminated, truncated) == ([0, 0, 0, 0, 1], 1.0, True, False)


@pytest.mark.parametrize("_gymnax", [Clock, NewClock], ids=["0.0.9", "1.0"], indirect=True)
@pytest.mark.usefixtures("_gymnax")
def test_observations_of_gymnax_may_depend_on_the_time_limit() -> None:
    env = alone("gymnax:Counter-misc", max_steps_in_episode=4)
    env.reset(seed=0)
    seen = [env.step(np.int64(0)) for _ in range(4)]
    assert [one[0].tolist() for one in seen] == [[0.25], [0.5], [0.75], [1.0]]
    assert [one[2:4] for one in seen] == [(False, False)] * 3 + [(False, True)]


@pytest.mark.usefixtures("_gymnax")
def test_parameters_of_gymnax_are_env_config() -> None:
    env = alone("gymnax:Counter-misc", max_steps_in_episode=3, goal=2)
    assert env.observation_space.shape == (3,)
    assert env.spec.max_episode_steps == 3
    with pytest.raises(
        ConfigError, match=r"env_config: .* has no parameter 'gaol'; did you mean 'goal'"
    ):
        alone("gymnax:Counter-misc", gaol=2)
    with pytest.raises(
        ConfigError, match=r"gymnax has no environment 'Counter'; did you mean 'Counter-misc'"
    ):
        alone("gymnax:Counter")


def test_without_gymnax_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnax", None)
    with pytest.raises(ConfigError, match=r"needs the package gymnax, .*: pip install gymnax"):
        alone("gymnax:Breakout-MinAtar")


def test_an_environment_in_many_places_is_the_one_that_stands_alone() -> None:
    of = key_of(f"{MODULE}:Corridor", {"gusts": 0.5})
    assert of is not None
    env = make(of)
    keys = jax.random.split(jax.random.key(0), 5)
    states = jax.jit(jax.vmap(env.begin))(keys)
    moved = jax.jit(jax.vmap(env.step))(states, np.ones(5, np.int32))
    step = jax.jit(env.step)
    for index in range(5):
        one = step(states[index], np.int32(1))
        assert one.state.tolist() == moved.state[index].tolist()
        assert float(one.reward) == float(moved.reward[index])


@pytest.mark.filterwarnings("ignore:.*A Box observation space")  # of vectors without bounds
def test_gymnasium_finds_nothing_wrong_with_it() -> None:
    check_env(alone(f"{MODULE}:Corridor", length=4), skip_render_check=True)


def test_the_class_of_the_page_is_an_environment() -> None:
    page = Path("docs/stack.md").read_text()
    (shown,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    found: dict[str, Any] = {}
    exec(shown, found)  # noqa: S102 the page is ours
    env = UserEnvironment(found["Corridor"](length=5), "jax:page:Corridor")
    assert (env.limit, env.choices, env.features) == (50, 2, 1)
