"""Acting with an LSTM (Hochreiter & Schmidhuber 1997) in numpy: trunk → LSTM → two heads.

N rows, D features, H units of a hidden layer, U units of the LSTM; float32. A memory (N, 2U) is the
LSTM's outputs and then its cells; zeros at the start of an episode.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainables.envs.spaces.actions import ActionLayout
from trainables.policies.acting.actor import Actor, Weights
from trainables.policies.acting.dense import Array, activate
from trainables.policies.acting.distributions import mask_invalid
from trainables.policies.architecture import Architecture
from trainables.policies.exploration.actions import (
    PredictedStdSampling,
    StateDependentSampling,
    StochasticSampling,
)
from trainables.policies.own.distribution import OwnSampling

#: One half as float32.
HALF = np.float32(0.5)


def make_actor(layout: ActionLayout, architecture: Architecture) -> Actor:
    """Return the actor for an architecture: with an LSTM, with a user's module, or a plain one.

    Its exploration is the one that the architecture needs. Raises ConfigError if that does not fit
    the actions: predicted deviations without real numbers, or state-dependent noise with choices.
    """
    exploration: StochasticSampling | None = None
    if architecture.noise is not None:
        exploration = StateDependentSampling(layout, architecture.noise[1])
    elif architecture.predicts_log_std:
        exploration = PredictedStdSampling(layout)
    elif architecture.distribution is not None:
        exploration = OwnSampling(layout, architecture.distribution)
    if architecture.custom_model is not None:
        # Imported for a user's module only: workers otherwise need no torch.
        from trainables.policies.own.module import OwnActor

        return OwnActor(layout, architecture, exploration)
    made = RecurrentActor if architecture.lstm else Actor
    return made(layout, architecture, exploration)


class RecurrentActor(Actor):
    """An `Actor` whose actor and critic outputs share an LSTM; its state is outputs, then cells."""

    state_parts = 2

    def __init__(
        self,
        layout: ActionLayout,
        architecture: Architecture,
        exploration: StochasticSampling | None = None,
    ) -> None:
        super().__init__(layout, architecture, exploration)
        self.memory_size = 2 * architecture.lstm
        self._units = architecture.lstm
        self._depth = 0 if architecture.filters else len(architecture.hidden)
        self._gates: tuple[Array, Array] = (np.zeros(0, np.float32), np.zeros(0, np.float32))

    def load(self, weights: Weights) -> None:
        """Copy weights, name → array, as `ActorCritic.weights` returns them."""
        super().load(weights)
        self._layers = [
            (weights[f"{name}.weight"].T.copy(), weights[f"{name}.bias"].copy())
            for name in (f"trunk.dense.{i}" for i in range(self._depth))
        ]
        stacked = np.concatenate([weights["lstm.weight_ih_l0"], weights["lstm.weight_hh_l0"]], 1)
        scale = np.full(4 * self._units, HALF)
        scale[2 * self._units : 3 * self._units] = 1.0
        # Halving is exact, and makes all four gates one tanh: sigmoid(x) = (1 + tanh(x/2)) / 2.
        bias = weights["lstm.bias_ih_l0"] + weights["lstm.bias_hh_l0"]
        self._gates = np.ascontiguousarray(stacked.T) * scale, bias * scale

    def weights(self) -> dict[str, Array]:
        """Return the arrays of `Actor.weights`, and ``lstm``, for logs; empty before `load`.

        ``lstm`` has the input and recurrent weights of all gates; those of sigmoids are halved.
        """
        return {**super().weights(), **({"lstm": self._gates[0]} if self._heads else {})}

    def forward(self, observations: NDArray[Any]) -> tuple[Array, Array]:
        """Return the actor's outputs (N, A) and values (N,) of first observations of episodes.

        The LSTM begins with a state of zeros.
        """
        head, values, _ = self.advance(observations, self.initial_memory(len(observations)))
        return head, values

    def advance(self, observations: NDArray[Any], memory: Array) -> tuple[Array, Array, Array]:
        """Return the actor's outputs (N, A), values (N,) and next recurrent states (N, 2U).

        `memory` (N, 2U) are the states before; they are not changed.
        """
        x, following = self._run(self._inputs(observations), memory)
        heads = self._heads
        head = x @ heads["actor.weight"] + heads["actor.bias"]
        if self._masks:
            mask_invalid(head[:, : self._masks], observations)
        values = (x @ heads["critic.weight"])[:, 0] + heads["critic.bias"][0]
        return head, values, following

    def _head_inputs_each(self, x: Array, memory: Array) -> tuple[Array, Array]:
        """Return the LSTM's outputs (N, 1, U) for features (N, 1, D), and next states (N, 2U).

        Each row is computed alone.
        """
        last, following = self._run(x, memory[:, None, :])
        return last, following[:, 0]

    def _run(self, x: Array, memory: Array) -> tuple[Array, Array]:
        """Run hidden layers and LSTM on features (…, D) with recurrent states (…, 2U).

        Returns the LSTM's outputs (…, U) and the next states (…, 2U).
        """
        for weight, bias in self._layers:
            x = np.matmul(x, weight)
            x += bias
            activate(x, self._activation)
        units = self._units
        weight, bias = self._gates
        gates = np.matmul(np.concatenate([x, memory[..., :units]], axis=-1), weight)
        gates += bias
        np.tanh(gates, out=gates)
        admit, keep, new, show = (
            gates[..., first : first + units] for first in range(0, 4 * units, units)
        )
        following = np.empty(memory.shape, dtype=np.float32)
        cells = following[..., units:]
        np.multiply(HALF * keep + HALF, memory[..., units:], out=cells)
        cells += (HALF * admit + HALF) * new
        np.multiply(HALF * show + HALF, np.tanh(cells), out=following[..., :units])
        return following[..., :units], following
