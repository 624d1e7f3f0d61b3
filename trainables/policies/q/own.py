"""Values of all choices by a torch module of a person's own, whose ``forward`` gives (B, A)."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from trainables.envs.make import EnvSpaces
from trainables.envs.spaces.actions import ActionLayout
from trainables.envs.spaces.connectors import Connectors
from trainables.policies.acting.actor import Weights
from trainables.policies.acting.dense import Array
from trainables.policies.architecture import OptimizerConfig
from trainables.policies.exploration.actions import EpsilonGreedyConfig
from trainables.policies.layers import unit_pixels
from trainables.policies.networks import Networks
from trainables.policies.own.module import InTorch, made, outputs_of
from trainables.policies.q.actor import Noise, QActor, QArchitecture
from trainables.policies.q.networks import QNetwork, QPolicy


class OwnQNetwork(QNetwork):
    """The module as what gives the values."""

    def __init__(self, layout: ActionLayout, architecture: QArchitecture, seed: int) -> None:
        Networks.__init__(self)  # there is nothing of the layers of a `QNetwork`
        self.layout, self.architecture = layout, architecture
        self.module = made(architecture.trunk, layout.logits, seed)

    def kept(self) -> dict[str, Tensor]:
        """Parameters and buffers by name, as far as torch saves them."""
        return dict(self.state_dict())

    def forward(self, observations: Tensor) -> Tensor:
        """(B, A) values of filtered observations."""
        rows = unit_pixels(observations, self.architecture.trunk)
        return outputs_of(self.module, rows)  # type: ignore[no-any-return]

    def outputs(self, observations: Tensor, noise: Noise) -> Tensor:
        """(B, A, 1) values; there is no noise."""
        return self(observations)[:, :, None]  # type: ignore[no-any-return]


class OwnQActor(InTorch, QActor):
    """Takes the choice of the highest value, or explores epsilon-greedily."""

    def __init__(
        self, layout: ActionLayout, architecture: QArchitecture, config: EpsilonGreedyConfig
    ) -> None:
        QActor.__init__(self, layout, architecture, config)
        self._made_from = layout, architecture, config
        self._networks = OwnQNetwork(layout, architecture, 0).eval()

    def act_each(
        self,
        observations: NDArray[Any],
        memory: Array,
        streams: Sequence[np.random.Generator | None],
    ) -> tuple[NDArray[Any], Array]:
        """The choice of each row, as if it were the only one, and no memory."""
        pairs = zip(observations, streams, strict=True)
        return np.concatenate([self._choose(row[None], one) for row, one in pairs]), memory

    def _features(self, images: NDArray[Any]) -> NDArray[Any]:
        return images

    def _q(self, x: NDArray[Any], noise: Noise, weights: Weights | None = None) -> Array:
        values: Array = self._run(x).numpy()
        return values


class OwnQPolicy(QPolicy):
    """A policy that takes the choice to which the module gives the highest value."""

    model: OwnQNetwork

    def onnx_graph(self, spaces: EnvSpaces, connectors: Connectors) -> bytes:
        """Preprocessor, frozen filter, module and the best choice in one file."""
        # Loaded only to export: training needs neither onnx nor an inference engine.
        from trainables.policies.onnx import graph

        return graph.build_own_q(self.model.module, spaces, connectors)


def build_own_q_policy(
    networks: tuple[ActionLayout, QArchitecture],
    exploration: EpsilonGreedyConfig,
    config: OptimizerConfig,
    seed: int,
    device: str,
) -> OwnQPolicy:
    """A policy with the initial weights of the trial with this seed."""
    make_actor = partial(OwnQActor, *networks, exploration)
    return OwnQPolicy(OwnQNetwork(*networks, seed), make_actor, config, device)
