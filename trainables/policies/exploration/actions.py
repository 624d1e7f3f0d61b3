"""Exploration by actions other than the best ones, while experience is collected.

Every kind returns the best action if it gets no stream, as in evaluations. N rows, K columns, G
real numbers of an action, H hidden units; `distributions` describes a head.
"""

import math
from collections.abc import Mapping
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from trainables.core.settings import Settings, WrongKey
from trainables.envs.spaces.actions import ActionLayout
from trainables.errors import ConfigError
from trainables.policies.acting.distributions import (
    HALF_LOG_2PI,
    LOG_2PI,
    NO_CHOICE,
    Actions,
    Array,
    PredrawnChoices,
    PredrawnReals,
    choice_grid,
    choose,
    draw_reals,
    log_softmax,
)
from trainables.policies.exploration.weights import ParameterNoise, ParameterNoiseConfig

#: Settings that only parameter noise has.
NOISE_KEYS = tuple(ParameterNoiseConfig.model_fields)
#: Number added to the variance of state-dependent noise, which is 0 where all units are 0.
LEAST_VARIANCE = 1e-6


class StochasticSampling:
    """Exploration by sampling actions from the policy's own distribution, as in PPO.

    It is the base class of other ways to explore. `noise` is parameter noise, if there is any.
    """

    def __init__(self, layout: ActionLayout, noise: ParameterNoise | None = None) -> None:
        self.parameter_noise = noise
        """Noise on the weights while exploring, or None."""
        self._matrices: NoiseMatrices | None = None
        """Matrices of noise that depends on the state, which subclasses set; None without it."""
        self._layout = layout
        self._grid, self._absent_choices = choice_grid(layout)
        self._choices, self._reals = list(layout.choice_columns), list(layout.real_columns)

    def draw(
        self, head: Array, log_std: Array, stream: np.random.Generator | None
    ) -> tuple[Actions, Array]:
        """Return actions, choices (N,) or rows (N, K), and their log-probabilities (N,).

        They are drawn with `stream`; without it they are the best actions. `head` are outputs
        (N, …) of the actor network. `log_std` are the real numbers' log standard deviations, (G,),
        or (N, G) if they differ between rows; it is not used without real numbers. The action of a
        row depends only on that row, the stream and this object's state.
        """
        if self._layout.scalar:
            return choose(head, stream)
        if not self._choices:
            return draw_reals(head, log_std, stream)
        return self._draw_mixed(head, log_std, stream)

    def prepare_draws(
        self, steps: int, rows: int, log_std: Array, stream: np.random.Generator
    ) -> np.random.Generator:
        """Return a stream to pass to the next `steps` calls of `draw` with `rows` rows each.

        It holds their random numbers, drawn from `stream` now, if these can be drawn in advance;
        else it is `stream` itself, as for mixed actions and other kinds of exploration. `log_std`
        are the log standard deviations of all calls.
        """
        if type(self).draw is not StochasticSampling.draw or (self._choices and self._reals):
            return stream
        if not self._choices:
            return PredrawnReals(stream, (steps, rows, len(self._reals)), log_std)
        choices = self._grid.shape[1:] if self._layout.scalar else self._grid.shape
        return PredrawnChoices(stream, (steps, rows, *choices))

    def likelihood(self, head: Array, log_std: Array, actions: NDArray[Any]) -> Array:
        """Return the policy's log-probabilities (N,) of actions that another program chose.

        Actions have the shape of those of `draw`. Raises ConfigError for kinds of exploration other
        than `StochasticSampling` and `PredictedStdSampling`, whose probabilities are unknown.
        """
        if type(self).draw not in (StochasticSampling.draw, PredictedStdSampling.draw):
            kind = type(self).__name__
            why = "the probability of such an action is unknown"
            other = "an environment that logs its own actions"
            place, allowed = "exploration_config.type", "StochasticSampling"
            raise ConfigError.of_conflict(place, kind, other, allowed, why)
        if self._layout.scalar:
            return np.take_along_axis(log_softmax(head), actions[:, None], axis=1)[:, 0]
        logp = np.zeros(len(head), dtype=np.float32)
        if self._choices:
            logits = head[:, self._grid]
            logits[:, self._absent_choices] = NO_CHOICE
            chosen = actions[:, self._choices].astype(np.int64)[..., None]
            logp += np.take_along_axis(log_softmax(logits), chosen, axis=-1).sum(axis=(1, 2))
        away = (actions[:, self._reals] - head[:, self._layout.logits :]) / np.exp(log_std)
        each = -0.5 * np.square(away) - log_std - np.float32(HALF_LOG_2PI)
        return logp + np.asarray(each.sum(axis=1), dtype=np.float32)

    def _draw_mixed(
        self, head: Array, log_std: Array, stream: np.random.Generator | None
    ) -> tuple[Actions, Array]:
        """Draw actions of several columns; return rows (N, K) and log-probabilities (N,).

        Columns are choices and maybe real numbers. The actions are drawn with `stream`; without it
        they are the best ones. `head` (N, …) are outputs of the actor, `log_std` the real numbers'
        log standard deviations, (G,) or (N, G).
        """
        rows = np.empty((len(head), len(self._layout.sizes)), dtype=self._layout.dtype)
        logits = head[:, self._grid]
        if self._absent_choices.any():
            logits[:, self._absent_choices] = NO_CHOICE
        chosen, logp_each = choose(logits, stream)
        rows[:, self._choices] = chosen
        logp = logp_each.sum(axis=1)
        if self._reals:
            rows[:, self._reals], logp_reals = draw_reals(
                head[:, self._layout.logits :], log_std, stream
            )
            logp = logp + logp_reals
        return rows, logp

    def set_timesteps(self, timesteps: int) -> None:
        """Adapt to the number of environment steps sampled by all workers; does nothing here.

        Subclasses end a warm-up or lower ε.
        """

    def begin(self, count: int) -> None:
        """Prepare for `count` environments, whose rows are then given to `draw` step by step.

        A sampler calls it once, so that noise can continue from step to step. Earlier noise is
        dropped. Nothing is to be done for actions drawn independently.
        """
        if noise := self._continuing_noise():
            noise.begin(count)

    def ended(self, rows: NDArray[np.bool_]) -> None:
        """Renew parameter noise where `rows` (N,) is True: environments whose episode ended.

        Does nothing without parameter noise.
        """
        if self.parameter_noise:
            self.parameter_noise.on_episode_start(rows)

    def get_state(self) -> dict[str, Any]:
        """Return the noise that continues from step to step, as plain data; empty without any."""
        noise = self._continuing_noise()
        return noise.get_state() if noise else {}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore a state of `get_state`; does nothing without such noise."""
        if noise := self._continuing_noise():
            noise.set_state(state)

    def _continuing_noise(self) -> "ParameterNoise | NoiseMatrices | None":
        """Return the noise that continues from step to step; None without any."""
        return self.parameter_noise or self._matrices


class PredictedStdSampling(StochasticSampling):
    """Exploration by sampling, with standard deviations that the network predicts.

    The actor's output ends with the log standard deviations (N, G) of the real numbers.

    Raises:
        ConfigError: actions have no real numbers.
    """

    def __init__(self, layout: ActionLayout) -> None:
        super().__init__(layout)
        if not self._reals:
            problem = "has no effect on discrete actions, which have no standard deviation"
            raise ConfigError("model.free_log_std", False, hint="remove it", problem=problem)

    def draw(
        self, head: Array, log_std: Array, stream: np.random.Generator | None
    ) -> tuple[Actions, Array]:
        """Return actions (N,) or (N, K), drawn with `stream`, and their log-probabilities (N,).

        Without a stream they are the best actions. `head` (N, …) are the actor's outputs, of which
        the last columns are the log standard deviations (N, G) of the G real numbers; `log_std` is
        not used.
        """
        reals = len(self._reals)
        return super().draw(head[:, :-reals], head[:, -reals:], stream)

    def likelihood(self, head: Array, log_std: Array, actions: NDArray[Any]) -> Array:
        """Return the policy's log-probabilities (N,) of actions that another program chose.

        `head` (N, …) are the actor's outputs, of which the last columns are the log standard
        deviations (N, G) of the G real numbers; `log_std` is not used.
        """
        reals = len(self._reals)
        return super().likelihood(head[:, :-reals], head[:, -reals:], actions)


def require_stateless(exploration: StochasticSampling, place: str) -> None:
    """Raise ConfigError if the exploration's noise continues from step to step.

    `place` names in the error the kind of environments that do not support it. To find out, the
    exploration is prepared for 0 environments, so call its `begin` afterwards.
    """
    exploration.begin(0)
    if exploration.get_state():
        name = type(exploration).__name__
        problem = (
            f"{name} cannot be used with {place}, because its noise continues from step to "
            "step, while the agents or episodes that act change"
        )
        hint = "set another type of exploration"
        raise ConfigError("exploration_config", name, hint=hint, problem=problem)


class PolicyNoiseConfig(Settings):
    """Settings of the exploration of Gaussian policies: sampling, or state-dependent noise."""

    type: Literal["StochasticSampling", "StateDependentNoise"] = Field(
        default="StochasticSampling",
        description="StochasticSampling: each action is drawn independently; StateDependentNoise "
        "(gSDE): the noise is a function of the state, redrawn every sample_freq steps, so "
        "actions change smoothly.",
    )
    sample_freq: int = Field(
        default=32,
        gt=0,
        description="StateDependentNoise: environment steps after which the noise function is "
        "redrawn. Usually 4 to 64.",
    )
    log_std_init: float = Field(
        default=-3.0,
        description="StateDependentNoise: initial logarithm of the standard deviation per hidden "
        "unit. Usually -4 to 0.",
    )

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        """Return the settings; raises ValueError if one that `type` lacks is not its default."""
        refuse_unread(self, "StochasticSampling", ("sample_freq", "log_std_init"))
        return self

    @property
    def state_dependent(self) -> bool:
        """True if noise is a function of the state (gSDE)."""
        return self.type == "StateDependentNoise"


def refuse_unread(config: Any, kind: str, keys: tuple[str, ...]) -> None:
    """Raise WrongKey if `config.type` is `kind` and a setting in `keys` is not its default.

    Exploration of that type does not read these settings.
    """
    fields = type(config).model_fields
    for key in keys if config.type == kind else ():
        if (value := getattr(config, key)) != fields[key].default:
            raise WrongKey.without_effect(key, value, f"with type: {kind}")


class NoiseMatrices:
    """Matrices (H, G) that turn hidden units into noise, one per environment (Raffin et al. 2021).

    A matrix is drawn again every `every` steps of its environment, whatever episodes end meanwhile.
    Before `begin` each row gets a new matrix in every step.
    """

    def __init__(self, every: int) -> None:
        self._draw_interval = every
        self._matrices: Array = np.zeros((0, 0, 0), dtype=np.float32)
        self._ages: NDArray[np.int64] | None = None

    def begin(self, count: int) -> None:
        """Prepare for `count` environments, whose rows are then given step by step.

        All of them get new matrices in the next step.
        """
        self._ages = np.zeros(count, dtype=np.int64)
        self._matrices = np.zeros((0, 0, 0), dtype=np.float32)

    def noise(self, units: Array, log_std: Array, stream: np.random.Generator) -> Array:
        """Return the noise (N, G) of one step for hidden units (N, H), and count the step.

        Matrices that are due are drawn from `stream` first. `log_std` (H, G) are the log standard
        deviations of their entries.
        """
        noise: Array = np.matmul(
            units[:, None, :], self._current_matrices(len(units), log_std, stream)
        )[:, 0]
        return noise

    def _current_matrices(self, count: int, log_std: Array, stream: np.random.Generator) -> Array:
        """Return the matrices (N, H, G) of one step, after drawing those that are due.

        Counts the step. Before `begin` all are drawn, and nothing is stored or counted. `log_std`
        (H, G) are the log standard deviations of the matrices' entries.
        """
        if self._ages is None:
            return np.exp(log_std) * stream.standard_normal((count, *log_std.shape), np.float32)
        if len(self._matrices) != count:
            self._matrices = np.zeros((count, *log_std.shape), dtype=np.float32)
        due = self._ages % self._draw_interval == 0
        if due.any():
            shape = (int(due.sum()), *log_std.shape)
            self._matrices[due] = np.exp(log_std) * stream.standard_normal(shape, np.float32)
        self._ages += 1
        return self._matrices

    def get_state(self) -> dict[str, Any]:
        """Return ``matrices`` (N, H, G) and ``ages`` (N,), the steps since `begin`, as copies.

        The dict is empty before `begin`; matrices are (0, 0, 0) before the first step.
        """
        if self._ages is None:
            return {}
        return {"matrices": self._matrices.copy(), "ages": self._ages.copy()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore a state of `get_state`; an empty one changes nothing."""
        if "ages" in state:
            self._matrices = np.array(state["matrices"], dtype=np.float32)
            self._ages = np.array(state["ages"], dtype=np.int64)


