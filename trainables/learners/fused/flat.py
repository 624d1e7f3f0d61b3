"""Weights, gradient and Adam's moments of a policy as flat vectors, which torch shares.

The policy's parameters, its optimiser's moments and its gradients become views of these vectors: a
step made here is seen by all that reads the policy (acting, checkpoints, exports, torch's own
steps), and the other way round. P parameters.
"""

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from trainables.errors import NotFiniteError

if TYPE_CHECKING:
    from torch import Tensor

    from trainables.policies.torch_policy import TorchPolicy

Array = NDArray[Any]
Betas = tuple[float, float]


class Kernel(Protocol):
    """Makes Adam's steps on the vectors of a `FlatOptimizer`."""

    def norm(self) -> float:
        """Of the gradient."""

    def move(self, scale: float, betas: Betas, eps: float, decay: float, rate: float) -> None:
        """One step with the gradient times `scale`.

        The corrections of the moments are in `eps` and, with the learning rate, in `rate`.
        """


#: Steps between two looks for moments that have faded away; from a step's number alone, which a
#: checkpoint holds, so that a restored run looks when an uninterrupted one does.
FADING_STEPS = 16
#: Smaller ones are nothing: beside eps of 1e-8, the first moves no weight by more than 1e-22 of the
#: learning rate, and the second's root changes no bit of the sum.
FADED_FIRST, FADED_SECOND = 1e-30, 1e-36
#: The optimisers that `FlatOptimizer` knows.
KNOWN = ("adam", "rmsprop")
#: Of `FlatOptimizer`'s vectors, those that hold what an optimiser keeps of the weights.
_KEPT = {"exp_avg": "_first", "exp_avg_sq": "_second", "square_avg": "_second"}


