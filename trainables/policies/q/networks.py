"""Q-networks in torch: with one head or two (dueling), noisy layers, and distributions of values.

B rows, A choices, Z atoms of a value's distribution.
"""

import copy
import math
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trainables.core import rng
from trainables.envs.make import EnvSpaces
from trainables.envs.spaces.actions import ActionLayout
from trainables.envs.spaces.connectors import Connectors
from trainables.policies.acting.actor import Actor
from trainables.policies.architecture import HIDDEN_GAIN, VALUE_GAIN, OptimizerConfig
from trainables.policies.exploration.actions import EpsilonGreedyConfig
from trainables.policies.learning.layers import Trunk, activate, as_float32, perceptron
from trainables.policies.learning.networks import Networks, mask_logits, split
from trainables.policies.learning.torch_policy import TorchPolicy
from trainables.policies.own.module import in_acting_mode
from trainables.policies.q.actor import QActor, QArchitecture

if TYPE_CHECKING:
    from trainables.policies.acting.on_device import DeviceObservations


#: ``<head>.<layer>.in`` and ``.out`` → factors of a noisy layer's noise, arrays or tensors.
Noise: TypeAlias = Mapping[str, NDArray[np.float32] | Tensor]


class QNetwork(Networks):
    """A Q-network in torch: shared layers and output parts as a `QArchitecture` describes them.

    `stream` draws the initial weights.
    """

    def __init__(
        self, layout: ActionLayout, architecture: QArchitecture, stream: torch.Generator
    ) -> None:
        super().__init__()
        self.layout, self.architecture = layout, architecture
        self.trunk = Trunk(architecture.trunk, stream)
        for name, sizes in architecture.heads(layout.logits).items():
            gains = [HIDDEN_GAIN] * len(architecture.hidden) + [VALUE_GAIN]
            setattr(self, name, perceptron(sizes, gains, stream))
            if architecture.noisy:
                setattr(self, f"{name}_noise", self._make_noise_layers(sizes))
        self._support: Tensor
        support = torch.tensor(architecture.support, dtype=torch.float32)
        self.register_buffer("_support", support, persistent=False)

    def outputs(self, observations: Tensor, noise: Noise) -> Tensor:
        """Return the values (B, A, 1) of all choices, or the logits (B, A, Z) of their atoms.

        There are atoms if values have a distribution. `noise` are factors of noisy layers; empty
        for none.
        """
        x = self.trunk(split(observations, self.architecture.trunk.masks)[0])
        out = as_float32(self._head("head", x, noise)).view(len(x), self.layout.logits, -1)
        if not self.architecture.dueling:
            return out
        state = as_float32(self._head("value", x, noise))
        return state[:, None] + out - out.mean(1, keepdim=True)

    def values(self, outputs: Tensor) -> Tensor:
        """Return the value of each choice (B, A) for `outputs` (B, A, Z).

        It is the mean of the choice's distribution if values have one, else the output itself.
        """
        if not self.architecture.support:
            return outputs.squeeze(2)
        return outputs.softmax(2) @ self._support

    def best(self, outputs: Tensor, observations: Tensor) -> Tensor:
        """Return the valid choice of the highest value (B,), from `outputs` (B, A, Z) and masks."""
        return self.valid_values(outputs, observations).argmax(1)

    def valid_values(self, outputs: Tensor, observations: Tensor) -> Tensor:
        """Return the values (B, A) for `outputs` (B, A, Z); `NO_CHOICE` for choices masked out."""
        _, valid = split(observations, self.architecture.trunk.masks)
        return mask_logits(self.values(outputs), valid)

    def project(self, probabilities: Tensor, rewards: Tensor, discounts: Tensor) -> Tensor:
        """Return the distribution (B, Z), on the atoms, of rewards + discounts · value.

        `probabilities` (B, Z) are those of the value's atoms, as in Bellemare 2017; `rewards` and
        `discounts` are (B,), discounts 0 where nothing is bootstrapped. Results beyond the outer
        atoms are counted at these.
        """
        lowest, highest = self.architecture.support[0], self.architecture.support[-1]
        moved = (rewards[:, None] + discounts[:, None] * self._support).clamp(lowest, highest)
        width = (highest - lowest) / (len(self._support) - 1)
        # An atom's share falls linearly from 1 at the atom to 0 at its neighbours.
        distance = (moved[:, None, :] - self._support[None, :, None]).abs() / width
        shares = (1.0 - distance).clamp(min=0.0)
        return (shares @ probabilities[:, :, None]).squeeze(2)

    def _head(self, name: str, x: Tensor, noise: Noise) -> Tensor:
        """Run one output part, ``head`` or ``value``, on features (B, F); return (B, K).

        `noise` are factors of noisy layers; empty for none.
        """
        layers: Any = getattr(self, name)
        for i, layer in enumerate(layers):
            y = layer(x)
            if noise:
                given, shown = (
                    torch.as_tensor(noise[f"{name}.{i}.{side}"], device=x.device)
                    for side in ("in", "out")
                )
                y = y + shown * getattr(self, f"{name}_noise")[i](x * given)
            x = activate(y, self.architecture.trunk.activation) if i < len(layers) - 1 else y
        return x

    def _make_noise_layers(self, sizes: tuple[int, ...]) -> nn.ModuleList:
        """Return layers of the widths `sizes`, whose weights and biases are deviations of noise.

        Each begins with the setting `noisy` divided by √inputs.
        """
        layers = perceptron(sizes, [1.0] * (len(sizes) - 1), None)
        with torch.no_grad():
            for layer, inputs in zip(layers, sizes[:-1], strict=True):
                for parameter in layer.parameters():
                    parameter.fill_(self.architecture.noisy / math.sqrt(inputs))
        return layers


