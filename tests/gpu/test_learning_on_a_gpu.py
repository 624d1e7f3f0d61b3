"""Learning on a GPU: every algorithm learns there, and continues from its state anywhere."""

from typing import Any

import pytest

from tests.support.trainers import differences, make, run
from trainables.algorithms.a2c import A2C
from trainables.algorithms.dqn import DQN
from trainables.algorithms.impala import IMPALA
from trainables.algorithms.iql import IQL
from trainables.algorithms.ppo import PPO
from trainables.algorithms.sac import SAC
from trainables.algorithms.td3 import TD3
from trainables.trainer.trainer import Trainer

pytestmark = pytest.mark.gpu


def test_K5_learning_on_a_gpu_can_be_saved_and_restored() -> None:
    trainer = make({"num_gpus": 1})
    run(trainer, 2)
    assert next(trainer.policy.model.parameters()).is_cuda
    state = trainer.get_state()
    again = make({"num_gpus": 1})
    again.set_state(state)
    assert differences(state["trainable"], again.get_state()["trainable"]) == []
    again.train()
    for one in (trainer, again):
        one.stop()


@pytest.mark.parametrize("cls", [PPO, A2C, IMPALA, DQN, IQL, SAC, TD3])
def test_K5_a_policy_learns_on_the_gpu_and_goes_on_without_it(cls: type[Trainer]) -> None:
    config: dict[str, Any] = {"env": "Pendulum-v1" if cls is TD3 else "CartPole-v1"}
    config |= {"env_level": "C", "train_batch_size": 64}
    if cls is DQN:
        config |= {"learning_starts": 64, "dueling": True, "num_atoms": 5}
    there = cls({**config, "num_gpus": 1})
    before = there.get_weights()["default_policy"]
    for _ in range(3):
        there.train()
    assert {p.device.type for p in there.policy.in_torch().model.parameters()} == {"cuda"}
    weights = there.get_weights()["default_policy"]
    assert any((weights[name] != before[name]).any() for name in weights)
    here = cls({**config, "learner": "torch"})
    here.set_state(there.get_state())
    assert here.train()["timesteps_total"] > there.progress.timesteps
    for one in (there, here):
        one.stop()
