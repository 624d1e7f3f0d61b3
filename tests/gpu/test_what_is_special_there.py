"""On a real GPU: steps are captured, policies act there, and replays are in its memory.

The same is tested with the CPU in place of a GPU in tests/trainables, to the bit.
"""

import logging
from typing import Any

import numpy as np
import pytest
import torch

from trainables.algorithms.a2c import A2C
from trainables.algorithms.dqn import DQN
from trainables.algorithms.iql import IQL
from trainables.algorithms.ppo import PPO
from trainables.algorithms.sac import SAC
from trainables.algorithms.td3 import TD3
from trainables.core import devices
from trainables.errors import TrainableError
from trainables.policies.acting.on_device import DeviceBoundedActor
from trainables.trainable import TrialContext
from trainables.trainer.trainer import Trainer

pytestmark = pytest.mark.gpu
PICTURES = {"env": "tests.support.pictures:Planes", "model": {"hidden": [16]}}
LEARN = {"learning_starts": 8, "replay_batch_size": 8, "train_batch_size": 16}
#: Name → algorithm, settings, and number of captured steps.
KINDS: dict[str, tuple[type[Trainer], dict[str, Any], int]] = {
    "ppo": (PPO, {"rollout_fragment_length": 16}, 1),
    "ppo of numbers": (PPO, {"rollout_fragment_length": 16, "env": "Pendulum-v1"}, 1),
    "ppo of pictures": (PPO, {"rollout_fragment_length": 16, **PICTURES}, 1),
    "a2c": (A2C, {"optimizer": {"name": "adam"}}, 1),
    "dqn": (DQN, {**LEARN, "dueling": True, "num_atoms": 5}, 1),
    "dqn of pictures, prioritised": (DQN, {**LEARN, **PICTURES, "prioritized_replay": True}, 1),
    "dqn, noisy": (DQN, {**LEARN, "noisy": True}, 1),
    "sac": (SAC, {**LEARN, "env": "Pendulum-v1"}, 1),
    "sac of choices": (SAC, LEARN, 1),
    "td3": (TD3, {**LEARN, "env": "Pendulum-v1"}, 2),
    "iql": (IQL, {**LEARN, "env": "Pendulum-v1"}, 1),
    "iql of choices": (IQL, LEARN, 1),
}


def trained(kind: str, **more: Any) -> Trainer:
    cls, own, _ = KINDS[kind]
    config = {"env": "CartPole-v1", "num_gpus": 1, **own, **more}
    trainer = cls(config, TrialContext(seed=3))
    for _ in range(10):
        assert all(np.isfinite(list(trainer.train()["learner"].values())))
    return trainer


@pytest.mark.parametrize("kind", KINDS)
def test_steps_are_captured_and_lead_where_ordinary_ones_lead(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        captured = trained(kind, act_on="cpu")
    assert [one for one in caplog.messages if "graphs" in one] == []
    assert captured.graphs is not None
    assert captured.graphs.captured == KINDS[kind][2]
    ordinary = trained(kind, act_on="cpu", graphs="off")
    for name, expected in ordinary.policy.weights().items():
        np.testing.assert_allclose(
            captured.policy.weights()[name], expected, atol=1e-2, err_msg=name
        )
    for one in (captured, ordinary):
        one.stop()


@pytest.mark.parametrize("kind", ["ppo of pictures", "dqn of pictures, prioritised"])
def test_policies_of_pictures_act_there_by_default(kind: str) -> None:
    trainer = trained(kind)
    assert trainer.frames is not None
    assert trainer.acting_graphs is not None
    assert trainer.acting_graphs.captured == 1
    trainer.stop()


@pytest.mark.parametrize("kind", ["sac", "sac of choices", "td3"])
def test_sac_and_td3_act_there(kind: str) -> None:
    trainer = trained(kind, act_on="gpu")
    worker = trainer.workers.local_worker()
    assert worker is not None
    assert isinstance(worker.get_policy(), DeviceBoundedActor)
    assert trainer.acting_graphs is not None
    assert trainer.acting_graphs.captured == 1
    trainer.stop()


def test_a_trial_gets_no_more_than_its_share_of_the_memory() -> None:
    whole = devices.accelerator_bytes()
    devices.limit_memory(0.02)
    try:
        torch.empty(whole // 100, dtype=torch.uint8, device="cuda")
        with (
            pytest.raises(TrainableError, match=r"num_gpus: 0\.02 gives it.* GB of the GPU"),
            devices.advice_on_memory(0.02, ("train_batch_size",)),
        ):
            torch.empty(whole // 25, dtype=torch.uint8, device="cuda")
    finally:
        devices.limit_memory(1)


def test_a_replay_of_pictures_is_in_its_memory_and_goes_on_on_the_cpu() -> None:
    kind = "dqn of pictures, prioritised"
    trainer: Any = trained(kind)
    assert trainer.replay.sample(2)["observations"].is_cuda
    cls, own, _ = KINDS[kind]
    here = cls({**own, "learner": "torch"}, TrialContext(seed=3))
    here.set_state(trainer.get_state())
    assert here.train()["timesteps_total"] > trainer.progress.timesteps
    for one in (trainer, here):
        one.stop()


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
@pytest.mark.parametrize("kind", ["ppo of pictures", "sac", "td3", "dqn"])
def test_all_of_it_works_with_fewer_bits(kind: str, precision: str) -> None:
    trainer = trained(kind, precision=precision)
    assert {p.dtype for p in trainer.policy.in_torch().parameters.values()} == {torch.float32}
    trainer.stop()
