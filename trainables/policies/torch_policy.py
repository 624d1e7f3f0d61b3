"""A policy that learns in torch: its networks, its optimiser, and their state as arrays.

The learning rate is no state: it comes from the settings at every step.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

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
from trainables.policies.acting.actor import Actor
from trainables.policies.acting.recurrent import make_actor
from trainables.policies.architecture import Architecture, OptimizerConfig
from trainables.policies.networks import ActorCritic, Networks
from trainables.policies.own.module import OwnActorCritic


class TorchPolicy:
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
        device: torch.device | None = None,
    ) -> None:
        self.device = device or torch.device("cpu")
        self.model = model.to(self.device)
        self.make_actor = make_actor
        self.global_timestep = 0
        self.distributed_world_size = 1
        self.reduce: Callable[[Sequence[Tensor]], None] = lambda _: None  # alone: the sum itself
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

    def onnx_graph(self, spaces: EnvSpaces, connectors: Connectors) -> bytes:
        """The policy as one ONNX file, with what `policies.onnx.export` says it takes and gives.

        Raises:
            ExportError: it has none, and why.
        """
        raise ExportError(f"{type(self).__name__} writes no ONNX graph; define onnx_graph()")

    @property
    def parameters(self) -> Mapping[str, torch.nn.Parameter]:
        """By name, in the order of the networks."""
        return self._parameters

    def on_global_var_update(self, global_vars: Mapping[str, Any]) -> None:
        """Take note of the steps that were sampled so far, by all workers."""
        self.global_timestep = int(global_vars.get("timestep", self.global_timestep))

    def minimise(
        self, loss: Tensor, learning_rate: float, grad_clip: float | None, part: str = ""
    ) -> float:
        """One gradient step of one optimiser; returns the gradient's norm before clipping.

        Raises:
            NotFiniteError: NaN or infinity in the loss or the gradient; the weights are untouched.
        """
        self._backward(loss)
        if self.distributed_world_size > 1:
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
        """What its optimiser keeps of one parameter, as tensors; empty before the first step.

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

    def gradients(self) -> dict[str, Tensor]:
        """Of the latest step, as applied, by parameter; empty before the first."""
        return {name: p.grad.cpu() for name, p in self._parameters.items() if p.grad is not None}

    def get_state(self) -> dict[str, Any]:
        """Entries ``weights`` and ``optimizer``, parameter by parameter; no hyperparameters."""
        return {
            "weights": {name: self._copied(it, name) for name, it in self.model.kept().items()},
            "optimizer": {
                name: {
                    moment: self._copied(value, name, moment)
                    for moment, value in self.moments(name).items()
                }
                for name in self._parameters
            },
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
        """Nothing is filled up, left out or converted: the state of another policy is no state."""
        weights, moments = state["weights"], state["optimizer"]
        kept = self.model.kept()
        expected = (("weights", weights, kept), ("optimizer", moments, self._parameters))
        for part, found, known in expected:
            if found.keys() != known.keys():
                other = sorted(set(found) ^ set(known))
                raise ValueError(f"{part}: those of another policy, which differs in {other}")
        for part, group in self._groups.items():
            optimizers.check_moments({name: moments[name] for name in group}, self._configs[part])
        for name, one in kept.items():
            shape, kind = tuple(one.shape), str(one.dtype).removeprefix("torch.")
            arrays = [weights[name], *(m for m in moments.get(name, {}).values() if np.ndim(m))]
            for array in arrays:
                if np.shape(array) != shape or np.asarray(array).dtype != kind:
                    raise ValueError(f"{name}: {np.shape(array)}; expected {kind} {shape}")


class ActorCriticPolicy(TorchPolicy):
    """A policy whose networks are an actor and a critic."""

    model: ActorCritic | OwnActorCritic

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
    device: torch.device | None = None,
) -> ActorCriticPolicy:
    """A policy with the initial weights of the trial with this seed."""
    model: ActorCritic | OwnActorCritic
    if networks[1].own is not None:
        model = OwnActorCritic(*networks, seed)
    else:
        model = ActorCritic(*networks, rng.torch_generator(seed, "init"))
    return ActorCriticPolicy(model, partial(make_actor, *networks), config, device)