class StateDependentSampling(StochasticSampling):
    """Exploration of real numbers with state-dependent noise (gSDE), for PPO, A2C and IMPALA.

    The actor's output is means (N, G), then its last hidden units (N, H).

    Args:
        every: steps after which an environment's matrix of noise is drawn again.

    Raises:
        ConfigError: actions have choices.
    """

    def __init__(self, layout: ActionLayout, every: int) -> None:
        super().__init__(layout)
        if layout.choice_columns:
            kind, why = "StateDependentNoise", "no noise can be added to choices"
            place, other = "exploration_config.type", "actions that are choices"
            raise ConfigError.of_conflict(place, kind, other, "StochasticSampling", why)
        self._matrices: NoiseMatrices = NoiseMatrices(every)

    def draw(
        self, head: Array, log_std: Array, stream: np.random.Generator | None
    ) -> tuple[Array, Array]:
        """Return vectors (N, G) and their log-probabilities (N,); the means without a stream.

        `head` has the means (N, G), then hidden units (N, H). `log_std` (H, G) are the log standard
        deviations of the random matrices, which are drawn from `stream` every `every` steps.
        """
        means, units = head[:, : len(self._reals)], head[:, len(self._reals) :]
        variance = np.square(units) @ np.exp(2 * log_std) + np.float32(LEAST_VARIANCE)
        logp = -0.5 * np.add.reduce(np.log(variance) + np.float32(LOG_2PI), axis=1)
        if stream is None:
            return means, logp
        noise = self._matrices.noise(units, log_std, stream)
        return means + noise, logp - 0.5 * np.add.reduce(np.square(noise) / variance, axis=1)