class Target:
    """A target network: a copy of the Q-network `online` that follows it slowly.

    It is stored in checkpoints.
    """

    def __init__(self, online: QNetwork) -> None:
        self._online = online
        self.network = copy.deepcopy(online).requires_grad_(False).eval()
        learnt = {name for name, _ in online.named_parameters()}
        pairs = zip(
            self.network.saved_tensors().items(), online.saved_tensors().values(), strict=True
        )
        self._buffer_pairs = [(mine, its) for (name, mine), its in pairs if name not in learnt]
        """Pairs of tensors that are not parameters, such as buffers of a user's module: (copy,
        original)."""

    @torch.no_grad()
    def update_targets(self, tau: float) -> None:
        """Move the copy by the share `tau` (0 to 1) towards the network that learns.

        1 copies it; tensors that are not parameters are always copied.
        """
        mine: list[Tensor] = list(self.network.parameters())
        its: list[Tensor] = list(self._online.parameters())
        if tau == 1.0:
            torch._foreach_copy_(mine, its)
        else:
            torch._foreach_lerp_(mine, its, tau)
        for ours, theirs in self._buffer_pairs:
            ours.copy_(theirs)

    def get_state(self) -> dict[str, Any]:
        """Return ``weights``: name → copied array of the target network."""
        return {"weights": self.network.weights()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore a state of `get_state`."""
        self.network.load_weights(state["weights"])


class QPolicy(TorchPolicy):
    """The policy of DQN: takes the choice to which its Q-network gives the highest value."""

    model: QNetwork
    """Q-network that learns."""
    exploration = EpsilonGreedyConfig()
    """Settings of the exploration of the actor that `make_device_actor` returns."""

    def make_device_actor(self, frames: "DeviceObservations") -> Actor:
        """Return an actor that runs this network on its device; `frames` sends observations."""
        # Imported for a GPU only.
        from trainables.policies.acting.on_device import DeviceQActor

        model = self.model

        def values_of(observations: Tensor, noise: Mapping[str, Tensor]) -> Tensor:
            """Return action values (B, A) of observations (B, …), with this noise on weights."""
            own = [model] if model.architecture.trunk.custom_model else []
            with self.autocast(), in_acting_mode(*own):
                return model.values(model.outputs(observations, noise))

        return DeviceQActor(model.layout, model.architecture, self.exploration, values_of, frames)

    def onnx_graph(self, spaces: EnvSpaces, connectors: Connectors) -> bytes:
        """Return the bytes of an ONNX file: preprocessing, frozen filter, network, best choice.

        Raises ExportError for a connector, and ConfigError for a filter, that ONNX cannot contain.
        """
        # Imported only for exports: training needs neither onnx nor an inference engine.
        from trainables.policies.onnx import graph

        return graph.build_q(self.model.weights(), self.model.architecture, spaces, connectors)


def build_q_policy(
    networks: tuple[ActionLayout, QArchitecture],
    exploration: EpsilonGreedyConfig,
    config: OptimizerConfig,
    seed: int,
    device: str,
) -> QPolicy:
    """Return a policy of these networks, (layout of the actions, architecture).

    The initial weights are determined by `seed`.
    """
    model = QNetwork(*networks, rng.torch_generator(seed, "init"))
    made = QPolicy(model, partial(QActor, *networks, exploration), config, device)
    made.exploration = exploration
    return made
