"""Fast acting: forward pass and sampling of a policy in numpy, without torch for vectors.

A small network spends its time in calls, not in arithmetic. So actor and critic are one stacked
matrix product per layer here, and actions are drawn without distribution objects. Images go through
torch's convolutions, which are faster than numpy's. N rows, D features, H units; float32. A head is
the output of the actor network, which `distributions` describes. A memory (N, M) is what a policy
keeps from one step to the next; M is 0 for the actors in this module.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainables.envs.spaces.actions import ActionLayout
from trainables.policies.acting.deciding import Decider, OneByOne, SideBySide
from trainables.policies.acting.dense import Array, Networks, activate
from trainables.policies.acting.distributions import PredrawnChoices, PredrawnReals, forbid
from trainables.policies.architecture import Architecture
from trainables.policies.exploration.actions import StochasticSampling

if TYPE_CHECKING:
    from trainables.policies.learning.layers import ActingTrunk

Weights = Mapping[str, NDArray[Any]]
Column = tuple[tuple[int, ...], np.dtype[Any]]
"""Shape and dtype of one row."""
#: A column of one float32 per row.
REAL: Column = ((), np.dtype(np.float32))


class Acted(NamedTuple):
    """Result of one batched decision."""

    actions: NDArray[Any]
    """Choices, int64 (N,), or rows (N, K) of int64 or float32, not clipped."""
    columns: Mapping[str, NDArray[Any]]
    """Name → column (N, …), those that `Actor.columns` declares."""
    memory: Array
    """Memories for the next step, (N, M)."""

    def outputs_of(self, row: int, fetches: Mapping[str, str]) -> dict[str, float]:
        """Return the outputs of one row, by the names of `Actor.fetches`."""
        return {key: float(self.columns[name][row]) for key, name in fetches.items()}


class Actor:
    """An actor and a critic network in numpy, with the weights that `load` takes.

    By default actions are drawn from the policy's own distribution.
    """

    columns: ClassVar[Mapping[str, Column]] = {"logp": REAL, "values": REAL}
    """Columns that `act` returns in addition to the actions, and fragments store: name → shape and
    dtype."""
    judged: ClassVar[tuple[str, ...]] = ("values",)
    """Names of the columns that `value_columns` returns."""
    fetches: ClassVar[Mapping[str, str]] = {"logp": "logp", "value": "values"}
    """Output of `compute_action` other than the action → column from which it is taken."""
    memory_size = 0
    """Size M of a memory."""
    state_parts: int | Sequence[int] = 0
    """Number of equal arrays that make up a memory, or the indices at which the second and later
    arrays begin."""

    def __init__(
        self,
        layout: ActionLayout,
        architecture: Architecture,
        exploration: StochasticSampling | None = None,
    ) -> None:
        self.exploration = exploration or StochasticSampling(layout)
        self.explore = True
        """True if `act` draws actions with the stream it gets; False for the most probable ones."""
        self._activation = architecture.activation
        self._takes_vectors = len(architecture.shape) == 1
        self._largest_pixels = architecture.highest_byte, architecture.highest_number
        self._masks = architecture.masks
        self._trunk = _make_trunk(architecture)
        self._has_shared_layers = architecture.shares and self._trunk is None
        self._layers: list[tuple[Array, Array]] = []
        self._repeated_layers: tuple[int, list[tuple[Array, Array]]] = (-1, [])
        """Number of rows, and the layers with biases repeated for that many rows.

        Adding as many biases as rows takes a third of the time of adding one bias to all rows.
        """
        self._heads: dict[str, Array] = {}
        self._head_bias: Array = np.zeros((1, 0), dtype=np.float32)
        """Bias of the actor's head, (1, head): numpy adds a row faster than a vector."""
        self._log_std: Array = np.zeros(0, dtype=np.float32)
        self.global_timestep = 0

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a pickled actor, with the weights in the memory order of `load`.

        Pickle stores arrays of three axes in C order only. Products of matrices in another memory
        order are rounded differently, so that the same policy would act differently in another
        process.
        """
        self.__dict__.update(state)
        self._layers = [(_restore_memory_order(weight), bias) for weight, bias in self._layers]
        self._repeated_layers = (-1, [])

    def on_global_var_update(self, global_vars: Mapping[str, Any]) -> None:
        """Store ``timestep``, the steps sampled by all workers; pass it to the exploration."""
        self.global_timestep = int(global_vars.get("timestep", self.global_timestep))
        self.exploration.set_timesteps(self.global_timestep)

    def load(self, weights: Weights) -> None:
        """Copy weights, named as `ActorCritic.weights` names them."""
        nets = ("trunk.dense",) if self._has_shared_layers else ("actor", "critic")
        hidden = sum(name.startswith("actor.") and name.endswith(".weight") for name in weights) - 1
        depth = hidden
        if self._has_shared_layers:
            depth = sum(name.startswith(nets) and name.endswith(".weight") for name in weights)
        self._layers = [
            (
                np.stack([weights[f"{net}.{i}.weight"].T for net in nets]),
                np.stack([weights[f"{net}.{i}.bias"] for net in nets])[:, None, :],
            )
            for i in range(depth)
        ]
        self._repeated_layers = (-1, [])
        self._heads = {
            f"{net}.{part}": np.array(weights[f"{net}.{hidden}.{part}"].T, order="C")
            for net in ("actor", "critic")
            for part in ("weight", "bias")
        }
        self._head_bias = self._heads["actor.bias"][None, :]
        self._log_std = np.array(weights.get("log_std", self._log_std))
        if self._log_std.ndim == 2:
            weight, self._head_bias = append_units(self._heads["actor.weight"], self._head_bias)
            self._heads |= {"actor.weight": weight, "actor.bias": self._head_bias[0]}
        if self._trunk is not None:
            self._trunk.load(weights)

    def weights(self) -> dict[str, Array]:
        """Return the weights of `load`, actor and critic stacked; empty before `load`."""
        return {**{f"layer {i}": one for i, (one, _) in enumerate(self._layers)}, **self._heads}

    def forward(self, observations: NDArray[Any]) -> tuple[Array, Array]:
        """Return heads and values (N,) of filtered observations, (N, D) or (N, H, W, C)."""
        x = self._inputs(observations)
        for weight, bias in (
            self._repeated_layers[1] if len(x) == self._repeated_layers[0] else self._layers
        ):
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
        """Return the memories (count, M) at the start of episodes: zeros."""
        return np.zeros((count, self.memory_size), dtype=np.float32)

    def advance(self, observations: NDArray[Any], memory: Array) -> tuple[Array, Array, Array]:
        """Return heads, values (N,) and the memories (N, M) for the next step."""
        return *self.forward(observations), memory

    def act(
        self, observations: NDArray[Any], memory: Array, stream: np.random.Generator | None
    ) -> Acted:
        """Choose actions for filtered observations (N, *S) seen with memories (N, M).

        Without a stream they are the most probable ones. Returns actions, the columns ``logp`` and
        ``values`` (N,), and the memories for the next step.
        """
        head, values, following = self.advance(observations, memory)
        actions, logp = self.exploration.draw(head, self._log_std, stream if self.explore else None)
        return Acted(actions, {"logp": logp, "values": values}, following)

    def prepare_draws(
        self, steps: int, rows: int, stream: np.random.Generator
    ) -> np.random.Generator:
        """Prepare `steps` calls of `act` with `rows` rows each and the current weights.

        Returns the stream to pass to these calls; their random numbers may have been drawn already.
        """
        if type(self).act is not Actor.act:
            return stream
        if type(self).advance is Actor.advance:
            self._repeated_layers = (
                rows,
                [(weight, bias.repeat(rows, 1)) for weight, bias in self._layers],
            )
        if self.explore and isinstance(self.exploration, StochasticSampling):
            return self.exploration.prepare_draws(steps, rows, self._log_std, stream)
        return stream

    def one_by_one(self, draws: np.random.Generator) -> Decider | None:
        """Return a decider for one environment with the numbers of `prepare_draws`, or None."""
        plain = type(self) is Actor and self._takes_vectors and not self._masks
        if not plain or not isinstance(draws, PredrawnChoices):
            return None
        single = draws.race.ndim == 3 and draws.race.shape[1] == 1
        return OneByOne(self._networks(), draws.race[:, 0]) if single else None

    def side_by_side(self, draws: np.random.Generator) -> SideBySide | None:
        """Return a decider for N environments with the numbers of `prepare_draws`, or None."""
        plain = type(self) is Actor and self._takes_vectors
        if not plain or not isinstance(draws, PredrawnChoices | PredrawnReals):
            return None
        if isinstance(draws, PredrawnChoices) and draws.race.ndim != 3:
            return None  # a decider supports one column of choices only
        return SideBySide(self._networks(), draws, self._masks)

    def _networks(self) -> Networks:
        """Return the layers for a decider."""
        return Networks(self._layers, self._heads, self._head_bias, self._activation)

    def act_each(
        self,
        observations: NDArray[Any],
        memory: Array,
        streams: Sequence[np.random.Generator | None],
    ) -> tuple[NDArray[Any], Array]:
        """Choose the action of each row as if it were alone; return as `act`, without columns.

        No bit of an action depends on other rows: each row is a matrix product of its own, whereas
        the rounding of `forward`, one product for all, changes with the number of rows. Without its
        stream a row's action is the most probable one.
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
        """Return the values (N,) of filtered observations with memories (N, M), or initial ones."""
        if memory is None:
            return self.forward(observations)[1]
        return self.advance(observations, memory)[1]

    def as_layers(self) -> dict[str, Any] | None:
        """Return copies of the dense layers up to the head, for a program that runs them by itself.

        Entries are ``activation``, ``layers`` (weight and bias of each, the head last) and
        ``log_std``. Returns None if there is more to run than dense layers and a draw, or no
        weights are loaded.
        """
        simple = type(self) is Actor and type(self.exploration) is StochasticSampling
        if not simple or not self._takes_vectors or self._masks or not self._heads:
            return None
        head = self._heads["actor.weight"], self._heads["actor.bias"]
        layers = [(weight[0], bias[0, 0]) for weight, bias in self._layers]
        return {
            "activation": self._activation,
            "layers": [[one.copy() for one in pair] for pair in (*layers, head)],
            "log_std": self._log_std.copy(),
        }

    def likelihood(self, observations: NDArray[Any], memory: Array, actions: NDArray[Any]) -> Array:
        """Return the log-probabilities (N,) of actions that another program chose.

        Raises ConfigError if the exploration has no such probabilities.
        """
        head = self.advance(observations, memory)[0]
        return self.exploration.likelihood(head, self._log_std, actions)

    def value_columns(self, observations: NDArray[Any], memory: Array) -> dict[str, NDArray[Any]]:
        """Return the columns `judged` (N,) for filtered observations that no action follows."""
        return {"values": self.values(observations, memory)}

    @property
    def in_fragments(self) -> dict[str, Column]:
        """All columns that a fragment has for this actor: name → shape and dtype.

        Beside `columns` these are ``memory``, with which each observation was seen, and for each
        name in `judged` ``final_<name>``, that of the last observation of a truncated episode (0
        elsewhere), and ``last_<name>``, that of the observation after the fragment's last step.
        """
        columns = dict(self.columns)
        for name in self.judged:
            columns[f"final_{name}"] = columns[f"last_{name}"] = self.columns[name]
        if self.memory_size:
            columns["memory"] = ((self.memory_size,), np.dtype(np.float32))
        return columns

    def _heads_each(self, observations: NDArray[Any], memory: Array) -> tuple[Array, Array]:
        """Return the actor's head (N, A) of each row, as if computed alone, and memories (N, M)."""
        x, following = self._head_inputs_each(self._features_each(observations)[:, None, :], memory)
        head: Array = np.matmul(x, self._heads["actor.weight"])[:, 0] + self._heads["actor.bias"]
        if self._masks:
            forbid(head[:, : self._masks], observations)
        return head, following

    def _head_inputs_each(self, x: Array, memory: Array) -> tuple[Array, Array]:
        """Return inputs (N, 1, H) of the actor's head for features (N, 1, D), and next memories."""
        for weight, bias in self._layers:
            x = np.matmul(x, weight[0])
            x += bias[0]
            activate(x, self._activation)
        return x, memory

    def _inputs(self, observations: NDArray[Any]) -> Array:
        """Return the inputs (N, D) of the first dense layer, without the action mask."""
        if self._masks:
            return np.ascontiguousarray(observations[:, : -self._masks])
        return observations if self._takes_vectors else self._features(observations)

    def _features_each(self, observations: NDArray[Any]) -> Array:
        """Return the inputs (N, D) of the first dense layer, each image computed alone."""
        if self._takes_vectors:
            return self._inputs(observations)
        return np.concatenate([self._features(one[None]) for one in observations])

    def _features(self, images: NDArray[Any]) -> Array:
        """Return features (N, D) of images: those of the trunk, or pixels scaled to at most 1."""
        if self._trunk is not None:
            return self._trunk(images)
        flat: Array = images.reshape(len(images), -1).astype(np.float32)
        highest = self._largest_pixels[images.dtype != np.uint8]
        return flat if highest == 1.0 else flat / highest


def _restore_memory_order(weight: Array) -> Array:
    """Return stacked weights (S, D, H) in the memory order of `load`; other weights unchanged."""
    if weight.ndim != 3:
        return weight
    turned: Array = np.ascontiguousarray(weight.swapaxes(1, 2)).swapaxes(1, 2)
    return turned


def append_units(weight: Array, bias: Array) -> tuple[Array, Array]:
    """Extend a head (H, K) with bias (1, K) so that its outputs end with its H inputs.

    Returns weights (H, K + H) and bias (1, K + H).
    """
    units = len(weight)
    return (
        np.concatenate([weight, np.eye(units, dtype=weight.dtype)], axis=1),
        np.concatenate([bias, np.zeros((1, units), dtype=bias.dtype)], axis=1),
    )


def _make_trunk(architecture: Architecture) -> "ActingTrunk | None":
    """Return the convolutional trunk, or None without convolutions."""
    if not architecture.filters:
        return None
    # Imported for images only: workers otherwise need no torch.
    from trainables.policies.learning.layers import ActingTrunk

    return ActingTrunk(architecture)
