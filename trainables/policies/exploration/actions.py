"""Exploration by actions that an actor does not hold for best, while experience is collected.

Without a stream, as in an evaluation, every kind gives the best action. N rows, K columns of an
action; a head is what `distributions` reads.
"""

import math
from collections.abc import Mapping
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from trainables.core.settings import Settings
from trainables.envs.spaces.actions import ActionLayout
from trainables.errors import ConfigError
from trainables.policies.distributions import (
    LOG_2PI,
    NO_CHOICE,
    Actions,
    Array,
    ChosenAhead,
    MeasuredAhead,
    choice_grid,
    choose,
    log_softmax,
    measure,
)
from trainables.policies.exploration.weights import ParameterNoise, ParameterNoiseConfig

#: What only noise on weights reads.
NOISE_KEYS = tuple(ParameterNoiseConfig.model_fields)
#: Added to the variance of state-dependent noise, which may vanish with the units.
LEAST_VARIANCE = 1e-6


class StochasticSampling:
    """Draws from the policy's own distribution, which learns how much to explore.

    Other ways to explore derive from it.
    """

    def __init__(self, layout: ActionLayout, noise: ParameterNoise | None = None) -> None:
        self.parameter_noise = noise
        """Noise on the weights while exploring; None if there is none."""
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

    def likelihood(self, head: Array, log_std: Array, actions: NDArray[Any]) -> Array:
        """(N,) the policy's log-probabilities of actions that were chosen in another way.

        Raises:
            ConfigError: what is chosen here is no draw from heads alone.
        """
        if type(self).draw not in (StochasticSampling.draw, FollowingSampling.draw):
            kind = type(self).__name__
            allowed = "StochasticSampling where an environment logs actions of its own"
            hint = "of others nobody knows how probable such an action is"
            raise ConfigError("exploration_config.type", kind, allowed, hint)
        if self._layout.scalar:
            return np.take_along_axis(log_softmax(head), actions[:, None], axis=1)[:, 0]
        logp = np.zeros(len(head), dtype=np.float32)
        if self._choices:
            logits = head[:, self._grid]
            logits[:, self._absent] = NO_CHOICE
            chosen = actions[:, self._choices].astype(np.int64)[..., None]
            logp += np.take_along_axis(log_softmax(logits), chosen, axis=-1).sum(axis=(1, 2))
        away = (actions[:, self._reals] - head[:, self._layout.logits :]) / np.exp(log_std)
        each = -0.5 * np.square(away) - log_std - np.float32(0.5 * LOG_2PI)
        return logp + np.asarray(each.sum(axis=1), dtype=np.float32)

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
        if self.parameter_noise:
            self.parameter_noise.begin(count)

    def ended(self, rows: NDArray[np.bool_]) -> None:
        """The episodes of these environments (N,) ended, and others begin."""
        if self.parameter_noise:
            self.parameter_noise.on_episode_start(rows)

    def get_state(self) -> dict[str, Any]:
        """Return the state that does not follow from settings and steps, as plain data."""
        return self.parameter_noise.get_state() if self.parameter_noise else {}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave."""
        if self.parameter_noise:
            self.parameter_noise.set_state(state)


class FollowingSampling(StochasticSampling):
    """Draws real numbers with deviations that follow the state: a head ends with them (N, G).

    Raises:
        ConfigError: actions without real numbers.
    """

    def __init__(self, layout: ActionLayout) -> None:
        super().__init__(layout)
        if not self._reals:
            allowed = "null or true for actions without real numbers, which have no deviations"
            raise ConfigError("model.free_log_std", False, allowed)

    def draw(
        self, head: Array, log_std: Array, stream: np.random.Generator | None
    ) -> tuple[Actions, Array]:
        """As `StochasticSampling.draw`; `log_std` is not read."""
        reals = len(self._reals)
        return super().draw(head[:, :-reals], head[:, -reals:], stream)

    def likelihood(self, head: Array, log_std: Array, actions: NDArray[Any]) -> Array:
        """As `StochasticSampling.likelihood`; `log_std` is not read."""
        reals = len(self._reals)
        return super().likelihood(head[:, :-reals], head[:, -reals:], actions)


def require_stateless(exploration: StochasticSampling, where: str) -> None:
    """Raise ConfigError for noise that goes on from step to step, which `where` has none of."""
    exploration.begin(0)
    if exploration.get_state():
        hint = "they come and go, so its noise has no step to follow"
        allowed = f"one whose noise does not go on from step to step, with {where}"
        raise ConfigError("exploration_config", type(exploration).__name__, allowed, hint)


class PolicyNoiseConfig(Settings):
    """Settings of a Gaussian policy's exploration."""

    type: Literal["StochasticSampling", "StateDependentNoise"] = Field(
        default="StochasticSampling",
        description="StochasticSampling: each action drawn by itself; StateDependentNoise (gSDE): "
        "noise that is a function of the state, drawn anew every sample_freq steps, so that "
        "actions that follow each other fit together.",
    )
    sample_freq: int = Field(
        default=32,
        gt=0,
        description="Steps of an environment with one function of StateDependentNoise; 4 to 64.",
    )
    log_std_init: float = Field(
        default=-3.0,
        description="Logarithm of StateDependentNoise's deviation per hidden unit at first; -4 to "
        "0.",
    )

    @model_validator(mode="after")
    def _read(self) -> Self:
        refuse_unread(self, "StochasticSampling", ("sample_freq", "log_std_init"))
        return self

    @property
    def state_dependent(self) -> bool:
        """True if noise is a function of the state."""
        return self.type == "StateDependentNoise"


