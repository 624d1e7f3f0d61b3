"""A DQN trainer that is a lane of a stack is the trainer that it would be alone."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from tests.support.lanes import assert_same, numbers_of
from trainables.algorithms.dqn import DQN
from trainables.errors import ConfigError, NotFiniteError
from trainables.stacks import trainer as lanes
from trainables.stacks.dqn import LaneDQN, replay_places
from trainables.trainable import TrialContext

CONFIG = {
    "env": "CartPole-v1",
    "num_envs_per_worker": 2,
    "rollout_fragment_length": 8,
    "replay_batch_size": 16,
    "updates_per_step": 3,
    "learning_starts": 32,
    "buffer_size": 100,
    "observation_filter": "MeanStdFilter",
    "timesteps_per_iteration": 32,
    "model": {"hidden": [8, 7]},
    "evaluation_interval": 2,
    "evaluation_num_episodes": 3,
    "evaluation_config": {"explore": True, "horizon": 50},
    "lanes": 4,
}
PARTS = ("policy", "filters", "workers", "progress", "replay", "target")
#: Settings that are data of a lane: trainers with these stand in one program.
OTHERS: list[dict[str, Any]] = [
    {"n_step": 1, "lr": 1e-2, "double_q": False, "observation_filter": "NoFilter"},
    {"tau": None, "target_network_update_freq": 32, "buffer_size": 70},
    {
        "n_step": 5,
        "updates_per_step": 1,
        "gamma": 0.9,
        "grad_clip": None,
        "model": {"hidden": [5, 8], "activation": "relu"},
    },
]


def made(seed: int = 1, **more: Any) -> DQN:
    return DQN({**CONFIG, **more}, TrialContext(seed=seed))


def numbers_in(result: Mapping[str, Any]) -> list[Any]:
    """Return the learning statistics and the episodes of the evaluations, if there are any."""
    evaluations = [result[name] for name in result if name.startswith("evaluation")]
    return [result["learner"], *(one["hist_stats"] for one in evaluations)]


def curve(trainer: DQN, iterations: int) -> list[list[Any]]:
    return [numbers_in(trainer.train()) for _ in range(iterations)]


@pytest.mark.parametrize("more", [{}, *OTHERS], ids=["three steps", "one", "hard", "five"])
def test_a_restored_lane_goes_on_to_the_bit(tmp_path: Path, more: dict[str, Any]) -> None:
    straight = made(**more)
    curve(straight, 5)
    path = straight.save(tmp_path)
    rest = curve(straight, 3)
    again = made(**more)
    again.restore(path)
    assert curve(again, 3) == rest
    assert_same(numbers_of(straight, PARTS), numbers_of(again, PARTS))
    assert len(straight.get_state()["trainable"]["data"]["replay"]["rows"]) == (
        straight.settings.replay.buffer_size
    )


def test_neighbours_and_places_change_no_bit() -> None:
    alone = made()
    expected = curve(alone, 4)
    assert [len(numbers) for numbers in expected] == [2, 2, 1, 2]
    neighbours = [made(5 + n, **more) for n, more in enumerate(OTHERS)]
    beside = made()
    for numbers in expected:
        type(beside).train_together([neighbours[0], beside, *neighbours[1:]])
        assert numbers_in(beside.train()) == numbers
        for one in neighbours:
            one.train()
    assert len({one.shape for one in (beside, *neighbours)}) == 1  # type: ignore[attr-defined]
    assert_same(numbers_of(alone, PARTS), numbers_of(beside, PARTS))
    with pytest.raises(AssertionError):
        assert_same(numbers_of(alone, ("policy",)), numbers_of(neighbours[2], ("policy",)))


def test_replays_of_many_sizes_have_few_numbers_of_places() -> None:
    sizes = (1, 2048, 2049, 10_000, 32_768, 32_769, 100_000)
    assert [replay_places(one) for one in sizes] == [2048, 2048, 8192, 32768, 32768, 131072, 131072]


def test_saving_changes_nothing() -> None:
    one, other = made(), made()
    for _ in range(3):
        curve(one, 1)
        one.get_state()
        one.broadcast()  # hands the state over again
    curve(other, 3)
    assert_same(numbers_of(one, PARTS), numbers_of(other, PARTS))


def test_the_network_begins_as_without_lanes() -> None:
    lane, plain = made(), made(lanes=None)
    assert_same(lane.policy.weights(), plain.policy.weights())


def test_what_a_lane_has_learnt_goes_on_without_lanes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lane = made()
    curve(lane, 2)
    path = lane.save(tmp_path)
    plain = made(lanes=None)
    plain.restore(path)
    assert_same(lane.policy.weights(), plain.policy.weights())
    target = plain.target.network.weights()
    assert_same(lane.target.network.weights(), target)
    assert any(not np.array_equal(one, plain.policy.weights()[n]) for n, one in target.items())
    # Of each environment the last two steps may still grow.
    assert len(plain.replay) in range(64 - 4, 64 + 1)
    rows = plain.replay.sample(50)
    assert {name: column.dtype.str for name, column in rows.items()} == {
        "observations": "<f4",
        "actions": "<i8",
        "rewards": "<f4",
        "new_obs": "<f4",
        "terminated": "|b1",
        "discounts": "<f4",
    }
    assert "new episodes are begun" in caplog.text
    result = plain.train()
    assert result["timesteps_total"] == 3 * 32
    assert len(plain.replay) > 64
    assert result["exactness"].startswith("D")


def test_a_lane_is_exported_and_played(tmp_path: Path) -> None:
    lane = made()
    curve(lane, 2)
    exported = lane.export_policy_model(str(tmp_path))
    raw = np.asarray(lane.recent, dtype=np.float32)
    (actions,) = onnxruntime.InferenceSession(exported).run(["action"], {"observation": raw})
    assert actions.tolist() == [lane.compute_action(one) for one in raw]
    assert len(lane.play(2, seed=3)) == 2
    weights = lane.policy.weights()
    lane.train()
    assert any(not np.array_equal(one, lane.policy.weights()[n]) for n, one in weights.items())


@pytest.mark.slow
def test_exploring_choices_are_as_many_as_epsilon_says() -> None:
    found = {}
    for epsilon in (0.0, 0.5):
        explored = {"initial_epsilon": epsilon, "final_epsilon": epsilon}
        given: dict[str, Any] = {
            "exploration_config": explored,
            "learning_starts": 100,
            "n_step": 1,
        }
        lane = made(**given, observation_filter="NoFilter")
        curve(lane, 3)
        plain = made(**given, observation_filter="NoFilter", lanes=None)
        plain.replay.set_state(lane.get_state()["trainable"]["data"]["replay"])
        rows = plain.replay.sample(500)
        best = [lane.compute_action(one) for one in rows["observations"]]
        found[epsilon] = float(np.mean(rows["actions"] == best))
    assert found[0.0] > 0.99
    assert 0.6 < found[0.5] < 0.9


def test_nothing_is_learnt_before_learning_starts() -> None:
    lane = made(learning_starts=80)
    before = lane.policy.weights()
    assert [learnt for learnt, *_ in curve(lane, 2)] == [{}, {}]
    assert_same(before, lane.policy.weights())
    assert set(curve(lane, 1)[0][0]) == {"loss", "mean_q", "grad_norm"}


def test_the_rates_of_each_round_are_those_of_its_first_step() -> None:
    """Rounds have 16 steps; learning starts within the second round of the iteration."""
    scheduled: dict[str, Any] = {
        "lr": 1e-2,
        "lr_schedule": "linear",
        "schedule_timesteps": 160,
        "exploration_config": {"epsilon_timesteps": 64, "final_epsilon": 0.0},
        "tau": None,
        "target_network_update_freq": 40,
    }
    lane = made(**scheduled, timesteps_per_iteration=64)
    assert isinstance(lane, LaneDQN)
    lane.progress.timesteps = 16
    rates = lane.rates()
    np.testing.assert_allclose(rates.lr, [9e-3, 8e-3, 7e-3, 6e-3], rtol=1e-6)
    np.testing.assert_allclose(rates.epsilon, [0.75, 0.5, 0.25, 0.0], atol=1e-6)
    assert rates.updates.tolist() == [3, 3, 3, 3]
    assert rates.copies_target.tolist() == [False, True, False, True]
    lane.progress.timesteps = 0
    assert lane.rates().updates.tolist() == [0, 3, 3, 3]
    lane.stop()


def test_a_target_that_waits_becomes_what_is_learnt() -> None:
    lane = made(tau=None, target_network_update_freq=64)
    first = lane.target.network.weights()
    curve(lane, 1)
    lane.get_state()
    assert_same(first, lane.target.network.weights())
    curve(lane, 1)
    learnt = lane.policy.weights()
    assert_same(learnt, lane.target.network.weights())


def test_a_lane_whose_numbers_are_not_finite_fails_alone() -> None:
    bad, good, alone = made(seed=2), made(), made()
    weights = {name: np.full_like(one, 1e30) for name, one in bad.policy.weights().items()}
    bad.set_weights({"default_policy": weights})
    for _ in range(2):
        lanes.advance([bad, good])  # type: ignore[list-item]
        good.train()
    with pytest.raises(NotFiniteError, match="not finite"):
        for _ in range(2):
            bad.train()
    curve(alone, 2)
    assert_same(numbers_of(good, PARTS), numbers_of(alone, PARTS))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("env", "LunarLander-v3"),
        ("num_workers", 1),
        ("train_batch_size", 2000),
        ("dueling", True),
        ("noisy", True),
        ("num_atoms", 51),
        ("prioritized_replay", True),
        ("cql_alpha", 0.5),
        ("exploration_config", {"type": "ParameterNoise"}),
        ("optimizer", {"name": "sgd"}),
        ("normalize_rewards", True),
    ],
)
def test_what_no_lane_can_do_is_refused_by_its_key(key: str, value: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        DQN.check_config(DQN.as_lane({"env": "CartPole-v1", key: value}, 4))
    assert key in str(refused.value)
    assert "lanes" in str(refused.value)


class OwnDifferences(DQN):
    """Computes something that the program does not."""


def test_a_class_derived_from_dqn_is_refused_rather_than_trained_as_dqn() -> None:
    assert DQN.can_be_lane()
    assert not OwnDifferences.can_be_lane()
    with pytest.raises(ConfigError, match=r"lanes: .*derived from DQN"):
        OwnDifferences({"env": "CartPole-v1", "lanes": 4})


@pytest.mark.slow
def test_a_lane_learns_to_balance_a_pole() -> None:
    trainer = made(
        num_envs_per_worker=8,
        replay_batch_size=64,
        updates_per_step=32,
        learning_starts=500,
        buffer_size=10_000,
        timesteps_per_iteration=640,
        gamma=0.98,
        observation_filter="NoFilter",
        exploration_config={"epsilon_timesteps": 4000},
        model={"hidden": [32, 32]},
    )
    first = trainer.train()
    last = [trainer.train() for _ in range(19)][-1]
    assert first["timesteps_total"] == 640
    assert last["timesteps_total"] == 20 * 640
    assert last["episode_reward_mean"] > 3 * first["episode_reward_mean"] > 30
