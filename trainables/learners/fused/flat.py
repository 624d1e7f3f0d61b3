"""Weights, gradient and an optimiser's moments of a policy as flat vectors, and steps on them.

P is the number of parameters.
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
#: Decay rates of Adam's first and second moments.
Betas = tuple[float, float]


class Kernel(Protocol):
    """Protocol of compiled code that makes Adam's steps on the vectors of a `FlatOptimizer`."""

    def norm(self) -> float:
        """Return the Euclidean norm of the gradient vector."""

    def move(self, scale: float, betas: Betas, eps: float, decay: float, rate: float) -> None:
        """Make one step of Adam on the weight vector with the gradient times `scale`.

        Both moments are updated first.

        Args:
            scale: factor of the gradient, from clipping.
            betas: decay of the two moments.
            eps: number added to the root of the second moment, times its bias correction.
            decay: weight decay.
            rate: learning rate, times the bias corrections.
        """


#: Number of steps between two searches for vanished moments. It depends on the step's number alone,
#: which checkpoints store, so that restored runs search at the same steps.
FADING_STEPS = 16
#: Sizes below which first and second moments are set to 0. With eps of 1e-8, such a first moment
#: moves no weight by more than 1e-22 of the learning rate, and the root of such a second moment
#: changes no bit of the sum.
FADED_FIRST, FADED_SECOND = 1e-30, 1e-36
#: Names of the optimisers that `FlatOptimizer` supports.
KNOWN = ("adam", "rmsprop")
#: Moment → attribute of `FlatOptimizer` with its vector.
_VECTOR_OF_MOMENT = {"exp_avg": "_first", "exp_avg_sq": "_second", "square_avg": "_second"}


class FlatOptimizer:
    """Adam (Kingma & Ba 2015) or RMSprop on one weight vector, by the rules of `torch.optim`.

    `shapes` is parameter → shape, in the order of their numbers in the vector; `kind` is its dtype.
    """

    def __init__(
        self, shapes: Mapping[str, tuple[int, ...]], kind: Any, config: OptimizerConfig
    ) -> None:
        self.shapes, self.config = dict(shapes), config
        self._sizes = [math.prod(shape) for shape in self.shapes.values()]
        ends = np.cumsum([0, *self._sizes]).tolist()
        self._spans = dict(zip(self.shapes, itertools.pairwise(ends), strict=True))
        self.vectors = np.zeros((5, ends[-1]), dtype=kind)
        """Rows (5, P): weights, gradient, first and second moments, and a scratch row."""
        self.weights, self.gradient, self._first, self._second, self._scratch = self.vectors
        self.kernel: Kernel | None = None
        """Compiled kernel that makes Adam's steps instead of numpy, or None."""
        self.moved = False
        """True after the first step, or if moments with steps were restored."""
        self._steps = np.zeros(len(self._sizes), dtype=np.float32)
        self.moments: Mapping[str, Mapping[str, Array]] = {
            name: self._moments(name, index) for index, name in enumerate(self.shapes)
        }
        """Parameter → moment → array, a view of the vectors; moment ``step`` is a view () of the
        parameter's number of steps."""

    def span(self, vector: Array, *names: str) -> Array:
        """Return the part (n,) of a vector that belongs to these parameters, adjacent in it."""
        return vector[self._spans[names[0]][0] : self._spans[names[-1]][1]]

    def part(self, vector: Array, name: str) -> Array:
        """Return a parameter's part of a vector, as a view in the parameter's shape."""
        return self.span(vector, name).reshape(self.shapes[name])

    def _moments(self, name: str, index: int) -> dict[str, Array]:
        """Return moment → its values for one parameter, as views of the vectors.

        `name` is the parameter's name, `index` its place among all parameters.
        """
        return {
            kind: self._steps[index : index + 1].reshape(())
            if kind == "step"
            else self.part(getattr(self, _VECTOR_OF_MOMENT[kind]), name)
            for kind in MOMENTS[self.config.name]
        }

    def step(self, learning_rate: float, grad_clip: float | None) -> float:
        """Move the weights against the gradient; return the gradient's norm before clipping.

        `grad_clip` is its largest norm, or None. Raises NotFiniteError if it is NaN or infinite;
        the weights are unchanged.
        """
        gradient, scratch, config, kernel = self.gradient, self._scratch, self.config, self.kernel
        if self._steps[0] % FADING_STEPS == 0:
            self._clear_vanished_moments()
        norm = kernel.norm() if kernel else math.sqrt(float(np.dot(gradient, gradient)))
        if not math.isfinite(norm):
            raise NotFiniteError.of_learning(f"the gradient's norm is {norm}")
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
        decayed_gradient = gradient
        if config.weight_decay:
            decayed_gradient = np.multiply(self.weights, config.weight_decay, out=scratch)
            decayed_gradient += gradient
        if config.name == "rmsprop":
            self._rmsprop(decayed_gradient, learning_rate)
        else:
            self._adam(decayed_gradient, learning_rate)
        return norm

    def _clear_vanished_moments(self) -> None:
        """Set moments to 0 that are too small to change a weight, before they become subnormal.

        Units that are never active have no gradient, so that their moments shrink in every step
        without reaching 0. Many processors take a hundred times as long for numbers below 1.2e-38.
        """
        for moment, least in ((self._first, FADED_FIRST), (self._second, FADED_SECOND)):
            np.multiply(moment, np.abs(moment, out=self._scratch) >= least, out=moment)

    def _rmsprop(self, decayed_gradient: Array, learning_rate: float) -> None:
        """Make one step of RMSprop with a gradient that includes weight decay."""
        alpha = self.config.alpha
        direction = decayed_gradient.copy() if self.config.weight_decay else decayed_gradient
        scratch = np.multiply(decayed_gradient, decayed_gradient, out=self._scratch)
        scratch *= 1.0 - alpha
        self._second *= alpha
        self._second += scratch
        np.sqrt(self._second, out=scratch)
        scratch += self.config.eps
        np.divide(direction, scratch, out=scratch)
        scratch *= learning_rate
        self.weights -= scratch

    def _adam(self, decayed_gradient: Array, learning_rate: float) -> None:
        """Make one step of Adam with a gradient that includes weight decay."""
        scratch = self._scratch
        (beta1, beta2), eps = self.config.betas, self.config.eps
        self._first *= beta1
        room = None if decayed_gradient is scratch else scratch
        self._first += np.multiply(decayed_gradient, 1.0 - beta1, out=room)
        np.multiply(decayed_gradient, decayed_gradient, out=scratch)
        scratch *= 1.0 - beta2
        self._second *= beta2
        self._second += scratch
        self._steps += 1.0
        root, rate = self._corrections(beta1, beta2)
        # lr · (m / c1) / (√v / √c2 + eps), with constants taken out of the vector operations.
        np.sqrt(self._second, out=scratch)
        scratch += eps * root
        np.divide(self._first, scratch, out=scratch)
        scratch *= learning_rate * rate
        self.weights -= scratch

    def _corrections(self, beta1: float, beta2: float) -> tuple[Any, Any]:
        """Return √c2 and √c2 / c1, the bias corrections for the steps made so far.

        They are numbers, or arrays (P,) if parameters have made different numbers of steps.
        """
        steps: Any = float(self._steps[0])
        if (self._steps != steps).any():  # torch made steps with gradients of some of them
            steps = np.repeat(self._steps, self._sizes).astype(np.float64)
        root = (1.0 - beta2**steps) ** 0.5
        rate = root / (1.0 - beta1**steps)
        if isinstance(steps, float):
            return root, rate
        return root.astype(self.weights.dtype), rate.astype(self.weights.dtype)
