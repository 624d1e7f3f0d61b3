"""Lanes of PPO: their programs, checkpoints and schedules."""

import functools
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import lanes as lanes_
from tests.support.lanes import FOLLOWING, assert_same, curve, numbers_of
from trainables.algorithms.ppo import PPO
from trainables.errors import ConfigError
from trainables.policies.filters import MeanStdFilter
from trainables.stacks import trainer as lanes
from trainables.stacks.networks import program_width

made = functools.partial(lanes_.made, PPO)
EACH = pytest.mark.parametrize("more", [{}, FOLLOWING], ids=["choices", "noise by the state"])


@pytest.mark.slow
def test_a_lane_learns_to_balance_a_pole() -> None:
    trainer = made(num_envs_per_worker=8, num_sgd_iter=10, sgd_minibatch_size=128)
    first = trainer.train()
    last = [trainer.train() for _ in range(59)][-1]
    assert first["timesteps_total"] == 256
    assert last["timesteps_total"] == 60 * 256
    assert last["episode_reward_mean"] > 3 * first["episode_reward_mean"] > 30
    assert first["hist_stats"]["episode_reward"] == first["hist_stats"]["episode_lengths"]


def test_widths_of_a_program_are_few_and_hardly_more_than_those_of_lanes() -> None:
    widths = [program_width(units) for units in range(1, 513)]
    assert [program_width(one) for one in (1, 8, 16, 32, 64, 128, 256, 512)] == [
        *(8, 8, 16, 32, 64, 128, 256, 512)
    ]
    assert len(set(widths)) == 20
    assert all(
        units <= width < max(units + 8, 1.25 * units) for units, width in enumerate(widths, 1)
    )


def test_a_checkpoint_holds_the_shapes_of_the_policy() -> None:
    lane = made(**FOLLOWING)
    curve(lane, 1)
    state = numbers_of(lane)
    assert state["/policy/weights/actor.1.weight"].shape == (13, 16)
    assert state["/policy/optimizer/actor.1.weight/exp_avg"].shape == (13, 16)
    assert state["/workers/0/matrices"].shape == (4, 13, 1)
    assert lane.take("matrices").shape == (4, 16, 1)


def test_without_a_filter_nothing_is_counted_and_observations_are_as_they_are() -> None:
    one, other = (
        made(observation_filter="NoFilter", observation_filter_clip=clip) for clip in (0.1, 9)
    )
    assert curve(one, 2) == curve(other, 2)
    assert float(one.take("seen").count) == 0


@EACH
def test_the_networks_begin_as_without_lanes(more: dict[str, Any]) -> None:
    lane = made(**more)
    plain = made(**more, lanes=None, learner="torch")
    assert lane.policy.weights().keys() == plain.policy.weights().keys()
    for name, one in plain.policy.weights().items():
        np.testing.assert_allclose(lane.policy.weights()[name], one, rtol=1e-4, atol=1e-5)


@EACH
def test_what_a_lane_has_learnt_goes_on_without_lanes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, more: dict[str, Any]
) -> None:
    lane = made(**more)
    curve(lane, 2)
    path = lane.save(tmp_path)
    plain = made(**more, lanes=None)
    plain.restore(path)
    assert_same(lane.policy.weights(), plain.policy.weights())
    seen = plain.filters["observation"]
    assert getattr(seen, "counted", 2 * 128) == 2 * 128
    assert isinstance(seen, MeanStdFilter) != bool(more)
    assert "new episodes are begun" in caplog.text
    result = plain.train()
    assert result["timesteps_total"] == 3 * 128
    assert result["exactness"].startswith("D")


@pytest.mark.slow
def test_actions_that_are_numbers_are_spread_over_their_bounds() -> None:
    config: dict[str, Any] = {
        "env": "Pendulum-v1",
        "rollout_fragment_length": 64,
        "sgd_minibatch_size": 256,
    }
    trainer = made(**config)
    results = [trainer.train() for _ in range(4)]
    assert results[-1]["episodes_total"] == 4
    assert -2000 < results[-1]["episode_reward_mean"] < -500
    assert results[-1]["learner"]["entropy"] < 1.5
    assert "log_std" in trainer.policy.weights()


def test_rounds_that_were_computed_before_a_restore_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trainer: Any = made(timesteps_per_iteration=300)
    saved = trainer.get_state()
    trainer._made.append((None, 2))  # the last one of an iteration that was interrupted
    trainer.set_state(saved)
    asked: list[Any] = []

    def advance(trainers: list[Any]) -> None:
        asked.extend(trainers)
        raise KeyboardInterrupt

    monkeypatch.setattr(lanes, "advance", advance)
    with pytest.raises(KeyboardInterrupt):
        trainer.training_step()
    assert asked == [trainer]


def test_schedules_follow_the_steps() -> None:
    trainer = made(lr_schedule="linear", schedule_timesteps=4 * 128)
    rates = [trainer.train()["learner"]["lr"] for _ in range(4)]
    assert rates == pytest.approx([1e-3, 7.5e-4, 5e-4, 2.5e-4])


@pytest.mark.slow
def test_an_iteration_has_as_many_rounds_as_it_needs() -> None:
    long, short = made(timesteps_per_iteration=300), made()
    assert long.train()["timesteps_this_iter"] == 3 * 128
    curve(short, 3)
    assert_same(
        {n: v for n, v in numbers_of(long).items() if n.startswith("/policy")},
        {n: v for n, v in numbers_of(short).items() if n.startswith("/policy")},
    )


class OwnLane(PPO):
    """Names the settings of a lane, but has no class that is one."""

    @classmethod
    def as_lane(cls, config: Mapping[str, Any], lanes: int) -> dict[str, Any]:
        return {**config, "lanes": lanes}


def test_a_class_without_a_form_that_is_a_lane_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"lanes: .*derived from PPO.*`of`"):
        OwnLane({"env": "CartPole-v1", "lanes": 4})


def test_without_jax_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [one for one in sys.modules if one.startswith(("trainables.stacks", "jax"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(ConfigError, match=r"pip install 'sweep-rl\[jax\]'"):
        made()
