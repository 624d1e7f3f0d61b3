"""Architecture of the networks, and their optimiser: the keys ``model`` and ``optimizer``.

Vectors (D,) go through perceptrons. Images (H, W, C) go through convolutions without padding first.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NoReturn, Self

from pydantic import Field, model_validator

from trainables.core.settings import Settings, WrongKey
from trainables.envs.kinds.atari import FRAMES, SIZE
from trainables.envs.make import ObservationSettings
from trainables.envs.spaces.actions import ActionLayout
from trainables.envs.spaces.images import LARGE_SIDE, SMALL_SIDE, Layout
from trainables.errors import ConfigError, shorten
from trainables.policies.own.distribution import OwnDistribution

#: Activation of hidden layers.
Activation = Literal["tanh", "relu"]
#: Number of units, at least 1.
Size = Annotated[int, Field(gt=0, strict=True)]
#: Decay rate of a moving average.
Decay = Annotated[float, Field(ge=0, lt=1)]
#: Channels, kernel size and stride of a convolution, the latter two in pixels.
Convolution = tuple[int, int, int]

#: Convolutions of Mnih et al. 2015, made for sides of 84; used for all sides from `LARGE_SIDE` on.
NATURE: tuple[Convolution, ...] = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
#: Convolutions for sides from `SMALL_SIDE` to below `LARGE_SIDE`.
SMALL_IMAGE: tuple[Convolution, ...] = ((16, 3, 1), (32, 3, 2))
#: Longest side that has default convolutions, pixels.
LARGEST_SIDE = 128
#: Gains of the orthogonal initial weights in hidden layers, in the policy's head and in the
#: value's head (Huang et al. 2022).
HIDDEN_GAIN, POLICY_GAIN, VALUE_GAIN = math.sqrt(2.0), 0.01, 1.0


class ModelConfig(Settings):
    """Settings of the networks; the key ``model``."""

    custom_model: str | None = Field(
        default=None,
        description="package.module:Net, a torch module of your own that replaces the built-in "
        "networks (docs/own-networks.md), for ppo, a2c, impala and dqn; it acts and learns in "
        "torch.",
    )
    custom_model_config: dict[str, Any] = Field(
        default_factory=dict, description="Keyword arguments of custom_model."
    )

    hidden: tuple[Size, ...] | None = Field(
        default=None,
        strict=False,
        description="Number of units of each hidden layer, first to last; null: [64, 64] for ppo, "
        "a2c, impala and bc, [128, 128] for dqn, [256, 256] for iql, sac and td3, or [512] after "
        "convolutions.",
    )
    activation: Activation | None = Field(
        default=None,
        description="Activation after each hidden layer; null: tanh for ppo, a2c, impala and bc, "
        "relu for others and after convolutions.",
    )
    conv_filters: tuple[Annotated[tuple[Size, Size, Size], Field(strict=False)], ...] | None = (
        Field(
            default=None,
            strict=False,
            description="Convolutions for images, each [channels, kernel size, stride]; []: no "
            "convolutions; null: the Nature DQN network for sides of 36 to 128 pixels, a smaller "
            "one for 8 to 35, no convolutions below 8.",
        )
    )
    image_layout: Layout | None = Field(
        default=None,
        description="Axes of an image: channels_last, (H, W, C), or channels_first, (C, H, W); "
        "with a fourth axis, the first one counts frames. flat: observations are numbers, not "
        "images. null: inferred from shape, type and bounds of the space (docs/images.md).",
    )
    use_lstm: bool = Field(
        default=False,
        description="Add an LSTM after the hidden layers, shared by actor and critic; its memory "
        "is empty at the start of each episode. Set `normalize_rewards` if returns are large, "
        "since value errors otherwise dominate the shared layers. With an LSTM, Atari frames are "
        "not stacked.",
    )
    lstm_cell_size: Size = Field(default=64, description="Number of units of the LSTM.")
    lstm_use_prev_action: bool = Field(
        default=False,
        description="Prepend the policy's last action (discrete actions one-hot) to the vector "
        "that the policy observes, also without an LSTM.",
    )
    lstm_use_prev_reward: bool = Field(
        default=False,
        description="Prepend the last reward, as returned by the environment, to the vector that "
        "the policy observes, also without an LSTM.",
    )
    custom_preprocessor: str | None = Field(
        default=None,
        description="package.module:Name, a preprocessor of your own for the environment's "
        "observations (docs/own-networks.md#a-preprocessor-of-your-own).",
    )
    dim: Size = Field(default=SIZE, description="Atari: side of a frame, in pixels.")
    framestack: bool | Size = Field(
        default=True,
        description="Atari: number of latest frames that are stacked as the channels of an image; "
        f"true: {FRAMES}; false: 1.",
    )
    custom_action_dist: str | None = Field(
        default=None,
        description="package.module:Dist, an action distribution of your own "
        "(docs/own-networks.md#a-distribution-of-your-own), for ppo, a2c and impala.",
    )
    free_log_std: bool | None = Field(
        default=None,
        description="For ppo, a2c and impala with real-valued actions. true: standard deviations "
        "are separate weights, the same in all states; false: the network outputs them, depending "
        "on the state; null: true.",
    )
    log_std_init: float | None = Field(
        default=None,
        description="For ppo, a2c and impala with real-valued actions and free_log_std: initial "
        "logarithm of the standard deviation; null: 0. Usually -3 to 0.",
    )
    vf_share_layers: bool | None = Field(
        default=None,
        description="For ppo, a2c and impala: share the hidden layers between actor and critic; "
        "null: shared after convolutions and with an LSTM, otherwise separate.",
    )
    max_seq_len: Size | None = Field(
        default=None,
        description="Maximum number of steps through which the LSTM's gradient flows; null: "
        "rollout_fragment_length.",
    )

    @property
    def observation_settings(self) -> ObservationSettings:
        """Settings in ``model`` that determine how observations are preprocessed.

        They are number and side of Atari frames, a user's preprocessor, previous actions and
        rewards, layout of images, and if `conv_filters` is set, whether there are convolutions.
        """
        stacked = {True: FRAMES, False: 1}
        frames = stacked[self.framestack] if isinstance(self.framestack, bool) else self.framestack
        previous = self.lstm_use_prev_action, self.lstm_use_prev_reward
        convolved = None if self.conv_filters is None else bool(self.conv_filters)
        own = self.custom_preprocessor
        return ObservationSettings(self.dim, frames, own, previous, self.image_layout, convolved)

    @model_validator(mode="before")
    @classmethod
    def _require_mapping(cls, value: Any) -> Any:
        """Return the settings unchanged, before they are parsed.

        Raises WrongKey with advice if a path ``package.module:Net`` is given instead of a dict.
        """
        if isinstance(value, str) and ":" in value:
            hint = f"write model: {{custom_model: {value}}}"
            problem = f"{shorten(value)} is not a mapping"
            raise WrongKey((), value, hint=hint, problem=problem)
        return value

    @model_validator(mode="after")
    def _check_combinations(self) -> Self:
        """Return the settings; raises WrongKey if a key that is set has no effect with others.

        Examples are ``hidden`` with ``custom_model``, and ``lstm_cell_size`` without ``use_lstm``.
        """
        given = self.custom_model is not None
        why = "with custom_model, which has layers of its own" if given else "without custom_model"
        for key in KEYS_OF_BUILT_IN_NETWORKS if given else ("custom_model_config",):
            self._require_default(key, why)
        if self.custom_action_dist is not None and self.free_log_std is not None:
            self._refuse("free_log_std", "with custom_action_dist")
        for key in () if self.use_lstm else ("lstm_cell_size", "max_seq_len"):
            self._require_default(key, "without use_lstm: true")
        if self.log_std_init is not None:
            if self.custom_action_dist is not None:
                self._refuse("log_std_init", "with custom_action_dist")
            if self.free_log_std is False:
                self._refuse("log_std_init", "with free_log_std: false, where the network sets it")
        return self

    def _require_default(self, key: str, reason: str) -> None:
        """Raise WrongKey, with `reason` in its text, if the key's value is not its default."""
        field = type(self).model_fields[key]
        if getattr(self, key) != field.get_default(call_default_factory=True):
            self._refuse(key, reason)

    def _refuse(self, key: str, reason: str) -> NoReturn:
        """Raise WrongKey for a key that has no effect with others, as `reason` says."""
        raise WrongKey.without_effect(key, getattr(self, key), reason)


