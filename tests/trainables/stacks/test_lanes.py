"""A trainer that is a lane of a stack is the trainer that it would be alone."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from tests.support.lanes import assert_same, numbers_of
from trainables.algorithms.ppo import PPO
from trainables.errors import ConfigError, NotFiniteError
from trainables.policies.filters import MeanStdFilter
from trainables.stacks import trainer as lanes
from trainables.stacks.networks import program_width
from trainables.trainable import TrialContext

CONFIG = {
    "env": "CartPole-v1",
    "num_envs_per_worker": 4,
    "rollout_fragment_length": 32,
    "num_sgd_iter": 4,
    "sgd_minibatch_size": 64,
    "observation_filter": "MeanStdFilter",
    "normalize_rewards": True,
    "lr": 1e-3,
    "model": {"hidden": [16, 13]},
    "evaluation_interval": 2,
    "evaluation_num_episodes": 3,
    "evaluation_config": {"explore": True, "horizon": 50},
    "lanes": 4,
}
#: Changes `CONFIG` to noise that follows the state.
FOLLOWING: dict[str, Any] = {
    "env": "Pendulum-v1",
    "observation_filter": "NoFilter",
    "exploration_config": {"type": "StateDependentNoise", "sample_freq": 5, "log_std_init": -1.0},
}
#: Settings that are data of a lane: trainers with these are in one program with `CONFIG`, and with
#: `FOLLOWING`.
OTHERS: list[dict[str, Any]] = [
    {"num_sgd_iter": 1, "lr": 1e-5, "model": {"hidden": [9, 16], "activation": "relu"}},
    {"num_sgd_iter": 6, "observation_filter": "NoFilter", "normalize_rewards": False},
    {"num_sgd_iter": 7, "observation_filter": "MeanStdFilter", "exploration_config": {}},
]
EACH = pytest.mark.parametrize("more", [{}, FOLLOWING], ids=["choices", "noise by the state"])


def made(seed: int = 1, **more: Any) -> PPO:
    return PPO({**CONFIG, **more}, TrialContext(seed=seed))


def numbers_in(result: Mapping[str, Any]) -> list[Any]:
    """Return a loss and the episodes of the evaluations, if there are any."""
    evaluations = [result[name] for name in result if name.startswith("evaluation")]
    return [float(result["learner"]["vf_loss"]), *(one["hist_stats"] for one in evaluations)]


def curve(trainer: PPO, iterations: int) -> list[list[Any]]:
    return [numbers_in(trainer.train()) for _ in range(iterations)]


@pytest.mark.slow
def test_a_lane_learns_to_balance_a_pole() -> None:
    trainer = made(num_envs_per_worker=8, num_sgd_iter=10, sgd_minibatch_size=128)
    first = trainer.train()
    last = [trainer.train() for _ in range(59)][-1]
    assert first["timesteps_total"] == 256
    assert last["timesteps_total"] == 60 * 256
    assert last["episode_reward_mean"] > 3 * first["episode_reward_mean"] > 30
    assert first["hist_stats"]["episode_reward"] == first["hist_stats"]["episode_lengths"]


@pytest.mark.slow
@EACH
def test_neighbours_and_places_change_no_bit(more: dict[str, Any]) -> None:
    alone = made(**more)
    expected = curve(alone, 3)
    assert [len(numbers) for numbers in expected] == [2, 2, 1]
    neighbours = [made(5 + n, **{**more, **other}) for n, other in enumerate(OTHERS)]
    beside = made(**more)
    for numbers in expected:
        type(beside).train_together([neighbours[0], beside, *neighbours[1:]])
        assert numbers_in(beside.train()) == numbers
        for one in neighbours:
            one.train()
    assert len({one.shape for one in (beside, *neighbours)}) == 1  # type: ignore[attr-defined]
    assert_same(numbers_of(alone), numbers_of(beside))
    with pytest.raises(AssertionError):
        assert_same(numbers_of(alone), numbers_of(neighbours[0]))


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
    assert lane.take("matrices").shape == (4, 16, 1)  # type: ignore[attr-defined]


def test_without_a_filter_nothing_is_counted_and_observations_are_as_they_are() -> None:
    lanes_ = [made(observation_filter="NoFilter", observation_filter_clip=one) for one in (0.1, 9)]
    first, other = (curve(one, 2) for one in lanes_)
    assert first == other
    assert float(lanes_[0].take("seen").count) == 0  # type: ignore[attr-defined]


@EACH
def test_a_restored_lane_goes_on_to_the_bit(tmp_path: Path, more: dict[str, Any]) -> None:
    straight = made(**more)
    curve(straight, 2)
    path = straight.save(tmp_path)
    rest = curve(straight, 3)
    again = made(seed=1, **more)
    again.restore(path)
    assert curve(again, 3) == rest
    assert_same(numbers_of(straight), numbers_of(again))


def test_saving_changes_nothing() -> None:
    one, other = made(), made()
    for _ in range(3):
        curve(one, 1)
        one.get_state()
    curve(other, 3)
    assert_same(numbers_of(one), numbers_of(other))


@EACH
def test_the_networks_begin_as_without_lanes(more: dict[str, Any]) -> None:
    lane = made(**more)
    plain = PPO({**CONFIG, **more, "lanes": None, "learner": "torch"}, TrialContext(seed=1))
    assert lane.policy.weights().keys() == plain.policy.weights().keys()
    for name, one in plain.policy.weights().items():
        np.testing.assert_allclose(lane.policy.weights()[name], one, rtol=1e-4, atol=1e-5)


def test_the_networks_begin_to_the_bit_as_without_lanes_in_numpy() -> None:
    lane, plain = made(), PPO({**CONFIG, "lanes": None}, TrialContext(seed=1))
    assert_same(lane.policy.weights(), plain.policy.weights())


@EACH
def test_what_a_lane_has_learnt_goes_on_without_lanes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, more: dict[str, Any]
) -> None:
    lane = made(**more)
    curve(lane, 2)
    path = lane.save(tmp_path)
    plain = PPO({**CONFIG, **more, "lanes": None}, TrialContext(seed=1))
    plain.restore(path)
    assert_same(lane.policy.weights(), plain.policy.weights())
    seen = plain.filters["observation"]
    assert getattr(seen, "counted", 2 * 128) == 2 * 128
    assert isinstance(seen, MeanStdFilter) != bool(more)
    assert "new episodes are begun" in caplog.text
    result = plain.train()
    assert result["timesteps_total"] == 3 * 128
    assert result["exactness"].startswith("D")


@EACH
def test_a_lane_is_exported_and_played(tmp_path: Path, more: dict[str, Any]) -> None:
    lane = made(**more)
    curve(lane, 2)
    exported = lane.export_policy_model(str(tmp_path))
    raw = np.asarray(lane.recent, dtype=np.float32)
    (actions,) = onnxruntime.InferenceSession(exported).run(["action"], {"observation": raw})
    np.testing.assert_allclose(actions, [lane.compute_action(one) for one in raw], atol=1e-5)
    assert len(lane.play(2, seed=3)) == 2
    weights = lane.policy.weights()
    lane.train()
    assert any(not np.array_equal(one, lane.policy.weights()[n]) for n, one in weights.items())


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


def test_a_lane_whose_numbers_are_not_finite_fails_alone() -> None:
    bad, good, alone = made(seed=2), made(), made()
    weights = {name: np.full_like(one, 1e30) for name, one in bad.policy.weights().items()}
    bad.set_weights({"default_policy": weights})
    lanes.advance([bad, good])  # type: ignore[list-item]
    with pytest.raises(NotFiniteError, match="not finite; a smaller lr"):
        bad.train()
    good.train()
    alone.train()
    assert_same(numbers_of(good), numbers_of(alone))


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


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("env", "LunarLander-v3"),
        ("num_workers", 1),
        ("train_batch_size", 2000),
        ("sgd_minibatch_size", 100),
        ("observation_filter", "ConcurrentMeanStdFilter"),
        ("optimizer", {"name": "sgd"}),
        ("model", {"use_lstm": True}),
        ("monitor", True),
    ],
)
def test_what_no_lane_can_do_is_refused_by_its_key(key: str, value: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        PPO.check_config(PPO.as_lane({"env": "CartPole-v1", key: value}, 4))
    assert key in str(refused.value)
    assert "lanes" in str(refused.value)


class OwnLoss(PPO):
    """Computes something that the program does not."""


def test_a_class_derived_from_ppo_is_refused_rather_than_trained_as_ppo() -> None:
    assert PPO.can_be_lane()
    assert not OwnLoss.can_be_lane()
    with pytest.raises(ConfigError, match=r"lanes: .*derived from PPO"):
        OwnLoss({"env": "CartPole-v1", "lanes": 4})


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
