"""Networks of off-policy actor-critics: an actor, two critics of different weights, and targets.

The critics' layers lie side by side: weights (2, I, O), biases (2, 1, O). The first weights of both
are torch's usual ones, as TD3's authors have them: where an actor begins near 0, Adam moves its
hidden layers by noise. B rows, D features, K numbers of an action.
"""

import copy
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trainables.core import rng
from trainables.envs.make import EnvSpaces
from trainables.envs.spaces.actions import ActionLayout
from trainables.envs.spaces.connectors import Connectors
from trainables.policies.acting.actor import Actor
from trainables.policies.architecture import Architecture, OptimizerConfig
from trainables.policies.bounded.acting import LOG_STD, MEAN_CLIP, Bounds
from trainables.policies.exploration.actions import LEAST_VARIANCE
from trainables.policies.layers import activate, perceptron
from trainables.policies.networks import HALF_LOG_2PI, ActorCritic, Networks
from trainables.policies.torch_policy import ActorCriticPolicy, TorchPolicy


class Twins(Networks):
    """The networks; those that follow slowly, ``targets`` and ``target_actor``, have no gradient.

    Args:
        layout: of actions.
        architecture: for observations that are vectors; actor and critics each have its layers.
        head: numbers that the actor gives.
        seed: of the trial; its stream draws the weights.
        limits: of real numbers, squashed: the critics are given them and value one; None: they
            value every choice.
        target_actor: whether there is one.
        log_std: of state-dependent noise, of every hidden unit at first; None: there is none.
        log_alpha: logarithm of the temperature at first; None: there is none.
    """

    def __init__(
        self,
        layout: ActionLayout,
        architecture: Architecture,
        head: int,
        seed: int,
        *,
        limits: Bounds | None,
        target_actor: bool = False,
        log_std: float | None = None,
        log_alpha: float | None = None,
    ) -> None:
        super().__init__()
        self.layout, self.architecture, self.limits = layout, architecture, limits
        low, high = (np.zeros(0),) * 2 if limits is None else (limits.low, limits.high)
        self._low: Tensor
        self._high: Tensor
        self.register_buffer("_low", torch.from_numpy(low), persistent=False)
        self.register_buffer("_high", torch.from_numpy(high), persistent=False)
        self._make(head, 0 if limits is None else len(low), seed)
        self.targets = copy.deepcopy(self.critics).requires_grad_(False).eval()
        if target_actor:
            self.target_actor = copy.deepcopy(self.actor).requires_grad_(False).eval()
        if log_std is not None:
            self.actor_log_std = nn.Parameter(torch.full((architecture.units, len(low)), log_std))
        if log_alpha is not None:
            self.log_alpha = nn.Parameter(torch.full((1,), log_alpha))
        self._behind, self._ahead = _followers(self.by_name)
        self._acting = {n: one for n, one in self.kept().items() if n.startswith("actor")}

    def _make(self, head: int, width: int, seed: int) -> None:
        """Make `actor` and `critics`, which are given `width` numbers of an action."""
        features, hidden = self.architecture.features, self.architecture.hidden
        stream = rng.torch_generator(seed, "init")
        self.actor = perceptron((features, *hidden, head), None, stream)
        outputs = 1 if width else self.layout.logits
        self.critics = _pairs((features + width, *hidden, outputs), stream)

    def heads(self, observations: Tensor, slow: bool = False) -> tuple[Tensor, Tensor]:
        """Return the output of the actor, or its target, for (B, D), and its last units (B, H)."""
        layers = self.target_actor if slow else self.actor
        units = hidden_units(layers, observations, self.architecture.activation)
        return layers[-1](units), units

    def judge(
        self, observations: Tensor, actions: Tensor | None = None, slow: bool = False
    ) -> Tensor:
        """(2, B) what the critics, or the slow ones, say of actions in (-1, 1); (2, B, A) of all.

        All choices are valued where no actions are given.
        """
        layers = self.targets if slow else self.critics
        x = observations if actions is None else torch.cat([observations, actions], dim=1)
        q: Tensor = layers[-1](hidden_units(layers, x, self.architecture.activation))
        return q if actions is None else q[..., 0]

    def unit(self, actions: Tensor) -> Tensor:
        """Actions (B, K) as numbers from -1 to 1: what is read may be beyond the bounds."""
        actions = actions.clamp(self._low, self._high)
        width = (self._high - self._low).clamp(min=torch.finfo(torch.float32).tiny)
        return (2 * actions - (self._high + self._low)) / width

    def draw(self, observations: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Squashed Gaussian numbers (B, K) by standard normal ones, and log-probabilities (B,).

        The noise is as large as `noise_shape` says.
        """
        head, units = self.heads(observations)
        if self.follows_state:
            std = self.actor_log_std.exp()
            means, away = head.clamp(-MEAN_CLIP, MEAN_CLIP), units @ (std * noise)
            variance = units.square() @ std.square() + LEAST_VARIANCE
            each = -0.5 * (away.square() / variance + variance.log())
        else:
            means, log_std = head.chunk(2, dim=1)
            log_std = log_std.clamp(*LOG_STD)
            away = log_std.exp() * noise
            each = -0.5 * noise.square() - log_std
        x = means + away
        # log(1 - tanh(x)²), also where that is nearly 0.
        log_slope = 2.0 * (math.log(2.0) - x - nn.functional.softplus(-2.0 * x, threshold=40.0))
        return x.tanh(), (each - HALF_LOG_2PI - log_slope).sum(1)

    def noise_shape(self, rows: int) -> tuple[int, int]:
        """Of what `draw` needs for so many rows; one matrix for all with state-dependent noise."""
        return (self.architecture.units if self.follows_state else rows), len(self._low)

    @property
    def follows_state(self) -> bool:
        """True if noise depends on the state; means are then kept near 0 before squashing."""
        return hasattr(self, "actor_log_std")

    @torch.no_grad()
    def follow(self, share: float) -> None:
        """Move the targets this share of the way to the networks that they follow."""
        torch._foreach_lerp_(self._behind, self._ahead, share)

    def acting_weights(self) -> dict[str, NDArray[Any]]:
        """Those that an actor plays with."""
        return {name: p.detach().cpu().numpy().copy() for name, p in self._acting.items()}


class Judged(ActorCritic):
    """Actor and critic of states, and beside them twin critics of actions with their targets.

    Args:
        layout: of actions, one choice or real numbers.
        architecture: for observations that are vectors; every network has its layers.
        stream: draws the weights.
        limits: of the numbers of an action; None: it is a choice, and critics value every one.
    """

    def __init__(
        self,
        layout: ActionLayout,
        architecture: Architecture,
        stream: torch.Generator,
        limits: Bounds | None,
    ) -> None:
        super().__init__(layout, architecture, stream)
        self._middle: Tensor
        self._half: Tensor
        middle, half = torch.zeros(0), torch.zeros(0)
        width, outputs = 0, layout.logits
        if limits is not None:
            width, outputs = len(limits.low), 1
            low, high = (torch.from_numpy(one) for one in (limits.low, limits.high))
            half = ((high - low) / 2).clamp(min=torch.finfo().tiny)
            middle = (high + low) / 2
        self.register_buffer("_middle", middle, persistent=False)
        self.register_buffer("_half", half, persistent=False)
        sizes = (architecture.features + width, *architecture.hidden, outputs)
        self.critics = _pairs(sizes, stream)
        self.targets = copy.deepcopy(self.critics).requires_grad_(False)
        self._behind, self._ahead = _followers(self.by_name)

    def judge(self, layers: nn.ModuleList, observations: Tensor, actions: Tensor) -> Tensor:
        """(2, B) what `critics` or `targets` say of actions in observations (B, D).

        Actions that are read may be beyond the bounds; their value is that of what was done.
        """
        x = observations
        if len(self._half):
            x = torch.cat([x, ((actions - self._middle) / self._half).clamp(-1, 1)], dim=1)
        q: Tensor = layers[-1](hidden_units(layers, x, self.architecture.activation))
        return q[..., 0] if len(self._half) else q[:, torch.arange(len(actions)), actions]

    @torch.no_grad()
    def follow(self, share: float) -> None:
        """Move the targets this share of the way to the critics."""
        torch._foreach_lerp_(self._behind, self._ahead, share)

    def acting_weights(self) -> dict[str, NDArray[Any]]:
        """Those of actor and critic."""
        judges = ("critics.", "targets.")
        return {n: one for n, one in self.weights().items() if not n.startswith(judges)}


class JudgedPolicy(ActorCriticPolicy):
    """A policy whose networks are `Judged`."""

    model: Judged


def hidden_units(layers: nn.ModuleList, x: Tensor, activation: str) -> Tensor:
    """Return the output of the layer before the last."""
    for layer in layers[:-1]:
        x = activate(layer(x), activation)
    return x


def _pairs(sizes: tuple[int, ...], stream: torch.Generator) -> nn.ModuleList:
    """The layers of two critics side by side."""
    pairs = [perceptron(sizes, None, stream) for _ in range(2)]
    return nn.ModuleList(_Pair(*both) for both in zip(*pairs, strict=True))


def _followers(of: Mapping[str, nn.Parameter]) -> tuple[list[Tensor], list[Tensor]]:
    """The parameters of targets, and those that they follow."""
    followed = {"targets.": "critics.", "target_actor.": "actor."}
    pairs = [
        (parameter, of[name.replace(slow, fast)])
        for name, parameter in of.items()
        for slow, fast in followed.items()
        if name.startswith(slow)
    ]
    return [slow for slow, _ in pairs], [fast for _, fast in pairs]


class _Pair(nn.Module):
    """Two linear layers side by side."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        with torch.no_grad():
            self.weight = nn.Parameter(torch.stack([one.weight.t() for one in layers]))  # type: ignore[operator]
            self.bias = nn.Parameter(torch.stack([one.bias[None] for one in layers]))  # type: ignore[index]

    def forward(self, x: Tensor) -> Tensor:
        """(2, B, O) for inputs (B, I) of both, or (2, B, I) of each."""
        return x @ self.weight + self.bias


class TwinsPolicy(TorchPolicy):
    """A policy whose networks are `Twins`: each optimiser moves the parts that begin with a name.

    Args:
        model: the networks.
        make_actor: makes what plays with their weights.
        config: of every optimiser.
        device: where it learns.
    """

    model: Twins

    def __init__(
        self,
        model: Twins,
        make_actor: Callable[[], Actor],
        config: OptimizerConfig,
        device: str,
    ) -> None:
        parts = ("actor", "critics", "log_alpha")
        names = [name for name, _ in model.named_parameters()]
        has = [part for part in parts if any(name.startswith(part) for name in names)]
        super().__init__(model, make_actor, dict.fromkeys(has, config), device)

    def tensors(self, rows: Mapping[str, NDArray[Any]]) -> dict[str, Tensor]:
        """Columns where it learns, but for actions in the type of its weights."""
        kind = next(iter(self.parameters.values())).dtype
        on = {name: torch.from_numpy(column).to(self.device) for name, column in rows.items()}
        return {
            name: one.to(kind) if one.is_floating_point() and name != "actions" else one
            for name, one in on.items()
        }

    def onnx_graph(self, spaces: EnvSpaces, connectors: Connectors) -> bytes:
        """Preprocessor, frozen filter, actor and the greedy action in one file."""
        from trainables.policies.onnx import graph

        return graph.build_bounded(self.model, spaces, connectors)
