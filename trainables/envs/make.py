"""Makes the environment that the settings name, and finds the spaces in which policies act.

``env`` is a gymnasium id (``CartPole-v1``) or a dotted path ``package.module:Name`` to an
environment class or a callable that returns an environment, or ``package.module:Id`` for an id that
the module registers; ``env_config`` becomes its keyword arguments, or its one argument
(`registry`). Names that were registered come before gymnasium's ids, entry points of installed
packages after them; an environment class stands for its dotted path. Names that begin with
``jax:``, ``gymnax:``, ``brax:`` or ``playground:`` are those of functions of arrays (`compiled`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Annotated, Any, Literal, Self, cast

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate
from pydantic import BeforeValidator, Field, PrivateAttr

from trainables.core.importing import entry_points, load_callable, load_module
from trainables.core.settings import LONGEST_WAIT_S, Section
from trainables.envs import compiled, registry
from trainables.envs.calls.faults import close
from trainables.envs.external.polled import SpacesOnlyEnv, calls_trainer
from trainables.envs.kinds import agents, atari, together
from trainables.envs.kinds.atari import is_atari
from trainables.envs.kinds.pool import ENVPOOL, Pool
from trainables.envs.registry import EnvContext
from trainables.envs.spaces.actions import ActionLayout, layout_of, speed_up_checks
from trainables.envs.spaces.connectors import (
    PREVIOUS,
    Connector,
    Connectors,
    EnvConnector,
    Filtering,
    Named,
    make_named,
    row_shape,
)
from trainables.envs.spaces.images import (
    DEFAULT_IMAGE_SETTINGS,
    ImageSettings,
    Layout,
    divisor,
    row_dtype,
)
from trainables.envs.spaces.masks import ActionMask, MaskedObservation, Source
from trainables.envs.spaces.observations import NoPreprocessor
from trainables.envs.state import mujoco
from trainables.errors import ConfigError, nearest, shorten, type_of

#: Any environment of gymnasium.
Env = gymnasium.Env[Any, Any]

#: Prefix of ids that a package registers when it is imported → that package's module.
PACKAGES: Mapping[str, str] = {
    "MiniGrid-": "minigrid",
    "BabyAI-": "minigrid",
    "MiniWorld-": "miniworld",
    **dict.fromkeys(
        ("highway-", "merge-", "roundabout-", "parking-", "intersection-", "racetrack-"),
        "highway_env",
    ),
    **dict.fromkeys(
        ("Fetch", "Hand", "Adroit", "AntMaze_", "PointMaze_", "FrankaKitchen-"),
        "gymnasium_robotics",
    ),
}


#: Number of environments from which gymnasium's vector form is faster than separate ones.
MANY_ENVS = 6
#: Module of CartPole.
CARTPOLE = "gymnasium.envs.classic_control.cartpole:"
#: Entry points of an environment and of its vector form with the same behaviour and state → the
#: arguments that both take.
SAME_NATIVELY: Mapping[tuple[Any, Any], frozenset[str]] = {
    (f"{CARTPOLE}CartPoleEnv", f"{CARTPOLE}CartPoleVectorEnv"): frozenset(
        {"sutton_barto_reward", "max_episode_steps"}
    )
}


@dataclass(frozen=True)
class ObservationSettings:
    """The settings of the key ``model`` that decide how a policy sees an environment."""

    side: int = atari.SIZE
    """Side of Atari's frames, pixels."""
    frames: int = atari.FRAMES
    """Number of stacked Atari frames."""
    preprocessor: str | None = None
    """Path ``package.module:Name`` of a user's preprocessor, or None."""
    previous: tuple[bool, bool] = (False, False)
    """Two flags: the policy also sees its last action, and the last reward."""
    layout: Layout | None = None
    """Layout of an image, or ``flat`` for no image; None if its space decides."""
    convolved: bool | None = None
    """True if the settings name convolutions, False if they name none; None if not set."""