def refuse_unread(config: Any, kind: str, keys: tuple[str, ...]) -> None:
    """Raise ValueError for what this kind of exploration does not read."""
    fields = type(config).model_fields
    for key in keys if config.type == kind else ():
        if (value := getattr(config, key)) != fields[key].default:
            raise ValueError(f"no {key} with type: {kind}, which does not read it (it is {value})")


class NoiseMatrices:
    """Of each row of hidden units a matrix (H, G) that makes noise of them (Raffin et al. 2021).

    Each environment has one of its own, drawn anew every so many of its steps. Where the rows are
    not those of `begin`, each has one of this step. G real numbers of an action, H units.
    """

    def __init__(self, every: int) -> None:
        self._every = every
        self._matrices: Array = np.zeros((0, 0, 0), dtype=np.float32)
        self._ages: NDArray[np.int64] | None = None

    def begin(self, count: int) -> None:
        """From now on the rows are those of so many environments, step after step."""
        self._ages = np.zeros(count, dtype=np.int64)
        self._matrices = np.zeros((0, 0, 0), dtype=np.float32)

    def noise(self, units: Array, log_std: Array, stream: np.random.Generator) -> Array:
        """(N, G) for this step's units (N, H), with log standard deviations (H, G)."""
        noise: Array = np.matmul(units[:, None, :], self._drawn(len(units), log_std, stream))[:, 0]
        return noise

    def _drawn(self, count: int, log_std: Array, stream: np.random.Generator) -> Array:
        if self._ages is None:
            return np.exp(log_std) * stream.standard_normal((count, *log_std.shape), np.float32)
        if len(self._matrices) != count:
            self._matrices = np.zeros((count, *log_std.shape), dtype=np.float32)
        due = self._ages % self._every == 0
        if due.any():
            shape = (int(due.sum()), *log_std.shape)
            self._matrices[due] = np.exp(log_std) * stream.standard_normal(shape, np.float32)
        self._ages += 1
        return self._matrices

    def get_state(self) -> dict[str, Any]:
        """Entries ``matrices`` (N, H, G) and ``ages`` (N,) in steps, where rows are followed."""
        if self._ages is None:
            return {}
        return {"matrices": self._matrices.copy(), "ages": self._ages.copy()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave."""
        if "ages" in state:
            self._matrices = np.array(state["matrices"], dtype=np.float32)
            self._ages = np.array(state["ages"], dtype=np.int64)


class StateDependentSampling(StochasticSampling):
    """gSDE: draws real numbers by a matrix of noise; a head ends with the last hidden units (H).

    Raises:
        ConfigError: actions with choices.
    """

    def __init__(self, layout: ActionLayout, every: int) -> None:
        super().__init__(layout)
        if layout.choice_columns:
            allowed = "StochasticSampling for actions with choices, to which no noise is added"
            raise ConfigError("exploration_config.type", "StateDependentNoise", allowed)
        self._matrices = NoiseMatrices(every)

    def draw(
        self, head: Array, log_std: Array, stream: np.random.Generator | None
    ) -> tuple[Array, Array]:
        """Vectors (N, G) and their log-probabilities, by the deviations that the units make."""
        means, units = head[:, : len(self._reals)], head[:, len(self._reals) :]
        variance = np.square(units) @ np.exp(2 * log_std) + np.float32(LEAST_VARIANCE)
        logp = -0.5 * np.add.reduce(np.log(variance) + np.float32(LOG_2PI), axis=1)
        if stream is None:
            return means, logp
        noise = self._matrices.noise(units, log_std, stream)
        return means + noise, logp - 0.5 * np.add.reduce(np.square(noise) / variance, axis=1)

    def begin(self, count: int) -> None:
        """From now on the rows are those of so many environments, step after step."""
        self._matrices.begin(count)

    def get_state(self) -> dict[str, Any]:
        """That of the matrices."""
        return self._matrices.get_state()

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave."""
        self._matrices.set_state(state)


class EpsilonGreedyConfig(ParameterNoiseConfig):
    """A share of choices that are drawn evenly; it falls with the steps sampled."""

    type: Literal["EpsilonGreedy", "ParameterNoise"] = Field(
        default="EpsilonGreedy",
        description="EpsilonGreedy: this share of choices is drawn evenly; ParameterNoise: each "
        "episode is played with noise on the weights, of which there is as much as makes choices "
        "differ like this share (Plappert et al. 2018).",
    )
    initial_epsilon: float = Field(default=1.0, ge=0, le=1, description="Share at the beginning.")
    final_epsilon: float = Field(default=0.05, ge=0, le=1, description="Share at the end.")
    epsilon_timesteps: int = Field(
        default=10_000, gt=0, description="Environment steps from one to the other, linearly."
    )

    @model_validator(mode="after")
    def _read(self) -> Self:
        refuse_unread(self, "EpsilonGreedy", NOISE_KEYS)
        return self


class EpsilonGreedy(StochasticSampling):
    """The choice with the highest value, or with probability ε any one of them.

    With noise on the weights it is the best choice by those that are perturbed.

    `masked`: where a head holds `NO_CHOICE`, there is none.

    Raises:
        ConfigError: actions with real numbers.
    """

    def __init__(
        self, layout: ActionLayout, config: EpsilonGreedyConfig, masked: bool = False
    ) -> None:
        noise = ParameterNoise(config) if config.type == "ParameterNoise" else None
        super().__init__(layout, noise)
        self._masked = masked
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

    @property
    def distance(self) -> float:
        """The divergence of choices with this share of random ones from the best ones."""
        share = self.epsilon
        return -math.log(1.0 - share + share / self._grid.shape[1])

    def draw(
        self, head: Array, log_std: Array, stream: np.random.Generator | None
    ) -> tuple[Actions, Array]:
        """Choices, and what a softmax of the head would give them; the best without a stream."""
        best, logp = super().draw(head, log_std, None)
        if stream is None or self.parameter_noise:
            return best, logp
        count = len(head)
        explores = stream.random((count, *(1 for _ in self._shape))) < self.epsilon
        if self._masked:  # of the valid choices any one
            anything = np.where(head > NO_CHOICE, stream.random(head.shape), -1.0).argmax(axis=-1)
        else:
            anything = stream.integers(0, self._sizes, size=(count, *self._shape))
        return np.where(explores, anything, best), logp