class EpsilonGreedyConfig(ParameterNoiseConfig):
    """Settings of epsilon-greedy exploration, whose share of random choices falls over time."""

    type: Literal["EpsilonGreedy", "ParameterNoise"] = Field(
        default="EpsilonGreedy",
        description="EpsilonGreedy: a fraction of actions is drawn uniformly; ParameterNoise: "
        "noise on the weights, the same for a whole episode, scaled to change as large a fraction "
        "of actions (Plappert et al. 2018).",
    )
    initial_epsilon: float = Field(
        default=1.0, ge=0, le=1, description="Initial fraction of actions drawn uniformly."
    )
    final_epsilon: float = Field(
        default=0.05, ge=0, le=1, description="Final fraction of actions drawn uniformly."
    )
    epsilon_timesteps: int = Field(
        default=10_000,
        gt=0,
        description="Environment steps over which the fraction changes linearly from its initial "
        "to its final value.",
    )

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        """Return the settings.

        Raises ValueError if a setting that this `type` does not read is not its default.
        """
        refuse_unread(self, "EpsilonGreedy", NOISE_KEYS)
        return self

    def epsilon(self, timesteps: int) -> float:
        """Return ε, the fraction of random choices, after this number of environment steps.

        It changes linearly from `initial_epsilon` to `final_epsilon` during `epsilon_timesteps`.
        """
        part = min(1.0, timesteps / self.epsilon_timesteps)
        return self.initial_epsilon + part * (self.final_epsilon - self.initial_epsilon)