class EnvironmentConfig(Section):
    """Settings of the environment."""

    env: Annotated[str, BeforeValidator(registry.to_name)] = Field(
        description="Registered id, package.module:Name of a class or callable, or an installed "
        "package's entry point in the group trainables.envs; for a trainer without a sweep also "
        "the class or function itself. Environments in JAX: jax:CartPole-v1, "
        "jax:package.module:Class, gymnax:Breakout-MinAtar, brax:ant, playground:CheetahRun "
        "(docs/stack.md#environments-of-your-own)."
    )
    env_config: dict[str, Any] = Field(
        default_factory=dict,
        description="Keyword arguments of the environment; a class or function with one required "
        "positional argument, such as `cfg`, or with the single argument `config`, `env_config` or "
        "`context`, gets all of them as a dict.",
    )
    native_vector_env: bool | Literal["auto"] = Field(
        default="auto",
        description="Step all of a worker's environments as one native vector environment, if one "
        "exists, as for CartPole-v1; faster than separate environments, but with other random "
        f"numbers. auto: true for {MANY_ENVS} environments or more, unless another setting "
        "needs separate environments.",
    )
    env_engine: Literal["gymnasium", "envpool"] = Field(
        default="gymnasium",
        description="Library that provides the environment with the id in `env`: gymnasium or "
        "envpool. `native_vector_env: auto` steps all environments of EnvPool at once, in C++. "
        "EnvPool's state cannot be saved, so a trial is not bit-exact (exactness level D). "
        "envpool needs pip install 'sweep-rl[envpool]'.",
    )
    preprocessor_pref: Literal["deepmind", "rllib"] | None = Field(
        default="deepmind",
        description="Preprocessing of observations. deepmind: Atari games get DeepMind's "
        "wrappers; rllib: no wrappers. Both values also flatten Dict, Tuple and discrete "
        "observations. null: no wrappers and no flattening, so observations must be a Box.",
    )
    action_mask: Source | None = Field(
        default=None,
        description="Source of the action mask, which is 1 for valid and 0 for invalid actions. "
        'info: info["action_mask"] from reset and step, as in Taxi-v4; observation: the key '
        "action_mask of Dict observations, as in PettingZoo's games. With a mask, ppo, a2c, "
        "impala and dqn never choose invalid actions or learn from them. null: no mask; entries "
        "of this name are treated like any others.",
    )
    connectors: tuple[str | dict[str, dict[str, Any]], ...] = Field(
        default=(),
        strict=False,
        description="Transformations between environment and policy, applied before the filter: "
        "FrameStack, or package.module:Name of a class of your own "
        "(docs/own-networks.md#a-connector-of-your-own); with arguments, write {FrameStack: "
        "{frames: 4}}.",
    )
    no_framestack: bool = Field(
        default=False, description="Atari: observe one frame instead of the last four."
    )
    observation_fn: str | None = Field(
        default=None,
        description="With several agents: package.module:function that turns the raw observations "
        "of all agents (a dict, agent → observation) into those that the agents get. The optional "
        "attribute observation_space is a function of an agent and all spaces (a dict, agent → "
        "space) that returns the agent's new space.",
    )
    env_level: Literal["auto", "A", "B", "C"] = Field(
        default="auto",
        description="Exactness level at which environments are restored from a checkpoint "
        "(docs/environments.md). auto: the measured level. A: their state is restored. B: the "
        "unfinished episode is replayed in a new environment. A and B are refused if the "
        "measurement contradicts them. C: the unfinished episode is dropped, and nothing is "
        "measured.",
    )
    env_replay_limit: int = Field(
        default=10_000,
        gt=0,
        description="At exactness level B: maximum number of steps that are replayed; a longer "
        "episode is dropped on restore.",
    )
    env_measure_timeout_s: float = Field(
        default=60.0,
        gt=0,
        le=LONGEST_WAIT_S,
        description="Maximum seconds for one call of the environment (creation, reset, step) "
        "while its exactness level is measured; a longer call counts as hanging, and the trial "
        "ends with an error that names the call.",
    )

    _observation_settings: ObservationSettings = PrivateAttr(default=ObservationSettings())
    """Value of `observation_settings`, set by `with_observation_settings`."""

    @property
    def observation_settings(self) -> ObservationSettings:
        """Settings of the key ``model`` that determine how policies see the environment."""
        return self._observation_settings

    def with_observation_settings(self, observation_settings: ObservationSettings) -> Self:
        """Return a copy of the settings with these `observation_settings`."""
        copied = self.model_copy()
        copied._observation_settings = observation_settings
        return copied

    @property
    def is_native(self) -> bool:
        """True if all environments of a worker are one vector object.

        False while still ``auto``.
        """
        return self.native_vector_env is True