#: Keys of ``model`` that have no effect with ``custom_model``.
KEYS_OF_BUILT_IN_NETWORKS = (
    *("vf_share_layers", "hidden", "activation", "conv_filters"),
    *("use_lstm", "lstm_cell_size", "max_seq_len"),
)


#: Optimiser → names of its moments of a weight. ``step`` is a number, all others have the weight's
#: shape.
MOMENTS: Mapping[str, tuple[str, ...]] = {
    "adam": ("step", "exp_avg", "exp_avg_sq"),
    "adamw": ("step", "exp_avg", "exp_avg_sq"),
    "rmsprop": ("square_avg",),
    "sgd": ("momentum_buffer",),
}
#: Name of an optimiser of torch.
OptimizerName = Literal["adam", "adamw", "rmsprop", "sgd"]
OPTIMIZERS = (
    "adam (Kingma & Ba 2015); adamw, with decoupled weight decay (Loshchilov & Hutter 2019); "
    "rmsprop (Hinton 2012); sgd, optionally with momentum."
)
"""Description of the setting ``name`` of an optimiser."""
EPS = (
    "For adam, adamw and rmsprop: number added to the root mean square of the gradients, by which "
    "steps are divided."
)
"""Description of the setting ``eps`` of an optimiser."""


class OptimizerConfig(Settings):
    """Settings of the optimiser except for its learning rate; the key ``optimizer``."""

    name: OptimizerName = Field(default="adam", description=OPTIMIZERS)
    betas: tuple[Decay, Decay] = Field(
        default=(0.9, 0.999),
        strict=False,
        description="For adam and adamw: decay rates of the two moments, per step.",
    )
    eps: float = Field(default=1e-5, gt=0, description=EPS)
    alpha: Decay = Field(
        default=0.99,
        description="For rmsprop: decay rate of the mean square of gradients, per step.",
    )
    momentum: Decay = Field(
        default=0.0, description="For sgd: fraction of the last step that is added to the next one."
    )
    weight_decay: float = Field(
        default=0.0,
        ge=0,
        description="Fraction of each weight that is added to its gradient; with adamw, each "
        "weight shrinks by lr times this fraction per step instead.",
    )

    @model_validator(mode="after")
    def _check_optimizer_keys(self) -> Self:
        """Return the settings; raises WrongKey for one that this optimiser does not read.

        The default value is always allowed.
        """
        for key, names in OF_SOME.items():
            default = type(self).model_fields[key].default
            if self.name not in names and getattr(self, key) != default:
                why = f"with name: {self.name}; only {' and '.join(names)} read it"
                raise WrongKey.without_effect(key, getattr(self, key), why)
        return self


