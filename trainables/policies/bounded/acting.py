"""Actions between bounds: an actor without a critic, and how it explores with real numbers.

A network's numbers are squashed by tanh and scaled to the action space. An actor's head is the
means (N, K), and what its kind of exploration needs beside them: log standard deviations (N, K),
or the last hidden layer's units (N, H). N rows, K numbers of an action, D features.
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
from trainables.policies.acting.actor import Acted, Actor, Column, Weights, with_units
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

Stream = np.random.Generator
#: Between these lie the logarithms of standard deviations.
LOG_STD = (-20.0, 2.0)
#: Means with state-dependent noise are kept so close to 0: tanh has no slope beyond.
MEAN_CLIP = 2.0


@dataclass(frozen=True)
class Bounds:
    """Of each number of an action; numbers from -1 to 1 are scaled to them."""

    low: Array
    """(K,)."""
    high: Array

    @classmethod
    def of(cls, space: spaces.Space[Any]) -> Self:
        """Those of a space of real numbers.

        Raises:
            ConfigError: it holds a choice, or a number without bounds.
        """
        layout = layout_of(space)
        if layout.choice_columns:
            raise ConfigError("env", str(space), "real Box actions for this algorithm")
        with np.errstate(over="ignore"):
            low, high = (one.astype(np.float32) for one in bounds(space))
            # What is twice as large is computed with.
            doubled = 2 * np.concatenate([low, high])
        if not np.isfinite(doubled).all():
            hint = "wrap the environment in gymnasium.wrappers.RescaleAction or an ActionWrapper"
            raise ConfigError("env", str(space), "actions with finite bounds", hint)
        return cls(low, high)

    def scaled(self, unit: Array) -> Array:
        """Numbers from -1 to 1 as actions."""
        middle, half = (self.high + self.low) / 2, (self.high - self.low) / 2
        within: Array = np.minimum(np.maximum(middle + half * unit, self.low), self.high)
        return within

    def unscaled(self, actions: Array) -> Array:
        """Actions as numbers from -1 to 1: what is read may be beyond the bounds."""
        actions = np.minimum(np.maximum(actions, self.low), self.high)
        width = np.maximum(self.high - self.low, np.finfo(np.float32).tiny)
        unit: Array = (2 * actions - (self.high + self.low)) / width
        return unit


class BoundedActor(Actor):
    """Acts with the network ``actor`` alone; what it explores with makes actions of its head."""

    columns: ClassVar[Mapping[str, Column]] = {}
    judged: ClassVar[tuple[str, ...]] = ()
    fetches: ClassVar[Mapping[str, str]] = {}

    def load(self, weights: Weights) -> None:
        """Adopt the actor's weights; they are copied.

        Log standard deviations of every hidden unit (H, K) mean that the head holds the units, too.
        """
        own = [array for name, array in weights.items() if name.startswith("actor.")]
        # Turned as views: copying them turned takes as long as a small network's update.
        pairs = [(w.copy().T, b[None].copy()) for w, b in zip(own[::2], own[1::2], strict=True)]
        self._layers = [(w[None], b[None]) for w, b in pairs[:-1]]
        weight, bias = pairs[-1]
        self._log_std = np.array(weights.get("actor_log_std", self._log_std))
        if self._log_std.ndim == 2:
            weight, bias = with_units(weight, bias)
        self._heads = {"actor.weight": weight, "actor.bias": bias[0]}
        self._head_bias = bias
        if (noise := self.exploration.parameter_noise) is not None:
            noise.loaded()

    def forward(self, observations: NDArray[Any]) -> tuple[Array, Array]:
        """Heads of filtered observations (N, D), and no values (0,)."""
        x: Array = observations
        for weight, bias in self._layers:
            x = x.dot(weight[0])
            x += bias[0]
            activate(x, self._activation)
        head: Array = x.dot(self._heads["actor.weight"])
        head += self._head_bias
        return head, np.zeros(0, dtype=np.float32)

    def act(self, observations: NDArray[Any], memory: Array, stream: Stream | None) -> Acted:
        """Actions for filtered observations: explored, or the best ones without a stream."""
        head, _ = self.forward(observations)
        used = stream if self.explore else None
        if used is not None and isinstance(self.exploration, Perturbed):
            head = self._perturbed(observations, head, self.exploration, used)
        return Acted(self.exploration.draw(head, self._log_std, used)[0], {}, memory)

    def act_each(
        self, observations: NDArray[Any], memory: Array, streams: Sequence[Stream | None]
    ) -> tuple[NDArray[Any], Array]:
        """The action of each row, as if it were the only one, and no memory."""
        if not any(streams) or self.exploration.parameter_noise is None:
            return super().act_each(observations, memory, streams)
        pairs = zip(observations, streams, strict=True)
        each = [self.act(row[None], memory, stream).actions for row, stream in pairs]
        return np.concatenate(each), memory

    def _perturbed(
        self, observations: Array, head: Array, explored: "Perturbed", stream: Stream
    ) -> Array:
        """Heads by the perturbed weights of each row; `head` is what it would be without."""
        layers = [*self._layers, (self._heads["actor.weight"][None], self._head_bias[None])]
        used: dict[str, Array] = {}
        for i, (weight, bias) in enumerate(layers):
            used |= {f"{i}.weight": weight[0], f"{i}.bias": bias[0, 0]}
        weights = explored.noise.perturbed(used, len(observations), stream)
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
    """Actions that are drawn evenly before the policy's own."""

    random_timesteps: int | None = Field(
        default=None,
        ge=0,
        description="Environment steps at the beginning whose actions are drawn evenly from the "
        "space; null: as many as learning_starts.",
    )

    def until_learning(self, learning_starts: int) -> Self:
        """These settings, with a warm-up of `learning_starts` steps unless they say how many."""
        if self.random_timesteps is not None:
            return self
        return self.model_copy(update={"random_timesteps": learning_starts})


