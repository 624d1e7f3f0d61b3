"""Weights, gradient and an optimiser's moments of a policy as flat vectors, and steps on them.

P parameters.
"""

import itertools
import math
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from trainables.errors import NotFiniteError
from trainables.policies.architecture import MOMENTS, OptimizerConfig

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

    Args:
        shapes: of the parameters by name, in the order in which they lie one after the other.
        kind: type of the numbers.
        config: says which optimiser it is, and how it moves the weights.
    """

    def __init__(
        self, shapes: Mapping[str, tuple[int, ...]], kind: Any, config: OptimizerConfig
    ) -> None:
        self.shapes, self.config = dict(shapes), config
        self._sizes = [math.prod(shape) for shape in self.shapes.values()]
        ends = np.cumsum([0, *self._sizes]).tolist()
        self._spans = dict(zip(self.shapes, itertools.pairwise(ends), strict=True))
        self.vectors = np.zeros((5, ends[-1]), dtype=kind)
        """Weights, gradient, both moments, and one to compute with."""
        self.weights, self.gradient, self._first, self._second, self._scratch = self.vectors
        self.kernel: Kernel | None = None
        """The compiled kernel that makes Adam's steps in numpy's place."""
        self.moved = False
        """True once a step was made."""
        self._steps = np.zeros(len(self._sizes), dtype=np.float32)
        self.moments: Mapping[str, Mapping[str, Array]] = {
            name: self._moments(name, index) for index, name in enumerate(self.shapes)
        }
        """Parameter → what the optimiser keeps of it, as parts of the vectors."""

    def span(self, vector: Array, *names: str) -> Array:
        """The part of a vector in which these parameters lie side by side, flat."""
        return vector[self._spans[names[0]][0] : self._spans[names[-1]][1]]

    def part(self, vector: Array, name: str) -> Array:
        """The part of a vector that belongs to a parameter, in its shape."""
        return self.span(vector, name).reshape(self.shapes[name])

    def _moments(self, name: str, index: int) -> dict[str, Array]:
        return {
            kind: self._steps[index : index + 1].reshape(())
            if kind == "step"
            else self.part(getattr(self, _KEPT[kind]), name)
            for kind in MOMENTS[self.config.name]
        }

    def step(self, learning_rate: float, grad_clip: float | None) -> float:
        """Move the weights against the gradient; returns its norm before clipping.

        Raises:
            NotFiniteError: NaN or infinity in the gradient; the weights are untouched.
        """
        gradient, scratch, config, kernel = self.gradient, self._scratch, self.config, self.kernel
        if self._steps[0] % FADING_STEPS == 0:
            self._forget_what_faded()
        norm = kernel.norm() if kernel else math.sqrt(float(np.dot(gradient, gradient)))
        if not math.isfinite(norm):
            raise NotFiniteError(f"the gradient's norm is {norm}")
        self.moved = True
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
        alpha = self.config.alpha
        direction = ahead.copy() if self.config.weight_decay else ahead
        scratch = np.multiply(ahead, ahead, out=self._scratch)
        scratch *= 1.0 - alpha
        self._second *= alpha
        self._second += scratch
        np.sqrt(self._second, out=scratch)
        scratch += self.config.eps
        np.divide(direction, scratch, out=scratch)
        scratch *= learning_rate
        self.weights -= scratch

    def _adam(self, ahead: Array, learning_rate: float) -> None:
        scratch = self._scratch
        (beta1, beta2), eps = self.config.betas, self.config.eps
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
