"""A policy that learns in torch: its networks, its optimiser, and their state as arrays.

The learning rate is no state: it comes from the settings at every step.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from trainables.core import rng
from trainables.core.settings import Settings
from trainables.envs.spaces.actions import ActionLayout
from trainables.errors import NotFiniteError
from trainables.policies.architecture import Architecture
from trainables.policies.networks import ActorCritic

Decay = Annotated[float, Field(ge=0, lt=1)]


class OptimizerConfig(Settings):
    """Adam (Kingma & Ba 2015), but for its learning rate; the key ``optimizer`` of the settings."""

    betas: tuple[Decay, Decay] = Field(
        default=(0.9, 0.999), strict=False, description="Decay of the two moments, per step."
    )
    eps: float = Field(default=1e-5, gt=0, description="Added to the root of the second moment.")
    weight_decay: float = Field(
        default=0.0, ge=0, description="Share of each weight that is added to its gradient."
    )


class TorchPolicy:
    """Networks with Adam.

    Args:
        model: actor and critic.
        config: Adam's.
        device: where it learns.
    """

    def __init__(
        self, model: ActorCritic, config: OptimizerConfig, device: torch.device | None = None
    ) -> None:
        self.device = device or torch.device("cpu")
        self.model = model.to(self.device)
        self.global_timestep = 0
        self.distributed_world_size = 1
        self.reduce: Callable[[Sequence[Tensor]], None] = _alone
        self._parameters = dict(model.named_parameters())
        self._optimizer = torch.optim.Adam(
            self._parameters.values(), **config.model_dump(), fused=True
        )

    @property
    def parameters(self) -> Mapping[str, torch.nn.Parameter]:
        """By name, in the order of the networks."""
        return self._parameters

    def moments(self, name: str) -> dict[str, Any]:
        """Adam's of one parameter, as tensors; empty before its first step.

        Those that are put there are those with which Adam goes on.
        """
        found: dict[str, Any] = self._optimizer.state[self._parameters[name]]
        return found

    def on_global_var_update(self, global_vars: Mapping[str, Any]) -> None:
        """Take note of the steps that were sampled so far, by all workers."""
        self.global_timestep = int(global_vars.get("timestep", self.global_timestep))

    def minimise(self, loss: Tensor, learning_rate: float, grad_clip: float | None) -> float:
        """One gradient step; returns the gradient's norm before clipping.

        Raises:
            NotFiniteError: NaN or infinity in the loss or the gradient; the weights are untouched.
        """
        self._backward(loss)
        if self.distributed_world_size > 1:
            self.reduce([p.grad for p in self._parameters.values() if p.grad is not None])
        return self._descend(learning_rate, grad_clip)

    def compute_gradients(self, loss: Tensor) -> dict[str, NDArray[Any]]:
        """Parameter → gradient of `loss`, copied; parameters without one are absent.

        Raises:
            NotFiniteError: NaN or infinity in the loss.
        """
        self._backward(loss)
        gradients = {name: p.grad for name, p in self._parameters.items() if p.grad is not None}
        return {name: gradient.cpu().numpy().copy() for name, gradient in gradients.items()}

    def apply_gradients(
        self, gradients: Mapping[str, NDArray[Any]], learning_rate: float, grad_clip: float | None
    ) -> float:
        """One step with these gradients; returns their norm before clipping.

        Raises:
            NotFiniteError: NaN or infinity in a gradient; the weights are untouched.
        """
        for name, parameter in self._parameters.items():
            found = gradients.get(name)
            parameter.grad = None if found is None else torch.tensor(found, device=self.device)
        return self._descend(learning_rate, grad_clip)

    def _backward(self, loss: Tensor) -> None:
        if not math.isfinite(loss.item()):
            raise NotFiniteError(f"the loss is {loss.item()}")
        for parameter in self._parameters.values():
            parameter.grad = None
        torch.autograd.backward(loss)

    def _descend(self, learning_rate: float, grad_clip: float | None) -> float:
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

    def get_hyperparameters(self) -> dict[str, Any]:
        """The optimiser's settings as they are in force."""
        group = self._optimizer.param_groups[0]
        return {name: value for name, value in group.items() if name != "params"}

    def gradients(self) -> dict[str, Tensor]:
        """Of the latest step, as applied, by parameter; empty before the first."""
        return {name: p.grad.cpu() for name, p in self._parameters.items() if p.grad is not None}

    def get_state(self) -> dict[str, Any]:
        """Entries ``weights`` and ``optimizer``, parameter by parameter; no hyperparameters."""
        return {
            "weights": self.model.weights(),
            "optimizer": {
                name: {
                    moment: value.cpu().numpy().copy()
                    for moment, value in self._optimizer.state[parameter].items()
                }
                for name, parameter in self._parameters.items()
            },
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave; raises ValueError if it is not of such a policy."""
        self._check_fits(state)
        self.model.load_weights(state["weights"])
        for name, parameter in self._parameters.items():
            self._optimizer.state[parameter] = {
                moment: torch.from_numpy(np.array(value)).to(self.device)
                for moment, value in state["optimizer"][name].items()
            }

    def _check_fits(self, state: Mapping[str, Any]) -> None:
        """Nothing is filled up, left out or converted: the state of another policy is no state."""
        weights, moments = state["weights"], state["optimizer"]
        for part, found in (("weights", weights), ("optimizer", moments)):
            if found.keys() != self._parameters.keys():
                other = sorted(set(found) ^ set(self._parameters))
                raise ValueError(f"{part}: those of another policy, which differs in {other}")
        for name, parameter in self._parameters.items():
            shape, kind = tuple(parameter.shape), np.float32
            arrays = [weights[name], *(m for m in moments[name].values() if np.ndim(m))]
            for array in arrays:
                if np.shape(array) != shape or np.asarray(array).dtype != kind:
                    raise ValueError(f"{name}: {np.shape(array)}; expected float32 {shape}")


def build_policy(
    networks: tuple[ActionLayout, Architecture],
    config: OptimizerConfig,
    seed: int,
    device: torch.device | None = None,
) -> TorchPolicy:
    """A policy with the initial weights of the trial with this seed."""
    stream = rng.torch_generator(seed, "init")
    return TorchPolicy(ActorCritic(*networks, stream), config, device)


def _alone(tensors: Sequence[Tensor]) -> None:
    """The sum over the only process there is."""