@dataclass(frozen=True)
class EnvSpaces:
    """The spaces of an environment, and how a policy sees them."""

    observation: spaces.Box
    """Space of observations after the preprocessor, a Box: the start of the policy's input."""
    action: spaces.Space[Any]
    """Action space of the environment itself, of any kind."""
    raw: spaces.Space[Any]
    """Observation space of the environment itself, of any kind; with its action mask, if used."""
    preprocessor_path: str | None = None
    """Path ``package.module:Name`` of a user's preprocessor, or None."""
    connectors: tuple[Named, ...] = ()
    """Users' steps between environment and policy, each a name or path, or a dict with its
    arguments."""
    previous: tuple[bool, bool] = (False, False)
    """Two flags: the policy also sees its last action, and the last reward."""
    image_settings: ImageSettings = DEFAULT_IMAGE_SETTINGS
    """Settings that decide how images are read."""
    note: str = ""
    """Warning if a vector may have been meant as an image; else empty."""

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of a preprocessed observation: (D,), or (H, W, C) for an image."""
        return row_shape(self.observation)

    @cached_property
    def filtered(self) -> spaces.Box:
        """Space of rows that enter the observation filter: after users' connectors."""
        before, _ = self.make_steps()
        return before[-1].observation_space if before else self.observation

    @cached_property
    def network_input(self) -> spaces.Box:
        """Space of rows that enter the networks: `filtered`, extended as `previous` says."""
        _, behind = self.make_steps()
        return behind[-1].observation_space if behind else self.filtered

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """Shape of the networks' input: (D,), or (H, W, C) for an image."""
        return row_shape(self.network_input)

    @property
    def observation_dtype(self) -> np.dtype[Any]:
        """Dtype of the networks' input without a filter: float32, or uint8 for images of bytes."""
        return row_dtype(self.network_input)

    @property
    def divisor(self) -> float:
        """Number by which networks divide pixels, so that they are at most 1; 1 for vectors."""
        return divisor(self.network_input)

    def make_steps(self) -> tuple[list[Connector], list[Connector]]:
        """Return new connectors: users' ones, before the filter, and those after the filter.

        The latter add the previous action and reward to a row, if `previous` says so. Raises
        ConfigError if a user's connector cannot be made, or an observation is an image to which
        nothing can be added.
        """
        before = make_named(self.connectors, self.observation, self.action)
        box, behind = before[-1].observation_space if before else self.observation, []
        for kind, wanted in zip(PREVIOUS, self.previous, strict=True):
            if wanted:
                behind.append(kind(box, self.action))
                box = behind[-1].observation_space
        return before, behind

    def connected(
        self,
        name: str,
        observation_filter: Filtering,
        clip: bool,
        normalize: bool,
        *,
        exact: bool = False,
    ) -> Connectors:
        """Return the whole list of steps between environment and policy.

        `name` is the source of observations in errors. The filter is shared, not copied. `clip` and
        `normalize` say whether actions are clipped to their bounds, and spread from -1 to 1 over
        them. With `exact`, rows stay float64 where the filter needs that.
        """
        return Connectors(self, name, observation_filter, clip, normalize, exact)

    def described(self) -> dict[str, str]:
        """Return ``observation`` and ``action`` → the environment's own space as text."""
        return {"observation": str(self.raw), "action": str(self.action)}

    def at_env(self) -> EnvConnector:
        """Return a new object that converts observations and actions at one environment.

        Imports and tries the user's preprocessor, if there is one; raises ConfigError if that
        fails.
        """
        return EnvConnector(self.raw, self.action, self.preprocessor_path, self.image_settings)

    @cached_property
    def layout(self) -> ActionLayout:
        """Columns of a row of numbers that stands for an action.

        Raises ConfigError if no policy can act in this space.
        """
        return layout_of(self.action)

    @property
    def masks(self) -> int:
        """Number of entries of the action mask at the end of a row; 0 without masks."""
        return self.raw.choices if isinstance(self.raw, MaskedObservation) else 0


