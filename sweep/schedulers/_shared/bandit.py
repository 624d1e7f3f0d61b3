"""A Gaussian process that forgets, and the maximum of its upper confidence bound.

Parker-Holder et al., Provably Efficient Online Hyperparameter Optimization with Population-Based
Bandits, 2020, section 4; Bogunovic et al., Time-Varying Gaussian Process Bandit Optimization, 2016.
Points are in the unit cube; times are in intervals. Exact inference, with numpy only.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: Maximum number of modelled observations, the newest ones; older ones have faded.
MOST = 150
#: Constants of the confidence bound sqrt(c1 + max(0, log(c2 · n))), as in the authors' code.
C1, C2 = 0.2, 0.4
#: Number of random points; rounds of local search around the best; points of each round.
CANDIDATES, ROUNDS, NEAR = 1000, 4, 100

#: Candidates for `Kernel.length`.
_LENGTHS = (0.1, 0.2, 0.4, 0.8, 1.6)
#: Candidates for `Kernel.fading`.
_FADINGS = (0.0, 0.05, 0.2, 0.5)
#: Candidates for `Kernel.noise`.
_NOISES = (1e-3, 1e-2, 1e-1, 0.5)


@dataclass(frozen=True)
class Kernel:
    """Covariance function of a Gaussian process over points x and times t, which forgets.

    It is k((x, t), (x', t')) = exp(-|x - x'|² / 2 l²) · (1 - fading)^(|t - t'| / 2).
    """

    length: float
    """Length scale l in the unit cube: the distance at which knowledge about one point says little
    about the other."""
    fading: float
    """Share of knowledge that is forgotten in one interval of time, 0 to 1."""
    noise: float
    """Variance of an observation's noise, relative to the variance of the function, which is 1."""

    def covariances(self, x: Array, t: Array, y: Array, s: Array) -> Array:
        """Return the covariances (n, m) of n points with m points.

        The former are x (n, d) at times t (n,), the latter y (m, d) at times s (m,).
        """
        distance = ((x[:, None, :] - y[None, :, :]) ** 2).sum(axis=2)
        gap = np.abs(t[:, None] - s[None, :])
        close: Array = np.exp(-distance / (2 * self.length**2))
        return np.asarray(close * (1 - self.fading) ** (gap / 2), dtype=np.float64)


@dataclass(frozen=True)
class Posterior:
    """Distribution of a Gaussian process's function, given noisy observations."""

    kernel: Kernel
    """Covariance function of the prior."""
    x: Array
    """Points of the observations, (n, d)."""
    t: Array
    """Times of the observations in intervals, (n,)."""
    factor: Array
    """Lower Cholesky factor of the observations' covariance with noise, (n, n)."""
    weights: Array
    """Inverse of the observations' covariance with noise, times the observed values, (n,)."""
    evidence: float
    """Logarithm of the observations' likelihood under the kernel."""

    @classmethod
    def fit(cls, kernel: Kernel, x: Array, t: Array, y: Array) -> "Posterior":
        """Return the posterior given points x (n, d), times t (n,) and normalised values y (n,)."""
        covariance = kernel.covariances(x, t, x, t) + kernel.noise * np.eye(len(x))
        factor: Array = np.linalg.cholesky(covariance).astype(np.float64)
        weights: Array = np.linalg.solve(factor.T, np.linalg.solve(factor, y)).astype(np.float64)
        fitted = -0.5 * float(y @ weights) - float(np.log(np.diag(factor)).sum())
        return cls(kernel, x, t, factor, weights, fitted - len(x) / 2 * math.log(2 * math.pi))

    def predict(self, points: Array, time: float) -> tuple[Array, Array]:
        """Return mean (m,) and standard deviation (m,) of the function at points (m, d).

        `time` is the time, in intervals, of all points.
        """
        across = self.kernel.covariances(points, np.full(len(points), time), self.x, self.t)
        part = np.linalg.solve(self.factor, across.T)
        variance = np.maximum(1.0 - (part**2).sum(axis=0), 1e-12)
        return np.asarray(across @ self.weights), np.asarray(np.sqrt(variance))


@dataclass(frozen=True)
class Bandit:
    """Upper confidence bound of the improvement that a point brings.

    Its mean comes from observations, and its deviation also from pending points, which have been
    chosen but have no result yet.
    """

    observed: Posterior
    """Distribution of the function given the observations."""
    expected: Posterior
    """Distribution given the observations and the pending points, which only narrow it."""
    time: float
    """Time of the choice, in intervals of training."""

    @classmethod
    def learn(cls, x: Array, t: Array, y: Array, pending: Array, time: float) -> "Bandit":
        """Return the bandit that has observed improvements y (n,) at points x (n, d), times t (n,).

        Only the newest `MOST` count. Pending points (p, d) count as observed at `time`. The kernel
        with the greatest likelihood on a grid is used.
        """
        x, t, y = x[-MOST:], t[-MOST:], y[-MOST:]
        spread = float(y.std())
        normal = (y - y.mean()) / (spread if spread > 0 else 1.0)
        fits = [
            Posterior.fit(Kernel(*kernel), x, t, normal)
            for kernel in itertools.product(_LENGTHS, _FADINGS, _NOISES)
        ]
        observed = max(fits, key=lambda fit: fit.evidence)
        points = np.concatenate([x, pending]) if len(pending) else x
        times = np.concatenate([t, np.full(len(pending), time)])
        unknown = np.concatenate([normal, np.zeros(len(pending))])
        return cls(observed, Posterior.fit(observed.kernel, points, times, unknown), time)

    def bound(self, points: Array) -> Array:
        """Return the upper confidence bound (m,) of the improvement at points (m, d).

        Improvements are in standard deviations of the observed ones, from their mean.
        """
        mean, _ = self.observed.predict(points, self.time)
        _, deviation = self.expected.predict(points, self.time)
        beta = C1 + max(0.0, math.log(C2 * len(self.observed.x)))
        return np.asarray(mean + math.sqrt(beta) * deviation)

    def choose(
        self,
        dimensions: int,
        stream: np.random.Generator,
        is_allowed: Callable[[Array], bool] = lambda _point: True,
    ) -> Array:
        """Return the point (d,) of the unit cube with the greatest upper confidence bound found.

        The search draws random points from `stream`, then points around the best. If `is_allowed`
        accepts none of the random points, the best of all of them is used.
        """
        best = self._best(stream.random((CANDIDATES, dimensions)), is_allowed)
        for width in 0.1 ** np.arange(1, ROUNDS + 1):
            around = best + width * stream.standard_normal((NEAR, dimensions))
            points = np.concatenate([best[None], np.clip(around, 0.0, 1.0)])
            best = self._best(points, is_allowed)
        return best

    def _best(self, points: Array, is_allowed: Callable[[Array], bool]) -> Array:
        """Return that of `points` (m, d) with the greatest bound which `is_allowed` accepts, (d,).

        If it accepts none, the result is the best of all.
        """
        by_bound = points[np.argsort(-self.bound(points), kind="stable")]
        return next((point for point in by_bound if is_allowed(point)), by_bound[0])
