"""Fast acting: the policy's forward pass and sampling in numpy, free of torch.

A small network's time goes into calls, not arithmetic: here the actor and the critic are one
stacked matrix product per layer, and actions are drawn without distribution objects. N rows, D
features, H units, A choices or action dimensions; float32. A head is what the actor network gives:
logits (N, A), or means (N, A) of a Gaussian whose log standard deviations (A,) do not depend on the
observation.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
Weights = Mapping[str, NDArray[Any]]
LOG_2PI = float(np.log(2.0 * np.pi))
SMALLEST = np.finfo(np.float32).tiny


class Acted(NamedTuple):
    """One batched decision."""

    actions: NDArray[Any]
    """(N,) int64 choices, or (N, A) float32 vectors, unclipped."""
    logp: Array
    """(N,) log-probability of each action."""
    values: Array
    """(N,)."""


class Actor:
    """Acts with weights that `load` was given.

    Args:
        discrete: choices rather than vectors.
        activation: ``tanh`` or ``relu``.
    """

    def __init__(self, discrete: bool, activation: str) -> None:
        self.discrete = discrete
        self.activation = activation
        self._layers: list[tuple[Array, Array]] = []
        self._heads: dict[str, Array] = {}
        self.global_timestep = 0

    def on_global_var_update(self, global_vars: Mapping[str, Any]) -> None:
        """Take note of the steps that were sampled so far, by all workers."""
        self.global_timestep = int(global_vars.get("timestep", self.global_timestep))

    def load(self, weights: Weights) -> None:
        """Adopt weights named as `ActorCritic.weights` names them; they are copied."""
        hidden = (
            sum(1 for name in weights if name.startswith("actor.") and name.endswith(".weight")) - 1
        )
        self._layers = [
            (
                np.stack([weights[f"{net}.{i}.weight"].T for net in ("actor", "critic")]),
                np.stack([weights[f"{net}.{i}.bias"] for net in ("actor", "critic")])[:, None, :],
            )
            for i in range(hidden)
        ]
        self._heads = {
            f"{net}.{part}": np.array(weights[f"{net}.{hidden}.{part}"].T, order="C")
            for net in ("actor", "critic")
            for part in ("weight", "bias")
        }
        if not self.discrete:
            self._heads["log_std"] = np.array(weights["log_std"])

    def weights(self) -> dict[str, Array]:
        """What `load` was given, actor and critic stacked; empty before."""
        return {**{f"layer {i}": one for i, (one, _) in enumerate(self._layers)}, **self._heads}

    def forward(self, observations: Array) -> tuple[Array, Array]:
        """Heads (N, A) and values (N,) of filtered observations (N, D)."""
        x: Array = observations
        for weight, bias in self._layers:
            x = np.matmul(x, weight)
            x += bias
            if self.activation == "tanh":
                np.tanh(x, out=x)
            else:
                np.maximum(x, 0.0, out=x)
        to_actor, to_critic = (x[0], x[1]) if self._layers else (x, x)
        heads = self._heads
        head = to_actor @ heads["actor.weight"] + heads["actor.bias"]
        values = (to_critic @ heads["critic.weight"])[:, 0] + heads["critic.bias"][0]
        return head, values

    def act(self, observations: Array, stream: np.random.Generator) -> Acted:
        """Draw actions for filtered observations (N, D)."""
        head, values = self.forward(observations)
        if self.discrete:
            logp_all = log_softmax(head)
            # Exponential race: argmax of log p - log E is a draw from p (the Gumbel-max trick).
            race = np.maximum(stream.standard_exponential(head.shape, dtype=np.float32), SMALLEST)
            actions = np.argmax(logp_all - np.log(race), axis=1)
            return Acted(actions, logp_all[np.arange(len(actions)), actions], values)
        log_std = self._heads["log_std"]
        noise = stream.standard_normal(head.shape, dtype=np.float32)
        vectors = head + np.exp(log_std) * noise
        logp = (-0.5 * np.square(noise) - log_std - np.float32(0.5 * LOG_2PI)).sum(axis=1)
        return Acted(vectors, logp, values)

    def act_greedily(self, observations: Array) -> NDArray[Any]:
        """The most probable action of each row: (N,) choices or (N, A) means."""
        head, _ = self.forward(observations)
        return np.argmax(head, axis=1) if self.discrete else head

    def act_each(
        self, observations: Array, streams: Sequence[np.random.Generator | None]
    ) -> NDArray[Any]:
        """The action of each row, (N,) choices or (N, A) vectors, as if it were the only one.

        It does not depend, to the bit, on the rows beside it: each is a product of its own, where
        `forward` makes one product of all, whose rounding changes with their number. A row without
        a stream gets its most probable action.
        """
        x: Array = observations[:, None, :]
        for weight, bias in self._layers:
            x = np.matmul(x, weight[0])
            x += bias[0]
            if self.activation == "tanh":
                np.tanh(x, out=x)
            else:
                np.maximum(x, 0.0, out=x)
        head: Array = np.matmul(x, self._heads["actor.weight"])[:, 0] + self._heads["actor.bias"]
        for i, stream in enumerate(streams):
            if stream is not None and self.discrete:
                race = stream.standard_exponential(head.shape[1], dtype=np.float32)
                head[i] -= np.log(np.maximum(race, SMALLEST))
            elif stream is not None:
                noise = stream.standard_normal(head.shape[1], dtype=np.float32)
                head[i] += np.exp(self._heads["log_std"]) * noise
        return np.argmax(head, axis=1) if self.discrete else head

    def values(self, observations: Array) -> Array:
        """(N,) values of filtered observations (N, D)."""
        return self.forward(observations)[1]


def log_softmax(logits: Array) -> Array:
    """(N, A) log-probabilities."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    logs: Array = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return logs