def check_moments(moments: Mapping[str, Mapping[str, Any]], config: OptimizerConfig) -> None:
    """Raise ValueError if a checkpoint's moments are those of another kind of optimiser.

    `moments` is parameter → name of a moment → array; parameters without any are allowed.
    """
    expected = MOMENTS[config.name]
    for weight, found in moments.items():
        if found and found.keys() != set(expected):
            raise ValueError(
                f"the optimiser's state of {weight} has {', '.join(found)}; expected "
                f"{', '.join(expected) or 'none'}, as optimizer.name is {config.name}"
            )


#: Setting → optimisers that have it; settings that all have are left out.
OF_SOME: Mapping[str, tuple[str, ...]] = {
    "betas": ("adam", "adamw"),
    "eps": ("adam", "adamw", "rmsprop"),
    "alpha": ("rmsprop",),
    "momentum": ("sgd",),
}


@dataclass(frozen=True)
class OwnModule:
    """A user's torch module as import path and arguments (the setting ``custom_model``)."""

    path: str
    """Path ``package.module:Net``."""
    arguments: Mapping[str, Any]
    """Keyword arguments of the module, the setting ``custom_model_config``."""


@dataclass(frozen=True)
class Architecture:
    """Sizes and options of the networks for observations of one shape; no default is left open."""

    shape: tuple[int, ...]
    """Shape of an observation without its action mask: (D,) or (H, W, C)."""
    filters: tuple[Convolution, ...]
    """Convolutions, each (channels, side of the kernel, stride); empty without any, as for
    vectors."""
    hidden: tuple[int, ...]
    """Units of each hidden layer: of actor and critic each, or of the trunk that they share."""
    activation: Activation
    """Activation after each hidden layer."""
    lstm: int = 0
    """Units of the LSTM after the trunk; 0 without an LSTM."""
    masks: int = 0
    """Length of the action mask after the features, which the networks do not read; 0 without a
    mask."""
    noise: tuple[float, int] | None = None
    """Initial log standard deviation of state-dependent noise, and environment steps between its
    draws; None without such noise."""
    custom_model: OwnModule | None = None
    """The user's module in place of all layers, or None."""
    shares: bool = False
    """True if actor and critic share the hidden layers although observations are vectors."""
    predicts_log_std: bool = False
    """True if the network outputs the log standard deviations of real numbers."""
    log_std_init: float = 0.0
    """Initial log standard deviation of real numbers, if it is a weight."""
    distribution: OwnDistribution | None = None
    """The user's distribution of actions, or None for the distribution of
    `policies.acting.distributions`."""
    highest_byte: float = 255.0
    """Divisor of images of bytes before the first layer."""
    highest_number: float = 1.0
    """Divisor of images of float32 before the first layer; 1 if a filter has scaled them."""

    @property
    def shared(self) -> bool:
        """True if actor and critic share all layers but their last ones."""
        return bool(self.filters) or self.lstm > 0 or self.shares

    def count_outputs(self, layout: ActionLayout) -> int:
        """Return the number of outputs of the actor network for actions of this layout.

        They are logits, means and maybe log standard deviations, or the inputs of a user's
        distribution.
        """
        if self.distribution is not None:
            return self.distribution.inputs
        return layout.head_size + self.predicts_log_std * len(layout.real_columns)

    @property
    def features(self) -> int:
        """Number of inputs of the first hidden layer, after flattening the convolutions' output."""
        if not self.filters:
            return math.prod(self.shape)
        height, width = _output_sides(self.filters, self.shape)
        return self.filters[-1][0] * height * width

    @property
    def units(self) -> int:
        """Number of units of the last hidden layer, or `features` if there is no hidden layer.

        It is the number of inputs of the last layer, or of the LSTM if there is one.
        """
        return self.hidden[-1] if self.hidden else self.features


