"""Networks of off-policy actor-critics: an actor, twin critics with different weights, and targets.

Layers of the two critics are stacked: weights (2, I, O), biases (2, 1, O). Initial weights are
torch's default, as in TD3's original code: with an actor whose outputs begin near 0, Adam would
move its hidden layers by noise. B rows, D features, K numbers of an action, A choices, H units.
"""

import copy
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trainables.core import rng
from trainables.envs.make import EnvSpaces
from trainables.envs.spaces.actions import ActionLayout
from trainables.envs.spaces.connectors import Connectors
from trainables.policies.acting.actor import Actor
from trainables.policies.acting.distributions import HALF_LOG_2PI
from trainables.policies.architecture import Architecture, OptimizerConfig
from trainables.policies.bounded.acting import LOG_STD, MEAN_CLIP, Bounds
from trainables.policies.exploration.actions import LEAST_VARIANCE
from trainables.policies.learning.layers import activate, as_float32, perceptron
from trainables.policies.learning.networks import ActorCritic, Networks
from trainables.policies.learning.torch_policy import ActorCriticPolicy, TorchPolicy

if TYPE_CHECKING:
    from trainables.policies.acting.on_device import DeviceObservations


class Twins(Networks):
    """The networks of SAC and TD3: an actor, twin critics, and their target networks.

    ``targets`` and ``target_actor`` have no gradients; `update_targets` moves them.

    Args:
        architecture: sizes for observations that are vectors; actor and critics have these layers
            each.
        head: number of outputs of the actor.
        seed: seed of the trial; a stream of it draws the weights.
        limits: bounds of real numbers, which the critics take as inputs; None for choices, of which
            the critics value each.
        target_actor: True to make a target of the actor.
        log_std: initial log standard deviation of state-dependent noise, or None for no such noise.
        alpha: initial temperature, or None for no temperature.
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
        alpha: float | None = None,
    ) -> None:
        super().__init__()
        self.layout, self.architecture, self.limits = layout, architecture, limits
        low, high = (np.zeros(0),) * 2 if limits is None else (limits.low, limits.high)
        self._low: Tensor
        self._high: Tensor
        self.register_buffer("_low", torch.from_numpy(low), persistent=False)
        self.register_buffer("_high", torch.from_numpy(high), persistent=False)
        self._make_networks(head, 0 if limits is None else len(low), seed)
        self.targets = copy.deepcopy(self.critics).requires_grad_(False).eval()
        if target_actor:
            self.target_actor = copy.deepcopy(self.actor).requires_grad_(False).eval()
        if log_std is not None:
            self.actor_log_std = nn.Parameter(torch.full((architecture.units, len(low)), log_std))
        if alpha is not None:
            self.log_alpha = nn.Parameter(torch.full((1,), math.log(alpha)))
        self._target_parameters, self._followed_parameters = _target_pairs(self.by_name)
        self._acting = {n: one for n, one in self.saved_tensors().items() if n.startswith("actor")}

    def _make_networks(self, head: int, width: int, seed: int) -> None:
        """Make `actor` with `head` outputs, and `critics`, with weights drawn from `seed`.

        Critics take `width` numbers of an action as inputs; with 0 they value each choice.
        """
        features, hidden = self.architecture.features, self.architecture.hidden
        stream = rng.torch_generator(seed, "init")
        self.actor = perceptron((features, *hidden, head), None, stream)
        outputs = 1 if width else self.layout.logits
        self.critics = _make_critics((features + width, *hidden, outputs), stream)

    def heads(self, observations: Tensor, slow: bool = False) -> tuple[Tensor, Tensor]:
        """Return the actor's outputs (B, …) for observations (B, D), and its last hidden units.

        The units are (B, H). With `slow` the target actor computes both.
        """
        layers = self.target_actor if slow else self.actor
        units = hidden_units(layers, observations, self.architecture.activation)
        return as_float32(layers[-1](units)), units

    def critic_values(
        self, observations: Tensor, actions: Tensor | None = None, slow: bool = False
    ) -> Tensor:
        """Return both critics' values (2, B) of actions (B, K) from -1 to 1.

        Without actions they are the values of all choices, (2, B, A). With `slow` the target
        critics compute them.
        """
        layers = self.targets if slow else self.critics
        x = observations if actions is None else torch.cat([observations, actions], dim=1)
        q = as_float32(layers[-1](hidden_units(layers, x, self.architecture.activation)))
        return q if actions is None else q[..., 0]

    def unit(self, actions: Tensor) -> Tensor:
        """Return actions (B, K) as numbers from -1 to 1; actions beyond the bounds are clipped."""
        actions = actions.clamp(self._low, self._high)
        width = (self._high - self._low).clamp(min=torch.finfo(torch.float32).tiny)
        return (2 * actions - (self._high + self._low)) / width

    def draw(self, observations: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return actions (B, K) from -1 to 1 and their log-probabilities (B,), with gradients.

        `noise` are standard normal draws of the shape that `noise_shape` returns.
        """
        head, units = self.heads(observations)
        if self.has_state_dependent_noise:
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
        # log(1 - tanh(x)²), in a form that stays exact where its argument is nearly 0.
        log_slope = 2.0 * (math.log(2.0) - x - nn.functional.softplus(-2.0 * x, threshold=40.0))
        return x.tanh(), (each - HALF_LOG_2PI - log_slope).sum(1)

    def noise_shape(self, rows: int) -> tuple[int, int]:
        """Return the shape of the noise that `draw` takes for `rows` observations.

        It is (rows, K), or (H, K), one matrix for all rows, for noise that depends on the state.
        """
        return (self.architecture.units if self.has_state_dependent_noise else rows), len(self._low)

    @property
    def has_state_dependent_noise(self) -> bool:
        """True if noise depends on the state (gSDE); means are then clipped to ±`MEAN_CLIP`."""
        return hasattr(self, "actor_log_std")

    @torch.no_grad()
    def set_temperature(self, alpha: float) -> None:
        """Set the temperature, whose logarithm is the weight ``log_alpha``."""
        self.log_alpha.fill_(math.log(alpha))

    @torch.no_grad()
    def update_targets(self, share: float) -> None:
        """Move the target networks' weights by this share (0 to 1) towards actor and critics."""
        torch._foreach_lerp_(self._target_parameters, self._followed_parameters, share)

    def acting_weights(self) -> dict[str, NDArray[Any]]:
        """Return name → copy of each weight of the actor, and of its log deviations, if any."""
        return {name: p.detach().cpu().numpy().copy() for name, p in self._acting.items()}


