"""What off-policy actor-critics learn: an actor, two critics of different weights, and targets.

The critics' layers lie side by side: weights (2, I, O), biases (2, 1, O). Gains are √2 in hidden
layers, 0.01 in the actor's head and 1 in the critics'.
"""

import copy
from collections.abc import Callable
from typing import Any

import torch
from numpy.typing import NDArray
from torch import nn

from trainables.envs.make import EnvSpaces
from trainables.envs.spaces.actions import ActionLayout
from trainables.policies.actor import Actor
from trainables.policies.architecture import Architecture, OptimizerConfig
from trainables.policies.bounded.acting import Bounds
from trainables.policies.filters import Filter
from trainables.policies.layers import HIDDEN_GAIN, perceptron
from trainables.policies.networks import POLICY_GAIN, VALUE_GAIN, Networks
from trainables.policies.torch_policy import TorchPolicy


class Twins(Networks):
    """The networks; those that follow slowly, ``targets`` and ``target_actor``, have no gradient.

    Args:
        layout: of actions.
        architecture: for observations that are vectors; actor and critics each have its layers.
        head: numbers that the actor gives.
        stream: draws the weights.
        bounded: actions are real numbers, squashed: the critics are given them and value one; else
            they value every choice.
        target_actor: whether there is one.
        log_std: of state-dependent noise, of every hidden unit at first; None: there is none.
        log_alpha: logarithm of the temperature at first; None: there is none.
    """

    def __init__(
        self,
        layout: ActionLayout,
        architecture: Architecture,
        head: int,
        stream: torch.Generator,
        *,
        bounded: bool = True,
        target_actor: bool = False,
        log_std: float | None = None,
        log_alpha: float | None = None,
    ) -> None:
        super().__init__()
        self.layout, self.architecture, self.bounded = layout, architecture, bounded
        features, hidden = architecture.features, architecture.hidden
        gains = [HIDDEN_GAIN] * len(hidden)
        self.actor = perceptron((features, *hidden, head), [*gains, POLICY_GAIN], stream)
        width = len(layout.sizes) if bounded else 0
        sizes = (features + width, *hidden, 1 if bounded else layout.logits)
        pairs = [perceptron(sizes, [*gains, VALUE_GAIN], stream) for _ in range(2)]
        self.critics = nn.ModuleList(_Pair(*both) for both in zip(*pairs, strict=True))
        self.targets = copy.deepcopy(self.critics).requires_grad_(False)
        if target_actor:
            self.target_actor = copy.deepcopy(self.actor).requires_grad_(False)
        if log_std is not None:
            self.actor_log_std = nn.Parameter(torch.full((hidden[-1], width), log_std))
        if log_alpha is not None:
            self.log_alpha = nn.Parameter(torch.full((1,), log_alpha))
        of = dict(self.named_parameters())
        followed = {"targets.": "critics.", "target_actor.": "actor."}
        behind = {n: p for n, p in of.items() if n.startswith(tuple(followed))}
        self._behind: list[torch.Tensor] = list(behind.values())
        self._ahead: list[torch.Tensor] = [
            of[name.replace(slow, fast)]
            for name in behind
            for slow, fast in followed.items()
            if name.startswith(slow)
        ]
        self._acting = {n: p for n, p in of.items() if n.startswith("actor")}

    @property
    def clips_means(self) -> bool:
        """Whether means are kept near 0 before they are squashed: with state-dependent noise."""
        return hasattr(self, "actor_log_std")

    @torch.no_grad()
    def follow(self, share: float) -> None:
        """Move the targets this share of the way to the networks that they follow."""
        torch._foreach_lerp_(self._behind, self._ahead, share)

    def acting_weights(self) -> dict[str, NDArray[Any]]:
        """Those that an actor plays with."""
        return {name: p.detach().numpy().copy() for name, p in self._acting.items()}


class _Pair(nn.Module):
    """Two linear layers side by side."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        with torch.no_grad():
            self.weight = nn.Parameter(torch.stack([one.weight.t() for one in layers]))  # type: ignore[operator]
            self.bias = nn.Parameter(torch.stack([one.bias[None] for one in layers]))  # type: ignore[index]


class TwinsPolicy(TorchPolicy):
    """A policy whose networks are `Twins`: each optimiser moves the parts that begin with a name.

    Args:
        model: the networks.
        make_actor: makes what plays with their weights.
        config: of every optimiser.
    """

    model: Twins

    def __init__(
        self, model: Twins, make_actor: Callable[[], Actor], config: OptimizerConfig
    ) -> None:
        parts = ("actor", "critics", "log_alpha")
        names = [name for name, _ in model.named_parameters()]
        has = [part for part in parts if any(name.startswith(part) for name in names)]
        super().__init__(model, make_actor, dict.fromkeys(has, config))

    def onnx_graph(
        self, observation_filter: Filter, spaces: EnvSpaces, clip_actions: bool
    ) -> bytes:
        """Preprocessor, frozen filter, actor and the greedy action in one file."""
        from trainables.policies.onnx import graph

        limits = Bounds.of(spaces.action) if self.model.bounded else None
        return graph.build_bounded(self.model, observation_filter, spaces, limits)
