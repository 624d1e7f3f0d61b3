"""Update rules of optimisers by name, in torch.

The rules are those of `torch.optim`, whose classes import torch's compiler, which takes a second.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from trainables.policies.architecture import MOMENTS, OptimizerConfig
from trainables.policies.policy import Scalar


def initial_moments(weight: Tensor, config: OptimizerConfig) -> dict[str, Tensor]:
    """Return the optimiser's moments of a weight before its first update: name → zeros.

    ``step`` is a number (), all others have the weight's shape.
    """
    none = torch.zeros((), device=weight.device)
    return {
        name: none if name == "step" else torch.zeros_like(weight) for name in MOMENTS[config.name]
    }


def move(
    weights: list[Tensor],
    gradients: list[Tensor],
    moments: Sequence[Mapping[str, Tensor]],
    rate: Scalar,
    config: OptimizerConfig,
    failed: Tensor | None = None,
) -> None:
    """Make one step of the optimiser `config`: update weights and moments in place.

    There are one gradient and one dict of moments (name → tensor) per weight. `rate` is the
    learning rate; with Adam it may be a tensor () that is not fetched from the device. If the
    tensor `failed` () is 1, nothing changes; None means that the step is always made.
    """
    kept = {name: [one[name] for one in moments] for name in MOMENTS[config.name]}
    if config.name in ("adam", "adamw"):
        _adam(weights, gradients, kept, rate, config, failed)
        return
    if failed is None:
        _move_without_adam(weights, gradients, kept, float(rate), config)
        return
    changed = [*weights, *(one for each in kept.values() for one in each)]
    before = [one.clone() for one in changed]
    _move_without_adam(weights, gradients, kept, float(rate), config)
    for one, former in zip(changed, before, strict=True):
        one.copy_(torch.where(failed > 0, former, one))


def _move_without_adam(
    weights: list[Tensor],
    gradients: list[Tensor],
    moments: Mapping[str, list[Tensor]],
    rate: float,
    config: OptimizerConfig,
) -> None:
    """Make one step of RMSprop, or of gradient descent with momentum, in place.

    There is one gradient per weight; `moments` is name → list with one tensor per weight.
    """
    if config.weight_decay:
        gradients = list(torch._foreach_add(gradients, weights, alpha=config.weight_decay))
    if config.name == "rmsprop":
        squares = moments["square_avg"]
        torch._foreach_mul_(squares, config.alpha)
        torch._foreach_addcmul_(squares, gradients, gradients, value=1.0 - config.alpha)
        roots = list(torch._foreach_sqrt(squares))
        torch._foreach_add_(roots, config.eps)
        torch._foreach_addcdiv_(weights, gradients, roots, value=-rate)
    else:
        steps = moments["momentum_buffer"]
        torch._foreach_mul_(steps, config.momentum)
        torch._foreach_add_(steps, gradients)
        torch._foreach_add_(weights, steps, alpha=-rate)


def _adam(
    weights: list[Tensor],
    gradients: list[Tensor],
    moments: Mapping[str, list[Tensor]],
    rate: Scalar,
    config: OptimizerConfig,
    failed: Tensor | None,
) -> None:
    """Make one step of Adam or AdamW, in place; nothing changes if the tensor `failed` () is 1.

    There is one gradient per weight; `moments` is name → list with one tensor per weight.
    """
    if failed is None:
        torch._foreach_add_(moments["step"], 1)
    else:
        torch._foreach_add_(moments["step"], [1 - failed] * len(weights))
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
        found_inf=failed,
    )
