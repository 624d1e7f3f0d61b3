"""Base of every policy that learns, in torch or in numpy: its weights and moments as arrays."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from trainables.envs.make import EnvSpaces
from trainables.envs.spaces.connectors import Connectors
from trainables.errors import ExportError
from trainables.policies.acting.actor import Actor, Weights
from trainables.policies.architecture import OptimizerConfig, check_moments

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from trainables.policies.networks import Networks

Array = NDArray[Any]


class InTorch(Protocol):
    """A policy in torch, as all ways of learning have it."""

    @property
    def model(self) -> "Networks":
        """Its networks."""

    @property
    def device(self) -> "torch.device":
        """The device on which it learns."""

    def minimise(self, loss: "Tensor", learning_rate: float, grad_clip: float | None) -> float:
        """One gradient step; returns the gradient's norm before clipping."""

    def compute_gradients(self, loss: "Tensor") -> dict[str, Array]:
        """Parameter → gradient of `loss`, copied."""

    def apply_gradients(
        self, gradients: Mapping[str, Array], learning_rate: float, grad_clip: float | None
    ) -> float:
        """One step with these gradients; returns their norm before clipping."""


class Policy(ABC):
    """A policy that learns.

    Args:
        make_actor: makes what plays with its weights; it travels to workers.
    """

    def __init__(self, make_actor: Callable[[], Actor]) -> None:
        self.make_actor = make_actor
        self.global_timestep = 0
        self.distributed_world_size = 1
        self.reduce: Callable[[Sequence[Tensor]], None] | None = None
        """Replaces tensors by their sums over all ranks; None: it learns alone."""

    def on_global_var_update(self, global_vars: Mapping[str, Any]) -> None:
        """Take note of the steps that were sampled so far, by all workers."""
        self.global_timestep = int(global_vars.get("timestep", self.global_timestep))

    @abstractmethod
    def in_torch(self) -> InTorch:
        """The policy in torch, on the same numbers: what one learns, the other has learnt."""

    @abstractmethod
    def weights(self) -> dict[str, Array]:
        """Every weight by name, copied."""

    def acting_weights(self) -> dict[str, Array]:
        """Return a copy of the weights with which an actor plays: all of them."""
        return self.weights()

    @abstractmethod
    def load_weights(self, weights: Weights) -> None:
        """Take back what `weights` gave; moments stay."""

    @abstractmethod
    def gradients(self) -> dict[str, Array]:
        """Of the latest step, as applied, by parameter; empty before the first."""

    @abstractmethod
    def kept_moments(self) -> dict[str, dict[str, Array]]:
        """Return the optimiser's moments of each parameter, copied; none of those never moved."""

    def get_state(self) -> dict[str, Any]:
        """Entries ``weights`` and ``optimizer``, parameter by parameter; no hyperparameters."""
        return {"weights": self.weights(), "optimizer": self.kept_moments()}

    @abstractmethod
    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave; raises ValueError if it is not of such a policy."""

    def onnx_graph(self, spaces: EnvSpaces, connectors: Connectors) -> bytes:
        """The policy as one ONNX file, with what `policies.onnx.export` says it takes and gives.

        Raises:
            ExportError: it has none, and why.
        """
        raise ExportError(f"{type(self).__name__} writes no ONNX graph; define onnx_graph()")


def check_fits(
    state: Mapping[str, Any],
    kept: Mapping[str, tuple[tuple[int, ...], str]],
    parameters: Collection[str],
    groups: Iterable[tuple[OptimizerConfig, Collection[str]]],
) -> None:
    """Raise ValueError for the state of another policy.

    Nothing is filled up, left out or converted.

    Args:
        state: as `Policy.get_state` gives one.
        kept: shape and type of every weight by name.
        parameters: the names of those that can learn.
        groups: each optimiser with the names of the parameters that it moves.
    """
    weights, moments = state["weights"], state["optimizer"]
    for part, found, known in (("weights", weights, kept), ("optimizer", moments, parameters)):
        if found.keys() != set(known):
            other = sorted(set(found) ^ set(known))
            raise ValueError(f"{part}: those of another policy, which differs in {other}")
    for config, names in groups:
        check_moments({name: moments[name] for name in names}, config)
    for name, (shape, kind) in kept.items():
        arrays = [weights[name], *(m for m in moments.get(name, {}).values() if np.ndim(m))]
        for array in arrays:
            if np.shape(array) != shape or np.asarray(array).dtype != kind:
                raise ValueError(f"{name}: {np.shape(array)}; expected {kind} {shape}")
