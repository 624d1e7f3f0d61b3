"""Base class of policies that learn, in torch or in numpy, with weights and moments as arrays."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

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

    from trainables.policies.acting.on_device import DeviceObservations
    from trainables.policies.learning.networks import Networks

Array = NDArray[Any]
#: A number: on a GPU a tensor (), which is fetched later, since each fetch waits for the GPU.
Scalar: TypeAlias = "float | Tensor"


class TorchPolicyProtocol(Protocol):
    """Protocol of a policy whose networks and gradients are in torch, see `Policy.in_torch`."""

    @property
    def model(self) -> "Networks":
        """Networks of the policy."""

    in_bfloat16: bool
    """True if layers compute in bfloat16 inside `autocast`."""
    generation: int
    """Number that grows when tensors of the optimiser are replaced."""

    @property
    def parameters(self) -> "Mapping[str, torch.nn.Parameter]":
        """Name → parameter."""

    @property
    def device(self) -> "torch.device":
        """Device of the networks."""

    def minimise(self, loss: "Tensor", learning_rate: Scalar, grad_clip: float | None) -> Scalar:
        """Make one gradient step on `loss`; return the norm of the gradient before clipping.

        `grad_clip` is the largest norm that is applied, None for no limit. Gradients are summed
        over all ranks first. Raises NotFiniteError, with the weights unchanged, if loss or gradient
        is not finite, unless `defer_checks` was called.
        """

    def defer_checks(self) -> None:
        """Check losses and gradients on the device from now on, without waiting for the results.

        After one that is not finite, steps change nothing until `Policy.require_finite` raises
        NotFiniteError.
        """

    def make_device_actor(self, frames: "DeviceObservations") -> Actor:
        """Return an actor that runs these networks on their device.

        `frames` is the store of the observations that it acts on. Raises NotImplementedError if
        this kind of policy acts in numpy alone.
        """

    def compute_gradients(self, loss: "Tensor") -> dict[str, Array]:
        """Return parameter → gradient of `loss`, as a copy; change no weight.

        Parameters that `loss` does not depend on are absent. Raises NotFiniteError if the loss is
        not finite, unless `defer_checks` was called.
        """

    def apply_gradients(
        self, gradients: Mapping[str, Array], learning_rate: Scalar, grad_clip: float | None
    ) -> Scalar:
        """Make one step with gradients (parameter → array); return their norm before clipping.

        Parameters without a gradient do not change, and nothing is summed over ranks. `grad_clip`
        is the largest norm that is applied, None for no limit. Raises NotFiniteError, with the
        weights unchanged, if a gradient is not finite, unless `defer_checks` was called.
        """


class Policy(ABC):
    """Base class of policies that learn; `make_actor` is pickled and sent to workers."""

    def __init__(self, make_actor: Callable[[], Actor]) -> None:
        self.make_actor = make_actor
        self.global_timestep = 0
        self.distributed_world_size = 1
        self.reduce: Callable[[Sequence[Tensor]], None] | None = None
        """Function that replaces tensors by their sums over all ranks, or None without other
        ranks."""

    def on_global_var_update(self, global_vars: Mapping[str, Any]) -> None:
        """Store entry ``timestep``, the number of steps sampled by all workers, if it is given."""
        self.global_timestep = int(global_vars.get("timestep", self.global_timestep))

    @abstractmethod
    def in_torch(self) -> TorchPolicyProtocol:
        """Return this policy in torch: itself, or a view that shares its weights and moments."""

    def require_finite(self) -> None:  # noqa: B027 nothing to raise for others
        """Raise NotFiniteError if a gradient step since the last call was not finite.

        It concerns policies that check their steps later (`TorchPolicy.defer_checks`); by default
        nothing happens.
        """

    @abstractmethod
    def weights(self) -> dict[str, Array]:
        """Return a copy of all weights: name → array."""

    def acting_weights(self) -> dict[str, Array]:
        """Return a copy of the weights that an actor needs; by default all weights."""
        return self.weights()

    @abstractmethod
    def load_weights(self, weights: Weights) -> None:
        """Load weights as `weights` returns them; the optimiser's moments do not change."""

    @abstractmethod
    def gradients(self) -> dict[str, Array]:
        """Return parameter → gradient of the latest step, after clipping; empty before the first.

        Arrays may share memory with the policy, and change in the next step.
        """

    @abstractmethod
    def kept_moments(self) -> dict[str, dict[str, Array]]:
        """Return parameter → copied moments of the optimiser (name → array).

        They are empty, or zeros, for a parameter that was never updated.
        """

    def get_state(self) -> dict[str, Any]:
        """Return ``weights`` (name → array) and ``optimizer`` (parameter → moment → array), copied.

        Hyperparameters are left out.
        """
        return {"weights": self.weights(), "optimizer": self.kept_moments()}

    @abstractmethod
    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore a state of `get_state`.

        Raises ValueError, with nothing changed, if the state is that of other networks or of
        another kind of optimiser.
        """

    def onnx_graph(self, spaces: EnvSpaces, connectors: Connectors) -> bytes:
        """Return the bytes of an ONNX file of the policy, from observation to greedy action.

        Raises ExportError if the policy cannot be written as ONNX, as always in this base class,
        and ConfigError if the observation filter is a user's own.
        """
        raise ExportError(f"{type(self).__name__} writes no ONNX graph; define onnx_graph()")


def check_fits(
    state: Mapping[str, Any],
    shapes: Mapping[str, tuple[tuple[int, ...], str]],
    parameters: Collection[str],
    groups: Iterable[tuple[OptimizerConfig, Collection[str]]],
) -> None:
    """Raise ValueError if a state of `Policy.get_state` belongs to another kind of policy.

    Names, shapes and dtypes of weights and moments are compared, but no values.

    Args:
        state: the state to be checked.
        shapes: name of a weight → its (shape, name of its dtype).
        parameters: names of the weights that have moments.
        groups: (settings, names of the parameters that it updates) of each optimiser.
    """
    weights, moments = state["weights"], state["optimizer"]
    for part, found, known in (("weights", weights, shapes), ("optimizer", moments, parameters)):
        if found.keys() != set(known):
            other = sorted(set(found) ^ set(known))
            raise ValueError(
                f"{part}: the state belongs to another policy, which differs in {other}"
            )
    for config, names in groups:
        check_moments({name: moments[name] for name in names}, config)
    for name, (shape, kind) in shapes.items():
        arrays = [weights[name], *(m for m in moments.get(name, {}).values() if np.ndim(m))]
        for array in arrays:
            if np.shape(array) != shape or np.asarray(array).dtype != kind:
                raise ValueError(
                    f"{name} has the shape {np.shape(array)}; expected {shape} of {kind}"
                )
