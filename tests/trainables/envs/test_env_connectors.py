"""The list's first step and its last, at each environment: raw outside, arrays and rows inside."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import TransformAction, TransformObservation

from tests.support.environments import Counting
from tests.support.spaces import AnySpaces
from tests.support.trainers import PLAIN, make, run
from trainables.envs.exactness.measuring import measure
from trainables.envs.make import EnvironmentConfig, ObservationSettings, make_connector, make_env
from trainables.envs.spaces.connectors import EnvConnector
from trainables.envs.state.capture import capture, restore, seed_spaces
from trainables.envs.state.replay import ReplayableEnv
from trainables.envs.vector.factory import make_vector_env
from trainables.errors import ConfigError, EnvError

HERE = "tests.support.spaces"
DICTS: dict[str, Any] = {"observation": "dict", "action": "dict", "length": 3}
CONFIG = EnvironmentConfig(env=f"{HERE}:AnySpaces", env_config=DICTS)
ANY: dict[str, Any] = {**PLAIN, "env": f"{HERE}:AnySpaces", "env_config": DICTS}
OWN = "tests.support.own_preprocessors"
STEPS = {"FlatteningPreprocessor", "Unflatten"}


def test_an_environment_is_made_as_it_is_and_its_slot_makes_arrays_of_what_it_gives() -> None:
    assert type(make_env(CONFIG)) is AnySpaces
    envs: Any = make_vector_env(CONFIG, 2)
    first, connector = envs.sub_envs[0], make_connector(CONFIG, *envs.own_spaces)
    assert type(first) is AnySpaces
    assert envs.own_spaces == (first.observation_space, first.action_space)
    seen = [envs.reset([1, 2])[0].copy()]
    sent = np.stack([connector.action_space.sample() for _ in range(2)])
    seen.append(envs.step(sent).observations[0])
    np.testing.assert_array_equal(seen, connector.observe_all(first.seen))
    assert first.action_space.contains(first.sent[0])
    again = connector.act(connector.row(first.sent[0]))
    assert str(again) == str(first.sent[0]) == str(connector.act(sent[0]))


@pytest.mark.parametrize("remote", [False, True])
def test_W14_E12_the_steps_at_environments_are_in_the_log_and_in_the_results(remote: bool) -> None:
    trainer = make({**ANY, "remote_worker_envs": remote})
    (result,) = [trainer.train()]
    assert result["connector_metrics"].keys() == {f"{name}_ms" for name in STEPS}
    assert all(ms > 0 for ms in result["connector_metrics"].values())
    before, after = (
        ["FlatteningPreprocessor", "rows", "NoFilter"],
        ["unsquash", "clip", "Unflatten"],
    )
    assert trainer.inference.connectors.described() == [*before, "policy", *after]
    trainer.stop()


def test_W14_E12_those_of_several_agents_are_counted_together() -> None:
    agents = {"env": "tests.support.agents:Targets", "multiagent": {"policies": {"shared": None}}}
    trainer = make({**PLAIN, **agents})
    assert trainer.train()["connector_metrics"].keys() == {"FlatteningPreprocessor_ms"}
    trainer.stop()


def test_what_an_environment_writes_into_again_has_been_read() -> None:
    trainer = make({**ANY, "env": f"{HERE}:Reuses", "env_config": {}})
    fragment = trainer.workers.sample()[0].fragments[0]
    expected = np.zeros((12, 2, 11), np.float32)
    for t in range(12):
        expected[t, :, t % 3] = 1.0
        expected[t, :, 9:] = t % 3
    np.testing.assert_array_equal(fragment.observations, expected)
    envs = make_vector_env(EnvironmentConfig(env=f"{HERE}:Reuses"), 1)
    envs.reset([1])
    steps = [envs.step(np.array([2])) for _ in range(3)]
    assert steps[-1].final_observations[0].tolist() == [0, 0, 0, 1, 0, 0, 0, 0, 0, 3, 3]
    assert steps[-1].observations[0].tolist() == [1, *[0] * 10]
    trainer.stop()


# ---- the contract --------------------------------------------------------------------------------


class Narrow(Counting):
    """Forgets a number that its space promises."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Box(-1.0, 99.0, (4,), np.float32)

    def _observe(self) -> Any:
        return np.zeros(4 if self.steps < 2 else 3, np.float32)


