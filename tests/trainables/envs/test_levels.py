"""What is promised of an environment is what its copies were seen to do."""

import copy
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from tests.support.environments import SHARED, Unreadable
from tests.support.processes import run_python
from tests.support.trainers import differences, final_state, make, run
from trainables.core import rng
from trainables.envs import check
from trainables.envs.exactness import measuring
from trainables.envs.exactness.levels import Measured
from trainables.envs.exactness.measuring import Inquiry, measure, resolve
from trainables.envs.make import EnvironmentConfig, make_env
from trainables.envs.state.capture import capture, lost_episode
from trainables.envs.state.replay import ReplayableEnv
from trainables.envs.vector.factory import make_vector_env
from trainables.envs.vector.separate import InProcessVectorEnv
from trainables.errors import ConfigError
from trainables.rollout.workers.remote.worker_set import ChildWorkers

ROOT = Path(__file__).parents[3]
HERE = "tests.support.environments"
MUJOCO = sorted(name for name in gymnasium.registry if name.endswith("-v5"))
#: Those of different bodies, with and without contacts and free joints; the others are proofs.
SOME_OF_MUJOCO = {"Ant-v5", "HalfCheetah-v5", "Humanoid-v5", "Pusher-v5", "Reacher-v5"}
SIMULATED = {"env": f"{HERE}:Unreadable", "evaluation_interval": None}


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    Unreadable.episodes = SHARED.episodes = 0


def measured(env: str, **settings: Any) -> Measured:
    return measure(EnvironmentConfig(env=env, **settings))


def test_all_eleven_simulations_of_mujoco_are_there() -> None:
    assert len(MUJOCO) == 11


@pytest.mark.slow
@pytest.mark.parametrize(
    "env",
    [
        pytest.param(name, marks=[] if name in SOME_OF_MUJOCO else [pytest.mark.proof])
        for name in MUJOCO
    ],
)
def test_simulations_of_mujoco_are_exact(env: str) -> None:
    assert measured(env).level == "A"


@pytest.mark.parametrize("env", ["LunarLander-v3", "BipedalWalker-v3"])
def test_simulations_of_box2d_are_exact_by_replay(env: str) -> None:
    found = measured(env)
    assert found.level == "B"
    assert "world" in found.unsaved_attributes
    assert found.reasons[0].startswith("not A: its state cannot be read: ")


def test_the_speed_of_a_slow_environment_is_measured_with_fewer_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(check, "LONGEST_S", 1e-9)
    envs = make_vector_env(EnvironmentConfig(env=f"{HERE}:Counting"), 1)
    assert isinstance(envs, InProcessVectorEnv)
    assert check._speed(envs, 1000) > 0
    assert len(envs.sub_envs[0].sent) == check.STEPS_PER_READING


def test_the_time_in_which_an_environment_itself_waits_is_counted() -> None:
    assert check._seconds(lambda: time.sleep(0.05)) > 0.04
    assert check._seconds(lambda: None) >= check.SHORTEST_S


@pytest.mark.slow
def test_a_slow_measurement_is_told_with_what_to_set(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "SLOW_S", 0.0)
    monkeypatch.setattr(measuring, "_measured", {})
    measured(f"{HERE}:Unreadable")
    (told,) = [one.getMessage() for one in caplog.records if "is slow" in one.getMessage()]
    assert "env_level: B measures only that level, env_level: C measures nothing" in told


@pytest.mark.slow
def test_games_of_turns_are_measured_with_actions_of_whose_turn_it_is() -> None:
    report = check.check("tests.support.agents:Turns", steps=20)
    assert (report["level"], report["breaches"]) == ("A", [])


def test_games_with_masks_are_checked_with_moves_that_are_allowed() -> None:
    report = check.check("pettingzoo.classic.connect_four.connect_four:raw_env", steps=40)
    assert (report["level"], report["breaches"]) == ("B", [])
    assert report["steps_per_s"] is not None


def test_an_episode_determined_by_its_seed_and_actions_is_replayed() -> None:
    assert measured(f"{HERE}:Unreadable").level == "B"


