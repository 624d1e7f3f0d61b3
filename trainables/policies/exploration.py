"""How an actor tries what it does not hold for best, while experience is collected.

Without a stream, as in an evaluation, every kind gives the best action. N rows, K columns of an
action; a head is what `distributions` reads.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from trainables.core.settings import Settings
from trainables.envs.spaces.actions import ActionLayout
from trainables.errors import ConfigError
from trainables.policies.distributions import (
    NO_CHOICE,
    Actions,
    Array,
    ChosenAhead,
    MeasuredAhead,
    choice_grid,
    choose,
    measure,
)


class StochasticSampling:
    """Draws from the policy's own distribution, which learns how much to explore.

    Other ways to explore derive from it.
    """

    def __init__(self, layout: ActionLayout) -> None:
        self._layout = layout
        self._grid, self._absent = choice_grid(layout)
        self._choices, self._reals = list(layout.choice_columns), list(layout.real_columns)

    def draw(
        self, head: Array, log_std: Array, stream: np.random.Generator | None
    ) -> tuple[Actions, Array]:
        """Actions and the policy's log-probabilities (N,) of them; the best ones without a stream.

        What is drawn for a row depends on that row, the stream and the state alone.
        """
        if self._layout.scalar:
            return choose(head, stream)
        if not self._choices:
            return measure(head, log_std, stream)
        return self._draw_mixed(head, log_std, stream)

    def ahead(
        self, steps: int, rows: int, log_std: Array, stream: np.random.Generator
    ) -> np.random.Generator:
        """The stream for so many draws of so many rows, which may be made already."""
        if type(self).draw is not StochasticSampling.draw or (self._choices and self._reals):
            return stream
        if not self._choices:
            return MeasuredAhead(stream, (steps, rows, len(self._reals)), log_std)
        choices = self._grid.shape[1:] if self._layout.scalar else self._grid.shape
        return ChosenAhead(stream, (steps, rows, *choices))

    def _draw_mixed(
        self, head: Array, log_std: Array, stream: np.random.Generator | None
    ) -> tuple[Actions, Array]:
        rows = np.empty((len(head), len(self._layout.sizes)), dtype=self._layout.dtype)
        logits = head[:, self._grid]
        if self._absent.any():
            logits[:, self._absent] = NO_CHOICE
        chosen, logp_each = choose(logits, stream)
        rows[:, self._choices] = chosen
        logp = logp_each.sum(axis=1)
        if self._reals:
            rows[:, self._reals], logp_reals = measure(
                head[:, self._layout.logits :], log_std, stream
            )
            logp = logp + logp_reals
        return rows, logp

    def at(self, timesteps: int) -> None:
        """So many environment steps have been sampled, by all workers; here nothing follows."""

    def begin(self, count: int) -> None:
        """From now on the rows are those of so many environments, step after step."""

    def ended(self, rows: NDArray[np.bool_]) -> None:
        """The episodes of these environments (N,) ended; here nothing follows."""

    def get_state(self) -> dict[str, Any]:
        """What does not follow from settings and steps, as plain data; here nothing."""
        return {}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave."""


class EpsilonGreedyConfig(Settings):
    """A share of choices that are drawn evenly; it falls with the steps sampled."""

    initial_epsilon: float = Field(default=1.0, ge=0, le=1, description="Share at the beginning.")
    final_epsilon: float = Field(default=0.05, ge=0, le=1, description="Share at the end.")
    epsilon_timesteps: int = Field(
        default=10_000, gt=0, description="Environment steps from one to the other, linearly."
    )


class EpsilonGreedy(StochasticSampling):
    """The choice with the highest value, or with probability ε any one of them.

    Raises:
        ConfigError: actions with real numbers.
    """

    def __init__(self, layout: ActionLayout, config: EpsilonGreedyConfig) -> None:
        super().__init__(layout)
        if layout.real_columns:
            allowed = "choices (Discrete, MultiDiscrete, MultiBinary) with epsilon-greedy"
            raise ConfigError("env", "actions with real numbers", allowed)
        self._sizes = layout.sizes[0] if layout.scalar else np.array(layout.sizes)
        self._shape = layout.shape
        self._config = config
        self.epsilon = config.initial_epsilon

    def at(self, timesteps: int) -> None:
        """Adopt the share that is due."""
        of = self._config
        part = min(1.0, timesteps / of.epsilon_timesteps)
        self.epsilon = of.initial_epsilon + part * (of.final_epsilon - of.initial_epsilon)

    def draw(
        self, head: Array, log_std: Array, stream: np.random.Generator | None
    ) -> tuple[Actions, Array]:
        """Choices, and what a softmax of the head would give them; the best without a stream."""
        best, logp = super().draw(head, log_std, None)
        if stream is None:
            return best, logp
        count = len(head)
        explores = stream.random((count, *(1 for _ in self._shape))) < self.epsilon
        anything = stream.integers(0, self._sizes, size=(count, *self._shape))
        return np.where(explores, anything, best), logp
