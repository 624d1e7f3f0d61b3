"""A torch policy on flat vectors, which share their memory.

The policy's parameters, moments and gradients become views of the vectors. A step on the vectors is
visible to all readers of the policy (acting, checkpoints, exports, torch's own steps), and a step
in torch to all readers of the vectors.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from trainables.learners.fused.flat import Array, FlatOptimizer

if TYPE_CHECKING:
    from trainables.policies.learning.torch_policy import TorchPolicy


class SharedVectors:
    """Flat vectors and a torch policy whose parameters and moments are views of them."""

    def __init__(self, flat: FlatOptimizer, policy: "TorchPolicy") -> None:
        self.flat, self.policy = flat, policy
        self._parameters = {name: policy.parameters[name] for name in flat.shapes}
        self._weights, self._gradients = (
            {name: torch.from_numpy(flat.part(vector, name)) for name in flat.shapes}
            for vector in (flat.weights, flat.gradient)
        )
        self._moments = {
            name: {kind: torch.from_numpy(array) for kind, array in kept.items()}
            for name, kept in flat.moments.items()
        }

    @classmethod
    def of(cls, policy: "TorchPolicy", order: Sequence[str]) -> "SharedVectors":
        """Make vectors for a torch policy, with its parameters in this order.

        `adopt` then copies its weights.
        """
        parameters = [policy.parameters[name] for name in order]
        shapes = {name: tuple(p.shape) for name, p in zip(order, parameters, strict=True)}
        kind: Array = parameters[0].detach().numpy()
        return cls(FlatOptimizer(shapes, kind.dtype, policy.get_hyperparameters()), policy)

    def adopt(self) -> None:
        """Copy the torch policy's weights and moments into the vectors, which it then uses.

        Weights and moments that are views of the vectors already are not copied; moments that the
        policy lacks, as before its first step, become zeros.
        """
        for name, parameter in self._parameters.items():
            weight, shared = self._weights[name], self._moments[name]
            if parameter.data_ptr() != weight.data_ptr():
                weight.copy_(parameter.detach())
                parameter.data = weight
            moments = self.policy.moments(name)
            for moment, tensor in shared.items():
                if moments.get(moment) is not tensor:
                    tensor.copy_(moments[moment]) if moment in moments else tensor.zero_()
                    moments[moment] = tensor

    def share_memory(self) -> None:
        """Make the torch policy's weights and moments views of the vectors.

        Its own values are dropped.
        """
        for name, parameter in self._parameters.items():
            parameter.data = self._weights[name]
            self.policy.moments(name).update(self._moments[name])

    def show_gradients(self) -> None:
        """Make the torch policy's gradients views of the vectors."""
        for name, parameter in self._parameters.items():
            parameter.grad = self._gradients[name]
