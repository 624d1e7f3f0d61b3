"""A policy of perceptrons that learns without torch: its weights are flat vectors.

Importing torch takes longer than many trials of small networks. So the torch policy is made only
when `FlatPolicy.in_torch` is called; from then on both share weights and moments.
"""

import itertools
from collections.abc import Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from trainables.core import rng
from trainables.core.resources import blas_threads
from trainables.envs.make import EnvSpaces
from trainables.envs.spaces.actions import ActionLayout
from trainables.envs.spaces.connectors import Connectors
from trainables.learners.fused.flat import Array, FlatOptimizer
from trainables.learners.fused.initial import Normals, orthogonal
from trainables.learners.fused.perceptrons import NETS, parameter_order
from trainables.policies.acting.actor import Weights
from trainables.policies.acting.recurrent import make_actor
from trainables.policies.architecture import (
    HIDDEN_GAIN,
    POLICY_GAIN,
    VALUE_GAIN,
    Architecture,
    OptimizerConfig,
)
from trainables.policies.policy import Policy, check_fits

if TYPE_CHECKING:
    from trainables.learners.fused.shared import SharedVectors
    from trainables.policies.learning.networks import ActorCritic
    from trainables.policies.learning.torch_policy import ActorCriticPolicy
    from trainables.policies.own.module import OwnActorCritic


class FlatPolicy(Policy):
    """Actor and critic that are perceptrons, stored in flat vectors and without torch.

    The initial weights depend on `seed`.
    """

    def __init__(
        self, networks: tuple[ActionLayout, Architecture], config: OptimizerConfig, seed: int
    ) -> None:
        super().__init__(partial(make_actor, *networks))
        self.layout, self.architecture = networks
        layers = _layers(*networks)
        shapes: dict[str, tuple[int, ...]] = {}
        for name, (inputs, outputs, _) in layers.items():
            shapes |= {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}
        reals = len(self.layout.real_columns)
        order = parameter_order(self.architecture, bool(reals))
        self._names = [*(["log_std"] if reals else []), *shapes]
        """Names of the parameters, in the order of torch's modules."""
        noise = self.architecture.noise
        shapes["log_std"] = (reals,) if noise is None else (self.architecture.units, reals)
        self.flat = FlatOptimizer({name: shapes[name] for name in order}, np.float32, config)
        self._shows_gradients = False
        normals = Normals(rng.integer(seed, "init"))
        with blas_threads(1):  # more threads would round differently
            for name, (inputs, outputs, gain) in layers.items():
                self._part(f"{name}.weight")[:] = orthogonal((outputs, inputs), gain, normals)
        if reals:
            at_first = self.architecture.log_std_init if noise is None else noise[0]
            self._part("log_std")[:] = at_first

    def _part(self, name: str) -> Array:
        """Return a parameter's weights as a view in the parameter's shape."""
        return self.flat.part(self.flat.weights, name)

    # ---- in torch ----------------------------------------------------------------------------

    @cached_property
    def _twin(self) -> "tuple[ActorCriticPolicy, SharedVectors]":
        """The same policy as a torch module, on the same memory, and the object that shares it.

        Made at the first access, which imports torch.
        """
        from trainables.learners.fused.shared import SharedVectors
        from trainables.policies.learning.networks import ActorCritic
        from trainables.policies.learning.torch_policy import ActorCriticPolicy

        model = ActorCritic(self.layout, self.architecture, None)
        policy = ActorCriticPolicy(model, self.make_actor, self.flat.config)
        shared = SharedVectors(self.flat, policy)
        shared.share_memory()
        if self._shows_gradients:
            shared.show_gradients()
        return policy, shared

    @property
    def _is_in_torch(self) -> bool:
        """True if the torch module was made."""
        return "_twin" in vars(self)

    def in_torch(self) -> "ActorCriticPolicy":
        """Return the policy as torch's, which shares weights and moments with this one.

        The first call imports torch and makes it; later calls return the same object.
        """
        return self._twin[0]

    @property
    def model(self) -> "ActorCritic | OwnActorCritic":
        """Networks as a torch module, which shares the weights; the first access imports torch."""
        return self.in_torch().model

    def onnx_graph(self, spaces: EnvSpaces, connectors: Connectors) -> bytes:
        """Return the policy as one ONNX file; this imports torch."""
        return self.in_torch().onnx_graph(spaces, connectors)

    # ---- learning ----------------------------------------------------------------------------

    def get_hyperparameters(self) -> OptimizerConfig:
        """Return the settings of the optimiser."""
        return self.flat.config

    def adopt(self) -> None:
        """Copy weights and moments that torch has replaced back into the vectors.

        Does nothing if the torch module was never made.
        """
        if self._is_in_torch:
            self._twin[1].adopt()

    def show_gradients(self) -> None:
        """Make the gradients of the latest step visible, in `gradients` and in torch."""
        self._shows_gradients = True
        if self._is_in_torch:
            self._twin[1].show_gradients()

    def gradients(self) -> dict[str, Array]:
        """Return parameter → gradient of the latest step, after clipping.

        Empty before the first.
        """
        if self._is_in_torch:
            return self.in_torch().gradients()
        shown = self._names if self._shows_gradients else []
        return {name: self.flat.part(self.flat.gradient, name) for name in shown}

    # ---- state -------------------------------------------------------------------------------

    def weights(self) -> dict[str, Array]:
        """Return parameter → copy of its weights."""
        self.adopt()
        return {name: self._part(name).copy() for name in self._names}

    def load_weights(self, weights: Weights) -> None:
        """Set the weights to what `weights` returned; the optimiser's moments do not change."""
        self.adopt()
        for name in self._names:
            self._part(name)[...] = weights[name]

    def kept_moments(self) -> dict[str, dict[str, Array]]:
        """Return parameter → copied moments of the optimiser (name → array).

        Before the first step they are empty, or zeros if the torch module was made.
        """
        self.adopt()
        known = self.flat.moments if self.flat.moved or self._is_in_torch else {}
        return {
            name: {moment: array.copy() for moment, array in known.get(name, {}).items()}
            for name in self._names
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore a state of `get_state`; raises ValueError for another kind of policy."""
        kind = self.flat.weights.dtype.name
        kept = {name: (self.flat.shapes[name], kind) for name in self._names}
        check_fits(state, kept, self._names, [(self.flat.config, self._names)])
        self.load_weights(state["weights"])
        for name, given in state["optimizer"].items():
            for moment, array in self.flat.moments[name].items():
                array[...] = given.get(moment, 0.0)
        self.flat.moved = any(state["optimizer"].values())


def _layers(layout: ActionLayout, architecture: Architecture) -> dict[str, tuple[int, int, float]]:
    """Return layer → number of inputs, number of outputs, and gain of its initial weights."""
    sizes = (architecture.features, *architecture.hidden)
    heads = (architecture.count_outputs(layout), POLICY_GAIN), (1, VALUE_GAIN)
    sizes_and_gains: dict[str, tuple[int, int, float]] = {}
    for net, (outputs, gain) in zip(NETS, heads, strict=True):
        pairs = itertools.pairwise((*sizes, outputs))
        gains = [HIDDEN_GAIN] * len(architecture.hidden) + [gain]
        for i, (pair, each) in enumerate(zip(pairs, gains, strict=True)):
            sizes_and_gains[f"{net}.{i}"] = (*pair, each)
    return sizes_and_gains
