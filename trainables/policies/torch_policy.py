"""A policy that learns in torch: its networks, its optimiser, and their state as arrays.

The learning rate is no state: it comes from the settings at every step.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trainables.core import rng
from trainables.envs.make import EnvSpaces
from trainables.envs.spaces.actions import ActionLayout
from trainables.envs.spaces.connectors import Connectors
from trainables.errors import ExportError, NotFiniteError
from trainables.policies import optimizers
from trainables.policies.acting.actor import Actor, Weights
from trainables.policies.acting.recurrent import make_actor
from trainables.policies.architecture import Architecture, OptimizerConfig
from trainables.policies.networks import ActorCritic, Networks
from trainables.policies.own.module import OwnActorCritic
from trainables.policies.policy import Policy, check_fits


class TorchPolicy(Policy):
    """Networks with one optimiser or several, each of which moves the weights of its own part.

    Args:
        model: the networks.
        make_actor: makes what plays with their weights; it travels to workers.
        config: the optimiser's; or of each one, under the beginning of its parameters' names. Those
            that no beginning fits are moved by nobody.
        device: where it learns.
    """

    def __init__(
        self,
        model: Networks,
        make_actor: Callable[[], Actor],
        config: OptimizerConfig | Mapping[str, OptimizerConfig],
        device: str | torch.device = "cpu",
    ) -> None:
        super().__init__(make_actor)
        self.device = torch.device(device)
        self.model = model.to(self.device)
        self._parameters = model.by_name
        self._views: dict[tuple[str, str], tuple[Tensor, int, NDArray[Any]]] = {}
        """Parameter and moment → a tensor, where its numbers lie, and these as an array."""
        self._configs = {"": config} if isinstance(config, OptimizerConfig) else dict(config)
        self._groups: dict[str, dict[str, nn.Parameter]] = {}
        self._moments: dict[str, dict[str, Tensor]] = {}
        for part in self._configs:
            group = {name: p for name, p in self._parameters.items() if name.startswith(part)}
            if twice := sorted(group.keys() & self._moments.keys()):
                raise ValueError(f"two optimisers move {', '.join(twice)}; each weight has one")
            self._groups[part] = group
            self._moments.update((name, {}) for name in group)

    def in_torch(self) -> Self:
        """Itself."""
        return self

    @property
    def parameters(self) -> Mapping[str, torch.nn.Parameter]:
        """By name, in the order of the networks."""
        return self._parameters

    def minimise(
        self, loss: Tensor, learning_rate: float, grad_clip: float | None, part: str = ""
    ) -> float:
        """One gradient step of one optimiser; returns the gradient's norm before clipping.

        Raises:
            NotFiniteError: NaN or infinity in the loss or the gradient; the weights are untouched.
        """
        self._backward(loss)
        if self.reduce is not None:
            self.reduce([p.grad for p in self._groups[part].values() if p.grad is not None])
        return self.descend(learning_rate, grad_clip, part)

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
        return self.descend(learning_rate, grad_clip, "")

    def differentiate(self, loss: Tensor, part: str) -> None:
        """Leave the gradient of a loss to the next `descend` of one optimiser.

        Gradients of other parts stay as they are.

        Raises:
            NotFiniteError: NaN or infinity in the loss.
        """
        if not math.isfinite(loss.item()):
            raise NotFiniteError(f"the loss is {loss.item()}")
        moved = list(self._groups[part].values())
        found = torch.autograd.grad(loss, moved, allow_unused=True)
        for parameter, gradient in zip(moved, found, strict=True):
            if parameter.grad is None or gradient is None:
                parameter.grad = gradient
            else:  # in place: the fused learner's arrays may lie there
                parameter.grad.copy_(gradient)

    def _backward(self, loss: Tensor) -> None:
        if not math.isfinite(loss.item()):
            raise NotFiniteError(f"the loss is {loss.item()}")
        for parameter in self._parameters.values():
            parameter.grad = None
        torch.autograd.backward(loss)

    def moments(self, name: str) -> dict[str, Any]:
        """Return the optimiser's moments of one parameter, as tensors; empty before the first step.

        The optimiser goes on with those that are put there.
        """
        return self._moments.get(name, {})

    def descend(self, learning_rate: float, grad_clip: float | None, part: str = "") -> float:
        """One step of one optimiser along the gradients that are there; returns their norm before.

        Raises:
            NotFiniteError: NaN or infinity in a gradient; the weights are untouched.
        """
        gradients = [p.grad for p in self._groups[part].values() if p.grad is not None]
        total = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
        norm = float(total.item())
        if not math.isfinite(norm):
            raise NotFiniteError(f"the gradient's norm is {norm}")
        if grad_clip is not None:
            torch._foreach_mul_(gradients, torch.clamp(grad_clip / (total + 1e-6), max=1.0))
        self._step(part, learning_rate)
        return norm

    @torch.no_grad()
    def _step(self, part: str, learning_rate: float) -> None:
        moved = {name: p for name, p in self._groups[part].items() if p.grad is not None}
        for name, parameter in moved.items():
            if not self._moments[name]:
                self._moments[name].update(optimizers.at_rest(parameter, self._configs[part]))
        optimizers.move(
            list(moved.values()),
            [p.grad for p in moved.values() if p.grad is not None],
            [self._moments[name] for name in moved],
            learning_rate,
            self._configs[part],
        )

    def get_hyperparameters(self, part: str = "") -> OptimizerConfig:
        """One optimiser's settings as they are in force."""
        return self._configs[part]

    def gradients(self) -> dict[str, NDArray[Any]]:
        """Of the latest step, as applied, by parameter; empty before the first."""
        found = {name: p.grad for name, p in self._parameters.items() if p.grad is not None}
        return {name: gradient.cpu().numpy() for name, gradient in found.items()}

    def weights(self) -> dict[str, NDArray[Any]]:
        """Return the networks' tensors by name, copied."""
        return {name: self._copied(it, name) for name, it in self.model.kept().items()}

    def acting_weights(self) -> dict[str, NDArray[Any]]:
        """Return a copy of the weights with which an actor plays."""
        return self.model.acting_weights()

    def load_weights(self, weights: Weights) -> None:
        """Take back what `weights` gave; moments stay."""
        self.model.load_weights(weights)

    def kept_moments(self) -> dict[str, dict[str, NDArray[Any]]]:
        """Return the optimisers' moments of each parameter, copied; none of those never moved."""
        return {
            name: {
                moment: self._copied(value, name, moment)
                for moment, value in self.moments(name).items()
            }
            for name in self._parameters
        }

    def _copied(self, tensor: Tensor, name: str, moment: str = "") -> NDArray[Any]:
        """The tensor's numbers; on the CPU by a view that is made once, as that takes longest."""
        known = self._views.get((name, moment))
        if known is None or known[0] is not tensor or known[1] != tensor.data_ptr():
            array: NDArray[Any] = tensor.detach().cpu().numpy()
            if tensor.device.type != "cpu":
                return array
            known = self._views[name, moment] = (tensor, tensor.data_ptr(), array)
        return known[2].copy()

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave; raises ValueError if it is not of such a policy."""
        self._check_fits(state)
        self.model.load_weights(state["weights"])
        for name, moments in state["optimizer"].items():
            if moments or name in self._moments:
                self._moments[name] = {
                    moment: torch.from_numpy(np.array(value)).to(self.device)
                    for moment, value in moments.items()
                }

    def _check_fits(self, state: Mapping[str, Any]) -> None:
        kept = {
            name: (tuple(one.shape), str(one.dtype).removeprefix("torch."))
            for name, one in self.model.kept().items()
        }
        groups = [(self._configs[part], group) for part, group in self._groups.items()]
        check_fits(state, kept, self._parameters, groups)


class ActorCriticPolicy(TorchPolicy):
    """A policy whose networks are an actor and a critic."""

    model: ActorCritic | OwnActorCritic

    @property
    def layout(self) -> ActionLayout:
        """Of the actions that are learnt."""
        return self.model.layout

    @property
    def architecture(self) -> Architecture:
        """Of both networks."""
        return self.model.architecture

    def log_likelihoods(self, observations: NDArray[Any], actions: NDArray[Any]) -> NDArray[Any]:
        """(R,) log-probabilities of actions for filtered observations (R, *S)."""
        seen, taken = (torch.from_numpy(one).to(self.device) for one in (observations, actions))
        with torch.no_grad():
            found: NDArray[Any] = self.model.evaluate(seen, taken, None).logp.cpu().numpy()
        return found

    def onnx_graph(self, spaces: EnvSpaces, connectors: Connectors) -> bytes:
        """Preprocessor, frozen filter, networks and the greedy action in one file."""
        if (own := self.model.architecture.distribution) is not None:
            why = "is code of your own, which no file of these formats holds"
            raise ExportError(f"how actions are drawn (model.custom_action_dist: {own.path}) {why}")
        # Loaded only to export: training needs neither onnx nor an inference engine.
        from trainables.policies.onnx import graph

        if isinstance(self.model, OwnActorCritic):
            return graph.build_own(self.model, spaces, connectors)
        return graph.build(self.model, spaces, connectors)


def build_policy(
    networks: tuple[ActionLayout, Architecture],
    config: OptimizerConfig,
    seed: int,
    device: str | torch.device = "cpu",
) -> ActorCriticPolicy:
    """A policy with the initial weights of the trial with this seed."""
    model: ActorCritic | OwnActorCritic
    if networks[1].own is not None:
        model = OwnActorCritic(*networks, seed)
    else:
        model = ActorCritic(*networks, rng.torch_generator(seed, "init"))
    return ActorCriticPolicy(model, partial(make_actor, *networks), config, device)
