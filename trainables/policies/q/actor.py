"""Acting by the values of all choices, in numpy: the highest one, or another one to explore.

N rows, A choices, Z atoms of a value's distribution, F features; float32.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from trainables.envs.spaces.actions import ActionLayout
from trainables.policies.acting.actor import Acted, Actor, Weights
from trainables.policies.acting.deciding import CERTAIN, Decider
from trainables.policies.acting.dense import Array, activate
from trainables.policies.acting.distributions import log_softmax, mask_invalid
from trainables.policies.architecture import Activation, Architecture
from trainables.policies.exploration.actions import EpsilonGreedy, EpsilonGreedyConfig
from trainables.policies.exploration.weights import ParameterNoise

#: ``<head>.<layer>.in`` and ``.out`` → factors of a noisy layer's noise.
Noise = Mapping[str, Array]


@dataclass(frozen=True)
class QArchitecture:
    """Sizes and options of a Q-network: shared layers, then one output part, two if dueling."""

    trunk: Architecture
    """Shared layers: convolutions and all hidden layers but the last."""
    hidden: tuple[int, ...]
    """Units of the last hidden layer, which each output part has separately; () without hidden
    layers."""
    dueling: bool = False
    """True for one part that values the state and one that values choices relative to it (Wang
    2016)."""
    noisy: float = 0.0
    """Initial deviation of a head layer's noise times the root of its number of inputs (Fortunato
    2018), the same for each layer; 0 without noise."""
    support: tuple[float, ...] = ()
    """Atoms (Z,) of the values' distribution (Bellemare 2017); () if heads output plain values."""

    @classmethod
    def of(
        cls, shape: Architecture, dueling: bool, noisy: float, support: tuple[float, ...]
    ) -> "QArchitecture":
        """Return the Q-architecture for `shape`, the architecture that the key ``model`` describes.

        Its last hidden layer becomes that of the output parts.
        """
        trunk = replace(shape, hidden=shape.hidden[:-1])
        return cls(trunk, shape.hidden[-1:], dueling, noisy, support)

    @property
    def inputs(self) -> int:
        """Number of inputs of an output part: units of the last shared layer."""
        return self.trunk.units

    def heads(self, choices: int) -> dict[str, tuple[int, ...]]:
        """Return ``head`` and, if dueling, ``value`` → widths of the part's layers, inputs first.

        The last width is `choices` · Z for ``head`` and Z for ``value``; Z is 1 without atoms.
        """
        atoms = max(1, len(self.support))
        sizes = {"head": choices * atoms, **({"value": atoms} if self.dueling else {})}
        return {name: (self.inputs, *self.hidden, size) for name, size in sizes.items()}

    def noise_sizes(self, choices: int) -> dict[str, int]:
        """Return the numbers of the noise's factors: ``<head>.<layer>.in`` and ``.out`` → units.

        They are in the order in which they are drawn; empty without noisy layers.
        """
        return {
            f"{name}.{i}.{side}": size
            for name, sizes in (self.heads(choices) if self.noisy else {}).items()
            for i in range(len(sizes) - 1)
            for side, size in (("in", sizes[i]), ("out", sizes[i + 1]))
        }

    def draw_noise(self, choices: int, stream: np.random.Generator) -> dict[str, Array]:
        """Draw the noise of noisy layers: ``<head>.<layer>.in`` and ``.out`` → factors (units,).

        Returns an empty dict if there are no noisy layers.
        """
        drawn: dict[str, Array] = {}
        for name, size in self.noise_sizes(choices).items():
            normal = stream.standard_normal(size, dtype=np.float32)
            drawn[name] = np.sign(normal) * np.sqrt(np.abs(normal))
        return drawn


