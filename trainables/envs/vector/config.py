"""Stepping of environments side by side: the settings, and checks that they are compatible."""

import logging

from pydantic import Field

from trainables.core.settings import LONGEST_WAIT_S, Section
from trainables.envs.kinds.pool import ENVPOOL
from trainables.envs.make import MANY_ENVS, EnvironmentConfig, has_equal_native_form, is_vector_only
from trainables.errors import ConfigError

logger = logging.getLogger(__name__)
#: Settings that no native vector environment supports.
ONLY_SEPARATE = ("restart_failed_sub_environments", "remote_worker_envs")
#: Setting that they contradict, for error messages.
_NATIVE = "native_vector_env: true"
#: Advice to change that setting.
_SEPARATE = "set native_vector_env to false"


class VectorConfig(Section):
    """Settings of a worker's environments: their steps, horizons and restarts."""

    horizon: int | None = Field(
        default=None,
        gt=0,
        description="Number of steps after which an episode is truncated and its last value "
        "bootstrapped; null: the environment's own limit, if it has one.",
    )
    soft_horizon: bool = Field(
        default=False,
        description="End episodes at the horizon for the metrics only: the environment is not "
        "reset, and the policy does not see an end. Ends of episodes that the environment itself "
        "reports are not affected.",
    )
    no_done_at_end: bool = Field(
        default=False,
        description="Store terminated episodes as truncated, so the value of the last observation "
        "is bootstrapped.",
    )
    restart_failed_sub_environments: bool = Field(
        default=False,
        description="Replace an environment that raises an exception, dies or times out with a "
        "new one that has a new seed; the episode is lost, and the other environments continue. "
        "Violations of gymnasium's interface remain errors.",
    )
    remote_worker_envs: bool = Field(
        default=False,
        description="Run each environment of a worker or of an evaluation in its own process.",
    )
    remote_env_batch_wait_ms: float = Field(
        default=0.0,
        ge=0,
        description="Milliseconds after which the environments that are ready, at least one, "
        "continue without the others; such a trial is not bit-exact. 0: each step waits for all "
        "environments, so results do not depend on their speed. Only with remote_worker_envs.",
    )
    env_step_timeout_s: float | None = Field(
        default=None,
        gt=0,
        le=LONGEST_WAIT_S,
        description="Maximum seconds for a step or reset, after which the environment's process "
        "is killed; null: no limit. Only with remote_worker_envs.",
    )
    external_timeout_s: float = Field(
        default=300.0,
        gt=0,
        le=LONGEST_WAIT_S,
        description="Maximum seconds between two requests from an environment that calls the "
        "trainer (an ExternalEnv or PolicyServer), after which the trial ends with an error.",
    )

    @property
    def hard_horizon(self) -> int | None:
        """Number of steps after which an episode is truncated and reset.

        None without a horizon, or if it is soft: it then only ends episodes for the metrics.
        """
        return None if self.soft_horizon else self.horizon


def check_vector_env(
    environment: EnvironmentConfig, config: VectorConfig, limit: int | None
) -> None:
    """Raise ConfigError for settings that contradict each other or this environment.

    `limit` is the environment's own limit of steps per episode, or None. Without a horizon, the log
    says at DEBUG how episodes end.
    """
    check_processes(config)
    if environment.is_native:
        _check_native(config)
        if environment.action_mask:
            given, why = environment.action_mask, "masks are read from separate environments"
            raise ConfigError.of_conflict("action_mask", given, _NATIVE, "null", why, _SEPARATE)
    if config.horizon is not None or config.soft_horizon:
        check_horizon(environment, config, limit)
    else:
        _note_limit(environment, limit)


def check_processes(config: VectorConfig) -> None:
    """Raise ConfigError for settings that need environments in their own processes, without these.

    They are `remote_env_batch_wait_ms` and `env_step_timeout_s`.
    """
    if config.remote_env_batch_wait_ms and not config.remote_worker_envs:
        problem = (
            "has no effect without remote_worker_envs: true, since only environments in separate "
            "processes can continue without the others"
        )
        hint = "set it to 0, or set remote_worker_envs to true"
        given = config.remote_env_batch_wait_ms
        raise ConfigError("remote_env_batch_wait_ms", given, hint=hint, problem=problem)
    if config.env_step_timeout_s is not None and not config.remote_worker_envs:
        problem = (
            "has no effect without remote_worker_envs: true, since only a separate process can be "
            "killed"
        )
        hint = "remove it, or set remote_worker_envs to true"
        given = config.env_step_timeout_s
        raise ConfigError("env_step_timeout_s", given, hint=hint, problem=problem)


def why_separate(environment: EnvironmentConfig, config: VectorConfig, count: int) -> str:
    """Return the reason why `count` environments should be separate objects, not a native vector.

    Returns "" if a native vector environment is better, as it is for many, or the only form. May
    import the environment's class; raises ConfigError if that fails.
    """
    if environment.env_engine == ENVPOOL:
        return next((f"{name} is true" for name in ONLY_SEPARATE if getattr(config, name)), "")
    if environment.action_mask:
        return f"action_mask: {environment.action_mask} is read from each environment"
    if is_vector_only(environment):
        return ""
    return _why_separate(environment, config, count)


def _why_separate(environment: EnvironmentConfig, config: VectorConfig, count: int) -> str:
    """Return the reason for separate objects, as `why_separate`, for gymnasium's environments."""
    if not has_equal_native_form(environment):
        return f"{environment.env} has no vector form that is known to be equivalent"
    if count < MANY_ENVS:
        return f"{count} environment(s) are faster one by one"
    if environment.env_level == "B":
        return "env_level: B replays each episode in its own environment"
    for name in ONLY_SEPARATE:
        if getattr(config, name):
            return f"{name} is true"
    return ""


def _check_native(config: VectorConfig) -> None:
    """Raise ConfigError for settings that no native vector environment supports."""
    for name in ONLY_SEPARATE:
        if getattr(config, name):
            why = "all environments are one object, and none can be restarted or moved alone"
            raise ConfigError.of_conflict(name, True, _NATIVE, "false", why, _SEPARATE)


def check_horizon(environment: EnvironmentConfig, config: VectorConfig, limit: int | None) -> None:
    """Raise ConfigError for a horizon beyond the environment's own `limit` of steps.

    Also if neither the setting ``horizon`` nor the environment gives the number of steps of a soft
    horizon. A `limit` of None is no limit.
    """
    if config.horizon is None:
        if limit is None:
            problem = (
                f"true has no effect, because {environment.env} has no limit of steps, and horizon "
                "is not set"
            )
            hint = "set horizon too, or set soft_horizon to false"
            raise ConfigError("soft_horizon", True, hint=hint, problem=problem)
    elif limit is not None and config.horizon > limit:
        problem = f"{config.horizon} is more than the environment's own limit of {limit} steps"
        hint = (
            f"lower it to {limit}, or raise the limit with env_config: "
            f"{{max_episode_steps: {config.horizon}}}"
        )
        raise ConfigError("horizon", config.horizon, hint=hint, problem=problem)


def _note_limit(environment: EnvironmentConfig, limit: int | None) -> None:
    """Log at DEBUG how episodes end if no horizon is set: by `limit`, or by themselves alone."""
    if limit is None:
        logger.debug(
            "no horizon is set and %s has no limit of its own: an episode may continue forever",
            environment.env,
        )
    else:
        logger.debug(
            "no horizon is set: %s cuts its episodes off after %d steps", environment.env, limit
        )