class IQLNetworks(ActorCritic):
    """The networks of IQL: an actor, a critic of states, and twin critics of actions with targets.

    Args:
        layout: layout of the actions: one choice, or real numbers.
        architecture: sizes for observations that are vectors; every network has these layers.
        stream: draws the initial weights.
        limits: bounds of real numbers, which the twin critics take as inputs; None for choices, of
            which they value each.
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
        self.critics = _make_critics(sizes, stream)
        self.targets = copy.deepcopy(self.critics).requires_grad_(False)
        self._target_parameters, self._followed_parameters = _target_pairs(self.by_name)

    def critic_values(self, layers: nn.ModuleList, observations: Tensor, actions: Tensor) -> Tensor:
        """Return both critics' values (2, B) of actions in observations (B, D).

        `layers` are `critics` or `targets`. Actions are choices (B,) or real numbers (B, K);
        numbers beyond the bounds are clipped.
        """
        x = observations
        if len(self._half):
            x = torch.cat([x, ((actions - self._middle) / self._half).clamp(-1, 1)], dim=1)
        q = as_float32(layers[-1](hidden_units(layers, x, self.architecture.activation)))
        if len(self._half):
            return q[..., 0]
        return q[:, torch.arange(len(actions), device=actions.device), actions]

    @torch.no_grad()
    def update_targets(self, share: float) -> None:
        """Move the target critics' weights by this share (0 to 1) towards the critics."""
        torch._foreach_lerp_(self._target_parameters, self._followed_parameters, share)

    def acting_weights(self) -> dict[str, NDArray[Any]]:
        """Return name → copy of each weight of the actor and the critic of states."""
        judges = ("critics.", "targets.")
        return {n: one for n, one in self.weights().items() if not n.startswith(judges)}


