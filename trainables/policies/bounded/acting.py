"""Actions between bounds: an actor without a critic, and its exploration with real numbers.

Outputs of the network are squashed by tanh and scaled to the action space. An actor's head has the
means (N, K), and then what its exploration needs: log standard deviations (N, K), or the units of
the last hidden layer (N, H). N rows, K numbers of an action, D features.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from pydantic import Field, model_validator

from trainables.core.settings import Settings
from trainables.envs.spaces.actions import ActionLayout, bounds, layout_of
from trainables.errors import ConfigError
from trainables.policies.acting.actor import Acted, Actor, Column, Weights, append_units
from trainables.policies.acting.dense import Array, activate
from trainables.policies.architecture import Architecture
from trainables.policies.exploration.actions import (
    NOISE_KEYS,
    NoiseMatrices,
    PolicyNoiseConfig,
    StochasticSampling,
    refuse_unread,
)
from trainables.policies.exploration.weights import ParameterNoise, ParameterNoiseConfig

#: Random stream.
Stream = np.random.Generator
#: Lowest and highest log standard deviation.
LOG_STD = (-20.0, 2.0)
#: Largest absolute mean with state-dependent noise; beyond it tanh has hardly any slope.
MEAN_CLIP = 2.0


@dataclass(frozen=True)
class Bounds:
    """Lower and upper bounds of the numbers of an action."""

    low: Array
    """Lower bounds, (K,)."""
    high: Array
    """Upper bounds, (K,)."""

    @classmethod
    def of(cls, space: spaces.Space[Any]) -> Self:
        """Return the bounds of an action space.

        Raises ConfigError if the space has a choice, or a number without bounds that are finite
        float32, also when doubled.
        """
        layout = layout_of(space)
        if layout.choice_columns:
            problem = (
                f"its action space is {space}, and this algorithm chooses numbers, not choices"
            )
            hint = "use an environment with float Box actions, or train ppo or dqn"
            raise ConfigError("env", str(space), hint=hint, problem=problem)
        with np.errstate(over="ignore"):
            low, high = (one.astype(np.float32) for one in bounds(space))
            # Twice a bound must be finite, too, since sums of two bounds are computed.
            doubled = 2 * np.concatenate([low, high])
        if not np.isfinite(doubled).all():
            problem = f"its action space is {space}, and this algorithm needs finite bounds"
            hint = "wrap the environment in gymnasium.wrappers.RescaleAction or an ActionWrapper"
            raise ConfigError("env", str(space), hint=hint, problem=problem)
        return cls(low, high)

    def scaled(self, unit: Array) -> Array:
        """Return numbers (N, K), clipped to -1 to 1 and scaled to the bounds, as actions."""
        middle, half = (self.high + self.low) / 2, (self.high - self.low) / 2
        within: Array = np.minimum(np.maximum(middle + half * unit, self.low), self.high)
        return within

    def unscaled(self, actions: Array) -> Array:
        """Return actions (N, K) as numbers from -1 to 1; actions beyond the bounds are clipped."""
        actions = np.minimum(np.maximum(actions, self.low), self.high)
        width = np.maximum(self.high - self.low, np.finfo(np.float32).tiny)
        unit: Array = (2 * actions - (self.high + self.low)) / width
        return unit


class BoundedActor(Actor):
    """An `Actor` without a critic, for SAC and TD3: its exploration squashes the network's outputs.

    Columns are actions only.
    """

    columns: ClassVar[Mapping[str, Column]] = {}
    value_names: ClassVar[tuple[str, ...]] = ()
    fetches: ClassVar[Mapping[str, str]] = {}

    def load(self, weights: Weights) -> None:
        """Copy the actor's weights, those whose names begin with ``actor``.

        If log standard deviations have one row per hidden unit (H, K), as for state-dependent
        noise, the outputs of `forward` end with the hidden units.
        """
        own = [array for name, array in weights.items() if name.startswith("actor.")]
        # Transposed views: copies in transposed order take as long as a small network's update.
        pairs = [(w.copy().T, b[None].copy()) for w, b in zip(own[::2], own[1::2], strict=True)]
        self._layers = [(w[None], b[None]) for w, b in pairs[:-1]]
        weight, bias = pairs[-1]
        self._log_std = np.array(weights.get("actor_log_std", self._log_std))
        if self._log_std.ndim == 2:
            weight, bias = append_units(weight, bias)
        self._heads = {"actor.weight": weight, "actor.bias": bias[0]}
        self._head_bias = bias
        if (noise := self.exploration.parameter_noise) is not None:
            noise.on_weights_loaded()

    def forward(self, observations: NDArray[Any]) -> tuple[Array, Array]:
        """Return the network's outputs (N, …) for filtered observations (N, D), not squashed.

        The second array, in place of values, is empty (0,).
        """
        x: Array = observations
        for weight, bias in self._layers:
            x = x.dot(weight[0])
            x += bias[0]
            activate(x, self._activation)
        head: Array = x.dot(self._heads["actor.weight"])
        head += self._head_bias
        return head, np.zeros(0, dtype=np.float32)

    def act(self, observations: NDArray[Any], memory: Array, stream: Stream | None) -> Acted:
        """Choose actions for filtered observations (N, D): numbers between bounds, or choices.

        They explore if there is a stream and `explore` is True, else they are the best ones.
        `memory` is empty, and returned unchanged.
        """
        head, _ = self.forward(observations)
        used = stream if self.explore else None
        if used is not None and isinstance(self.exploration, ParameterNoiseExploration):
            head = self._perturbed_heads(observations, head, self.exploration, used)
        return Acted(self.exploration.draw(head, self._log_std, used)[0], {}, memory)

    def act_each(
        self, observations: NDArray[Any], memory: Array, streams: Sequence[Stream | None]
    ) -> tuple[NDArray[Any], Array]:
        """Choose the action of each row as if it were alone; return actions (N, …) and `memory`.

        No bit of an action depends on other rows. A row whose stream is None gets the best action.
        With parameter noise each row with a stream gets perturbed weights of its own, if `explore`
        is True; without it `explore` is ignored.
        """
        if not any(streams) or self.exploration.parameter_noise is None:
            return super().act_each(observations, memory, streams)
        pairs = zip(observations, streams, strict=True)
        each = [self.act(row[None], memory, stream).actions for row, stream in pairs]
        return np.concatenate(each), memory

    def _perturbed_heads(
        self,
        observations: Array,
        head: Array,
        explored: "ParameterNoiseExploration",
        stream: Stream,
    ) -> Array:
        """Return the network's outputs (N, …) with each row's perturbed weights.

        `head` (N, …) are the outputs without noise. Every `adaptation_freq` steps the noise's size
        is adapted to how far the actions differ. `stream` draws noise for new episodes.
        """
        layers = [*self._layers, (self._heads["actor.weight"][None], self._head_bias[None])]
        used: dict[str, Array] = {}
        for i, (weight, bias) in enumerate(layers):
            used |= {f"{i}.weight": weight[0], f"{i}.bias": bias[0, 0]}
        weights = explored.noise.perturb(used, len(observations), stream)
        x: Array = observations[:, None]
        for i in range(len(layers)):
            if i:
                activate(x, self._activation)
            x = np.matmul(x, weights[f"{i}.weight"])
            x += weights[f"{i}.bias"]
        tried: Array = x[:, 0]
        if explored.noise.is_due(len(observations)):
            apart = np.tanh(explored.means(tried)) - np.tanh(explored.means(head))
            explored.noise.adapt(float(np.sqrt(np.square(apart).mean())), explored.distance)
        return tried


class WarmUpConfig(Settings):
    """Settings of the warm-up: environment steps at the beginning with uniformly drawn actions."""

    random_timesteps: int | None = Field(
        default=None,
        ge=0,
        description="Number of environment steps at the beginning whose actions are drawn "
        "uniformly from the action space; null: learning_starts.",
    )

    def until_learning(self, learning_starts: int) -> Self:
        """Return the settings themselves, or a copy with a warm-up of `learning_starts` steps.

        The latter if `random_timesteps` is None.
        """
        if self.random_timesteps is not None:
            return self
        return self.model_copy(update={"random_timesteps": learning_starts})


class WarmUpSampling(StochasticSampling):
    """Exploration that samples choices from the policy's distribution, uniformly in the warm-up."""

    def __init__(self, layout: ActionLayout, config: WarmUpConfig) -> None:
        super().__init__(layout)
        self._warm_up_steps, self._timesteps = config.random_timesteps or 0, 0

    def set_timesteps(self, timesteps: int) -> None:
        """Store the number of environment steps sampled by all workers.

        The warm-up ends once it reaches `random_timesteps`.
        """
        self._timesteps = timesteps

    def draw(self, head: Array, log_std: Array, stream: Stream | None) -> tuple[Any, Array]:
        """Return choices (N,) and their log-probabilities (N,), drawn from logits `head` (N, A).

        Without a stream they are the best choices. With one, in the warm-up, choices are drawn
        uniformly, with their log-probabilities in the uniform distribution. `log_std` is not used.
        """
        warm = stream is not None and self._timesteps < self._warm_up_steps
        return super().draw(np.zeros_like(head) if warm else head, log_std, stream)


