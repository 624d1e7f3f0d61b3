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
from trainables.policies.acting.deciding import Decider, SingleEnvDecider, VectorEnvDecider
from trainables.policies.acting.dense import Array, Networks, activate
from trainables.policies.acting.distributions import PredrawnChoices, PredrawnReals, mask_invalid
from trainables.policies.architecture import Architecture
from trainables.policies.exploration.actions import StochasticSampling

if TYPE_CHECKING:
    from trainables.policies.learning.layers import ActingTrunk

#: Name of a weight → its array.
Weights = Mapping[str, NDArray[Any]]
Column = tuple[tuple[int, ...], np.dtype[Any]]
"""(Shape, dtype) of one row of a column."""
#: A column of one float32 per row.
REAL: Column = ((), np.dtype(np.float32))


class Acted(NamedTuple):
    """Actions of N environments, chosen together, with further outputs of the policy."""

    actions: NDArray[Any]
    """Choices, int64 (N,), or rows (N, K) of int64 or float32, not clipped."""
    columns: Mapping[str, NDArray[Any]]
    """Name → column (N, …), those that `Actor.columns` declares, such as ``logp``."""
    memory: Array
    """Recurrent states for the next step, (N, M)."""

    def outputs_of(self, row: int, fetches: Mapping[str, str]) -> dict[str, float]:
        """Return the outputs of the decision with index `row`: each key of `fetches` → number.

        The value of the key is the name of the column from which the number is taken.
        """
        return {key: float(self.columns[name][row]) for key, name in fetches.items()}


