"""``precision``: fewer bits in products of matrices, and only while a trainer steps."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.stand_in import as_accelerator
from trainables.algorithms.a2c import A2C
from trainables.algorithms.dqn import DQN
from trainables.algorithms.iql import IQL
from trainables.algorithms.ppo import PPO
from trainables.algorithms.sac import SAC
from trainables.algorithms.td3 import TD3
from trainables.errors import ConfigError
from trainables.trainable import TrialContext
from trainables.trainer.trainer import Trainer

LEARN = {"learning_starts": 8, "replay_batch_size": 32, "train_batch_size": 16}
PICTURES = {"env": "tests.support.pictures:Planes", "model": {"hidden": [16]}}
KINDS: dict[str, tuple[type[Trainer], dict[str, Any]]] = {
    "ppo": (PPO, {"rollout_fragment_length": 16}),
    "ppo of pictures": (PPO, {"rollout_fragment_length": 16, **PICTURES}),
    "ppo with an lstm": (PPO, {"rollout_fragment_length": 16, "model": {"use_lstm": True}}),
    "ppo with gsde": (
        PPO,
        {
            "rollout_fragment_length": 16,
            "env": "Pendulum-v1",
            "exploration_config": {"type": "StateDependentNoise"},
        },
    ),
    "a2c": (A2C, {}),
    "dqn": (DQN, {**LEARN, "dueling": True, "num_atoms": 5}),
    "dqn of pictures": (DQN, {**LEARN, **PICTURES}),
    "sac": (SAC, {**LEARN, "env": "Pendulum-v1"}),
    "sac of choices": (SAC, LEARN),
    "td3": (TD3, {**LEARN, "env": "Pendulum-v1"}),
    "iql": (IQL, {**LEARN, "buffer_size": 1000}),
}


@pytest.fixture(autouse=True)
def _stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    as_accelerator(monkeypatch)


def weights(kind: str, precision: str, graphs: str = "off") -> dict[str, Any]:
    cls, own = KINDS[kind]
    device = {"num_gpus": 1, "precision": precision, "graphs": graphs, "act_on": "cpu"}
    trainer = cls({"env": "CartPole-v1", **own, **device}, TrialContext(seed=6))
    before = trainer.policy.weights()
    assert trainer.train()["learner"]
    after = trainer.policy.weights()
    moments = trainer.policy.kept_moments()
    trainer.stop()
    assert {one.dtype for one in after.values()} == {np.dtype(np.float32)}
    assert {one.dtype for each in moments.values() for one in each.values()} <= {
        np.dtype(np.float32)
    }
    assert all(np.isfinite(one).all() for one in after.values())
    return {name: after[name] - before[name] for name in after}


@pytest.mark.parametrize("kind", KINDS)
def test_bf16_changes_the_steps_a_little_and_not_the_types_of_weights(kind: str) -> None:
    lowered, full = weights(kind, "bf16"), weights(kind, "float32")
    both = [np.concatenate([one[name].ravel() for name in full]) for one in (lowered, full)]
    assert (both[0] != both[1]).any()
    alike = both[0] @ both[1] / (np.linalg.norm(both[0]) * np.linalg.norm(both[1]))
    assert alike > 0.5  # cosine of the two ways that the weights went


@pytest.mark.parametrize("kind", ["ppo", "dqn", "sac", "td3"])
def test_bf16_works_in_captured_steps(kind: str) -> None:
    captured, ordinary = (weights(kind, "bf16", graphs) for graphs in ("on", "off"))
    for name, one in ordinary.items():
        np.testing.assert_array_equal(captured[name], one)


def flags() -> tuple[bool, bool]:
    return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32


@pytest.mark.parametrize(("precision", "inside"), [("tf32", (True, True)), ("float32", None)])
def test_tf32_is_set_while_a_trainer_steps_and_put_back_also_after_an_error(
    precision: str, inside: tuple[bool, bool] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, seen = flags(), []
    trainer = PPO({"env": "CartPole-v1", "num_gpus": 1, "precision": precision})
    step: Callable[[], dict[str, float]] = trainer.training_step

    def noted() -> dict[str, float]:
        seen.append(flags())
        return step()

    monkeypatch.setattr(trainer, "training_step", noted)
    trainer.train()
    assert flags() == before

    def fail() -> dict[str, float]:
        raise RuntimeError("as if")

    monkeypatch.setattr(trainer, "training_step", fail)
    with pytest.raises(RuntimeError, match="as if"):
        trainer.train()
    assert flags() == before
    assert seen == [inside or before]
    trainer.stop()


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_fewer_bits_are_refused_on_the_cpu(precision: str) -> None:
    with pytest.raises(
        ConfigError,
        match=f"precision: {precision} cannot be used with num_gpus: 0; set it to float32",
    ):
        PPO.check_config({"env": "CartPole-v1", "precision": precision})