def make_env(
    config: EnvironmentConfig, context: EnvContext | None = None, learning: bool = True
) -> Env:
    """Make one environment; its observations and actions have the environment's own form.

    With the setting `action_mask`, each observation is a Dict that ends with the mask. Several
    agents are wrapped as one `gymnasium.Env`.

    Args:
        context: its place among workers and environments; by default the first.
        learning: False for evaluation, where an Atari episode is the whole game.

    Raises:
        ConfigError: there is no such environment, it cannot be made from `env_config`, or it has no
            such masks.
    """
    env = make_raw_env(config, context, learning)
    if isinstance(env.observation_space, agents.AgentsSpace):
        return env
    speed_up_checks(env.unwrapped)
    return env if config.action_mask is None else ActionMask(env, config.action_mask)


def make_connector(
    config: EnvironmentConfig, observation: spaces.Space[Any], action: spaces.Space[Any]
) -> EnvConnector:
    """Return the object that converts an environment's observations to arrays, and rows to actions.

    The spaces are the environment's own; for several agents there is a converter for each. Raises
    ConfigError if no policy can use the observations, or actions of a Tuple or Dict.
    """
    if isinstance(observation, agents.AgentsSpace) and isinstance(action, agents.AgentsSpace):
        each = {a: make_connector(config, one, action.of[a]) for a, one in observation.of.items()}
        return agents.AgentsConnector((observation, action), each)
    if config.preprocessor_pref is None and config.observation_settings.preprocessor is None:
        NoPreprocessor(observation)  # refuses what is not a Box
    return EnvConnector(
        observation, action, config.observation_settings.preprocessor, _image_settings(config)
    )


def _image_settings(config: EnvironmentConfig) -> ImageSettings:
    """Return the settings that decide how images are read.

    With Atari's wrappers, channels are last unless the settings say another layout.
    """
    observation_settings = config.observation_settings
    is_wrapped = has_deepmind_wrappers(config) and config.env_engine != ENVPOOL
    return ImageSettings(
        observation_settings.layout or ("channels_last" if is_wrapped else None),
        observation_settings.convolved,
    )


def make_raw_env(
    config: EnvironmentConfig, context: EnvContext | None = None, learning: bool = True
) -> Env:
    """Make one environment, even if no policy can use its spaces; raises ConfigError if impossible.

    EnvPool's is a vector environment of size 1, and so is, with ``native_vector_env: true``, one
    of which gymnasium's registry has no single form. Several agents are wrapped as one environment,
    and one that calls the trainer is replaced by a stand-in that only has its spaces. `context` is
    its place among workers, None for the first. `learning` is False for an evaluation.
    """
    spec = gymnasium.registry.get(config.env)
    only_vector = config.is_native and (spec is None or spec.entry_point is None)
    if only_vector or config.env_engine == ENVPOOL:
        return SingleEnv(make_vector(config, 1))
    if context is None:
        context = EnvContext(config.env_config)
    env = _make_checked(config, context, learning=learning)
    if calls_trainer(env):
        return SpacesOnlyEnv(env)
    if (several := _several_agents(config, env)) is not None:
        return several
    _require_steppable(config, env)
    for name in ("observation_space", "action_space"):
        if not isinstance(getattr(env, name, None), spaces.Space):
            close(env, config.env)
            problem = f"the {name} of {config.env} is missing or not a gymnasium.spaces.Space"
            hint = f"set {name} in its constructor"
            raise ConfigError("env", config.env, hint=hint, problem=problem)
    made: Env = env
    return made