class QActor(Actor):
    """The `Actor` of a Q-network: takes the choice of the highest value, or explores.

    It explores with noisy layers, if there are any, else with parameter noise or epsilon-greedily.
    """

    columns: ClassVar[Mapping[str, Any]] = {}
    value_names: ClassVar[tuple[str, ...]] = ()
    fetches: ClassVar[Mapping[str, str]] = {}
    acts_by_row: ClassVar[bool] = False
    """True if `act_each` runs the network for one row after the other, also without exploring;
    False if one call computes all rows as if alone."""

    def __init__(
        self, layout: ActionLayout, architecture: QArchitecture, config: EpsilonGreedyConfig
    ) -> None:
        masked = bool(architecture.trunk.masks)
        self._greedy = EpsilonGreedy(layout, config, masked)
        super().__init__(layout, architecture.trunk, self._greedy)
        self._architecture = architecture
        self._choices = layout.logits
        self._support = np.array(architecture.support, dtype=np.float32)
        self._weights: dict[str, Array] = {}

    def load(self, weights: Weights) -> None:
        """Copy weights, name → array, as `QNetwork.weights` returns them."""
        self._weights = {name: np.array(array.T, order="C") for name, array in weights.items()}
        if (noise := self.exploration.parameter_noise) is not None:
            noise.on_weights_loaded()
        if self._trunk is not None:
            self._trunk.load(weights)

    def weights(self) -> dict[str, Array]:
        """Return the weights of `load`, transposed: name → array; empty before `load`.

        The arrays are the actor's own.
        """
        return dict(self._weights)

    def forward(self, observations: NDArray[Any]) -> tuple[Array, Array]:
        """Return the values (N, A) of filtered observations, and the highest ones (N,)."""
        q = self._values(observations, {})
        return q, q.max(axis=-1)

    def act(
        self, observations: NDArray[Any], memory: Array, stream: np.random.Generator | None
    ) -> Acted:
        """Choose actions (N,) for filtered observations (N, *S).

        They explore if there is a stream and `explore` is True, else they are the best ones.
        `memory` is empty, and returned unchanged.
        """
        return Acted(self._choose(observations, stream), {}, memory)

    def single_env_decider(self, draws: np.random.Generator) -> Decider | None:
        """Return an object that chooses one environment's actions faster than `act`.

        It draws from `draws`, with the current weights and ε. Returns None unless the network is
        plain (neither noisy nor dueling, and without distributions of values), observations are
        vectors without an action mask, `explore` is True, and there is no parameter noise.
        """
        of, greedy = self._architecture, self._greedy
        plain = type(self) is QActor and self._takes_vectors and not self._masks
        plain = plain and not (of.noisy or of.dueling or of.support)
        if not plain or not self.explore or greedy.parameter_noise is not None:
            return None
        return GreedySingleEnvDecider(self._weights, self._activation, greedy, draws)

    def act_each(
        self,
        observations: NDArray[Any],
        memory: Array,
        streams: Sequence[np.random.Generator | None],
    ) -> tuple[NDArray[Any], Array]:
        """Choose the action of each row as if it were alone; return actions (N,) and `memory`.

        No bit of an action depends on other rows. A row explores if it has a stream and `explore`
        is True, else it gets the best action.
        """
        if self.acts_by_row or any(streams):
            pairs = zip(observations, streams, strict=True)
            return np.concatenate([self._choose(row[None], one) for row, one in pairs]), memory
        q = self._q(self._features_each(observations)[:, None], {})[:, 0]
        if self._masks:
            mask_invalid(q, observations)
        return q.argmax(axis=-1), memory

    def _choose(
        self, observations: NDArray[Any], stream: np.random.Generator | None
    ) -> NDArray[Any]:
        """Return choices (N,) for filtered observations (N, *S).

        They explore if there is a stream and `explore` is True: with noisy layers if the network
        has any, else with parameter noise or epsilon-greedily. Else they are the best choices.
        """
        if stream is None or not self.explore:
            best: NDArray[Any] = self._values(observations, {}).argmax(axis=-1)
            return best
        if self._architecture.noisy:
            of = self._architecture
            drawn = [of.draw_noise(self._choices, stream) for _ in observations]
            noise = {name: np.stack([one[name] for one in drawn]) for name in drawn[0]}
            noisy: NDArray[Any] = self._values(observations, noise).argmax(axis=-1)
            return noisy
        if self.exploration.parameter_noise is not None:
            return self._choose_perturbed(observations, self.exploration.parameter_noise, stream)
        return self.exploration.draw(self._values(observations, {}), self._log_std, stream)[0]

    def _choose_perturbed(
        self, observations: NDArray[Any], noise: ParameterNoise, stream: np.random.Generator
    ) -> NDArray[Any]:
        """Return the best choices (N,), each with its row's own perturbed weights.

        With convolutions the shared layers are not perturbed. Every `adaptation_freq` steps the
        size of the noise is adapted to how far a softmax of the values differs from that of the
        values without noise.
        """
        flat = self._trunk is None
        used = {n: w for n, w in self._weights.items() if flat or not n.startswith("trunk.")}
        perturbed = noise.perturb(used, len(observations), stream)
        q = self._q(self._inputs(observations)[:, None], {}, perturbed)[:, 0]
        if self._masks:
            mask_invalid(q, observations)
        if noise.is_due(len(observations)):
            logs = log_softmax(self._values(observations, {}))
            divergences = (np.exp(logs) * (logs - log_softmax(q))).sum(axis=1)
            noise.adapt(float(divergences.mean()), self._greedy.distance)
        best: NDArray[Any] = q.argmax(axis=-1)
        return best

    def _values(self, observations: NDArray[Any], noise: Noise) -> Array:
        """Return the values (N, A) of filtered observations; `NO_CHOICE` for invalid choices.

        `noise` has the factors of noisy layers; empty for none.
        """
        q = self._q(self._inputs(observations), noise)
        if self._masks:
            mask_invalid(q, observations)
        return q

    def _q(self, x: Array, noise: Noise, weights: Noise | None = None) -> Array:
        """Run the network without convolutions on inputs (…, D); return the values (…, A).

        `noise` has the factors of noisy layers; without `weights`, those of `load` are used.
        """
        weights = weights or self._weights
        for i in range(len(self._architecture.trunk.hidden) if self._trunk is None else 0):
            x = x @ weights[f"trunk.dense.{i}.weight"]
            x += weights[f"trunk.dense.{i}.bias"]
            activate(x, self._activation)
        q = self._head("head", x, noise, weights)
        q = q.reshape(*q.shape[:-1], self._choices, -1)
        if self._architecture.dueling:
            state = self._head("value", x, noise, weights)[..., None, :]
            q += state - q.mean(axis=-2, keepdims=True)
        if not len(self._support):
            return q[..., 0]
        values: Array = np.exp(log_softmax(q)) @ self._support
        return values

    def _head(self, name: str, x: Array, noise: Noise, weights: Noise) -> Array:
        """Run one output part, ``head`` or ``value``, on features (…, F); return (…, K).

        `noise` has the factors of noisy layers; empty for none.
        """
        layers = len(self._architecture.hidden) + 1
        for i in range(layers):
            given = x
            x = given @ weights[f"{name}.{i}.weight"]
            x += weights[f"{name}.{i}.bias"]
            if noise:
                moved = (given * noise[f"{name}.{i}.in"]) @ self._weights[
                    f"{name}_noise.{i}.weight"
                ]
                x += (moved + self._weights[f"{name}_noise.{i}.bias"]) * noise[f"{name}.{i}.out"]
            if i < layers - 1:
                activate(x, self._activation)
        return x


