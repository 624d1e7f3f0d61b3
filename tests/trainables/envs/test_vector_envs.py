"""Environments side by side: restarts of one alone, horizons, and what native vectors promise."""

import logging
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

from tests.support.trainers import (
    PLAIN,
    check_restored_exactly,
    differences,
    make,
    run,
)
from trainables.algorithms.ppo import PPO
from trainables.envs.make import EnvironmentConfig
from trainables.envs.vector.base import VectorEnv, WorkerContext
from trainables.envs.vector.config import VectorConfig
from trainables.envs.vector.factory import make_vector_env
from trainables.errors import ConfigError, EnvError

HERE = "tests.support.environments"
MISHAP = f"{HERE}:Mishap"
COUNTING = f"{HERE}:Counting"
SEEDS = [11, 12, 13]


def vector_env_of(
    env: str, count: int = 3, env_config: dict[str, Any] | None = None, **settings: Any
) -> VectorEnv:
    native = settings.pop("native_vector_env", False)
    environment = EnvironmentConfig(env=env, env_config=env_config or {}, native_vector_env=native)
    return make_vector_env(
        environment, count, VectorConfig(**settings), WorkerContext(seed=5, worker=1)
    )


class Failing:
    """Lets one environment of real environments raise in its step `number`, `times` times."""

    def __init__(self, envs: Any, env_index: int, number: int) -> None:
        self.env = envs.sub_envs[env_index]
        self.number, self.steps = number, 0
        self.env.step, self.honest = self.step, self.env.step
        self.closed = False
        self.env.close = self.close

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.steps == self.number:
            raise ZeroDivisionError("the world ended")
        return self.honest(action)

    def close(self) -> None:
        self.closed = True
        raise OSError("the door is stuck")


def play(envs: VectorEnv, steps: int) -> list[Any]:
    trace: list[Any] = [envs.reset(SEEDS[: envs.sub_env_count]).copy()]
    for t in range(steps):
        step = envs.step(np.full(envs.count, t % 2))
        trace.append((step.observations.copy(), step.rewards.copy(), dict(step.faults)))
    return trace


# ---- restarts ------------------------------------------------------------------------------------


def test_E4_one_environment_is_made_anew_and_its_siblings_are_untouched_to_the_bit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    undisturbed = play(vector_env_of("CartPole-v1"), 60)
    envs = vector_env_of("CartPole-v1", restart_failed_sub_environments=True)
    failing = Failing(envs, env_index=1, number=7)
    with caplog.at_level(logging.WARNING):
        disturbed = play(envs, 60)
    for t, (one, other) in enumerate(zip(disturbed[1:], undisturbed[1:], strict=True), 1):
        np.testing.assert_array_equal(one[0][[0, 2]], other[0][[0, 2]])
        assert list(one[2]) == ([1] if t == 7 else [])
    assert disturbed[7][1][1] == 0.0
    assert (np.abs(disturbed[7][0][1]) <= 0.05).all()  # a first observation
    assert failing.closed
    assert envs.sub_envs[1] is not failing.env  # type: ignore[attr-defined]
    text = caplog.text
    assert "worker 1, environment 1: step() raised ZeroDivisionError: the world ended" in text
    assert "Traceback" in text
    assert "the door is stuck" in text


def test_E4_the_environment_made_anew_has_a_seed_of_its_own_each_time() -> None:
    envs = vector_env_of(
        MISHAP, env_config={"at": 2, "episode": 1}, restart_failed_sub_environments=True
    )
    trace = play(envs, 6)
    starts = [row for t in (2, 4, 6) for row in trace[t][0][:, 0]]
    assert len(set(starts)) == 9
    assert [sorted(one[2]) for one in trace[1:]] == [[], [0, 1, 2]] * 3


