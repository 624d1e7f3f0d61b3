"""Optimisers by name: their steps are torch's own, and their state is theirs alone."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from trainables.algorithms.ppo import PPO
from trainables.errors import ConfigError
from trainables.policies.architecture import OptimizerConfig, check_moments
from trainables.policies.learning import optimizers

RATE = 1e-2
#: Settings of ours, and what makes the same optimiser in torch.
SAME: dict[str, tuple[dict[str, Any], Any]] = {
    "adam": ({"weight_decay": 0.1}, lambda p: torch.optim.Adam(p, RATE, (0.9, 0.999), 1e-5, 0.1)),
    "adamw": (
        {"betas": (0.8, 0.9), "weight_decay": 0.1},
        lambda p: torch.optim.AdamW(p, RATE, (0.8, 0.9), 1e-5, 0.1),
    ),
    "rmsprop": (
        {"alpha": 0.9, "eps": 1e-3, "weight_decay": 0.1},
        lambda p: torch.optim.RMSprop(p, RATE, 0.9, 1e-3, 0.1),
    ),
    "sgd": (
        {"momentum": 0.9, "weight_decay": 0.1},
        lambda p: torch.optim.SGD(p, RATE, momentum=0.9, weight_decay=0.1),
    ),
}


def weights() -> list[torch.Tensor]:
    stream = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=stream, dtype=torch.float64) for shape in ((3, 4), (4,))]


@pytest.mark.parametrize("name", SAME)
def test_steps_are_those_of_torch(name: str) -> None:
    given, make = SAME[name]
    config = OptimizerConfig.model_validate({"name": name, **given})
    moved, theirs = weights(), [nn.Parameter(one) for one in weights()]
    kept = [optimizers.initial_moments(one, config) for one in moved]
    optimizer = make(theirs)
    for step in range(10):
        gradients = [torch.sin((step + 1) * one) for one in weights()]
        for parameter, gradient in zip(theirs, gradients, strict=True):
            parameter.grad = gradient.clone()
        optimizer.step()
        optimizers.move(moved, gradients, kept, RATE, config)
        np.testing.assert_array_equal(gradients[0], torch.sin((step + 1) * weights()[0]))
    for found, expected in zip(moved, theirs, strict=True):
        np.testing.assert_allclose(found, expected.detach(), rtol=1e-12)


def test_what_another_optimiser_kept_is_refused() -> None:
    kept = optimizers.initial_moments(weights()[0], OptimizerConfig())
    check_moments({"actor": kept}, OptimizerConfig(name="adamw"))
    with pytest.raises(ValueError, match=r"expected square_avg, as optimizer\.name is rmsprop"):
        check_moments({"actor": kept}, OptimizerConfig(name="rmsprop"))


def test_settings_of_another_optimiser_are_refused() -> None:
    with pytest.raises(
        ConfigError,
        match=r"^optimizer.betas: has no effect with name: sgd; only adam and adamw read it",
    ):
        PPO({"env": "CartPole-v1", "optimizer": {"name": "sgd", "betas": [0.9, 0.99]}})