@pytest.mark.slow
@pytest.mark.parametrize("where", ["class", "module", "elsewhere"])
def test_what_copies_share_is_found_before_it_matters(where: str) -> None:
    found = measured(f"{HERE}:Unreadable", env_config={"remembers": where})
    assert found.level == "D"
    assert "playing it changes what all its copies share" in found.reasons[1]
    assert "episodes" in found.reasons[1]


@pytest.mark.slow
def test_what_an_object_carries_to_its_next_episode_is_not_forgotten_unasked() -> None:
    config = {"remembers": "instance"}
    found = measured(f"{HERE}:Unreadable", env_config=config)
    assert found.level == "C"
    assert "Unreadable.world.episodes" in found.reasons[1]
    assert measured(f"{HERE}:Unreadable", env_config=config, env_level="B").level == "B"


@pytest.mark.slow
def test_an_environment_with_chance_of_its_own_is_not_exact_at_all() -> None:
    found = measured(f"{HERE}:Unreadable", env_config={"chance": "unseeded"})
    assert found.level == "D"
    assert make({**SIMULATED, "env_config": {"chance": "unseeded"}}).exactness == "D not bit-exact"


# ---- what is asked for ------------------------------------------------------------------------


def test_level_c_is_given_without_measuring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Inquiry, "measured", lambda self: pytest.fail("it was measured"))
    config = EnvironmentConfig(env="CartPole-v1", env_level="C")
    assert resolve(config) == (config, "C")


@pytest.mark.slow
def test_a_level_that_does_not_hold_is_refused_with_the_reason() -> None:
    with pytest.raises(ConfigError, match=r"env_level: A cannot be used .*_numbers"):
        make({"env": f"{HERE}:Hidden", "env_level": "A"})
    with pytest.raises(ConfigError, match=r"env_level: B cannot be used .*copies share"):
        make({**SIMULATED, "env_config": {"remembers": "class"}, "env_level": "B"})


@pytest.mark.parametrize("config", [{"min_iter_time_s": 0.01}, {"sample_async": True}])
def test_where_a_clock_steers_environments_still_come_back_if_that_costs_nothing(
    config: dict[str, Any],
) -> None:
    own = {"observation_filter": "NoFilter", **config}
    trainer = make(own)
    assert trainer.settings.clock_settings == tuple(config)
    assert (trainer.level, trainer.environment.env_level) == ("D", "A")
    trainer.stop()
    replayed = make({**SIMULATED, **own})
    assert (replayed.level, replayed.environment.env_level) == ("D", "C")
    replayed.stop()


def test_an_exact_environment_may_be_replayed_instead() -> None:
    trainer = make({"env_level": "B"})
    assert trainer.exactness == "B seed and action replay"


def test_the_level_is_measured_once_in_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    make(SIMULATED).stop()
    monkeypatch.setattr(Inquiry, "_start_child", lambda self: pytest.fail("it was measured again"))
    make(SIMULATED, seed=8).stop()


# ---- replaying --------------------------------------------------------------------------------


def replayed(limit: int = 1000, **settings: Any) -> ReplayableEnv:
    config = EnvironmentConfig(env=f"{HERE}:Unreadable", env_config=settings)
    return ReplayableEnv(lambda: make_env(config), limit)


def played(env: ReplayableEnv, steps: int) -> list[float]:
    """Rewards of so many steps over the ends of episodes."""
    rewards = []
    for t in range(steps):
        _, reward, terminated, truncated, _ = env.step(1 + t % 3)
        rewards.append(float(reward))
        if terminated or truncated:
            env.reset()
    return rewards


def test_every_episode_begins_in_an_environment_made_anew() -> None:
    env = replayed(remembers="instance")
    env.reset(seed=1)
    objects = {id(env.env): env.env}
    for _ in range(3):
        played(env, 23)
        objects[id(env.env)] = env.env
        assert env.unwrapped.world.episodes == 1  # type: ignore[attr-defined]
    assert len(objects) == 4


