"""A2C: its loss, its step, its learning and its exactness."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.trainers import (
    check_learners_train_alike,
    check_restored_exactly,
    run,
)
from trainables.algorithms.a2c import A2C, Config
from trainables.envs.spaces.actions import ActionLayout
from trainables.errors import ConfigError
from trainables.policies.architecture import Architecture, OptimizerConfig
from trainables.policies.learning.torch_policy import build_policy
from trainables.trainable import TrialContext
from trainables.trainer.families.policy_gradient import policy_gradient_loss

SMALL: dict[str, Any] = {
    "env": "CartPole-v1",
    "num_envs_per_worker": 3,
    "timesteps_per_iteration": 60,
    "lr_schedule": "linear",
    "schedule_timesteps": 5000,
    "observation_filter": "MeanStdFilter",
}


def make(config: dict[str, Any] | None = None) -> A2C:
    return A2C({**SMALL, **(config or {})}, TrialContext(seed=7))


def test_the_loss_is_that_of_the_paper() -> None:
    policy = build_policy((ActionLayout((2,), scalar=True), vectors()), OptimizerConfig(), 1)
    settings = Config.model_validate(
        {"environment": {"env": "CartPole-v1"}, "vf_loss_coeff": 0.7, "entropy_coeff": 0.1}
    )
    observations = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    actions = torch.tensor([0, 1, 1, 0, 1])
    advantages, returns = torch.arange(5.0) - 1.5, torch.arange(5.0)
    columns = {"observations": observations, "actions": actions, "returns": returns}
    loss, parts = policy_gradient_loss(
        policy.model, {**columns, "advantages": advantages}, settings
    )
    head, values = heads(policy.model, observations)
    logs = torch.log_softmax(head, 1)
    by_hand = (
        -(logs[range(5), actions] * advantages).mean(),
        0.5 * (values - returns).square().mean(),
        -(logs.exp() * logs).sum(1).mean(),
    )
    torch.testing.assert_close(parts, torch.stack(by_hand).detach())
    torch.testing.assert_close(loss, by_hand[0] + 0.7 * by_hand[1] - 0.1 * by_hand[2])


def vectors() -> Architecture:
    return Architecture((4,), (), (8,), "tanh")


def heads(model: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    head, values = x, x
    for one, other in zip(model.actor[:-1], model.critic[:-1], strict=True):
        head, values = torch.tanh(one(head)), torch.tanh(other(values))
    return model.actor[-1](head), model.critic[-1](values)[:, 0]


def test_a_round_is_one_step_on_all_rows_of_short_fragments() -> None:
    trainer = make({"timesteps_per_iteration": 0, "learner": "torch"})
    before = trainer.policy.model.weights()
    result = trainer.train()
    assert result["timesteps_total"] == 15
    squares = trainer.policy.get_state()["optimizer"]
    gradients = trainer.policy.gradients()
    for name, gradient in gradients.items():
        moved = trainer.policy.model.weights()[name]
        square = 0.01 * gradient**2
        expected = before[name] - 7e-4 * gradient / (np.sqrt(square) + 1e-5)
        np.testing.assert_allclose(squares[name]["square_avg"], square, rtol=1e-5)
        np.testing.assert_allclose(moved, expected, atol=1e-6)
    trainer.stop()


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_both_learners_train_alike(env: str) -> None:
    check_learners_train_alike(make, env)


@pytest.mark.parametrize("learner", ["fused", "torch"])
def test_it_goes_on_to_the_bit_after_a_restore(learner: str, tmp_path: Path) -> None:
    straight = make({"learner": learner})
    run(straight, 2)
    check_restored_exactly(straight, make({"learner": learner}), tmp_path)


def test_an_lstm_learns_in_torch() -> None:
    trainer = make(
        {"model": {"use_lstm": True, "lstm_cell_size": 8}, "observation_filter": "NoFilter"}
    )
    assert np.isfinite(run(trainer, 1)[0]["learner"]["policy_loss"])
    assert A2C.settle_config({**SMALL, "model": {"use_lstm": True}})["learner"] == "torch"
    trainer.stop()


def test_settings_of_other_algorithms_are_refused() -> None:
    with pytest.raises(ConfigError, match="clip_param"):
        make({"clip_param": 0.2})
    with pytest.raises(ConfigError, match="data_parallel"):
        make({"num_workers": 2, "data_parallel": True})


def test_it_learns_to_balance() -> None:
    """Far from the end of its course: a random policy gets 22."""
    trainer = A2C({"env": "CartPole-v1", "timesteps_per_iteration": 20_000, "env_level": "C"})
    run(trainer, 2)
    assert run(trainer, 1)[0]["episode_reward_mean"] > 100
    trainer.stop()