class GreedySingleEnvDecider:
    """Chooses actions of one environment epsilon-greedily; results equal `QActor.act` to the bit.

    Args:
        weights: transposed weights of all layers by name, each followed by its bias.
        greedy: exploration with the current ε.
        stream: draws the random choices.
    """

    def __init__(
        self,
        weights: Weights,
        activation: Activation,
        greedy: EpsilonGreedy,
        stream: np.random.Generator,
    ) -> None:
        arrays = list(weights.values())
        biases = [bias[None] for bias in arrays[1::2]]
        units = [np.empty_like(bias) for bias in biases]
        self._steps = list(zip(arrays[::2], biases, units, strict=True))
        self._activation, self._greedy = activation, greedy
        self._epsilon, self._stream = greedy.epsilon, stream
        self._choices = list(np.arange(units[-1].shape[1]))

    def choose(self, step: int, row: Array) -> Any:
        """Return the choice, an int64, for the filtered observation `row` (1, D).

        Each call draws two random numbers, also if the choice is the best one. `step` is not used.
        """
        explores = self._stream.random() < self._epsilon
        anything = self._stream.integers(0, len(self._choices))
        if explores:
            return anything
        x, head = row, self._steps[-1][2]
        for weight, bias, out in self._steps:
            np.matmul(x, weight, out=out)
            np.add(out, bias, out=out)
            if out is not head:
                activate(out, self._activation)
            x = out
        values = head[0].tolist()
        best = max(values)
        choice = values.index(best)
        values[choice] = -np.inf
        if not best - max(values) > CERTAIN:
            choice = int(self._greedy.draw(head, head, None)[0][0])
        return self._choices[choice]

    def columns(self, steps: slice, chosen: Sequence[Any]) -> dict[str, NDArray[Any]]:
        """Return ``actions`` (T,): `chosen`, the results of `choose`, as an int64 array.

        `steps` is not used.
        """
        return {"actions": np.array(chosen, dtype=np.int64)}
