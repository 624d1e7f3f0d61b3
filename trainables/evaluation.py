"""The settings of evaluation: when, how many episodes, and what is different while evaluating.

How the episodes are played: `evaluation_play.py`. There is no state to save: everything is derived
from the trial's seed and the iteration.
"""

from typing import Any, TypeVar

from pydantic import Field

from trainables import renamed
from trainables.envs import measuring
from trainables.envs.make import EnvironmentConfig, EnvSpaces
from trainables.errors import ConfigError
from trainables.resources import WorkerCount
from trainables.settings import LONGEST_WAIT_S, Section, Settings, override

PLACE = "evaluation_config"
#: Settings of the environment that only training reads: how lanes are made, saved and restored.
OF_TRAINING = frozenset(
    {"native_vector_env", "env_level", "env_replay_limit", "env_measure_timeout_s"}
)
#: What `evaluation_config` may hold beside ``explore``: settings that evaluation reads.
OVERRIDABLE = (
    *(key for key in EnvironmentConfig.model_fields if key not in OF_TRAINING),
    "num_envs_per_worker",
)


class EvaluationConfig(Section):
    """When and how the policy is evaluated."""

    evaluation_interval: int | None = Field(
        default=None,
        gt=0,
        description="Evaluate every so many iterations, and once before the first; null: never.",
    )
    evaluation_num_episodes: int = Field(
        default=10, gt=0, description="Episodes of one evaluation, exactly."
    )
    evaluation_num_workers: WorkerCount = Field(
        default=0,
        description="Child processes that evaluate; 0: the trainer's own process does. The result "
        "does not depend on it.",
    )
    evaluation_timeout_s: float | None = Field(
        default=None,
        gt=0,
        le=LONGEST_WAIT_S,
        description="Seconds for one evaluation, after which a child counts as hung; null: none.",
    )
    evaluation_config: dict[str, Any] = Field(
        default_factory=dict,
        description="What is different while evaluating: `explore` (true: drawn actions, as in "
        "training; false, the default: the most probable ones), settings of the environment "
        "(`env_config` replaces the training's), `num_envs_per_worker`.",
    )


S = TypeVar("S", bound=Settings)


def evaluation_settings(settings: S, config: EvaluationConfig) -> tuple[S, bool]:
    """The settings while evaluating, and whether actions are drawn.

    Raises:
        ConfigError: for a key that evaluation does not read, or a value that cannot be.
    """
    changes = dict(config.evaluation_config)
    explore = changes.pop("explore", False)
    if not isinstance(explore, bool):
        raise ConfigError(f"{PLACE}.explore", explore, "true or false")
    known = ["explore", *OVERRIDABLE]
    for key, value in changes.items():
        if key not in known:
            place = f"{PLACE}.{key}"
            hint = renamed.answer(place, known)
            raise ConfigError(place, value, "a key that evaluation reads", hint)
    if "env" in changes:
        changes.setdefault("env_config", {})
    return override(settings, changes, PLACE), explore


def check_evaluation(environment: EnvironmentConfig, training: EnvSpaces) -> None:
    """Raise ConfigError if the policy could not play the environment of the evaluation."""
    try:
        spaces = measuring.look(environment).spaces
    except ConfigError as error:
        place = f"{PLACE}.{error.place}"
        raise ConfigError(place, error.value, error.allowed, error.hint) from error
    if _lived_in(spaces) != _lived_in(training):
        raise ConfigError(
            f"{PLACE}.env_config",
            environment.env_config,
            "an environment with the training's spaces",
            f"{environment.env} has {spaces}",
        )


def _lived_in(spaces: EnvSpaces) -> tuple[Any, ...]:
    return spaces.observation.shape, spaces.observation_dtype, spaces.action


def is_due(config: EvaluationConfig, iteration: int) -> bool:
    """Whether this iteration (1 is the first) ends with an evaluation."""
    interval = config.evaluation_interval
    return interval is not None and iteration % interval == 0