class IQLPolicy(ActorCriticPolicy):
    """The policy of IQL, with one optimiser of the networks of class `IQLNetworks`."""

    model: IQLNetworks
    """Networks of the policy."""


def hidden_units(layers: nn.ModuleList, x: Tensor, activation: str) -> Tensor:
    """Run all layers but the last on `x`, with activations; return the outputs (…, H).

    With one layer this is `x` itself.
    """
    for layer in layers[:-1]:
        x = activate(layer(x), activation)
    return x


def _make_critics(sizes: tuple[int, ...], stream: torch.Generator) -> nn.ModuleList:
    """Return the stacked layers of two critics with different weights drawn from `stream`.

    `sizes` are the widths of the layers, first the number of inputs.
    """
    pairs = [perceptron(sizes, None, stream) for _ in range(2)]
    return nn.ModuleList(_StackedLinear(*both) for both in zip(*pairs, strict=True))


def _target_pairs(parameters: Mapping[str, nn.Parameter]) -> tuple[list[Tensor], list[Tensor]]:
    """Return the parameters of target networks, and in the same order those that they follow."""
    followed = {"targets.": "critics.", "target_actor.": "actor."}
    pairs = [
        (parameter, parameters[name.replace(slow, fast)])
        for name, parameter in parameters.items()
        for slow, fast in followed.items()
        if name.startswith(slow)
    ]
    return [slow for slow, _ in pairs], [fast for _, fast in pairs]


class _StackedLinear(nn.Module):
    """Two linear layers with stacked weights, one of each critic."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        with torch.no_grad():
            self.weight = nn.Parameter(torch.stack([one.weight.t() for one in layers]))  # type: ignore[operator]
            self.bias = nn.Parameter(torch.stack([one.bias[None] for one in layers]))  # type: ignore[index]

    def forward(self, x: Tensor) -> Tensor:
        """Return outputs (2, B, O) for common inputs (B, I), or for an input of each (2, B, I)."""
        return x @ self.weight + self.bias


class TwinsPolicy(TorchPolicy):
    """The policy of SAC and TD3, with an optimiser each of actor, critics and temperature."""

    model: Twins
    """Networks of the policy."""

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
        """Return columns (R, …) of a batch as tensors on the device.

        Floats except for actions get the weights' dtype.
        """
        kind = next(iter(self.parameters.values())).dtype
        on = self.on_device(rows)
        return {
            name: one.to(kind) if one.is_floating_point() and name != "actions" else one
            for name, one in on.items()
        }

    def make_device_actor(self, frames: "DeviceObservations") -> Actor:
        """Return an actor that runs this network on its device; `frames` sends observations."""
        # Imported for a GPU only.
        from trainables.policies.acting.on_device import DeviceBoundedActor

        model = self.model

        def heads_of(observations: Tensor) -> Tensor:
            """Return the actor's outputs (B, …), and the units that scale noise, if used."""
            with self.autocast():
                head, units = model.heads(observations)
            return torch.cat([head, units], dim=1) if model.has_state_dependent_noise else head

        exploration = self.make_actor().exploration
        return DeviceBoundedActor(model.layout, model.architecture, exploration, heads_of, frames)

    def onnx_graph(self, spaces: EnvSpaces, connectors: Connectors) -> bytes:
        """Return the bytes of an ONNX file: preprocessing, frozen filter, actor, greedy action.

        Raises ExportError for a connector, and ConfigError for a filter, that ONNX cannot contain.
        """
        from trainables.policies.onnx import graph

        return graph.build_bounded(self.model, spaces, connectors)
