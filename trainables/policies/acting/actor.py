"""Fast acting: the policy's forward pass and sampling in numpy, free of torch for vectors.

A small network's time goes into calls, not arithmetic: here the actor and the critic are one
stacked matrix product per layer, and actions are drawn without distribution objects. Images go
through torch's convolutions, which are faster than numpy's. N rows, D features, H units; float32. A
head is what the actor network gives, as `drawing` reads it. A memory (N, M) is what a policy
carries from step to step: M is 0 here, and `recurrent.py` has one.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainables.envs.spaces.actions import ActionLayout
from trainables.policies.acting.deciding import Decider, OneByOne, SideBySide
from trainables.policies.acting.dense import Array, Networks, activate
from trainables.policies.architecture import Architecture
from trainables.policies.distributions import ChosenAhead, MeasuredAhead, forbid
from trainables.policies.exploration.actions import StochasticSampling

if TYPE_CHECKING:
    from trainables.policies.layers import ActingTrunk

Weights = Mapping[str, NDArray[Any]]
Column = tuple[tuple[int, ...], np.dtype[Any]]
"""Shape and type of one row."""
REAL: Column = ((), np.dtype(np.float32))


class Acted(NamedTuple):
    """One batched decision."""

    actions: NDArray[Any]
    """(N,) int64 choices, or rows (N, K) of int64 or float32, unclipped."""
    columns: Mapping[str, NDArray[Any]]
    """(N, …) what `Actor.columns` declares, by name."""
    memory: Array
    """(N, M) for the next step."""

    def outputs_of(self, row: int, fetches: Mapping[str, str]) -> dict[str, float]:
        """Return the outputs of one row by the names of `Actor.fetches`."""
        return {key: float(self.columns[name][row]) for key, name in fetches.items()}


class Actor:
    """Acts with weights that `load` was given; explores by its own distribution, if by no other."""

    columns: ClassVar[Mapping[str, Column]] = {"logp": REAL, "values": REAL}
    """Columns that `act` gives for each row beside its action: name → shape and type, as they stand
    in fragments."""
    judged: ClassVar[tuple[str, ...]] = ("values",)
    """Those that `judge` gives, also of observations that no action follows."""
    fetches: ClassVar[Mapping[str, str]] = {"logp": "logp", "value": "values"}
    """Results of `compute_action` beside the action → the column that each is taken from."""
    memory_size = 0
    """M."""
    state_parts: int | Sequence[int] = 0
    """Arrays of one size that make up a memory, as callers keep it; or where all but the first
    begin."""

    def __init__(
        self,
        layout: ActionLayout,
        architecture: Architecture,
        exploration: StochasticSampling | None = None,
    ) -> None:
        self.exploration = exploration or StochasticSampling(layout)
        self.explore = True
        """True if `act` draws actions where it is given a stream."""
        self._activation = architecture.activation
        self._flat = len(architecture.shape) == 1
        self._highest = architecture.highest_byte, architecture.highest_number
        self._masks = architecture.masks
        self._trunk = _make_trunk(architecture)
        self._shares = architecture.shares and self._trunk is None
        self._layers: list[tuple[Array, Array]] = []
        self._wide: tuple[int, list[tuple[Array, Array]]] = (-1, [])
        """The layers for so many rows: adding as many biases costs a third of adding one to all."""
        self._heads: dict[str, Array] = {}
        self._head_bias: Array = np.zeros((1, 0), dtype=np.float32)
        """(1, head): as wide as one row, to which numpy adds it at once."""
        self._log_std: Array = np.zeros(0, dtype=np.float32)
        self.global_timestep = 0

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take over what was pickled, with the layers in memory as `load` lays them.

        A pickle keeps no order of three axes but C's, and a product of numbers in another order
        is rounded otherwise: the same policy would act otherwise in another process.
        """
        self.__dict__.update(state)
        self._layers = [(_turned(weight), bias) for weight, bias in self._layers]
        self._wide = (-1, [])

    def on_global_var_update(self, global_vars: Mapping[str, Any]) -> None:
        """Take note of the steps that were sampled so far, by all workers."""
        self.global_timestep = int(global_vars.get("timestep", self.global_timestep))
        self.exploration.at(self.global_timestep)

    def load(self, weights: Weights) -> None:
        """Adopt weights named as `ActorCritic.weights` names them; they are copied."""
        nets = ("trunk.dense",) if self._shares else ("actor", "critic")
        hidden = sum(name.startswith("actor.") and name.endswith(".weight") for name in weights) - 1
        depth = hidden
        if self._shares:
            depth = sum(name.startswith(nets) and name.endswith(".weight") for name in weights)
        self._layers = [
            (
                np.stack([weights[f"{net}.{i}.weight"].T for net in nets]),
                np.stack([weights[f"{net}.{i}.bias"] for net in nets])[:, None, :],
            )
            for i in range(depth)
        ]
        self._wide = (-1, [])
        self._heads = {
            f"{net}.{part}": np.array(weights[f"{net}.{hidden}.{part}"].T, order="C")
            for net in ("actor", "critic")
            for part in ("weight", "bias")
        }
        self._head_bias = self._heads["actor.bias"][None, :]
        self._log_std = np.array(weights.get("log_std", self._log_std))
        if self._log_std.ndim == 2:
            weight, self._head_bias = with_units(self._heads["actor.weight"], self._head_bias)
            self._heads |= {"actor.weight": weight, "actor.bias": self._head_bias[0]}
        if self._trunk is not None:
            self._trunk.load(weights)

    def weights(self) -> dict[str, Array]:
        """Return the weights given to `load`, actor and critic stacked; empty before."""
        return {**{f"layer {i}": one for i, (one, _) in enumerate(self._layers)}, **self._heads}

    def forward(self, observations: NDArray[Any]) -> tuple[Array, Array]:
        """Heads and values (N,) of filtered observations: (N, D), or (N, H, W, C) for images."""
        x = self._inputs(observations)
        for weight, bias in self._wide[1] if len(x) == self._wide[0] else self._layers:
            x = np.matmul(x, weight)
            x += bias
            activate(x, self._activation)
        to_actor, to_critic = (x[0], x[-1]) if self._layers else (x, x)
        heads = self._heads
        head: Array = to_actor.dot(heads["actor.weight"])
        head += self._head_bias
        if self._masks:
            forbid(head[:, : self._masks], observations)
        return head, to_critic.dot(heads["critic.weight"])[:, 0] + heads["critic.bias"]

    def initial_memory(self, count: int) -> Array:
        """(count, M) with which episodes begin."""
        return np.zeros((count, self.memory_size), dtype=np.float32)

    def advance(self, observations: NDArray[Any], memory: Array) -> tuple[Array, Array, Array]:
        """Heads, values and the memory (N, M) for the next step."""
        return *self.forward(observations), memory

    def act(
        self, observations: NDArray[Any], memory: Array, stream: np.random.Generator | None
    ) -> Acted:
        """Actions for filtered observations: drawn, or the most probable ones without a stream."""
        head, values, following = self.advance(observations, memory)
        actions, logp = self.exploration.draw(head, self._log_std, stream if self.explore else None)
        return Acted(actions, {"logp": logp, "values": values}, following)

    def ahead(self, steps: int, rows: int, stream: np.random.Generator) -> np.random.Generator:
        """Prepare for so many calls of `act` with these weights.

        Returns:
            The stream to give them: what they will draw may be drawn already.
        """
        if type(self).act is not Actor.act:
            return stream
        if type(self).advance is Actor.advance:
            self._wide = rows, [(weight, bias.repeat(rows, 1)) for weight, bias in self._layers]
        if self.explore and isinstance(self.exploration, StochasticSampling):
            return self.exploration.ahead(steps, rows, self._log_std, stream)
        return stream

    def one_by_one(self, draws: np.random.Generator) -> Decider | None:
        """Return the decider of one environment with the draws of `ahead`; None: `act` has to."""
        plain = type(self) is Actor and self._flat and not self._masks
        if not plain or not isinstance(draws, ChosenAhead):
            return None
        single = draws.race.ndim == 3 and draws.race.shape[1] == 1
        return OneByOne(self._networks(), draws.race[:, 0]) if single else None

    def side_by_side(self, draws: np.random.Generator) -> SideBySide | None:
        """Return the decider of all environments with the draws of `ahead`; None: `act` has to."""
        plain = type(self) is Actor and self._flat
        if not plain or not isinstance(draws, ChosenAhead | MeasuredAhead):
            return None
        if isinstance(draws, ChosenAhead) and draws.race.ndim != 3:
            return None  # several columns of choices
        return SideBySide(self._networks(), draws, self._masks)

    def _networks(self) -> Networks:
        return Networks(self._layers, self._heads, self._head_bias, self._activation)

    def act_each(
        self,
        observations: NDArray[Any],
        memory: Array,
        streams: Sequence[np.random.Generator | None],
    ) -> tuple[NDArray[Any], Array]:
        """The action of each row, as if it were the only one, and the memory for the next step.

        It does not depend, to the bit, on the rows beside it: each is a product of its own, where
        `forward` makes one product of all, whose rounding changes with their number. A row without
        a stream gets its most probable action.
        """
        head, following = self._heads_each(observations, memory)
        if not any(streams):
            return self.exploration.draw(head, self._log_std, None)[0], following
        rows = [
            self.exploration.draw(head[i : i + 1], self._log_std, stream)[0]
            for i, stream in enumerate(streams)
        ]
        return np.concatenate(rows), following

    def values(self, observations: NDArray[Any], memory: Array | None = None) -> Array:
        """(N,) values of filtered observations, seen with a memory (N, M); None: the initial."""
        if memory is None:
            return self.forward(observations)[1]
        return self.advance(observations, memory)[1]

    def as_layers(self) -> dict[str, Any] | None:
        """Return the layers of its head, for others to run; None if it has more than dense ones."""
        simple = type(self) is Actor and type(self.exploration) is StochasticSampling
        if not simple or not self._flat or self._masks or not self._heads:
            return None
        head = self._heads["actor.weight"], self._heads["actor.bias"]
        layers = [(weight[0], bias[0, 0]) for weight, bias in self._layers]
        return {
            "activation": self._activation,
            "layers": [[one.copy() for one in pair] for pair in (*layers, head)],
            "log_std": self._log_std.copy(),
        }

    def likelihood(self, observations: NDArray[Any], memory: Array, actions: NDArray[Any]) -> Array:
        """(N,) log-probabilities of actions that were chosen in another way; see exploration's."""
        head = self.advance(observations, memory)[0]
        return self.exploration.likelihood(head, self._log_std, actions)

    def judge(self, observations: NDArray[Any], memory: Array) -> dict[str, NDArray[Any]]:
        """The columns `judged` of filtered observations that no action follows."""
        return {"values": self.values(observations, memory)}

    @property
    def in_fragments(self) -> dict[str, Column]:
        """All columns that a fragment has for this actor.

        Beside `columns`: the ``memory`` with which each observation was seen, and of those that
        are `judged` ``final_<name>``, of the last observation where an episode was truncated (0
        elsewhere), and ``last_<name>``, of the observation after the fragment's last step.
        """
        columns = dict(self.columns)
        for name in self.judged:
            columns[f"final_{name}"] = columns[f"last_{name}"] = self.columns[name]
        if self.memory_size:
            columns["memory"] = ((self.memory_size,), np.dtype(np.float32))
        return columns

    def _heads_each(self, observations: NDArray[Any], memory: Array) -> tuple[Array, Array]:
        """Return the actor's head of each row as if computed alone, and the next memory."""
        x, following = self._last_each(self._features_each(observations)[:, None, :], memory)
        head: Array = np.matmul(x, self._heads["actor.weight"])[:, 0] + self._heads["actor.bias"]
        if self._masks:
            forbid(head[:, : self._masks], observations)
        return head, following

    def _last_each(self, x: Array, memory: Array) -> tuple[Array, Array]:
        """Return the actor's head input (N, 1, H) of features (N, 1, D), and the next memory."""
        for weight, bias in self._layers:
            x = np.matmul(x, weight[0])
            x += bias[0]
            activate(x, self._activation)
        return x, memory

    def _inputs(self, observations: NDArray[Any]) -> Array:
        """(N, D) what the first dense layer is given."""
        if self._masks:
            return np.ascontiguousarray(observations[:, : -self._masks])
        return observations if self._flat else self._features(observations)

    def _features_each(self, observations: NDArray[Any]) -> Array:
        if self._flat:
            return self._inputs(observations)
        return np.concatenate([self._features(one[None]) for one in observations])

    def _features(self, images: NDArray[Any]) -> Array:
        if self._trunk is not None:
            return self._trunk(images)
        flat: Array = images.reshape(len(images), -1).astype(np.float32)
        highest = self._highest[images.dtype != np.uint8]
        return flat if highest == 1.0 else flat / highest


def _turned(weight: Array) -> Array:
    """Stacked weights (S, D, H) in the memory order that `load` gives; others as they are."""
    if weight.ndim != 3:
        return weight
    turned: Array = np.ascontiguousarray(weight.swapaxes(1, 2)).swapaxes(1, 2)
    return turned


def with_units(weight: Array, bias: Array) -> tuple[Array, Array]:
    """The weights (H, K) and bias (1, K) of a head that ends with the hidden units themselves."""
    units = len(weight)
    return (
        np.concatenate([weight, np.eye(units, dtype=weight.dtype)], axis=1),
        np.concatenate([bias, np.zeros((1, units), dtype=bias.dtype)], axis=1),
    )


def _make_trunk(architecture: Architecture) -> "ActingTrunk | None":
    if not architecture.filters:
        return None
    # Loaded for images only: workers otherwise need no torch.
    from trainables.policies.layers import ActingTrunk

    return ActingTrunk(architecture)