def _require_steppable(config: EnvironmentConfig, env: Any) -> None:
    """Raise ConfigError unless `env` is a gymnasium.Env, and no vector environment."""
    if isinstance(env, VectorEnv) or together.has_form(env):
        given = config.native_vector_env
        why = f"it created {type_of(env)}, whose environments are stepped together"
        raise ConfigError.of_conflict("native_vector_env", given, config.env, "true", why)
    if not isinstance(env, gymnasium.Env):
        problem = f"{config.env} created {type_of(env)}"
        raise ConfigError("env", config.env, "a gymnasium.Env", problem=problem)


def _several_agents(config: EnvironmentConfig, env: Any) -> Env | None:
    """Return an environment of several agents wrapped as one; None if `env` has one agent.

    Raises ConfigError if ``observation_fn`` cannot be imported or is set for an environment of one
    agent, and for agents that cannot be wrapped.
    """
    path, observe = config.observation_fn, None
    if path is not None:
        observe = load_callable("observation_fn", path, "a function of what all agents observe")
    several = agents.as_single_env(env, config.env, observe, config.action_mask)
    if several is None and observe is not None:
        problem = f"has no effect, because {config.env} has one agent"
        hint = "remove it; a gymnasium.ObservationWrapper changes what one agent sees"
        raise ConfigError("observation_fn", path, hint=hint, problem=problem)
    return several


def make_vector(config: EnvironmentConfig, num_envs: int) -> VectorEnv[Any, Any, Any]:
    """Make a native vector environment of `num_envs`, or EnvPool's.

    One in RLlib's form is wrapped as one of gymnasium. Raises ConfigError if the environment has no
    vector form, cannot be made, or is of another size.
    """
    if config.env_engine == ENVPOOL:
        return Pool(config.env, num_envs, config.env_config)
    spec, place = gymnasium.registry.get(config.env), "native_vector_env"
    if spec is not None and spec.vector_entry_point is None:
        why = "it has no vector form of its own"
        raise ConfigError.of_conflict(place, True, config.env, "false", why)
    vector = _make_checked(config, EnvContext(config.env_config), num_envs)
    if together.has_form(vector):
        vector = together.SteppedTogether(vector, num_envs)
    if not isinstance(vector, VectorEnv) or vector.num_envs != num_envs:
        wanted = f"a gymnasium.vector.VectorEnv with num_envs={num_envs}"
        why = f"it created {shorten(vector)}, not {wanted}"
        raise ConfigError.of_conflict(place, True, config.env, "false", why)
    speed_up_checks(vector.unwrapped)
    return vector


def is_vector_only(config: EnvironmentConfig) -> bool:
    """Return whether ``env`` names a class of vector environments, which has no single ones.

    Imports the class; raises ConfigError if that fails.
    """
    if compiled.is_compiled(config.env):
        return False
    found = registry.find(config.env)
    if found is None and ":" in config.env and config.env not in gymnasium.registry:
        load_module("env", config.env)
        if config.env.partition(":")[2] not in gymnasium.registry:
            found = load_callable("env", config.env, "an environment class or callable")
    return together.is_vector_class(found)


def has_equal_native_form(config: EnvironmentConfig) -> bool:
    """Return whether the native vector environment is known to step as separate environments do.

    Apart from random numbers they may then be exchanged. False for all but CartPole with arguments
    that both forms take.
    """
    spec = gymnasium.registry.get(config.env)
    if spec is None or registry.find(config.env) is not None or spec.additional_wrappers:
        return False
    given = {**spec.kwargs, **config.env_config}
    limit = given.get("max_episode_steps", spec.max_episode_steps)
    if not isinstance(limit, int) or limit < 1:  # one of them has its own idea of none
        return False
    taken = SAME_NATIVELY.get((spec.entry_point, spec.vector_entry_point))
    return taken is not None and taken >= given.keys()


def _make_checked(
    config: EnvironmentConfig,
    context: EnvContext,
    num_envs: int | None = None,
    learning: bool = True,
) -> Any:
    """Make the environment, or a vector environment of `num_envs`.

    Raises ConfigError if that fails, whatever the environment raised. `learning` is False for an
    environment of an evaluation.
    """
    if compiled.is_compiled(config.env):
        return _make_compiled(config.env, context)
    make = _creator(config, context, num_envs, learning)
    try:
        return make()
    except ConfigError:
        raise
    except Exception as error:
        notes = getattr(error, "__notes__", ())
        problem = (
            f"{config.env} cannot be made from {shorten(config.env_config)}: it raised "
            f"{type(error).__name__}: {error}"
        )
        hint = "; ".join(notes)
        raise ConfigError("env_config", config.env_config, "", hint, problem) from error


