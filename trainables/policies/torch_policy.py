"""A policy that learns in torch: its networks, its optimiser, and their state as arrays.

The learning rate is no state: it comes from the settings at every step.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainables.errors import NotFiniteError
from trainables.policies.networks import ActorCritic


class TorchPolicy:
    """Networks with Adam.

    Args:
        model: actor and critic.
        epsilon: Adam's, added to the root of the second moment.
    """

    def __init__(self, model: ActorCritic, epsilon: float) -> None:
        self.model = model
        self._parameters = dict(model.named_parameters())
        self._optimizer = torch.optim.Adam(self._parameters.values(), eps=epsilon, fused=True)

    def minimise(self, loss: Tensor, learning_rate: float, grad_clip: float | None) -> float:
        """One gradient step; returns the gradient's norm before clipping.

        Raises:
            NotFiniteError: NaN or infinity in the loss or the gradient; the weights are untouched.
        """
        if not math.isfinite(loss.item()):
            raise NotFiniteError(f"the loss is {loss.item()}")
        for parameter in self._parameters.values():
            parameter.grad = None
        torch.autograd.backward(loss)
        gradients = [p.grad for p in self._parameters.values() if p.grad is not None]
        total = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
        norm = float(total.item())
        if not math.isfinite(norm):
            raise NotFiniteError(f"the gradient's norm is {norm}")
        if grad_clip is not None:
            torch._foreach_mul_(gradients, torch.clamp(grad_clip / (total + 1e-6), max=1.0))
        self._optimizer.param_groups[0]["lr"] = learning_rate
        self._optimizer.step()
        return norm

    def get_state(self) -> dict[str, Any]:
        """Entries ``weights`` and ``optimizer``, parameter by parameter; no hyperparameters."""
        return {
            "weights": self.model.weights(),
            "optimizer": {
                name: {
                    moment: value.numpy().copy()
                    for moment, value in self._optimizer.state[parameter].items()
                }
                for name, parameter in self._parameters.items()
            },
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave."""
        self.model.load_weights(state["weights"])
        for name, parameter in self._parameters.items():
            self._optimizer.state[parameter] = {
                moment: torch.from_numpy(np.array(value))
                for moment, value in state["optimizer"][name].items()
            }
