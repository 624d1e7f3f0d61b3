"""A policy of torch on flat vectors: what one of the two does, the other sees.

The policy's parameters, its optimiser's moments and its gradients become views of the vectors: a
step made there is seen by all that reads the policy (acting, checkpoints, exports, torch's own
steps), and the other way round.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from trainables.learners.fused.flat import Array, FlatOptimizer

if TYPE_CHECKING:
    from trainables.policies.torch_policy import TorchPolicy


class SharedVectors:
    """The vectors `flat`, and a policy of torch with the same parameters."""

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
        """New vectors for a policy, with its parameters in this order."""
        parameters = [policy.parameters[name] for name in order]
        shapes = {name: tuple(p.shape) for name, p in zip(order, parameters, strict=True)}
        kind: Array = parameters[0].detach().numpy()
        return cls(FlatOptimizer(shapes, kind.dtype, policy.get_hyperparameters()), policy)

    def adopt(self) -> None:
        """Take over what the policy holds, where it is not in the vectors already."""
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

    def lend(self) -> None:
        """Give the policy what the vectors hold."""
        for name, parameter in self._parameters.items():
            parameter.data = self._weights[name]
            self.policy.moments(name).update(self._moments[name])

    def show_gradients(self) -> None:
        """Let the policy's gradients be those of the latest step."""
        for name, parameter in self._parameters.items():
            parameter.grad = self._gradients[name]