@pytest.mark.parametrize("where", ["step", "reset"])
def test_E4_without_the_setting_the_error_names_worker_environment_step_and_remedy(
    where: str,
) -> None:
    envs = vector_env_of(MISHAP, env_config={"where": where})
    with pytest.raises(EnvError, match=r"worker 1, environment 0: .* at step \d") as caught:
        play(envs, 12)
    assert "restart_failed_sub_environments: true" in str(caught.value)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert caught.value.__cause__.__traceback__ is not None


def test_E4_an_environment_that_fails_for_ever_ends_in_an_error_with_the_first_cause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept: list[float] = []
    monkeypatch.setattr("trainables.envs.vector.restarts.time.sleep", slept.append)
    envs = vector_env_of(
        MISHAP, env_config={"at": 1, "episode": 1}, restart_failed_sub_environments=True
    )
    with pytest.raises(EnvError, match="environment 0: failed 9 times in a row") as caught:
        play(envs, 100)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert max(slept) > slept[0] == 0.0
    never = vector_env_of(
        MISHAP, env_config={"where": "reset", "episode": 1}, restart_failed_sub_environments=True
    )
    with pytest.raises(EnvError, match="First it raised ZeroDivisionError: no new world"):
        never.reset(SEEDS)


def test_E4_an_episode_that_ended_is_kept_when_the_reset_after_it_fails() -> None:
    config = {"where": "reset", "episode": 2, "length": 5}
    envs = vector_env_of(MISHAP, env_config=config, restart_failed_sub_environments=True)
    envs.reset(SEEDS)
    steps = [envs.step(np.zeros(envs.count, dtype=np.int64)) for _ in range(10)]
    ended = [bool((one.terminated | one.truncated).all()) for one in steps]
    assert [t for t, done in enumerate(ended, start=1) if done] == [5, 10]
    assert not any(one.faults for one in steps)
    assert all((one.rewards == 1.0).all() for one in steps)
    assert envs.get_counters()["restarts"].tolist() == [2] * envs.count


def test_E4_a_native_vector_environment_cannot_restart_one_lane() -> None:
    config = {
        "env": "CartPole-v1",
        "native_vector_env": True,
        "restart_failed_sub_environments": True,
    }
    with pytest.raises(ConfigError, match="native_vector_env: true"):
        PPO.check_config(config)


@pytest.mark.slow
def test_E4_a_run_with_restarts_goes_on_from_its_checkpoint_to_the_bit(tmp_path: Path) -> None:
    config = {
        "env": MISHAP,
        "env_config": {"at": 4, "episode": 3},
        "restart_failed_sub_environments": True,
        "evaluation_interval": None,
        "num_envs_per_worker": 2,
        "train_batch_size": None,
    }
    whole = make(config)
    run(whole, 2)
    results = check_restored_exactly(whole, make(config), tmp_path, 3)
    assert sum(one.get("num_faulty_episodes", 0) for one in results) > 3


# ---- horizons ------------------------------------------------------------------------------------

SHORT: dict[str, Any] = {**PLAIN, "env": COUNTING, "env_config": {"length": 1000}}


def collected(config: dict[str, Any]) -> tuple[Any, Any, PPO]:
    trainer = make({**SHORT, **config})
    (sample,) = trainer.workers.sample()
    return sample.fragments[0], sample.episodes, trainer


def value_of(trainer: PPO, observation: float) -> float:
    return float(trainer.inference.actor.values(np.array([[observation]], dtype=np.float32))[0])


@pytest.mark.slow
def test_P9_a_horizon_cuts_the_episode_off_and_its_last_value_is_bootstrapped() -> None:
    fragment, episodes, trainer = collected({"horizon": 5})
    assert np.flatnonzero(fragment.truncated[:, 0]).tolist() == [4, 9]
    assert not fragment.terminated.any()
    assert fragment.observations[:, 0, 0].tolist() == [0, 1, 2, 3, 4] * 2 + [0, 1]
    np.testing.assert_allclose(fragment.final_values[4, 0], value_of(trainer, 5.0), rtol=1e-6)
    assert [e.length for e in episodes] == [5] * 4