def importable_config(config: EnvironmentConfig) -> EnvironmentConfig:
    """Return the settings with ``env`` as a path that child processes can import.

    Raises ConfigError if there is none.
    """
    return config.model_copy(update={"env": registry.importable_path(config.env)})


def checked_spaces(
    config: EnvironmentConfig, observation: spaces.Space[Any], action: spaces.Space[Any]
) -> EnvSpaces:
    """Return an environment's spaces as policies see them.

    Raises ConfigError if no policy can use them, or for an environment of several agents.
    """
    if isinstance(observation, agents.AgentsSpace):
        raise needs_policies(config, list(observation.of))
    connector = make_connector(config, observation, action)
    made_spaces = EnvSpaces(
        cast("spaces.Box", connector.observation_space),
        action,
        observation,
        config.observation_settings.preprocessor,
        config.connectors,
        config.observation_settings.previous,
        _image_settings(config),
        connector.note,
    )
    if not all(made_spaces.row_shape):
        problem = (
            f"the observation space of {config.env} is {observation}, which contains no number"
        )
        hint = (
            "for a task without observations let a wrapper give a constant, for example "
            "numpy.zeros(1)"
        )
        allowed = "at least one number"
        raise ConfigError("env", config.env, allowed, hint, problem)
    try:
        _ = made_spaces.layout
    except ConfigError as error:
        problem = f"{config.env} cannot be trained: {error.problem}"
        raise ConfigError("env", config.env, error.allowed, error.hint, problem) from error
    _ = made_spaces.network_input
    return made_spaces


def needs_policies(config: EnvironmentConfig, names: Sequence[str]) -> ConfigError:
    """Return the error for an environment of several agents if ``multiagent`` names no policies.

    `names` are its agents.
    """
    problem = f"{config.env} has several agents ({', '.join(names)}), and multiagent is not set"
    hint = (
        "write multiagent: {policies: {shared: null}} for one policy that all of them share, or "
        "name a policy for each; or name a function that makes a gymnasium.Env in which one of "
        "them acts and the others are part of the world, env: package.module:function"
    )
    return ConfigError("env", config.env, hint=hint, problem=problem)


def agents_spaces(
    config: EnvironmentConfig, observation: spaces.Space[Any], action: spaces.Space[Any]
) -> dict[str, EnvSpaces]:
    """Return agent → spaces as policies see them; empty for an environment of one agent.

    Raises ConfigError, which names the agent, if no policy can use one of them.
    """
    if not (isinstance(observation, agents.AgentsSpace) and isinstance(action, agents.AgentsSpace)):
        return {}
    by_agent = {}
    for agent, one in observation.of.items():
        try:
            by_agent[agent] = checked_spaces(config, one, action.of[agent])
        except ConfigError as error:
            problem = f"agent {agent}: {error.problem}" if error.problem else ""
            hint = error.hint if problem else f"agent {agent}: {error.hint}"
            raise ConfigError(error.place, error.value, error.allowed, hint, problem) from error
    return by_agent


def _from_package(env: str) -> str:
    """Return advice to write ``module:id`` for an id of a known package; else an empty string."""
    module = next((module for start, module in PACKAGES.items() if env.startswith(start)), "")
    if not module:
        return ""
    return (
        f"it comes with the package {module}, which registers it when it is imported: write "
        f"{module}:{env} (after pip install {module.replace('_', '-')})"
    )


def has_deepmind_wrappers(config: EnvironmentConfig) -> bool:
    """Return whether the environment is an Atari game that the settings put in DeepMind's wrappers.

    False with a preprocessor of the user's own.
    """
    wanted = (
        config.preprocessor_pref == "deepmind" and config.observation_settings.preprocessor is None
    )
    return wanted and is_atari(config.env)