def test_a_replayed_episode_goes_on_to_the_bit_over_its_end() -> None:
    env, other = replayed(), replayed()
    env.reset(seed=1)
    played(env, 60)
    other.reset(seed=2)
    other.set_state(copy.deepcopy(env.get_state()))
    assert played(other, 60) == played(env, 60)


def test_episodes_of_one_seed_differ() -> None:
    env = replayed()
    env.reset(seed=1)
    assert played(env, 23) != played(env, 23)


def test_an_episode_longer_than_the_limit_is_lost() -> None:
    env = replayed(limit=10)
    env.reset(seed=1)
    played(env, 10)
    assert lost_episode(capture(env)) == ""
    played(env, 1)
    assert "more than 10 steps" in lost_episode(capture(env))
    played(env, 12)  # its end
    assert lost_episode(capture(env)) == ""


def test_a_replay_that_comes_to_another_point_is_lost() -> None:
    env, other = replayed(chance="unseeded"), replayed(chance="unseeded")
    env.reset(seed=1)
    played(env, 10)
    other.set_state(env.get_state())
    assert "it differed after 10 steps" in lost_episode(capture(other))


def test_replaying_leaves_the_global_streams_alone() -> None:
    env = ReplayableEnv(lambda: make_env(EnvironmentConfig(env=f"{HERE}:GlobalChance")), 100)
    env.reset(seed=1)
    env.step(1)
    before = rng.capture_global()
    env.set_state(env.get_state())
    assert differences(before, rng.capture_global()) == []


def test_an_episode_too_long_to_replay_is_dropped_and_the_others_are_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = {**SIMULATED, "env_replay_limit": 12, "rollout_fragment_length": 15}
    config |= {"train_batch_size": 45}
    trainer = make(config)
    trainer.train()  # 15 steps of an episode
    state = copy.deepcopy(trainer.get_state())
    again = make(config)
    again.set_state(state)
    sampler = again.workers.get_state()[0]["sampler"]
    assert sampler["episodes"]["rewards"].tolist() == [0.0] * 3
    assert caplog.text.count("its episode is dropped: it has more than 12 steps") == 3
    trainer.train()  # 7 steps of the next one
    state = copy.deepcopy(trainer.get_state())
    again.set_state(state)
    assert differences(final_state(trainer), final_state(again)) == []


# ---- a trial at level B -----------------------------------------------------------------------

BOX2D = {"env": "LunarLander-v3", "evaluation_interval": None}
KILLED = {"num_workers": 2, "train_batch_size": 192, "recreate_failed_workers": True}


@pytest.mark.parametrize("env", ["LunarLander-v3", "BipedalWalker-v3"])
def test_a_restored_trial_on_box2d_equals_the_uninterrupted_one(env: str) -> None:
    config = {**BOX2D, "env": env}
    straight = make(config)
    expected = run(straight, 6)
    saving = make(config)
    run(saving, 3)
    state = copy.deepcopy(saving.get_state())
    other = make(config)
    other.train()
    other.set_state(state)
    assert differences(expected[3:], run(other, 3)) == []
    assert differences(final_state(straight), final_state(other)) == []


TAIL_IN_A_FRESH_PROCESS = """
import sys
from tests.support.trainers import make, run
from tests.trainables.envs.test_levels import BOX2D, KILLED
trainer = make({**BOX2D, **KILLED})
trainer.restore(sys.argv[1])
run(trainer, 3)
print(trainer.save(sys.argv[2]), flush=True)
trainer.stop()
"""


@pytest.mark.slow
def test_children_that_are_killed_and_a_fresh_process_change_nothing_on_box2d(
    tmp_path: Path,
) -> None:
    straight = make({**BOX2D, **KILLED})
    run(straight, 3)
    head = straight.save(tmp_path)
    run(straight, 1)
    assert isinstance(straight.workers, ChildWorkers)
    os.kill(straight.workers.pids()[0], signal.SIGKILL)
    run(straight, 2)
    end = final_state(straight)
    told = run_python(TAIL_IN_A_FRESH_PROCESS, head, tmp_path)
    straight.restore(told.splitlines()[-1])
    assert differences(end, final_state(straight)) == []
    straight.stop()