def own(env: str, name: str) -> EnvironmentConfig:
    return EnvironmentConfig(env=env).with_observation_settings(
        ObservationSettings(preprocessor=f"{OWN}:{name}")
    )


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (
            own(f"{__name__}:Narrow", "Positions"),
            r"environment 0: step\(\) returned .*shape \(3,\)",
        ),
        (own("CartPole-v1", "Shrinking"), r"environment 0: Shrinking\(\) returned .*\(1,\)"),
        (
            EnvironmentConfig(env=f"{HERE}:AnySpaces", env_config={"observation": "discrete"}),
            r"step\(\) raised EnvError: the observation 9 is not in Discrete\(4, start=2\)",
        ),
    ],
)
def test_what_breaks_a_space_is_named_by_who_broke_it(
    config: EnvironmentConfig, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    envs: Any = make_vector_env(config, 1)
    envs.reset([3])
    monkeypatch.setattr(AnySpaces, "_observe", lambda _: 9)
    with pytest.raises(EnvError, match=why):
        for _ in range(6):
            envs.step(np.array([2 if "spaces" in config.env else 1]))


def test_agents_observations_are_not_flattened_where_that_is_off() -> None:
    agents = {"env": "tests.support.agents:Targets", "multiagent": {"policies": {"shared": None}}}
    with pytest.raises(
        ConfigError, match=r"preprocessor_pref: agent left: null cannot be used with Discrete"
    ):
        make({**PLAIN, **agents, "preprocessor_pref": None})


def test_a_preprocessor_that_draws_is_found_out() -> None:
    assert measure(own("CartPole-v1", "Positions")).level == "A"
    assert measure(own("CartPole-v1", "Chance")).level == "D"


# ---- native vectors ------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [one.name for one in AutoresetMode])
def test_a_native_vector_of_any_spaces_is_stepped_too(mode: str) -> None:
    config = EnvironmentConfig(
        env="tests.support.vectors:any_spaces", env_config={"mode": mode}, native_vector_env=True
    )
    envs: Any = make_vector_env(config, 2)
    sub_envs = [one.unwrapped for one in envs.sub_envs[0].envs]
    connector = make_connector(config, *envs.own_spaces)
    assert envs.observation_space.shape == (29,)
    observed = [envs.reset([5])]
    for _ in range(3):
        step = envs.step(np.stack([envs.action_space.sample() for _ in range(2)]))
        observed.append(step.observations)
    assert step.terminated.all()
    finals = [step.final_observations[i] for i in range(2)]
    for i, one in enumerate(sub_envs):
        seen = connector.observe_all(one.seen)
        np.testing.assert_array_equal([rows[i] for rows in observed[:3]], seen[:3])
        np.testing.assert_array_equal(finals[i], seen[3])
        if mode != "NEXT_STEP":
            np.testing.assert_array_equal(observed[3][i], seen[4])
    envs.close()


def test_a_native_vector_is_seen_through_a_preprocessor_of_ones_own() -> None:
    config = own("CartPole-v1", "Positions").model_copy(update={"native_vector_env": True})
    envs, raw = (
        make_vector_env(config.with_observation_settings(config.observation_settings), 3),
        EnvironmentConfig(env="CartPole-v1"),
    )
    whole = make_vector_env(raw.model_copy(update={"native_vector_env": True}), 3)
    np.testing.assert_array_equal(envs.reset([4]), whole.reset([4])[:, ::2])
    for _ in range(30):
        pushed = envs.step(np.ones(3, np.int64)), whole.step(np.ones(3, np.int64))
        np.testing.assert_array_equal(pushed[0].observations, pushed[1].observations[:, ::2])
    settings = {"model": {"custom_preprocessor": f"{OWN}:Positions"}, "native_vector_env": True}
    trainer = make(settings)
    assert trainer.spaces.observation_shape == (2,)
    assert np.isfinite(run(trainer, 1)[0]["episode_reward_mean"])
    trainer.stop()


# ---- what was saved while preprocessors were wrappers --------------------------------------------


def wrapped(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """As environments were made before."""
    of = EnvConnector(env.observation_space, env.action_space)
    acting: Any = TransformAction(env, of.act, of.action_space)
    box: Any = of.observation_space
    return TransformObservation(acting, of.observe, box)


def played(env: Any, row: Any, act: Callable[[Any], Any]) -> list[str]:
    return [str(env.unwrapped.seen[-1]) for _ in range(4) if env.step(act(row))]


def test_a_state_of_before_goes_on_to_the_bit() -> None:
    before, now = wrapped(make_env(CONFIG)), make_env(CONFIG)
    connector = make_connector(CONFIG, now.observation_space, now.action_space)
    seed_spaces(before, 11)
    seed_spaces(now, 11, connector.depth)
    assert connector.depth == 2
    row = connector.row(copy.deepcopy(now.action_space).sample())
    for env in (before, now):
        env.reset(seed=1)
    assert played(before, row, lambda row: row) == played(now, row, connector.act)
    saved = capture(before)
    assert len(saved["layers"]) == len(capture(now)["layers"]) + 2
    restored = make_env(CONFIG)
    restored.reset(seed=9)
    restore(restored, copy.deepcopy(saved))
    assert played(restored, row, connector.act) == played(before, row, lambda row: row)
    with pytest.raises(ValueError, match="zip"):
        restore(restored, {"layers": [{"length": ["plain", 3]}, *saved["layers"]]})


def test_an_episode_recorded_before_is_the_one_recorded_now() -> None:
    def before_now() -> gymnasium.Env[Any, Any]:
        return wrapped(make_env(CONFIG))

    before, now = (
        ReplayableEnv(before_now, 99),
        ReplayableEnv(partial(make_env, CONFIG), 99, partial(make_connector, CONFIG)),
    )
    connector = now.connector
    row = connector.row(copy.deepcopy(now.action_space).sample())
    for env, sent in ((before, row), (now, connector.act(row))):
        env.seed_spaces(8)
        env.reset(seed=5)
        env.step(sent)
    assert str(before.get_state()) == str(now.get_state())
    again = ReplayableEnv(partial(make_env, CONFIG), 99, partial(make_connector, CONFIG))
    again.set_state(before.get_state())
    assert again.get_state()["lost"] == ""
    assert str(again.unwrapped.seen) == str(now.unwrapped.seen)  # type: ignore[attr-defined]