def _creator(
    config: EnvironmentConfig, context: EnvContext, num_envs: int | None, learning: bool
) -> Callable[[], Any]:
    """Return a function without arguments that makes the environment that ``env`` names.

    It makes a vector environment of `num_envs` if given. `learning` is False for an evaluation.
    Finding it may import its module, or register Atari's games. Raises ConfigError if nothing has
    this name.
    """
    env = config.env
    creator = registry.find(env)
    if creator is None and ":" not in env and env not in gymnasium.registry:
        atari.register_games(env)
    if creator is None and ":" in env and env not in gymnasium.registry:
        load_module("env", env)
        env = env.partition(":")[2]  # the import may have registered an id
        if env not in gymnasium.registry:
            creator = load_callable("env", config.env, "an environment class or callable")
    if creator is not None:
        keywords = {} if num_envs is None else {"num_envs": num_envs}
        return partial(registry.call_creator, creator, context, **keywords)
    if env not in gymnasium.registry:
        known = [*registry.registered(), *entry_points(registry.GROUP), *gymnasium.registry]
        hint = _from_package(env) or nearest(config.env, known).removeprefix("; ")
        hint = hint or f"{len(gymnasium.registry)} ids are registered, for example CartPole-v1"
        allowed = "a registered id, a class, or its path package.module:Name"
        problem = f"there is no environment {shorten(config.env)}"
        raise ConfigError("env", config.env, allowed, hint, problem)
    if has_deepmind_wrappers(config):
        size = (
            config.observation_settings.side,
            1 if config.no_framestack else config.observation_settings.frames,
        )
        return lambda: atari.make_game(env, config.env_config, size, learning)
    if num_envs is not None:
        mode = "vector_entry_point"
        return partial(
            gymnasium.make_vec, env, num_envs, vectorization_mode=mode, **config.env_config
        )
    mujoco.log_warnings(gymnasium.registry[env].entry_point)
    # The passive checker costs a call per step; the vector environment checks what it is given.
    return partial(gymnasium.make, env, disable_env_checker=True, **config.env_config)


def _make_compiled(name: str, config: Mapping[str, Any]) -> Env:
    """Make a `gymnasium.Env` of an environment that is a function of JAX arrays.

    Raises ConfigError if JAX is not installed, or there is no such environment.
    """
    try:
        from trainables.envs.compiled.gymnasium_env import make_gymnasium_env
    except ModuleNotFoundError as error:
        problem = f"{name} needs JAX, which cannot be imported ({error})"
        hint = "install it: pip install 'sweep-rl[jax]'"
        raise ConfigError("env", name, hint=hint, problem=problem) from error
    return make_gymnasium_env(name, config)


class SingleEnv(gymnasium.Env[Any, Any]):
    """A native vector environment of size 1, in any autoreset mode, as a `gymnasium.Env`."""

    def __init__(self, vector: VectorEnv[Any, Any, Any]) -> None:
        self.vector = vector
        self.observation_space = vector.single_observation_space
        self.action_space = vector.single_action_space
        self.spec = vector.spec

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode; arguments and results as in gymnasium, but the info is empty."""
        super().reset(seed=seed)
        return self._only_observation(self.vector.reset(seed=seed, options=options)[0]), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Make one step, as in gymnasium.

        At an episode's end the observation is the true last one. The info is always empty.
        """
        sent: Any = create_empty_array(self.action_space)
        sent = concatenate(self.action_space, [action], sent)
        observations, rewards, terminated, truncated, infos = self.vector.step(sent)
        observation = self._only_observation(observations)
        if terminated[0] or truncated[0]:
            at_once = self.vector.metadata.get("autoreset_mode") is AutoresetMode.SAME_STEP
            observation = infos["final_obs"][0] if at_once else observation
        return observation, float(rewards[0]), bool(terminated[0]), bool(truncated[0]), {}

    def _only_observation(self, observations: Any) -> Any:
        """Return the one observation in the vector environment's observations."""
        return next(iter(iterate(batch_space(self.observation_space), observations)))

    def close(self) -> None:
        """Close the vector environment."""
        self.vector.close()