@pytest.mark.slow
def test_P9_an_end_at_the_horizon_that_the_environment_reports_is_its_own() -> None:
    ends = {"env_config": {"length": 5, "truncates": False}}
    fragment, _, _ = collected({**ends, "horizon": 5})
    assert np.flatnonzero(fragment.terminated[:, 0]).tolist() == [4, 9]
    assert not fragment.truncated.any()


@pytest.mark.slow
@pytest.mark.parametrize(
    "config",
    [
        {"horizon": 7},
        {"horizon": 7, "soft_horizon": True, "no_done_at_end": True, "env_config": {"length": 9}},
        {"horizon": 7, "env": "CartPole-v1"},
        {"horizon": 7, "env": "CartPole-v1", "native_vector_env": True},
    ],
)
def test_P9_how_far_an_episode_is_from_its_horizon_is_state(config: dict[str, Any]) -> None:
    whole = make({**SHORT, "env_config": {}, **config})
    run(whole, 1)
    saved = whole.get_state()
    expected = run(whole, 2)
    again = make({**SHORT, "env_config": {}, **config})
    again.set_state(saved)
    assert differences(run(again, 2), expected) == []


class OneInfo(gymnasium.Env[Any, Any]):
    """Gives the same dict as info again and again, also of a reset; episodes have two steps."""

    observation_space = spaces.Box(0.0, 9.0, (1,))
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        self.info = {"t": 0}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.info["t"] = 0
        return np.zeros(1, np.float32), self.info

    def step(self, action: Any) -> Any:
        self.info["t"] += 1
        return np.zeros(1, np.float32), 1.0, self.info["t"] == 2, False, self.info