def architecture(
    config: ModelConfig,
    shape: tuple[int, ...],
    usual: tuple[tuple[int, ...], Activation] = ((64, 64), "tanh"),
    masks: int = 0,
) -> Architecture:
    """Return the architecture that the key ``model`` describes, with all defaults filled in.

    With a user's module there are no other layers. Not set here are a user's distribution,
    state-dependent noise and the divisors of pixels, which other settings determine.

    Args:
        shape: shape of an observation, with the action mask at its end.
        usual: the algorithm's default hidden layers and activation for vectors.
        masks: length of the action mask, or 0.

    Raises:
        ConfigError: convolutions do not fit the observations or have no default for so large an
            image, layers cannot be separate, or a user's distribution is combined with action
            masks.
    """
    if masks and config.custom_action_dist is not None:
        place, given = "model.custom_action_dist", config.custom_action_dist
        why, undo = "your own distribution cannot see which choices are valid", "remove action_mask"
        raise ConfigError.of_conflict(place, given, "action_mask", "null", why, undo)
    if masks:
        shape = (shape[0] - masks,)
    deviations: dict[str, Any] = {
        "predicts_log_std": config.free_log_std is False,
        "log_std_init": config.log_std_init or 0.0,
    }
    if config.custom_model is not None:
        own = OwnModule(config.custom_model, config.custom_model_config)
        return Architecture(shape, (), (), usual[1], masks=masks, custom_model=own, **deviations)
    filters = _choose_filters(config, shape)
    hidden, activation = ((512,), "relu") if filters else usual
    if config.vf_share_layers is False and (filters or config.use_lstm):
        place, allowed = "model.vf_share_layers", "null or true"
        other = "convolutions" if filters else "model.use_lstm"
        why = "policy and value function share their layers"
        raise ConfigError.of_conflict(place, False, other, allowed, why)
    return Architecture(
        shape=shape,
        filters=filters,
        hidden=hidden if config.hidden is None else config.hidden,
        activation=config.activation or activation,
        lstm=config.lstm_cell_size if config.use_lstm else 0,
        shares=config.vf_share_layers is True,
        masks=masks,
        **deviations,
    )