class BoundedExploration(StochasticSampling):
    """Base class of exploration with real numbers between bounds; uniform in the warm-up.

    Subclasses define `explore`.

    Args:
        limits: bounds of the numbers of an action.
    """

    def __init__(self, layout: ActionLayout, limits: Bounds, config: WarmUpConfig) -> None:
        super().__init__(layout)
        self._limits, self._width = limits, len(limits.low)
        self._warm_up_steps, self.timesteps = config.random_timesteps or 0, 0

    def set_timesteps(self, timesteps: int) -> None:
        """Store the number of environment steps sampled by all workers.

        The warm-up ends once it reaches `random_timesteps`.
        """
        self.timesteps = timesteps

    def draw(self, head: Array, log_std: Array, stream: Stream | None) -> tuple[Array, Array]:
        """Return actions (N, K) between the bounds for outputs `head` (N, …) of the network.

        Without a stream they are the squashed means, in the warm-up uniform draws, else those of
        `explore`. Log-probabilities (N,) are zeros, since no algorithm with this exploration reads
        them.
        """
        if stream is None:
            unit = np.tanh(self.means(head))
        elif self.timesteps < self._warm_up_steps:
            unit = 2 * stream.random((len(head), self._width), dtype=np.float32) - 1
        else:
            unit = self.explore(head, log_std, stream)
        return self._limits.scaled(unit), np.zeros(len(head), dtype=np.float32)

    def means(self, head: Array) -> Array:
        """Return the means (N, K) before they are squashed: the first K columns of `head`."""
        return head[:, : self._width]

    def explore(self, head: Array, log_std: Array, stream: Stream) -> Array:
        """Return exploring actions (N, K) from -1 to 1 for outputs `head` of the network.

        `stream` draws the noise. `log_std` are log standard deviations that are separate weights,
        if there are any.
        """
        raise NotImplementedError