def test_the_info_of_an_episodes_last_step_is_not_that_of_the_next_reset() -> None:
    envs = vector_env_of(f"{__name__}:OneInfo", count=1)
    envs.reset([1])
    assert [envs.step(np.array([0])).infos[0]["t"] for _ in range(4)] == [1, 2, 1, 2]
    envs.close()


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"env": "CartPole-v1"}, "CartPole-v1 cuts its episodes off after 500 steps"),
        ({"env": COUNTING}, "Counting has no limit of its own: an episode may continue forever"),
        ({"env": "CartPole-v1", "horizon": 50}, None),
    ],
)
def test_P5_what_ends_an_episode_without_a_horizon_is_noted_for_debugging(
    config: dict[str, Any], words: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    for level in ("INFO", "DEBUG"):
        caplog.clear()
        make({**PLAIN, **config, "log_level": level}).stop()
        noted = [one.message for one in caplog.records if "no horizon is set" in one.message]
        assert len(noted) == (level == "DEBUG" and words is not None)
        assert all(str(words) in one for one in noted)
    logging.getLogger("trainables").setLevel("INFO")


def test_P9_episodes_of_the_evaluation_end_at_the_horizon_too() -> None:
    trainer = make({**SHORT, "horizon": 6})
    assert trainer.evaluate()["episode_len_mean"] == 6.0


def test_P13_a_terminated_episode_is_stored_as_cut_off_under_no_done_at_end() -> None:
    ends = {"env_config": {"length": 5, "truncates": False}}
    fragment, episodes, trainer = collected({**ends, "no_done_at_end": True})
    assert not fragment.terminated.any()
    assert np.flatnonzero(fragment.truncated[:, 1]).tolist() == [4, 9]
    np.testing.assert_allclose(fragment.final_values[9, 1], value_of(trainer, 5.0), rtol=1e-6)
    assert fragment.observations[5, 0, 0] == 0.0  # reset: no step after an end
    assert [e.length for e in episodes] == [5] * 4


def test_P17_a_soft_horizon_neither_resets_nor_stores_a_flag() -> None:
    fragment, episodes, _ = collected({"horizon": 5, "soft_horizon": True})
    assert fragment.observations[:, 0, 0].tolist() == list(range(12))
    assert not fragment.terminated.any()
    assert not fragment.truncated.any()
    assert [e.length for e in episodes] == [5] * 4


@pytest.mark.slow
def test_P17_an_end_of_the_environment_stays_one_under_a_soft_horizon() -> None:
    ends = {"env_config": {"length": 4, "truncates": False}}
    fragment, episodes, _ = collected({**ends, "horizon": 7, "soft_horizon": True})
    assert np.flatnonzero(fragment.terminated[:, 0]).tolist() == [3, 7, 11]
    assert [e.length for e in episodes] == [4] * 6


def test_P17_a_soft_horizon_needs_a_horizon() -> None:
    with pytest.raises(ConfigError, match="horizon is not set"):
        PPO.check_config({"env": COUNTING, "soft_horizon": True})
    PPO.check_config({"env": "CartPole-v1", "soft_horizon": True})


def test_P5_a_horizon_beyond_the_environments_limit_is_refused_with_both_numbers() -> None:
    with pytest.raises(ConfigError) as caught:
        PPO.check_config({"env": "CartPole-v1", "horizon": 501})
    for word in ("501", "500", "max_episode_steps"):
        assert word in str(caught.value)
    PPO.check_config({"env": "CartPole-v1", "horizon": 500})
    config = {"env": "CartPole-v1", "horizon": 501, "env_config": {"max_episode_steps": 501}}
    PPO.check_config(config)


# ---- native vectors ------------------------------------------------------------------------------

VECTORS = "tests.support.vectors"
MODES = ["same_step", "next_step", "disabled"]
Transition = tuple[list[float], float, list[float], bool, bool]


def transitions(envs: VectorEnv, seeds: list[int], steps: int) -> list[list[Transition]]:
    """Of each environment in turn; the action of its k-th transition is a function of environment
    and k."""
    seen: list[list[Transition]] = [[] for _ in range(envs.count)]
    current = np.array(envs.reset(seeds))
    autoreset_rows = np.zeros(envs.count, dtype=np.bool_)
    for _ in range(steps):
        actions = [
            (env_index + len(one) // (2 + env_index)) % 2 for env_index, one in enumerate(seen)
        ]
        step = envs.step(np.array(actions))
        following = np.array(step.observations)
        for env_index in np.flatnonzero(~autoreset_rows):
            over = step.terminated[env_index] or step.truncated[env_index]
            last = np.asarray(step.final_observations[env_index] if over else following[env_index])
            flags = (bool(step.terminated[env_index]), bool(step.truncated[env_index]))
            reward = float(step.rewards[env_index])
            seen[env_index].append((current[env_index].tolist(), reward, last.tolist(), *flags))
        autoreset_rows = (
            np.zeros_like(autoreset_rows) if step.restarting is None else step.restarting.copy()
        )
        current = following
    envs.close()
    return seen


@pytest.mark.parametrize("mode", MODES)
def test_every_autoreset_mode_gives_the_transitions_of_separate_environments(mode: str) -> None:
    separate_ = vector_env_of("CartPole-v1", env_config={"max_episode_steps": 25})
    expected = transitions(separate_, [3, 4, 5], 120)
    native = vector_env_of(f"{VECTORS}:{mode}", native_vector_env=True)
    seen = transitions(native, [3], 120)
    for one, other in zip(seen, expected, strict=True):
        assert len(one) > 100
        assert one == other[: len(one)]
        assert any(row[3] for row in one)
    assert [len(one) == 120 for one in seen] == [mode != "next_step"] * 3


def test_a_row_that_only_restarts_is_in_no_batch_count_metric_or_filter() -> None:
    native = {"env": f"{VECTORS}:counting_next_step", "native_vector_env": True}
    config = {"env_config": {"length": 5}, "observation_filter": "MeanStdFilter"}
    trainer = make({**SHORT, **native, **config, "normalize_rewards": True})
    (sample,) = trainer.workers.sample()
    fragment = sample.fragments[0]
    assert np.flatnonzero(fragment.autoreset[:, 0]).tolist() == [5, 11]
    assert (fragment.valid == ~fragment.autoreset).all()
    assert [e.length for e in sample.episodes] == [5.0] * 4
    assert [e.total_reward for e in sample.episodes] == [5.0] * 4
    assert len(trainer.learning_rows([fragment])) == 20
    result = trainer.train()
    assert result["timesteps_this_iter"] == 24 - 2 * 2
    assert result["episode_len_mean"] == 5.0
    counted = make({**SHORT, **native, **config})
    counted.train()
    observed: Any = counted.filters["observation"]
    assert observed.row_count == 20
    assert observed.mean.tolist() == [2.0]  # of 0 … 4: a last observation is seen by no filter


def test_rows_that_only_restart_beside_others_that_go_on_are_seen_by_no_filter() -> None:
    native = {"env": f"{VECTORS}:next_step", "native_vector_env": True, "env_config": {}}
    length = {"rollout_fragment_length": 100, "train_batch_size": 200}
    trainer = make({**SHORT, **native, **length, "observation_filter": "MeanStdFilter"})
    steps = trainer.train()["timesteps_this_iter"]
    assert 180 < steps < 200
    observed: Any = trainer.filters["observation"]
    assert observed.row_count == steps


def test_an_iteration_that_ends_before_a_row_that_only_restarts_goes_on_from_its_checkpoint() -> (
    None
):
    native = {"env": f"{VECTORS}:counting_next_step", "native_vector_env": True}
    config = {**SHORT, **native, "env_config": {"length": 12}}
    trainer = make(config)
    trainer.train()
    again = make(config)
    again.set_state(trainer.get_state())
    assert trainer.level == "C"  # so all environments begin anew, and no row only restarts
    assert again.train()["timesteps_this_iter"] == 24
    assert trainer.train()["timesteps_this_iter"] == 22


def test_an_unknown_autoreset_mode_is_refused() -> None:
    with pytest.raises(ConfigError, match="whenever"):
        PPO.check_config({"env": f"{VECTORS}:tells_no_mode", "native_vector_env": True})


def test_a_horizon_reaches_lanes_that_are_reset_when_asked_and_no_others() -> None:
    native = {"native_vector_env": True, "env_config": {"length": 50}, "horizon": 5}
    fragment, episodes, _ = collected({**native, "env": f"{VECTORS}:counting_disabled"})
    assert np.flatnonzero(fragment.truncated[:, 0]).tolist() == [4, 9]
    assert [e.length for e in episodes] == [5] * 4
    cartpole = {**native, "env_config": {}, "env": "CartPole-v1"}
    assert {e.length for e in collected(cartpole)[1]} == {5}
    with pytest.raises(ConfigError, match="environments by itself"):
        PPO.check_config({**SHORT, **native, "env": f"{VECTORS}:counting_next_step"})


@pytest.mark.parametrize("mode", MODES)
def test_a_vector_without_single_form_is_trained_and_evaluated(mode: str) -> None:
    trainer = make({"env": f"{VECTORS}:{mode}", "native_vector_env": True})
    result = run(trainer, 2)[1]
    assert result["evaluation"]["episodes"] == 3
    assert 1 < result["evaluation"]["episode_len_mean"] <= 25


@pytest.mark.parametrize("when", ["first", "next"])
def test_a_native_vector_whose_reset_gives_one_thing_is_named_whenever_it_is_asked(
    when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    envs = vector_env_of(f"{VECTORS}:counting_disabled", native_vector_env=True)
    if when == "next":
        envs.reset([1])
    monkeypatch.setattr(SyncVectorEnv, "reset", lambda self, **_: 7)
    with pytest.raises(EnvError, match=r"worker 1, native.*reset\(\) returned 7; expected"):
        play_on(envs, 9) if when == "next" else envs.reset([1])


def play_on(envs: VectorEnv, steps: int) -> None:
    for _ in range(steps):
        envs.step(np.zeros(envs.count, dtype=np.int64))
