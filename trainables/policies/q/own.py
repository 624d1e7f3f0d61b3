"""Q-networks around a user's torch module, whose ``forward`` returns the values (B, A)."""

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
from trainables.policies.layers import unit_pixels, widened
from trainables.policies.networks import Networks
from trainables.policies.own.module import TorchActor, make_module, outputs_of
from trainables.policies.q.actor import Noise, QActor, QArchitecture
from trainables.policies.q.networks import QNetwork, QPolicy


class OwnQNetwork(QNetwork):
    """A Q-network whose values a user's module computes.

    Args:
        layout: layout of the actions.
        architecture: sizes and options; `trunk.own` names the module.
        seed: seed of the trial; a stream of it draws the weights.
    """

    def __init__(self, layout: ActionLayout, architecture: QArchitecture, seed: int) -> None:
        Networks.__init__(self)  # without the layers that `QNetwork.__init__` makes
        self.layout, self.architecture = layout, architecture
        self.module = make_module(architecture.trunk, layout.logits, seed)

    def saved_tensors(self) -> dict[str, Tensor]:
        """Return name → tensor of the parameters and buffers that torch saves."""
        return dict(self.state_dict())

    def forward(self, observations: Tensor) -> Tensor:
        """Return the values (B, A) of filtered observations."""
        rows = unit_pixels(observations, self.architecture.trunk)
        return widened(outputs_of(self.module, rows))

    def outputs(self, observations: Tensor, noise: Noise) -> Tensor:
        """Return the values (B, A, 1) of filtered observations; `noise` is ignored."""
        return self(observations)[:, :, None]  # type: ignore[no-any-return]


class OwnQActor(TorchActor, QActor):
    """An actor around a user's module; it explores epsilon-greedily."""

    def __init__(
        self, layout: ActionLayout, architecture: QArchitecture, config: EpsilonGreedyConfig
    ) -> None:
        QActor.__init__(self, layout, architecture, config)
        self._constructor_arguments = layout, architecture, config
        self._networks = OwnQNetwork(layout, architecture, 0).eval()

    def act_each(
        self,
        observations: NDArray[Any],
        memory: Array,
        streams: Sequence[np.random.Generator | None],
    ) -> tuple[NDArray[Any], Array]:
        """Return the choice (N,) of each row as if it were alone, and the memories (N, M).

        No bit depends on other rows.

        Args:
            observations: filtered observations (N, *S).
            memory: empty memories, returned unchanged.
            streams: N streams for the exploration; None for the best choice of a row.
        """
        pairs = zip(observations, streams, strict=True)
        return np.concatenate([self._choose(row[None], one) for row, one in pairs]), memory

    def _features(self, images: NDArray[Any]) -> NDArray[Any]:
        """Return images (…, H, W, C) unchanged, as the module takes them."""
        return images

    def _q(self, x: NDArray[Any], noise: Noise, weights: Weights | None = None) -> Array:
        """Return the module's values (N, A) of observations (N, *S).

        `noise` and `weights` are ignored.
        """
        values: Array = self._run(x).numpy()
        return values


class OwnQPolicy(QPolicy):
    """A policy that takes the choice to which a user's module gives the highest value."""

    model: OwnQNetwork
    """Q-network around the user's module."""

    def onnx_graph(self, spaces: EnvSpaces, connectors: Connectors) -> bytes:
        """Return preprocessor, frozen filter, module and best choice as one ONNX file."""
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
    """Return a policy with the initial weights that belong to a seed.

    Args:
        networks: layout of the actions, and architecture.
        exploration: settings of the exploration.
        config: settings of the optimiser.
        seed: seed of the trial.
        device: device of the networks.
    """
    make_actor = partial(OwnQActor, *networks, exploration)
    made = OwnQPolicy(OwnQNetwork(*networks, seed), make_actor, config, device)
    made.exploration = exploration
    return made