class Actor:
    """Chooses actions in rollouts: an actor and a critic network in numpy, without gradients.

    Weights are copied from the learning policy with `load`. By default actions are drawn from the
    policy's own distribution.
    """

    columns: ClassVar[Mapping[str, Column]] = {"logp": REAL, "values": REAL}
    """Columns that `act` returns in addition to the actions, and fragments store: name → shape and
    dtype."""
    value_names: ClassVar[tuple[str, ...]] = ("values",)
    """Names of the columns that `value_columns` returns; () for an actor without a critic."""
    fetches: ClassVar[Mapping[str, str]] = {"logp": "logp", "value": "values"}
    """Name of each output that `Trainer.compute_action` returns beside the action → its column."""
    memory_size = 0
    """Number M of float32 that make up one environment's recurrent state; 0 without one."""
    state_parts: int | Sequence[int] = 0
    """Argument with which `numpy.split` divides a recurrent state (M,) into arrays: the number of
    equal arrays, or the indices at which the second and later arrays begin; 0 without a state."""

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

        They are -1 and [] until `prepare_draws` is called after `load`. Adding as many biases as
        rows takes a third of the time of adding one bias to all rows.
        """
        self._heads: dict[str, Array] = {}
        self._head_bias: Array = np.zeros((1, 0), dtype=np.float32)
        """Bias of the actor's head, (1, head): numpy adds a row faster than a vector."""
        self._log_std: Array = np.zeros(0, dtype=np.float32)
        self.global_timestep = 0

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a pickled actor, with the weights in the same memory order as after `load`.

        Pickle stores arrays of three axes in C order only. Products of matrices in another memory
        order are rounded differently, so that the same policy would act differently in another
        process.
        """
        self.__dict__.update(state)
        self._layers = [(_restore_memory_order(weight), bias) for weight, bias in self._layers]
        self._repeated_layers = (-1, [])

    def on_global_var_update(self, global_vars: Mapping[str, Any]) -> None:
        """Store ``timestep``, the number of environment steps sampled by all workers, if given.

        The stored number is passed to the exploration, which may end a warm-up or lower ε.
        """
        self.global_timestep = int(global_vars.get("timestep", self.global_timestep))
        self.exploration.set_timesteps(self.global_timestep)

    def load(self, weights: Weights) -> None:
        """Copy weights, name → array, as `ActorCritic.weights` returns them.

        If log standard deviations have one row per hidden unit (H, G), as for state-dependent
        noise, the actor's outputs end with its hidden units from now on.
        """
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
        """Return ``layer <i>`` and ``actor.weight``, ``critic.bias`` and so on → array, for logs.

        Hidden layers of actor and critic are stacked. Their biases, convolutions and log standard
        deviations are left out. Empty before `load`. The arrays are the actor's own.
        """
        return {**{f"layer {i}": one for i, (one, _) in enumerate(self._layers)}, **self._heads}

    def forward(self, observations: NDArray[Any]) -> tuple[Array, Array]:
        """Run the networks on filtered observations, (N, D) or (N, H, W, C).

        Returns the actor's outputs (N, A), such as logits and means, and the values (N,). Logits of
        choices that an action mask forbids are `NO_CHOICE`, -1e30.
        """
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
            mask_invalid(head[:, : self._masks], observations)
        return head, to_critic.dot(heads["critic.weight"])[:, 0] + heads["critic.bias"]

    def initial_memory(self, count: int) -> Array:
        """Return the recurrent states (count, M) at the start of episodes: zeros."""
        return np.zeros((count, self.memory_size), dtype=np.float32)

    def advance(self, observations: NDArray[Any], memory: Array) -> tuple[Array, Array, Array]:
        """Run the networks on filtered observations with recurrent states (N, M).

        Returns the actor's outputs (N, A), the values (N,) and the states for the next step, here
        `memory` itself.
        """
        return *self.forward(observations), memory

    def act(
        self, observations: NDArray[Any], memory: Array, stream: np.random.Generator | None
    ) -> Acted:
        """Choose actions for filtered observations (N, *S) with recurrent states (N, M).

        They are drawn with `stream`; without it, or if `explore` is False, they are the most
        probable ones. Returns actions, the columns ``logp`` and ``values`` (N,), and the states for
        the next step.
        """
        head, values, following = self.advance(observations, memory)
        actions, logp = self.exploration.draw(head, self._log_std, stream if self.explore else None)
        return Acted(actions, {"logp": logp, "values": values}, following)

    def prepare_draws(
        self, steps: int, rows: int, stream: np.random.Generator
    ) -> np.random.Generator:
        """Prepare the next `steps` calls of `act` with `rows` rows each and the current weights.

        Returns the stream to pass to these calls. If possible it holds all their random numbers,
        drawn in advance from `stream`, which is faster and gives the same numbers.
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

    def single_env_decider(self, draws: np.random.Generator) -> Decider | None:
        """Return an object that chooses one environment's actions faster than `act`.

        `draws` is the stream that `prepare_draws` returned. Returns None unless it holds numbers
        for one environment with one choice per action, the class is `Actor` itself, and
        observations are vectors without an action mask.
        """
        plain = type(self) is Actor and self._takes_vectors and not self._masks
        if not plain or not isinstance(draws, PredrawnChoices):
            return None
        single = draws.race.ndim == 3 and draws.race.shape[1] == 1
        return SingleEnvDecider(self._networks(), draws.race[:, 0]) if single else None

    def vector_env_decider(self, draws: np.random.Generator) -> VectorEnvDecider | None:
        """Return an object that chooses the actions of N environments faster than `act`.

        `draws` is the stream that `prepare_draws` returned. Returns None unless it holds numbers
        for one choice or for real numbers per action, the class is `Actor` itself, and observations
        are vectors.
        """
        plain = type(self) is Actor and self._takes_vectors
        if not plain or not isinstance(draws, PredrawnChoices | PredrawnReals):
            return None
        if isinstance(draws, PredrawnChoices) and draws.race.ndim != 3:
            return None  # a decider supports one column of choices only
        return VectorEnvDecider(self._networks(), draws, self._masks)

    def _networks(self) -> Networks:
        """Return the layers of actor and critic, for a `SingleEnvDecider` or `VectorEnvDecider`."""
        return Networks(self._layers, self._heads, self._head_bias, self._activation)

    def act_each(
        self,
        observations: NDArray[Any],
        memory: Array,
        streams: Sequence[np.random.Generator | None],
    ) -> tuple[NDArray[Any], Array]:
        """Choose the action of each row as if it were alone, for exact evaluations.

        No bit of an action depends on other rows: each row is a matrix product of its own, whereas
        the rounding of `forward`, one product for all, changes with the number of rows. A row whose
        stream is None gets the most probable action; `explore` is ignored. Returns actions (N, …)
        and the recurrent states for the next step (N, M).
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
        """Return the values (N,) of filtered observations with recurrent states (N, M).

        None for `memory` stands for the states at the start of an episode.
        """
        if memory is None:
            return self.forward(observations)[1]
        return self.advance(observations, memory)[1]

    def as_layers(self) -> dict[str, Any] | None:
        """Return copies of the actor's dense layers, for a client program that acts by itself.

        Entries are ``activation``, ``layers``, a list of [weights (inputs, outputs), biases] with
        the output layer last, and ``log_std``. Returns None if there is more to run than dense
        layers and a draw, as with images or action masks, or if no weights are loaded.
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
        """Return name → value (N,) for each of `value_names`, of filtered observations.

        The sampler calls it to bootstrap the value of an episode or fragment that was cut off.
        """
        return {"values": self.values(observations, memory)}

    @property
    def in_fragments(self) -> dict[str, Column]:
        """Columns that a fragment has for this actor: name → (shape, dtype) of a row.

        Beside `columns` these are ``memory``, the recurrent state before the step, if there is one,
        and for each name in `value_names` ``final_<name>``, that of the last observation of a
        truncated episode (0 elsewhere), and ``last_<name>``, that of the observation after the
        fragment's last step.
        """
        columns = dict(self.columns)
        for name in self.value_names:
            columns[f"final_{name}"] = columns[f"last_{name}"] = self.columns[name]
        if self.memory_size:
            columns["memory"] = ((self.memory_size,), np.dtype(np.float32))
        return columns

    def _heads_each(self, observations: NDArray[Any], memory: Array) -> tuple[Array, Array]:
        """Return the actor's outputs (N, A), each row computed alone, and next states (N, M)."""
        x, following = self._head_inputs_each(self._features_each(observations)[:, None, :], memory)
        head: Array = np.matmul(x, self._heads["actor.weight"])[:, 0] + self._heads["actor.bias"]
        if self._masks:
            mask_invalid(head[:, : self._masks], observations)
        return head, following

    def _head_inputs_each(self, x: Array, memory: Array) -> tuple[Array, Array]:
        """Run the actor's hidden layers on features (N, 1, D), each row alone.

        Returns the inputs (N, 1, H) of its last layer, and the next recurrent states (N, M), here
        `memory` itself.
        """
        for weight, bias in self._layers:
            x = np.matmul(x, weight[0])
            x += bias[0]
            activate(x, self._activation)
        return x, memory

    def _inputs(self, observations: NDArray[Any]) -> Array:
        """Return the inputs (N, D) of the first dense layer: features of images, or vectors.

        Vectors are without their action mask.
        """
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
    """Extend a layer, weights (H, K) and bias (1, K), so that it also outputs its H inputs.

    State-dependent noise needs them. Returns weights (H, K + H) and bias (1, K + H).
    """
    units = len(weight)
    return (
        np.concatenate([weight, np.eye(units, dtype=weight.dtype)], axis=1),
        np.concatenate([bias, np.zeros((1, units), dtype=bias.dtype)], axis=1),
    )


def _make_trunk(architecture: Architecture) -> "ActingTrunk | None":
    """Return convolutions and shared hidden layers, run in torch; None without convolutions."""
    if not architecture.filters:
        return None
    # Imported for images only: workers otherwise need no torch.
    from trainables.policies.learning.layers import ActingTrunk

    return ActingTrunk(architecture)
