"""A policy that learns in torch: networks, optimisers, and their state as arrays.

The learning rate is not part of the state; each step takes it from the settings.
"""

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trainables.core import rng
from trainables.envs.make import EnvSpaces
from trainables.envs.spaces.actions import ActionLayout
from trainables.envs.spaces.connectors import Connectors
from trainables.errors import ExportError, NotFiniteError
from trainables.policies.acting.actor import Actor, Weights
from trainables.policies.acting.recurrent import make_actor
from trainables.policies.architecture import Architecture, OptimizerConfig
from trainables.policies.learning import optimizers
from trainables.policies.learning.networks import ActorCritic, Networks
from trainables.policies.learning.sending import send_together
from trainables.policies.own.module import OwnActorCritic, in_acting_mode
from trainables.policies.policy import Policy, Scalar, check_fits

if TYPE_CHECKING:
    from trainables.policies.acting.on_device import DeviceObservations


class TorchPolicy(Policy):
    """A policy whose networks learn in torch, with one or several optimisers.

    Args:
        model: networks, which are moved to `device`.
        make_actor: function that makes an actor for their weights. It is pickled and sent to
            workers.
        config: settings of the only optimiser; or prefix of parameter names → settings of the
            optimiser of these parameters. Parameters that match no prefix are not updated.

    Raises:
        ValueError: a parameter matches two prefixes.
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
        self._failed: Tensor | None = None
        """Tensor (): 0, or 1 from the first step on that was not finite until `require_finite`.

        None if each step is checked at once.
        """
        self.in_bfloat16 = False
        """True if layers compute in bfloat16 inside `autocast`."""
        self.generation = 0
        """Number of states that were restored, with new tensors of moments."""
        self._latest_loss: Tensor | None = None
        """Loss of the gradients that the next `descend` applies, if steps are checked later."""
        self._parameters = model.by_name
        self._views: dict[tuple[str, str], tuple[Tensor, int, NDArray[Any]]] = {}
        """(Parameter, moment) → tensor, its data pointer, and a numpy view of its memory."""
        self._configs = {"": config} if isinstance(config, OptimizerConfig) else dict(config)
        self._groups: dict[str, dict[str, nn.Parameter]] = {}
        self._moments: dict[str, dict[str, Tensor]] = {}
        for part in self._configs:
            group = {name: p for name, p in self._parameters.items() if name.startswith(part)}
            if twice := sorted(group.keys() & self._moments.keys()):
                raise ValueError(
                    f"two optimisers move {', '.join(twice)}; expected one for each weight"
                )
            self._groups[part] = group
            self._moments.update((name, {}) for name in group)

    def in_torch(self) -> Self:
        """Return the policy itself."""
        return self

    def on_device(self, rows: Mapping[str, Any]) -> dict[str, Tensor]:
        """Return name → column, arrays or tensors, as tensors on the policy's device.

        With `defer_checks`, as on a GPU, all arrays are sent in one transfer, since each transfer
        costs more than small columns. Without it tensors on the CPU share the arrays' memory.
        """
        if self._failed is None:
            return {
                name: (one if isinstance(one, Tensor) else torch.from_numpy(one)).to(self.device)
                for name, one in rows.items()
            }
        arrays = {name: one for name, one in rows.items() if not isinstance(one, Tensor)}
        sent = send_together(arrays, self.device)
        return {n: sent[n] if n in sent else one.to(self.device) for n, one in rows.items()}

    def autocast(self) -> AbstractContextManager[None]:
        """Return a context for forward passes: in bfloat16 if `in_bfloat16` is True, else as is."""
        if not self.in_bfloat16:
            return nullcontext()
        # Without a cache of converted weights, which a captured step would read later.
        context: AbstractContextManager[None] = torch.autocast(
            self.device.type, torch.bfloat16, cache_enabled=False
        )
        return context

    def defer_checks(self) -> None:
        """Check losses and gradients on the device from now on, so that no step waits for it.

        From the first step on that is not finite, no step changes weights or moments, until
        `require_finite` raises the error.
        """
        self._failed = torch.zeros((), device=self.device)

    def require_finite(self) -> None:
        """Raise NotFiniteError if a step since the last call was not finite; waits for the device.

        The weights are those before that step; steps after this call change them again. Does
        nothing unless `defer_checks` was called.
        """
        if self._failed is not None and self._failed.item():
            self._failed.zero_()
            raise NotFiniteError.of_learning("the loss, or the gradient's norm, is not finite")

    def make_device_actor(self, frames: "DeviceObservations") -> Actor:
        """Raise NotImplementedError here; policies with such an actor override this method.

        They return an actor that runs these networks on their device. `frames` is the store of the
        observations that it acts on.
        """
        raise NotImplementedError(f"{type(self).__name__} acts in numpy alone; set act_on: cpu")

    @property
    def parameters(self) -> Mapping[str, torch.nn.Parameter]:
        """Name → parameter, in the order of the networks."""
        return self._parameters

    def minimise(
        self, loss: Tensor, learning_rate: Scalar, grad_clip: float | None, part: str = ""
    ) -> Scalar:
        """Make one gradient step of one optimiser; return the norm of the gradient before clipping.

        The gradients of all parameters are computed anew; those of this optimiser are summed over
        all ranks first, if `reduce` is set. With `defer_checks` the norm is a tensor ().

        Args:
            loss: scalar to minimise.
            grad_clip: largest norm of the gradient, or None for no limit.
            part: prefix of the parameters that the optimiser updates.

        Raises:
            NotFiniteError: loss or gradient is NaN or infinite; the weights are unchanged. With
                `defer_checks` it is `require_finite` that raises it.
        """
        self._backward(loss)
        if self.reduce is not None:
            self.reduce([p.grad for p in self._groups[part].values() if p.grad is not None])
        return self.descend(learning_rate, grad_clip, part)

    def compute_gradients(self, loss: Tensor) -> dict[str, NDArray[Any]]:
        """Return parameter → copied gradient of `loss`; parameters without a gradient are absent.

        They replace the gradients stored in the parameters. Raises NotFiniteError if the loss is
        NaN or infinite, unless `defer_checks` was called.
        """
        self._backward(loss)
        gradients = {name: p.grad for name, p in self._parameters.items() if p.grad is not None}
        return {name: gradient.cpu().numpy().copy() for name, gradient in gradients.items()}

    def apply_gradients(
        self, gradients: Mapping[str, NDArray[Any]], learning_rate: Scalar, grad_clip: float | None
    ) -> Scalar:
        """Make one step of the only optimiser with gradients (parameter → array).

        Parameters that are absent do not change, and nothing is summed over ranks. Returns the norm
        of the gradients before clipping to `grad_clip`; None for no clipping.

        Raises:
            NotFiniteError: a gradient is NaN or infinite; the weights are unchanged. With
                `defer_checks` it is `require_finite` that raises it.
        """
        self._latest_loss = None
        for name, parameter in self._parameters.items():
            found = gradients.get(name)
            parameter.grad = None if found is None else torch.tensor(found, device=self.device)
        return self.descend(learning_rate, grad_clip, "")

    def differentiate(self, loss: Tensor, part: str) -> None:
        """Compute the gradients of one optimiser's parameters, which the next `descend` applies.

        Gradients of other parameters do not change, and nothing is summed over ranks. `part` is the
        prefix of the parameters that the optimiser updates.

        Raises NotFiniteError if the loss is NaN or infinite, as in `minimise`.
        """
        self._check_loss(loss)
        moved = list(self._groups[part].values())
        found = torch.autograd.grad(loss, moved, allow_unused=True)
        for parameter, gradient in zip(moved, found, strict=True):
            if parameter.grad is None or gradient is None:
                parameter.grad = gradient
            else:  # in place: arrays of the fused learner may share the memory
                parameter.grad.copy_(gradient)

    def _backward(self, loss: Tensor) -> None:
        """Compute the gradients of all parameters anew; raises NotFiniteError as in `minimise`."""
        self._check_loss(loss)
        for parameter in self._parameters.values():
            parameter.grad = None
        torch.autograd.backward(loss)

    def _check_loss(self, loss: Tensor) -> None:
        """Raise NotFiniteError if the loss is not finite.

        With `defer_checks` it is stored instead, for the check in `descend`.
        """
        if self._failed is not None:
            self._latest_loss = loss.detach()
        elif not math.isfinite(loss.item()):
            raise NotFiniteError.of_learning(f"the loss is {loss.item()}")

    def moments(self, name: str) -> dict[str, Any]:
        """Return the optimiser's moments of one parameter as tensors; empty before its first step.

        The dict is the one that the optimiser uses, so a caller may put tensors there. For a
        parameter that no optimiser updates it is a new, empty one.
        """
        return self._moments.get(name, {})

    def descend(self, learning_rate: Scalar, grad_clip: float | None, part: str = "") -> Scalar:
        """Make one step of one optimiser with the gradients stored in the parameters.

        The gradients are clipped in place, and not summed over ranks. Returns their norm before
        clipping to `grad_clip`; None for no clipping. `part` is the prefix of the parameters that
        the optimiser updates.

        Raises NotFiniteError if a gradient is NaN or infinite, as in `minimise`.
        """
        gradients = [p.grad for p in self._groups[part].values() if p.grad is not None]
        total = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
        norm = self._checked(total)
        if grad_clip is not None:
            torch._foreach_mul_(gradients, torch.clamp(grad_clip / (total + 1e-6), max=1.0))
        self._step(part, learning_rate)
        return norm

    def _checked(self, total: Tensor) -> Scalar:
        """Check the norm `total` () of a gradient, and return it as a number.

        Raises NotFiniteError if it is NaN or infinite. With `defer_checks` a failure, also of the
        stored loss, is only noted on the device, and the tensor is returned.
        """
        if self._failed is None:
            norm = float(total.item())
            if not math.isfinite(norm):
                raise NotFiniteError.of_learning(f"the gradient's norm is {norm}")
            return norm
        both = total if self._latest_loss is None else total + self._latest_loss
        self._failed.copy_(torch.maximum(self._failed, (~torch.isfinite(both)).float()))
        return total

    @torch.no_grad()
    def _step(self, part: str, learning_rate: Scalar) -> None:
        """Update those parameters of one optimiser that have a gradient, and its moments.

        Moments are created in a parameter's first step. Nothing is updated after a step that was
        found not finite on the device. `part` is the prefix of the parameters.
        """
        moved = {name: p for name, p in self._groups[part].items() if p.grad is not None}
        for name, parameter in moved.items():
            if not self._moments[name]:
                self._moments[name].update(
                    optimizers.initial_moments(parameter, self._configs[part])
                )
        optimizers.move(
            list(moved.values()),
            [p.grad for p in moved.values() if p.grad is not None],
            [self._moments[name] for name in moved],
            learning_rate,
            self._configs[part],
            self._failed,
        )

    def get_hyperparameters(self, part: str = "") -> OptimizerConfig:
        """Return the settings of the optimiser of the parameters with the prefix `part`."""
        return self._configs[part]

    def gradients(self) -> dict[str, NDArray[Any]]:
        """Return parameter → gradient stored in it: that of the latest step, after clipping.

        Parameters without one are absent. On the CPU the arrays share the parameters' memory.
        """
        found = {name: p.grad for name, p in self._parameters.items() if p.grad is not None}
        return {name: gradient.cpu().numpy() for name, gradient in found.items()}

    def weights(self) -> dict[str, NDArray[Any]]:
        """Return name → copied array of each tensor that a checkpoint contains."""
        return {name: self._copy(it, name) for name, it in self.model.saved_tensors().items()}

    def acting_weights(self) -> dict[str, NDArray[Any]]:
        """Return a copy of the weights that an actor needs."""
        return self.model.acting_weights()

    def load_weights(self, weights: Weights) -> None:
        """Load weights as `weights` returns them; the optimiser's moments do not change."""
        self.model.load_weights(weights)

    def kept_moments(self) -> dict[str, dict[str, NDArray[Any]]]:
        """Return parameter → copied moments (name → array); empty for one never updated."""
        return {
            name: {
                moment: self._copy(value, name, moment)
                for moment, value in self.moments(name).items()
            }
            for name in self._parameters
        }

    def _copy(self, tensor: Tensor, name: str, moment: str = "") -> NDArray[Any]:
        """Return a copy of a tensor as an array.

        On the CPU the numpy view of the tensor is cached under parameter `name` and `moment` (empty
        for a weight), since making it takes longer than the copy.
        """
        known = self._views.get((name, moment))
        if known is None or known[0] is not tensor or known[1] != tensor.data_ptr():
            array: NDArray[Any] = tensor.detach().cpu().numpy()
            if tensor.device.type != "cpu":
                return array
            known = self._views[name, moment] = (tensor, tensor.data_ptr(), array)
        return known[2].copy()

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore a state of `get_state`, and increase `generation` by 1.

        Weights are copied in place; moments are new tensors. Raises ValueError, with nothing
        changed, if the state is that of other networks or of another kind of optimiser.
        """
        self._check_fits(state)
        self.generation += 1
        self.model.load_weights(state["weights"])
        for name, moments in state["optimizer"].items():
            if moments or name in self._moments:
                self._moments[name] = {
                    moment: torch.from_numpy(np.array(value)).to(self.device)
                    for moment, value in moments.items()
                }

    def _check_fits(self, state: Mapping[str, Any]) -> None:
        """Raise ValueError if names, shapes or dtypes in `state` are not those of this policy.

        They are compared for weights and for the optimisers' moments.
        """
        kept = {
            name: (tuple(one.shape), str(one.dtype).removeprefix("torch."))
            for name, one in self.model.saved_tensors().items()
        }
        groups = [(self._configs[part], group) for part, group in self._groups.items()]
        check_fits(state, kept, self._parameters, groups)


class ActorCriticPolicy(TorchPolicy):
    """A policy with an actor network and a critic network."""

    model: ActorCritic | OwnActorCritic
    """Actor and critic network."""

    @property
    def layout(self) -> ActionLayout:
        """Layout of the actions."""
        return self.model.layout

    @property
    def architecture(self) -> Architecture:
        """Architecture of both networks."""
        return self.model.architecture

    def make_device_actor(self, frames: "DeviceObservations") -> Actor:
        """Return an actor that runs these networks on their device.

        `frames` is the store of the observations that it acts on.
        """
        # Imported for a GPU only.
        from trainables.policies.acting.on_device import DeviceActor

        model = self.model

        def run(observations: Tensor) -> tuple[Tensor, Tensor]:
            """Return the outputs of actor and critic for observations (B, …)."""
            own = [model] if model.architecture.custom_model else []
            with self.autocast(), in_acting_mode(*own):
                return model(observations)  # type: ignore[no-any-return]

        exploration = make_actor(model.layout, model.architecture).exploration
        return DeviceActor(model.layout, model.architecture, exploration, run, frames)

    def log_likelihoods(self, observations: NDArray[Any], actions: NDArray[Any]) -> NDArray[Any]:
        """Return the log-probabilities (R,) of actions for filtered observations (R, *S).

        Raises ValueError if the networks have an LSTM.
        """
        seen, taken = (torch.from_numpy(one).to(self.device) for one in (observations, actions))
        with torch.no_grad(), self.autocast():
            found: NDArray[Any] = self.model.evaluate(seen, taken, None).logp.cpu().numpy()
        return found

    def onnx_graph(self, spaces: EnvSpaces, connectors: Connectors) -> bytes:
        """Return the bytes of an ONNX file: preprocessing, frozen filter, networks, greedy action.

        Raises ExportError if the distribution of actions is the user's own code, or torch or ONNX
        cannot write the networks or a connector, and ConfigError for a user's own filter.
        """
        if (own := self.model.architecture.distribution) is not None:
            why = (
                "is your own code, which an exported model cannot contain; use a checkpoint instead"
            )
            raise ExportError(f"the action distribution (custom_action_dist: {own.path}) {why}")
        # Imported only for exports: training needs neither onnx nor an inference engine.
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
    """Return a policy of these networks, (layout of the actions, architecture).

    The initial weights are determined by `seed`. Raises ConfigError if the architecture names a
    user's module that cannot be made.
    """
    model: ActorCritic | OwnActorCritic
    if networks[1].custom_model is not None:
        model = OwnActorCritic(*networks, seed)
    else:
        model = ActorCritic(*networks, rng.torch_generator(seed, "init"))
    return ActorCriticPolicy(model, partial(make_actor, *networks), config, device)