class WarmChoices(StochasticSampling):
    """Draws choices from the policy's distribution, after a warm-up in which all are alike."""

    def __init__(self, layout: ActionLayout, config: WarmUpConfig) -> None:
        super().__init__(layout)
        self._until, self._timesteps = config.random_timesteps or 0, 0

    def at(self, timesteps: int) -> None:
        """Take note of the steps sampled so far."""
        self._timesteps = timesteps

    def draw(self, head: Array, log_std: Array, stream: Stream | None) -> tuple[Any, Array]:
        """Choices, and the policy's log-probabilities of them; the best ones without a stream."""
        warm = stream is not None and self._timesteps < self._until
        return super().draw(np.zeros_like(head) if warm else head, log_std, stream)


class Bounded(StochasticSampling):
    """The best action, squashed means; evenly drawn ones in the warm-up. Others derive from it."""

    def __init__(self, layout: ActionLayout, limits: Bounds, config: WarmUpConfig) -> None:
        super().__init__(layout)
        self._limits, self._width = limits, len(limits.low)
        self._until, self.timesteps = config.random_timesteps or 0, 0

    def at(self, timesteps: int) -> None:
        """Take note of the steps sampled so far."""
        self.timesteps = timesteps

    def draw(self, head: Array, log_std: Array, stream: Stream | None) -> tuple[Array, Array]:
        """Actions between the bounds; log-probabilities, which nothing needs, are 0."""
        if stream is None:
            unit = np.tanh(self.means(head))
        elif self.timesteps < self._until:
            unit = 2 * stream.random((len(head), self._width), dtype=np.float32) - 1
        else:
            unit = self.tried(head, log_std, stream)
        return self._limits.scaled(unit), np.zeros(len(head), dtype=np.float32)

    def means(self, head: Array) -> Array:
        """(N, K) before they are squashed."""
        return head[:, : self._width]

    def tried(self, head: Array, log_std: Array, stream: Stream) -> Array:
        """(N, K) numbers from -1 to 1 with which to explore."""
        raise NotImplementedError


class SquashedGaussian(Bounded):
    """Draws from the policy's own Gaussian, whose deviations depend on the observation."""

    def tried(self, head: Array, log_std: Array, stream: Stream) -> Array:
        """Drawn and squashed."""
        means, log_stds = head[:, : self._width], head[:, self._width :]
        noise = stream.standard_normal(means.shape, dtype=np.float32)
        return np.tanh(means + np.exp(np.clip(log_stds, *LOG_STD)) * noise)


class ActionNoiseConfig(WarmUpConfig, ParameterNoiseConfig):
    """Noise that is added to the best action, in shares of half the action's range."""

    type: Literal["GaussianNoise", "OrnsteinUhlenbeckNoise", "ParameterNoise"] = Field(
        default="GaussianNoise",
        description="GaussianNoise: of each step by itself; OrnsteinUhlenbeckNoise: drifts from "
        "step to step, from 0 in each episode; ParameterNoise: on the weights, the same for a "
        "whole episode (Plappert et al. 2018).",
    )
    stddev: float = Field(
        default=0.1,
        ge=0,
        description="Standard deviation of what each step adds; of ParameterNoise how far actions "
        "shall be from the best ones. 0.05 to 0.5.",
    )
    ou_theta: float = Field(
        default=0.15,
        gt=0,
        le=1,
        description="Share of OrnsteinUhlenbeckNoise that each step takes away.",
    )
    initial_scale: float = Field(default=1.0, ge=0, description="Factor at the beginning.")
    final_scale: float = Field(default=1.0, ge=0, description="Factor at the end.")
    scale_timesteps: int = Field(
        default=10_000, gt=0, description="Environment steps from one to the other, linearly."
    )

    @model_validator(mode="after")
    def _read(self) -> Self:
        refuse_unread(self, "GaussianNoise", ("ou_theta", *NOISE_KEYS))
        refuse_unread(self, "OrnsteinUhlenbeckNoise", NOISE_KEYS)
        refuse_unread(self, "ParameterNoise", ("ou_theta",))
        return self

    def scale(self, timesteps: int) -> float:
        """The factor after so many environment steps."""
        part = min(1.0, timesteps / self.scale_timesteps)
        return self.initial_scale + part * (self.final_scale - self.initial_scale)