class SquashedGaussian(BoundedExploration):
    """Exploration of SAC: samples the policy's Gaussian, and squashes the draws by tanh.

    The network outputs means and log standard deviations.
    """

    def explore(self, head: Array, log_std: Array, stream: Stream) -> Array:
        """Return tanh of Gaussian draws (N, K); `head` (N, 2K) has means and log deviations.

        Log deviations are clipped to `LOG_STD`; `log_std` is not used.
        """
        means, log_stds = head[:, : self._width], head[:, self._width :]
        noise = stream.standard_normal(means.shape, dtype=np.float32)
        return np.tanh(means + np.exp(np.clip(log_stds, *LOG_STD)) * noise)


class ActionNoiseConfig(WarmUpConfig, ParameterNoiseConfig):
    """Settings of noise that is added to the best action, in units of half the action's range."""

    type: Literal["GaussianNoise", "OrnsteinUhlenbeckNoise", "ParameterNoise"] = Field(
        default="GaussianNoise",
        description="GaussianNoise: independent in each step; OrnsteinUhlenbeckNoise: drifts from "
        "step to step, beginning at 0 in each episode; ParameterNoise: noise on the weights, the "
        "same for a whole episode (Plappert et al. 2018).",
    )
    stddev: float = Field(
        default=0.1,
        ge=0,
        description="Standard deviation of the noise per step, as a fraction of half the action's "
        "range; with ParameterNoise, the target distance of noisy actions from the noiseless "
        "ones. Usually 0.05 to 0.5.",
    )
    ou_theta: float = Field(
        default=0.15,
        gt=0,
        le=1,
        description="OrnsteinUhlenbeckNoise: fraction of the noise that decays per step.",
    )
    initial_scale: float = Field(
        default=1.0, ge=0, description="Initial factor by which the noise is multiplied."
    )
    final_scale: float = Field(
        default=1.0, ge=0, description="Final factor by which the noise is multiplied."
    )
    scale_timesteps: int = Field(
        default=10_000,
        gt=0,
        description="Environment steps over which the factor changes linearly from its initial to "
        "its final value.",
    )

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        """Return the settings; raises ValueError if one that `type` lacks is not its default."""
        refuse_unread(self, "GaussianNoise", ("ou_theta", *NOISE_KEYS))
        refuse_unread(self, "OrnsteinUhlenbeckNoise", NOISE_KEYS)
        refuse_unread(self, "ParameterNoise", ("ou_theta",))
        return self

    def scale(self, timesteps: int) -> float:
        """Return the factor by which noise is multiplied after this number of environment steps.

        It changes linearly from `initial_scale` to `final_scale` during `scale_timesteps` steps.
        """
        part = min(1.0, timesteps / self.scale_timesteps)
        return self.initial_scale + part * (self.final_scale - self.initial_scale)