class FlatOptimizer:
    """Adam (Kingma & Ba 2015) or RMSprop on one vector, in place; as `torch.optim` does it.

    The parameters lie one after the other in the `order` of their names.
    """

    def __init__(self, policy: "TorchPolicy", order: Sequence[str]) -> None:
        self._policy = policy
        self._parameters = {name: policy.parameters[name] for name in order}
        sizes = [parameter.numel() for parameter in self._parameters.values()]
        ends = np.cumsum([0, *sizes]).tolist()
        self._spans = dict(zip(order, itertools.pairwise(ends), strict=True))
        self._sizes = sizes
        kind = next(iter(self._parameters.values())).detach().numpy().dtype
        self.vectors = np.zeros((5, ends[-1]), dtype=kind)
        """Weights, gradient, both moments, and one to compute with."""
        self.weights, self.gradient, self._first, self._second, self._scratch = self.vectors
        self.kernel: Kernel | None = None
        """What makes Adam's steps in numpy's place."""
        self._steps = np.zeros(len(sizes), dtype=np.float32)
        self._shared = {
            name: self._tensors(name, index) for index, name in enumerate(self._parameters)
        }
        self._gradients = {name: self._tensor(self.gradient, name) for name in order}

    def span(self, vector: Array, *names: str) -> Array:
        """The part of a vector in which these parameters lie side by side, flat."""
        return vector[self._spans[names[0]][0] : self._spans[names[-1]][1]]

    def adopt(self) -> None:
        """Take over what the policy holds, where it is not in these vectors already."""
        self._config = self._policy.get_hyperparameters()
        for name, parameter in self._parameters.items():
            weight, shared = self._shared[name]
            if parameter.data_ptr() != weight.data_ptr():
                weight.copy_(parameter.detach())
                parameter.data = weight
            moments = self._policy.moments(name)
            for moment, tensor in shared.items():
                if moments.get(moment) is not tensor:
                    tensor.copy_(moments[moment]) if moment in moments else tensor.zero_()
                    moments[moment] = tensor

    def show_gradients(self) -> None:
        """Let the policy's gradients be those of the latest step."""
        for name, parameter in self._parameters.items():
            parameter.grad = self._gradients[name]

    def step(self, learning_rate: float, grad_clip: float | None) -> float:
        """Move the weights against the gradient; returns its norm before clipping.

        Raises:
            NotFiniteError: NaN or infinity in the gradient; the weights are untouched.
        """
        gradient, scratch, config, kernel = self.gradient, self._scratch, self._config, self.kernel
        if self._steps[0] % FADING_STEPS == 0:
            self._forget_what_faded()
        norm = kernel.norm() if kernel else math.sqrt(float(np.dot(gradient, gradient)))
        if not math.isfinite(norm):
            raise NotFiniteError(f"the gradient's norm is {norm}")
        clips = grad_clip is not None and norm + 1e-6 > grad_clip
        scale = grad_clip / (norm + 1e-6) if grad_clip is not None and clips else 1.0
        if kernel and config.name == "adam" and (self._steps == self._steps[0]).all():
            self._steps += 1.0
            root, correction = self._corrections(*config.betas)
            rate = learning_rate * correction
            kernel.move(scale, config.betas, config.eps * root, config.weight_decay, rate)
            return norm
        if clips:
            gradient *= scale
        ahead = gradient
        if config.weight_decay:
            ahead = np.multiply(self.weights, config.weight_decay, out=scratch)
            ahead += gradient
        if config.name == "rmsprop":
            self._rmsprop(ahead, learning_rate)
        else:
            self._adam(ahead, learning_rate)
        return norm

    def _forget_what_faded(self) -> None:
        """Let moments that no weight can feel be 0, before they are subnormal.

        Units that are never active have no gradient, so their moments shrink with every step, and
        do not come to 0 by themselves. Below 1.2e-38 many processors need a hundred times as long
        for a number.
        """
        for moment, least in ((self._first, FADED_FIRST), (self._second, FADED_SECOND)):
            np.multiply(moment, np.abs(moment, out=self._scratch) >= least, out=moment)

    def _rmsprop(self, ahead: Array, learning_rate: float) -> None:
        alpha = self._config.alpha
        direction = ahead.copy() if self._config.weight_decay else ahead
        scratch = np.multiply(ahead, ahead, out=self._scratch)
        scratch *= 1.0 - alpha
        self._second *= alpha
        self._second += scratch
        np.sqrt(self._second, out=scratch)
        scratch += self._config.eps
        np.divide(direction, scratch, out=scratch)
        scratch *= learning_rate
        self.weights -= scratch

    def _adam(self, ahead: Array, learning_rate: float) -> None:
        scratch = self._scratch
        (beta1, beta2), eps = self._config.betas, self._config.eps
        self._first *= beta1
        room = None if ahead is scratch else scratch
        self._first += np.multiply(ahead, 1.0 - beta1, out=room)
        np.multiply(ahead, ahead, out=scratch)
        scratch *= 1.0 - beta2
        self._second *= beta2
        self._second += scratch
        self._steps += 1.0
        root, rate = self._corrections(beta1, beta2)
        # lr · (m / c1) / (√v / √c2 + eps), with the constants drawn out of the vectors.
        np.sqrt(self._second, out=scratch)
        scratch += eps * root
        np.divide(self._first, scratch, out=scratch)
        scratch *= learning_rate * rate
        self.weights -= scratch

    def _corrections(self, beta1: float, beta2: float) -> tuple[Any, Any]:
        """√c2 and √c2 / c1 for the steps made so far: numbers, or (P,) where parameters differ."""
        steps: Any = float(self._steps[0])
        if (self._steps != steps).any():  # torch made steps with gradients of some of them
            steps = np.repeat(self._steps, self._sizes).astype(np.float64)
        root = (1.0 - beta2**steps) ** 0.5
        rate = root / (1.0 - beta1**steps)
        if isinstance(steps, float):
            return root, rate
        return root.astype(self.weights.dtype), rate.astype(self.weights.dtype)

    def _tensors(self, name: str, index: int) -> "tuple[Tensor, dict[str, Tensor]]":
        """The weight and the optimiser's moments of one parameter, as torch has them."""
        import torch

        from trainables.policies.optimizers import MOMENTS

        moments = {
            kind: torch.from_numpy(self._steps[index : index + 1])[0]
            if kind == "step"
            else self._tensor(getattr(self, _KEPT[kind]), name)
            for kind in MOMENTS[self._policy.get_hyperparameters().name]
        }
        return self._tensor(self.weights, name), moments

    def _tensor(self, vector: Array, name: str) -> "Tensor":
        """The part of a vector that belongs to a parameter, in its shape."""
        import torch

        part = self.span(vector, name).reshape(tuple(self._parameters[name].shape))
        return torch.from_numpy(part)