class EpsilonGreedy(StochasticSampling):
    """Exploration of Q-networks: the choice with the highest value, or with probability ε any.

    With parameter noise it is always the choice with the highest value; `QActor` computes the
    values with perturbed weights.

    Args:
        masked: True if values are `NO_CHOICE` for invalid choices, which are then not drawn.

    Raises:
        ConfigError: actions have real numbers.
    """

    def __init__(
        self, layout: ActionLayout, config: EpsilonGreedyConfig, masked: bool = False
    ) -> None:
        noise = ParameterNoise(config) if config.type == "ParameterNoise" else None
        super().__init__(layout, noise)
        self._masked = masked
        if layout.real_columns:
            problem = "the actions are real numbers, among which epsilon-greedy cannot choose"
            hint = "use an environment with Discrete, MultiDiscrete or MultiBinary actions"
            raise ConfigError("env", "actions with real numbers", hint=hint, problem=problem)
        self._sizes = layout.sizes[0] if layout.scalar else np.array(layout.sizes)
        self._shape = layout.shape
        self._config = config
        self.epsilon = config.initial_epsilon

    def set_timesteps(self, timesteps: int) -> None:
        """Set ε to its value after this number of environment steps."""
        self.epsilon = self._config.epsilon(timesteps)

    @property
    def distance(self) -> float:
        """Target of parameter noise: divergence from the best choices of ε-greedy with this ε.

        It is in nats (Plappert et al. 2018).
        """
        share = self.epsilon
        return -math.log(1.0 - share + share / self._grid.shape[1])

    def draw(
        self, head: Array, log_std: Array, stream: np.random.Generator | None
    ) -> tuple[Actions, Array]:
        """Return choices (N,), or (N, K) of several columns, for values `head` (N, A).

        With probability ε all choices of a row are random, among valid ones only. Without a stream,
        and with parameter noise, they are the choices with the highest values. The second array are
        log-probabilities (N,) of these best choices under a softmax.
        """
        best, logp = super().draw(head, log_std, None)
        if stream is None or self.parameter_noise:
            return best, logp
        count = len(head)
        explores = stream.random((count, *(1 for _ in self._shape))) < self.epsilon
        if self._masked:  # valid choices only
            anything = np.where(head > NO_CHOICE, stream.random(head.shape), -1.0).argmax(axis=-1)
        else:
            anything = stream.integers(0, self._sizes, size=(count, *self._shape))
        return np.where(explores, anything, best), logp
