"""Q-networks around a user's torch module, whose ``forward`` returns the values (B, A)."""

from functools import partial
from typing import Any

from numpy.typing import NDArray
from torch import Tensor

from trainables.envs.make import EnvSpaces
from trainables.envs.spaces.actions import ActionLayout
from trainables.envs.spaces.connectors import Connectors
from trainables.policies.acting.actor import Weights
from trainables.policies.acting.dense import Array
from trainables.policies.architecture import OptimizerConfig
from trainables.policies.exploration.actions import EpsilonGreedyConfig
from trainables.policies.learning.layers import as_float32, unit_pixels
from trainables.policies.learning.networks import Networks
from trainables.policies.own.module import TorchActor, make_module, outputs_of
from trainables.policies.q.actor import Noise, QActor, QArchitecture
from trainables.policies.q.networks import Noise as NoiseInTorch
from trainables.policies.q.networks import QNetwork, QPolicy


class OwnQNetwork(QNetwork):
    """A Q-network whose values a user's module computes."""

    def __init__(self, layout: ActionLayout, architecture: QArchitecture, seed: int) -> None:
        Networks.__init__(self)  # without the layers that `QNetwork.__init__` makes
        self.layout, self.architecture = layout, architecture
        self.module = make_module(architecture.trunk, layout.logits, seed)

    def saved_tensors(self) -> dict[str, Tensor]:
        """Return name → tensor of the parameters and buffers that torch saves."""
        return dict(self.state_dict())

    def forward(self, observations: Tensor) -> Tensor:
        """Return the values (B, A), float32, of filtered observations by the user's module.

        The module gets images as float32 after division by the divisor of the architecture.
        """
        rows = unit_pixels(observations, self.architecture.trunk)
        return as_float32(outputs_of(self.module, rows))

    def outputs(self, observations: Tensor, noise: NoiseInTorch) -> Tensor:
        """Return the values (B, A, 1) of filtered observations; `noise` is ignored."""
        return self(observations)[:, :, None]  # type: ignore[no-any-return]


class OwnQActor(TorchActor, QActor):
    """An actor around a user's module; it explores epsilon-greedily."""

    acts_by_row = True

    def __init__(
        self, layout: ActionLayout, architecture: QArchitecture, config: EpsilonGreedyConfig
    ) -> None:
        QActor.__init__(self, layout, architecture, config)
        self._constructor_arguments = layout, architecture, config
        self._networks = OwnQNetwork(layout, architecture, 0).eval()

    def _features(self, images: NDArray[Any]) -> NDArray[Any]:
        """Return images (…, H, W, C) unchanged, as the module takes them."""
        return images

    def _q(self, x: NDArray[Any], noise: Noise, weights: Weights | None = None) -> Array:
        """Return the module's values (N, A) of observations (N, *S).

        Other arguments are ignored.
        """
        values: Array = self._run(x).numpy()
        return values


class OwnQPolicy(QPolicy):
    """The policy of DQN with a user's module as its Q-network."""

    model: OwnQNetwork
    """Q-network around the user's module."""

    def onnx_graph(self, spaces: EnvSpaces, connectors: Connectors) -> bytes:
        """Return the bytes of an ONNX file: preprocessing, frozen filter, module, best choice.

        Raises ExportError for a module or connector, and ConfigError for a filter, that ONNX cannot
        contain.
        """
        # Imported only for exports: training needs neither onnx nor an inference engine.
        from trainables.policies.onnx import graph

        return graph.build_own_q(self.model.module, spaces, connectors)


def build_own_q_policy(
    networks: tuple[ActionLayout, QArchitecture],
    exploration: EpsilonGreedyConfig,
    config: OptimizerConfig,
    seed: int,
    device: str,
) -> OwnQPolicy:
    """Return a policy of these networks, (layout of the actions, architecture).

    The initial weights are determined by `seed`. Raises ConfigError if the user's module cannot be
    made, or is not one that can learn.
    """
    make_actor = partial(OwnQActor, *networks, exploration)
    made = OwnQPolicy(OwnQNetwork(*networks, seed), make_actor, config, device)
    made.exploration = exploration
    return made