class ActionNoise(Bounded):
    """The best action with noise.

    Where the rows are not those of `begin`, each is an episode's step by itself: its noise is
    drawn as far as it drifts in the long run.
    """

    def __init__(self, layout: ActionLayout, limits: Bounds, config: ActionNoiseConfig) -> None:
        super().__init__(layout, limits, config)
        self._config = config
        self._drifts = config.type == "OrnsteinUhlenbeckNoise"
        self._noise: Array | None = None

    def begin(self, count: int) -> None:
        """From now on the rows are those of so many environments, step after step."""
        if self._drifts:
            self._noise = np.zeros((count, self._width), dtype=np.float32)

    def ended(self, rows: NDArray[np.bool_]) -> None:
        """The episodes of these environments (N,) ended."""
        if self._noise is not None:
            self._noise[rows] = 0.0

    def tried(self, head: Array, log_std: Array, stream: Stream) -> Array:
        """The best action and the noise, within the bounds."""
        of, best = self._config, np.tanh(self.means(head))
        noise = np.float32(of.stddev) * stream.standard_normal(best.shape, dtype=np.float32)
        if self._noise is not None:
            noise += np.float32(1 - of.ou_theta) * self._noise
            self._noise = noise
        elif self._drifts:
            noise /= np.float32(np.sqrt(1 - (1 - of.ou_theta) ** 2))
        tried: Array = np.minimum(
            np.maximum(best + np.float32(of.scale(self.timesteps)) * noise, -1), 1
        )
        return tried

    def get_state(self) -> dict[str, Any]:
        """Entry ``noise`` (N, K) of noise that drifts."""
        return {} if self._noise is None else {"noise": self._noise.copy()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave."""
        if "noise" in state:
            self._noise = np.array(state["noise"], dtype=np.float32)


class Perturbed(Bounded):
    """The best action by weights with noise, which each episode has of its own."""

    def __init__(self, layout: ActionLayout, limits: Bounds, config: ActionNoiseConfig) -> None:
        super().__init__(layout, limits, config)
        self._config = config
        self.noise = self.parameter_noise = ParameterNoise(config)

    @property
    def distance(self) -> float:
        """The distance of actions from the greedy ones, in shares of half their range."""
        return self._config.stddev * self._config.scale(self.timesteps)

    def tried(self, head: Array, log_std: Array, stream: Stream) -> Array:
        """(N, K) numbers from -1 to 1, by a head of perturbed weights."""
        return np.tanh(self.means(head))


class GaussianPolicyConfig(WarmUpConfig, PolicyNoiseConfig):
    """Settings of a squashed Gaussian policy's exploration."""


class StateDependentNoise(Bounded):
    """gSDE: the best action with the noise that each row's matrix makes, squashed."""

    def __init__(self, layout: ActionLayout, limits: Bounds, config: GaussianPolicyConfig) -> None:
        super().__init__(layout, limits, config)
        self._matrices = NoiseMatrices(config.sample_freq)

    def means(self, head: Array) -> Array:
        """(N, K) before they are squashed."""
        kept: Array = np.minimum(np.maximum(super().means(head), -MEAN_CLIP), MEAN_CLIP)
        return kept

    def tried(self, head: Array, log_std: Array, stream: Stream) -> Array:
        """(N, K) numbers from -1 to 1 with which to explore."""
        noise = self._matrices.noise(head[:, self._width :], log_std, stream)
        tried: Array = np.tanh(self.means(head) + noise)
        return tried

    def begin(self, count: int) -> None:
        """From now on the rows are those of so many environments, step after step."""
        self._matrices.begin(count)

    def get_state(self) -> dict[str, Any]:
        """That of the matrices."""
        return self._matrices.get_state()

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave."""
        self._matrices.set_state(state)


def make_bounded_actor(
    kind: type[Bounded], layout: ActionLayout, shape: Architecture, limits: Bounds, config: Any
) -> BoundedActor:
    """An actor that explores in this way."""
    return BoundedActor(layout, shape, kind(layout, limits, config))


def make_choosing_actor(
    layout: ActionLayout, shape: Architecture, config: WarmUpConfig
) -> BoundedActor:
    """An actor of choices."""
    return BoundedActor(layout, shape, WarmChoices(layout, config))
