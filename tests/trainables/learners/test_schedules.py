"""Values that change while a trainer learns."""

import math
from typing import Any

import numpy as np
import pytest

from tests.support.trainers import differences, make, run
from trainables.algorithms.a2c import A2C
from trainables.algorithms.dqn import DQN
from trainables.algorithms.impala import IMPALA
from trainables.algorithms.ppo import PPO
from trainables.algorithms.sac import SAC
from trainables.algorithms.td3 import TD3
from trainables.errors import ConfigError
from trainables.learners.fused.ppo import FusedLearner, Loss
from trainables.learners.schedules import schedule_value
from trainables.trainer.families.actor_critic import ActorCriticTrainer
from trainables.trainer.trainer import Trainer

LEARNERS: dict[str, type[Trainer]] = {
    "ppo": PPO,
    "a2c": A2C,
    "impala": IMPALA,
    "dqn": DQN,
    "sac": SAC,
    "td3": TD3,
}
POINTS = ((100, 1.0), (200, 3.0), (300, 0.0))


@pytest.mark.parametrize(
    ("timesteps", "expected"), [(0, 1.0), (100, 1.0), (150, 2.0), (250, 1.5), (300, 0.0), (999, 0)]
)
def test_points_are_joined_by_lines_and_go_on_as_they_end(timesteps: int, expected: float) -> None:
    assert schedule_value(7.0, POINTS, None, timesteps) == pytest.approx(expected)


def test_linear_falls_to_0_and_stays_there() -> None:
    assert [schedule_value(0.4, "linear", 100, t) for t in (0, 25, 100, 150)] == [
        0.4,
        0.4 * 0.75,
        0.0,
        0.0,
    ]
    assert schedule_value(0.4, "constant", 100, 150) == 0.4


@pytest.mark.parametrize("learner", ["fused", "torch"])
@pytest.mark.parametrize("kind", ["ppo", "a2c", "impala", "dqn", "sac", "td3"])
def test_nothing_is_learnt_at_a_rate_of_0(kind: str, learner: str) -> None:
    sizes = {"num_envs_per_worker": 2, "rollout_fragment_length": 8, "train_batch_size": 16}
    replay = {"learning_starts": 1, "replay_batch_size": 8, "buffer_size": 100}
    env = "Pendulum-v1" if kind in ("sac", "td3") else "CartPole-v1"
    falls = {"lr_schedule": "linear", "schedule_timesteps": 32}
    of = {"env": env, "learner": learner, "timesteps_per_iteration": 16, **sizes, **falls}
    trainer = LEARNERS[kind]({**of, **(replay if kind in ("dqn", "sac", "td3") else {})})
    moved = []
    for _ in range(4):
        before = learnt_weights(trainer)
        trainer.train()
        moved.append(bool(differences(before, learnt_weights(trainer))))
    trainer.stop()
    assert moved == [True, True, False, False]


def learnt_weights(trainer: Trainer) -> dict[str, Any]:
    """Weights that gradient steps move: not those of target networks, which follow."""
    weights = trainer.policy.weights()
    return {name: one for name, one in weights.items() if not name.startswith("target")}


@pytest.mark.parametrize("learner", ["fused", "torch"])
def test_the_loss_follows_its_schedules_and_is_the_settings_after_a_restore(learner: str) -> None:
    config = {
        "learner": learner,
        "clip_param": 0.4,
        "clip_param_schedule": "linear",
        "entropy_coeff_schedule": [[0, 0.0], [192, 0.2]],
        "schedule_timesteps": 96 * 4,
    }
    trainer = make(config)
    found = []
    for _ in range(3):
        found.append(options(trainer))
        run(trainer, 1)
    np.testing.assert_allclose(found, [(0.4, 0.0), (0.3, 0.1), (0.2, 0.2)])
    other = make({**config, "clip_param": 0.8})
    other.set_state(trainer.get_state())
    np.testing.assert_allclose(options(other), (0.2, 0.2))
    trainer.stop()
    other.stop()


@pytest.mark.parametrize("learner", ["fused", "torch"])
@pytest.mark.parametrize("kind", ["a2c", "impala"])
def test_the_bonus_of_a_policy_gradient_follows_its_schedule(kind: str, learner: str) -> None:
    sizes = {"num_envs_per_worker": 2, "rollout_fragment_length": 8, "train_batch_size": 16}
    bonus = {"entropy_coeff_schedule": [[0, 0.0], [64, 0.4]], "timesteps_per_iteration": 16}
    trainer: Any = LEARNERS[kind]({"env": "CartPole-v1", "learner": learner, **sizes, **bonus})
    found = []
    for _ in range(3):
        found.append(options(trainer)[1])
        trainer.train()
    trainer.stop()
    np.testing.assert_allclose(found, [0.0, 0.1, 0.2])


def options(trainer: ActorCriticTrainer) -> tuple[float, float]:
    """Clip (0 without) and weight of the entropy that the learner's next step has."""
    learner = trainer.learner
    if isinstance(learner, FusedLearner):
        loss: Loss = learner.loss
    else:
        loss = learner.loss.keywords["settings"]  # type: ignore[attr-defined]
    return float(getattr(loss, "clip_param", None) or 0.0), loss.entropy_coeff


@pytest.mark.parametrize(
    "wrong",
    [
        *("cosine", [], [[2, 1.0], [2, 0.5]], [[0, -1.0]], [["0", 1.0]], [[0, 1.0, 2.0]], 3),
        *([[0, math.nan]], [[0, 1.0], [9, math.inf]], [[0, 10**400]]),
    ],
)
@pytest.mark.parametrize("key", ["lr_schedule", "clip_param_schedule", "entropy_coeff_schedule"])
def test_what_is_no_schedule_is_refused(key: str, wrong: object) -> None:
    with pytest.raises(ConfigError, match=rf"{key}: .* or points \[\[environment steps, value\]"):
        PPO({"env": "CartPole-v1", key: wrong})


def test_a_linear_one_needs_its_length() -> None:
    with pytest.raises(ConfigError, match=r"clip_param_schedule: linear needs it as the length"):
        PPO({"env": "CartPole-v1", "clip_param_schedule": "linear"})


def test_ranks_do_not_follow_a_schedule_of_the_loss() -> None:
    ranks = {"num_workers": 2, "data_parallel": True, "rollout_fragment_length": 16}
    with pytest.raises(
        ConfigError, match=r"clip_param_schedule: .* cannot be used with data_parallel"
    ):
        PPO({"env": "CartPole-v1", **ranks, "clip_param_schedule": [[0, 0.2], [9, 0.1]]})
