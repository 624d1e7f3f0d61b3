"""Parameter noise: an episode is played with perturbed weights (Plappert et al. 2018).

The noise on the weights stays the same for a whole episode, so that the same observation leads to
the same deviation from the best action. The size of the noise is adapted to how far actions differ
from the best ones.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from trainables.core import rng
from trainables.core.settings import Settings

Array = NDArray[np.float32]
#: Name of a weight → its array.
Weights = Mapping[str, Array]
#: Factor by which the standard deviation grows or shrinks in one adaptation.
GROWTH = 1.01
#: Value in place of a seed that must be drawn at the next step.
UNDRAWN = -1


class ParameterNoiseConfig(Settings):
    """Settings of noise on the weights, for kinds of exploration that offer it."""

    initial_stddev: float = Field(
        default=0.05,
        gt=0,
        description="ParameterNoise: initial standard deviation of the noise on each weight, "
        "which is then adapted to keep noisy actions at a target distance from noiseless actions. "
        "Evaluations with explore keep the initial value, and draw new noise in each step. Usually "
        "0.01 to 0.1.",
    )
    adaptation_freq: int = Field(
        default=10,
        gt=0,
        description="ParameterNoise: number of a worker's steps between two adaptations of the "
        "standard deviation, each by 1 %. Usually 1 to 50.",
    )


class ParameterNoise:
    """Parameter noise: noise on the weights, drawn once per episode of each of N environments.

    Before `begin` each row gets new noise in every step.
    """

    def __init__(self, config: ParameterNoiseConfig) -> None:
        self._adaptation_interval = config.adaptation_freq
        self.stddev = config.initial_stddev
        """Standard deviation of noise that is drawn from now on."""
        self._steps = 0
        self._seeds: NDArray[np.int64] | None = None
        """Seeds (N,) of the noise, from which it can be drawn again; so checkpoints need not hold
        it. None before `begin`."""
        self._stddevs = np.zeros(0)
        """Standard deviation of each environment's noise, (N,)."""
        self._noise: dict[str, Array] = {}
        self._perturbed: dict[str, Array] = {}

    def begin(self, count: int) -> None:
        """Prepare for `count` environments, whose rows are then given to `perturb` step by step.

        All of them get new noise in the next step.
        """
        self._seeds = np.full(count, UNDRAWN)
        self._stddevs = np.zeros(count)
        self._noise = {}

    def on_episode_start(self, rows: NDArray[np.bool_]) -> None:
        """Let environments where `rows` (N,) is True draw new noise in their next step.

        Does nothing before `begin`.
        """
        if self._seeds is not None:
            self._seeds[rows] = UNDRAWN

    def on_weights_loaded(self) -> None:
        """Forget the perturbed weights, since the weights have changed; the noise stays."""
        self._perturbed = {}

    def perturb(self, weights: Weights, rows: int, stream: np.random.Generator) -> dict[str, Array]:
        """Return name → perturbed weights (N, I, O), or biases (N, 1, O), for each of N rows.

        Noise is drawn anew for episodes that began; `stream` draws its seeds. If `rows` is not the
        number of environments of `begin`, every row gets new noise, and none is stored. Else the
        result is kept and returned again until noise is drawn or `on_weights_loaded` is called, so
        `weights` must not change before.
        """
        seeds = self._seeds
        if seeds is None or len(seeds) != rows:
            drawn = _draw_noise(weights, stream.integers(2**63 - 1, size=rows))
            return _add_noise(weights, drawn, np.full(rows, self.stddev))
        due = seeds == UNDRAWN
        if due.any():
            seeds[due] = stream.integers(2**63 - 1, size=int(due.sum()))
            self._stddevs[due] = self.stddev
        if not self._noise:
            self._noise, self._perturbed = _draw_noise(weights, seeds), {}
        elif due.any():
            for name, noise in _draw_noise(weights, seeds[due]).items():
                self._noise[name][due] = noise
            self._perturbed = {}
        if not self._perturbed:
            self._perturbed = _add_noise(weights, self._noise, self._stddevs)
        return self._perturbed

    def is_due(self, rows: int) -> bool:
        """Count a step; return True if the standard deviation must be adapted after it.

        Returns False, and counts nothing, if `rows` is not the number of environments of `begin`.
        """
        if self._seeds is None or len(self._seeds) != rows:
            return False
        self._steps += 1
        return self._steps % self._adaptation_interval == 0

    def adapt(self, distance: float, target: float) -> None:
        """Raise the standard deviation by 1 % if `distance` is less than `target`, else lower it.

        `distance` is the measured difference of actions from the best ones.
        """
        self.stddev *= GROWTH if distance < target else 1 / GROWTH

    def get_state(self) -> dict[str, Any]:
        """Return the state as plain data; empty before `begin`.

        ``stddev`` is the current standard deviation, ``steps`` the number of steps, ``seeds`` and
        ``stddevs`` (N,) those of each environment's noise.
        """
        if self._seeds is None:
            return {}
        followed = {"seeds": self._seeds.copy(), "stddevs": self._stddevs.copy()}
        return {"stddev": self.stddev, "steps": self._steps, **followed}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore a state of `get_state`; an empty one changes nothing."""
        if "seeds" in state:
            self.stddev, self._steps = float(state["stddev"]), int(state["steps"])
            self._seeds = np.array(state["seeds"], dtype=np.int64)
            self._stddevs = np.array(state["stddevs"], dtype=np.float64)
            self._noise = {}


def _draw_noise(weights: Weights, seeds: NDArray[np.int64]) -> dict[str, Array]:
    """Return name → standard normal noise (R, …) for each weight, one array for each of R seeds."""
    streams = [rng.generator(int(seed), "parameters") for seed in seeds]
    return {
        name: np.stack([one.standard_normal(weight.shape, np.float32) for one in streams])
        for name, weight in weights.items()
    }


def _add_noise(weights: Weights, noise: Weights, stddevs: NDArray[np.float64]) -> dict[str, Array]:
    """Return name → weight plus noise (N, …) times each row's standard deviation (N,).

    Biases (O,) become (N, 1, O).
    """
    factors = stddevs.astype(np.float32)
    added: dict[str, Array] = {}
    for name, weight in weights.items():
        moved = weight + factors.reshape(-1, *(1 for _ in weight.shape)) * noise[name]
        added[name] = moved[:, None] if weight.ndim == 1 else moved
    return added
