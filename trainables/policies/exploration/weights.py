"""Parameter noise: an episode is played with weights of its own (Plappert et al. 2018).

What is added to the weights stays the same for a whole episode, so actions differ from the best
ones in the same way wherever the same is seen. How much is added follows how far they differ.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from trainables.core import rng
from trainables.core.settings import Settings

Array = NDArray[np.float32]
Weights = Mapping[str, Array]
#: Factor by which the deviation grows or shrinks at a time.
GROWTH = 1.01
#: In the place of a seed: it is drawn at the next step.
DUE = -1


class ParameterNoiseConfig(Settings):
    """Settings of noise on the weights, for kinds of exploration that add it."""

    initial_stddev: float = Field(
        default=0.05,
        gt=0,
        description="ParameterNoise: deviation of what is added to each weight at first; then it "
        "follows how far actions are from the best ones. 0.01 to 0.1.",
    )
    adaptation_freq: int = Field(
        default=10,
        gt=0,
        description="ParameterNoise: steps of a worker after which that deviation grows or shrinks "
        "by 1 %; 1 to 50.",
    )


class ParameterNoise:
    """Noise on the weights, one draw for each environment's episode.

    Where the rows are not those of `begin`, each has noise of this step. N environments.
    """

    def __init__(self, config: ParameterNoiseConfig) -> None:
        self._every = config.adaptation_freq
        self.stddev = config.initial_stddev
        """Of noise that is drawn now."""
        self._steps = 0
        self._seeds: NDArray[np.int64] | None = None
        """(N,) which noise it is: it is drawn again from these, so no checkpoint has to hold it."""
        self._stddevs = np.zeros(0)
        """(N,) of each one's noise."""
        self._noise: dict[str, Array] = {}
        self._perturbed: dict[str, Array] = {}

    def begin(self, count: int) -> None:
        """From now on the rows are those of so many environments, step after step."""
        self._seeds = np.full(count, DUE)
        self._stddevs = np.zeros(count)
        self._noise = {}

    def on_episode_start(self, rows: NDArray[np.bool_]) -> None:
        """In these environments (N,) an episode begins: it gets noise of its own."""
        if self._seeds is not None:
            self._seeds[rows] = DUE

    def loaded(self) -> None:
        """The weights are other ones now; the noise stays."""
        self._perturbed = {}

    def perturbed(
        self, weights: Weights, rows: int, stream: np.random.Generator
    ) -> dict[str, Array]:
        """Of each weight (I, O) or bias (O,) one for each row: (N, I, O) or (N, 1, O)."""
        seeds = self._seeds
        if seeds is None or len(seeds) != rows:
            drawn = _drawn(weights, stream.integers(2**63 - 1, size=rows))
            return _added(weights, drawn, np.full(rows, self.stddev))
        due = seeds == DUE
        if due.any():
            seeds[due] = stream.integers(2**63 - 1, size=int(due.sum()))
            self._stddevs[due] = self.stddev
        if not self._noise:
            self._noise, self._perturbed = _drawn(weights, seeds), {}
        elif due.any():
            for name, noise in _drawn(weights, seeds[due]).items():
                self._noise[name][due] = noise
            self._perturbed = {}
        if not self._perturbed:
            self._perturbed = _added(weights, self._noise, self._stddevs)
        return self._perturbed

    def is_due(self, rows: int) -> bool:
        """Count a step of these rows; whether the deviation is to be adapted after it."""
        if self._seeds is None or len(self._seeds) != rows:
            return False
        self._steps += 1
        return self._steps % self._every == 0

    def adapt(self, distance: float, wanted: float) -> None:
        """Draw more noise from now on if actions are nearer to the best ones than wanted."""
        self.stddev *= GROWTH if distance < wanted else 1 / GROWTH

    def get_state(self) -> dict[str, Any]:
        """``stddev``, ``steps``, ``seeds`` and ``stddevs`` (N,), where rows are followed."""
        if self._seeds is None:
            return {}
        followed = {"seeds": self._seeds.copy(), "stddevs": self._stddevs.copy()}
        return {"stddev": self.stddev, "steps": self._steps, **followed}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave."""
        if "seeds" in state:
            self.stddev, self._steps = float(state["stddev"]), int(state["steps"])
            self._seeds = np.array(state["seeds"], dtype=np.int64)
            self._stddevs = np.array(state["stddevs"], dtype=np.float64)
            self._noise = {}


def _drawn(weights: Weights, seeds: NDArray[np.int64]) -> dict[str, Array]:
    """(R, …) standard normal noise of each weight, one for each seed."""
    streams = [rng.generator(int(seed), "parameters") for seed in seeds]
    return {
        name: np.stack([one.standard_normal(weight.shape, np.float32) for one in streams])
        for name, weight in weights.items()
    }


def _added(weights: Weights, noise: Weights, stddevs: NDArray[np.float64]) -> dict[str, Array]:
    factors = stddevs.astype(np.float32)
    added: dict[str, Array] = {}
    for name, weight in weights.items():
        moved = weight + factors.reshape(-1, *(1 for _ in weight.shape)) * noise[name]
        added[name] = moved[:, None] if weight.ndim == 1 else moved
    return added