class ActionNoise(BoundedExploration):
    """Exploration of TD3: adds Gaussian or Ornstein-Uhlenbeck noise to the best action.

    `begin` lets Ornstein-Uhlenbeck noise continue from step to step. Without it each row is drawn
    independently, with the deviation that such noise reaches in the long run.
    """

    def __init__(self, layout: ActionLayout, limits: Bounds, config: ActionNoiseConfig) -> None:
        super().__init__(layout, limits, config)
        self._config = config
        self._is_drifting = config.type == "OrnsteinUhlenbeckNoise"
        self._noise: Array | None = None

    def begin(self, count: int) -> None:
        """Reset Ornstein-Uhlenbeck noise to 0 for `count` environments.

        Their rows are then given to `draw` step by step. Does nothing for Gaussian noise.
        """
        if self._is_drifting:
            self._noise = np.zeros((count, self._width), dtype=np.float32)

    def ended(self, rows: NDArray[np.bool_]) -> None:
        """Reset Ornstein-Uhlenbeck noise to 0 where `rows` (N,) is True: episodes that ended.

        Does nothing for Gaussian noise, or before `begin`.
        """
        if self._noise is not None:
            self._noise[rows] = 0.0

    def explore(self, head: Array, log_std: Array, stream: Stream) -> Array:
        """Return the best actions plus noise from `stream` (N, K), clipped to -1 to 1.

        After `begin`, Ornstein-Uhlenbeck noise is stored for the next step. `log_std` is not used.
        """
        config, best = self._config, np.tanh(self.means(head))
        noise = np.float32(config.stddev) * stream.standard_normal(best.shape, dtype=np.float32)
        if self._noise is not None:
            noise += np.float32(1 - config.ou_theta) * self._noise
            self._noise = noise
        elif self._is_drifting:
            noise /= np.float32(np.sqrt(1 - (1 - config.ou_theta) ** 2))
        tried: Array = np.minimum(
            np.maximum(best + np.float32(config.scale(self.timesteps)) * noise, -1), 1
        )
        return tried

    def get_state(self) -> dict[str, Any]:
        """Return a copy of ``noise`` (N, K) if noise is Ornstein-Uhlenbeck and `begin` was called.

        Otherwise the dict is empty.
        """
        return {} if self._noise is None else {"noise": self._noise.copy()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore a state of `get_state`; an empty one changes nothing."""
        if "noise" in state:
            self._noise = np.array(state["noise"], dtype=np.float32)


class ParameterNoiseExploration(BoundedExploration):
    """Exploration by parameter noise: the best action of weights with noise, drawn per episode.

    `BoundedActor` computes the network's outputs with the perturbed weights.
    """

    def __init__(self, layout: ActionLayout, limits: Bounds, config: ActionNoiseConfig) -> None:
        super().__init__(layout, limits, config)
        self._config = config
        self.noise = self.parameter_noise = ParameterNoise(config)

    @property
    def distance(self) -> float:
        """Target distance of noisy from noiseless actions, in units of half their range."""
        return self._config.stddev * self._config.scale(self.timesteps)

    def explore(self, head: Array, log_std: Array, stream: Stream) -> Array:
        """Return the squashed means (N, K) of `head`, which perturbed weights computed.

        Other arguments are not used.
        """
        return np.tanh(self.means(head))


class GaussianPolicyConfig(WarmUpConfig, PolicyNoiseConfig):
    """Settings of the exploration of SAC's policy, a squashed Gaussian."""


class StateDependentNoise(BoundedExploration):
    """Exploration by state-dependent noise (gSDE): adds it to the mean, and squashes the sum.

    The noise is a random linear function of the last hidden units, which `head` ends with.
    """

    def __init__(self, layout: ActionLayout, limits: Bounds, config: GaussianPolicyConfig) -> None:
        super().__init__(layout, limits, config)
        self._matrices: NoiseMatrices = NoiseMatrices(config.sample_freq)

    def means(self, head: Array) -> Array:
        """Return the means (N, K) before they are squashed, clipped to ±`MEAN_CLIP`."""
        kept: Array = np.minimum(np.maximum(super().means(head), -MEAN_CLIP), MEAN_CLIP)
        return kept

    def explore(self, head: Array, log_std: Array, stream: Stream) -> Array:
        """Return exploring actions (N, K) from -1 to 1.

        `head` has means (N, K), then hidden units (N, H); `log_std` (H, K) are the log standard
        deviations of the random matrices, which are drawn from `stream` every `sample_freq` steps.
        """
        noise = self._matrices.noise(head[:, self._width :], log_std, stream)
        tried: Array = np.tanh(self.means(head) + noise)
        return tried


def make_bounded_actor(
    kind: type[BoundedExploration],
    layout: ActionLayout,
    shape: Architecture,
    limits: Bounds,
    config: Any,
) -> BoundedActor:
    """Return an actor of real numbers whose exploration is of class `kind` with this `config`."""
    return BoundedActor(layout, shape, kind(layout, limits, config))


def make_choosing_actor(
    layout: ActionLayout, shape: Architecture, config: WarmUpConfig
) -> BoundedActor:
    """Return an actor of discrete actions without a critic, which explores with a warm-up."""
    return BoundedActor(layout, shape, WarmUpSampling(layout, config))
