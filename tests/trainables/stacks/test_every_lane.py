"""A trainer of any algorithm that is a lane of a stack is the trainer that it would be alone."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from tests.support.lanes import FOLLOWING, assert_same, curve, made, numbers_in, numbers_of
from trainables.algorithms.dqn import DQN
from trainables.algorithms.ppo import PPO
from trainables.errors import ConfigError, NotFiniteError
from trainables.stacks import trainer as lanes
from trainables.trainer.trainer import Trainer

#: Settings of PPO that are data of a lane: trainers with these are in one program with the usual
#: ones, and with `FOLLOWING`.
OTHERS_OF_PPO: list[dict[str, Any]] = [
    {"num_sgd_iter": 1, "lr": 1e-5, "model": {"hidden": [9, 16], "activation": "relu"}},
    {"num_sgd_iter": 6, "observation_filter": "NoFilter", "normalize_rewards": False},
    {"num_sgd_iter": 7, "observation_filter": "MeanStdFilter", "exploration_config": {}},
]
#: The same of DQN, with transitions of 1, 3 (as usual) and 5 steps, and both kinds of target.
OTHERS_OF_DQN: list[dict[str, Any]] = [
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
BOTH = pytest.mark.parametrize("algorithm", [PPO, DQN])
EACH = pytest.mark.parametrize(
    ("algorithm", "more"),
    [(PPO, {}), (PPO, FOLLOWING), (DQN, {})],
    ids=["choices", "noise by the state", "values"],
)


@pytest.mark.slow
@EACH
def test_neighbours_and_places_change_no_bit(
    algorithm: type[Trainer], more: dict[str, Any]
) -> None:
    alone = made(algorithm, **more)
    expected = curve(alone, 3)
    assert [len(numbers) for numbers in expected] == [2, 2, 1]
    others = OTHERS_OF_PPO if algorithm is PPO else OTHERS_OF_DQN
    neighbours = [made(algorithm, 5 + n, **{**more, **other}) for n, other in enumerate(others)]
    beside = made(algorithm, **more)
    for numbers in expected:
        type(beside).train_together([neighbours[0], beside, *neighbours[1:]])
        assert numbers_in(beside.train()) == numbers
        for one in neighbours:
            one.train()
    assert len({one.shape for one in (beside, *neighbours)}) == 1
    assert_same(numbers_of(alone), numbers_of(beside))
    with pytest.raises(AssertionError):
        assert_same(numbers_of(alone), numbers_of(neighbours[0]))


@pytest.mark.parametrize(
    ("algorithm", "more"),
    [(PPO, {}), (PPO, FOLLOWING), *((DQN, more) for more in ({}, *OTHERS_OF_DQN))],
)
def test_a_restored_lane_goes_on_to_the_bit(
    algorithm: type[Trainer], more: dict[str, Any], tmp_path: Path
) -> None:
    straight = made(algorithm, **more)
    before = 5 if algorithm is DQN else 2  # the replay of DQN is full then
    curve(straight, before)
    path = straight.save(tmp_path)
    rest = curve(straight, 3)
    again = made(algorithm, **more)
    again.restore(path)
    assert curve(again, 3) == rest
    assert_same(numbers_of(straight), numbers_of(again))
    if algorithm is DQN:
        rows = straight.get_state()["trainable"]["data"]["replay"]["rows"]
        assert len(rows) == straight.settings.replay.buffer_size


@BOTH
def test_saving_changes_nothing(algorithm: type[Trainer]) -> None:
    one, other = made(algorithm), made(algorithm)
    for _ in range(3):
        curve(one, 1)
        one.get_state()
        one.broadcast()  # hands the state over again
    curve(other, 3)
    assert_same(numbers_of(one), numbers_of(other))


@BOTH
def test_the_networks_begin_to_the_bit_as_without_lanes(algorithm: type[Trainer]) -> None:
    lane, plain = made(algorithm), made(algorithm, lanes=None)
    assert_same(lane.policy.weights(), plain.policy.weights())


@EACH
def test_a_lane_is_exported_and_played(
    algorithm: type[Trainer], more: dict[str, Any], tmp_path: Path
) -> None:
    lane = made(algorithm, **more)
    curve(lane, 2)
    exported = lane.export_policy_model(str(tmp_path))
    raw = np.asarray(lane.recent, dtype=np.float32)
    (actions,) = onnxruntime.InferenceSession(exported).run(["action"], {"observation": raw})
    np.testing.assert_allclose(actions, [lane.compute_action(one) for one in raw], atol=1e-5)
    assert len(lane.play(2, seed=3)) == 2
    weights = lane.policy.weights()
    lane.train()
    assert any(not np.array_equal(one, lane.policy.weights()[n]) for n, one in weights.items())


@BOTH
def test_a_lane_whose_numbers_are_not_finite_fails_alone(algorithm: type[Trainer]) -> None:
    bad, good, alone = made(algorithm, seed=2), made(algorithm), made(algorithm)
    weights = {name: np.full_like(one, 1e30) for name, one in bad.policy.weights().items()}
    bad.set_weights({"default_policy": weights})
    for _ in range(2):  # DQN learns nothing in the first iteration
        lanes.advance([bad, good])
        good.train()
    with pytest.raises(NotFiniteError, match="not finite; a smaller lr"):
        for _ in range(2):
            bad.train()
    curve(alone, 2)
    assert_same(numbers_of(good), numbers_of(alone))


IN_NO_LANE: dict[type[Trainer], dict[str, Any]] = {
    PPO: {
        "sgd_minibatch_size": 100,
        "observation_filter": "ConcurrentMeanStdFilter",
        "model": {"use_lstm": True},
        "monitor": True,
    },
    DQN: {
        "dueling": True,
        "noisy": True,
        "num_atoms": 51,
        "prioritized_replay": True,
        "cql_alpha": 0.5,
        "exploration_config": {"type": "ParameterNoise"},
        "normalize_rewards": True,
    },
}
FOR_ALL: dict[str, Any] = {
    "env": "LunarLander-v3",
    "num_workers": 1,
    "train_batch_size": 2000,
    "optimizer": {"name": "sgd"},
}


@pytest.mark.parametrize(
    ("algorithm", "key", "value"),
    [(of, *pair) for of, own in IN_NO_LANE.items() for pair in {**FOR_ALL, **own}.items()],
)
def test_what_no_lane_can_do_is_refused_by_its_key(
    algorithm: type[Trainer], key: str, value: Any
) -> None:
    with pytest.raises(ConfigError) as refused:
        algorithm.check_config(algorithm.as_lane({"env": "CartPole-v1", key: value}, 4))
    assert key in str(refused.value)
    assert "lanes" in str(refused.value)


class OwnLoss(PPO):
    """Computes something that the program does not."""


class OwnDifferences(DQN):
    """Computes something that the program does not."""


@pytest.mark.parametrize("own", [OwnLoss, OwnDifferences])
def test_a_derived_class_is_refused_rather_than_trained_as_its_base(own: type[Trainer]) -> None:
    base: Any = own.__bases__[0]
    assert base.can_be_lane()
    assert not own.can_be_lane()
    with pytest.raises(ConfigError, match=rf"lanes: .*derived from {base.__name__}"):
        own({"env": "CartPole-v1", "lanes": 4})