def _choose_filters(config: ModelConfig, shape: tuple[int, ...]) -> tuple[Convolution, ...]:
    """Return the convolutions for observations of this shape: those of the settings, or defaults.

    Returns () for vectors and very small images. Raises ConfigError if convolutions are set for
    vectors or do not fit the image, or if the image is too large for a default.
    """
    if len(shape) != 3:
        if config.conv_filters:
            problem = f"has no effect on observations of shape {shape}, which are not images"
            place, given = "model.conv_filters", config.conv_filters
            raise ConfigError(place, given, hint="remove it", problem=problem)
        return ()
    if config.conv_filters is None:
        return _default_filters(shape)
    if config.conv_filters and min(_output_sides(config.conv_filters, shape)) < 1:
        problem = (
            f"{shorten(config.conv_filters)} leaves nothing of images of {shape[0]} x {shape[1]} "
            "pixels"
        )
        hint = "make kernels or strides smaller, or leave out some of them"
        raise ConfigError("model.conv_filters", config.conv_filters, hint=hint, problem=problem)
    return config.conv_filters


def _default_filters(shape: tuple[int, ...]) -> tuple[Convolution, ...]:
    """Return the default convolutions for images of this shape, (H, W, C).

    They are `NATURE` if no side is below `LARGE_SIDE` (36 pixels), `SMALL_IMAGE` if none is below
    `SMALL_SIDE` (8), else (). Raises ConfigError if a side is longer than `LARGEST_SIDE` (128).
    """
    smallest, largest = min(shape[:2]), max(shape[:2])
    if largest > LARGEST_SIDE:
        problem = (
            f"is not set, and images of {shape[0]} x {shape[1]} pixels are too large for the "
            f"default, which reads sides of at most {LARGEST_SIDE}"
        )
        hint = (
            "set it to a list of [channels, side of the kernel, stride], or resize the images with "
            "gymnasium.wrappers.ResizeObservation"
        )
        raise ConfigError("model.conv_filters", None, hint=hint, problem=problem)
    if smallest >= LARGE_SIDE:
        return NATURE
    return SMALL_IMAGE if smallest >= SMALL_SIDE else ()


def _output_sides(filters: tuple[Convolution, ...], shape: tuple[int, ...]) -> tuple[int, int]:
    """Return height and width after the convolutions; 0 if a kernel exceeds its input."""
    height, width = shape[0], shape[1]
    for _, kernel, stride in filters:
        if min(height, width) < kernel:
            return 0, 0
        height, width = (height - kernel) // stride + 1, (width - kernel) // stride + 1
    return height, width
