"""Update rules of optimisers by name, in torch.

The rules are those of `torch.optim`, whose classes import torch's compiler, which takes a second.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from trainables.policies.architecture import MOMENTS, OptimizerConfig


def initial_moments(weight: Tensor, config: OptimizerConfig) -> dict[str, Tensor]:
    """Return the moments of a weight before its first update: zeros."""
    none = torch.zeros((), device=weight.device)
    return {
        name: none if name == "step" else torch.zeros_like(weight) for name in MOMENTS[config.name]
    }


def move(
    weights: list[Tensor],
    gradients: list[Tensor],
    moments: Sequence[Mapping[str, Tensor]],
    rate: float,
    config: OptimizerConfig,
) -> None:
    """Make one step of all weights against their gradients, in place; gradients do not change.

    Args:
        weights: tensors to update.
        gradients: one gradient per weight.
        moments: moments of each weight by name, updated in place.
        rate: learning rate.
        config: settings of the optimiser.
    """
    kept = {name: [one[name] for one in moments] for name in MOMENTS[config.name]}
    if config.name in ("adam", "adamw"):
        _adam(weights, gradients, kept, rate, config)
        return
    if config.weight_decay:
        gradients = list(torch._foreach_add(gradients, weights, alpha=config.weight_decay))
    if config.name == "rmsprop":
        squares = kept["square_avg"]
        torch._foreach_mul_(squares, config.alpha)
        torch._foreach_addcmul_(squares, gradients, gradients, value=1.0 - config.alpha)
        roots = list(torch._foreach_sqrt(squares))
        torch._foreach_add_(roots, config.eps)
        torch._foreach_addcdiv_(weights, gradients, roots, value=-rate)
    else:
        steps = kept["momentum_buffer"]
        torch._foreach_mul_(steps, config.momentum)
        torch._foreach_add_(steps, gradients)
        torch._foreach_add_(weights, steps, alpha=-rate)


def _adam(
    weights: list[Tensor],
    gradients: list[Tensor],
    moments: Mapping[str, list[Tensor]],
    rate: float,
    config: OptimizerConfig,
) -> None:
    """Make one step of Adam or AdamW, in place.

    Args:
        weights: tensors to update.
        gradients: one gradient per weight.
        moments: name → moments, one per weight, updated in place.
        rate: learning rate.
        config: settings of the optimiser.
    """
    torch._foreach_add_(moments["step"], 1)
    step = torch._fused_adam_ if config.name == "adam" else torch._fused_adamw_
    step(
        weights,
        gradients,
        moments["exp_avg"],
        moments["exp_avg_sq"],
        [],
        moments["step"],
        lr=rate,
        beta1=config.betas[0],
        beta2=config.betas[1],
        weight_decay=config.weight_decay,
        eps=config.eps,
        amsgrad=False,
        maximize=False,
    )
