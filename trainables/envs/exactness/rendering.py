"""Rendering: checks that an environment can be rendered and behaves the same while it is."""

from trainables.core import rng
from trainables.envs.calls.faults import closing
from trainables.envs.calls.rendering import (
    MODE,
    checked_picture,
    draw,
    frames_per_second,
    with_render_mode,
)
from trainables.envs.exactness.comparison import rendering_failure
from trainables.envs.exactness.watching import announce_call, watched
from trainables.envs.make import Env, EnvironmentConfig, make_env, make_raw_env
from trainables.envs.state import mujoco
from trainables.errors import ConfigError, in_yaml


def check_pictures(config: EnvironmentConfig, key: str, value: bool | str) -> float:
    """Check that an environment can be rendered without effect; return its frame rate, 1/s.

    Makes environments and plays them; the process ends if a call hangs. Raises ConfigError, about
    the setting `key` with this `value`, if it cannot draw, or behaves differently while it is
    drawn.
    """
    with watched(config):
        _check_mode(config, key, value)
        with rng.preserve_global():
            announce_call()
            with closing(make_env(with_render_mode(config))) as env:
                announce_call()
                env.reset(seed=0)
                announce_call()
                _check_picture(env, config, key, value)
                fps = frames_per_second(env)
            why = rendering_failure(config)
    if why:
        raise ConfigError.of_conflict(key, value, config.env, "false", why)
    return fps


def _check_mode(config: EnvironmentConfig, key: str, value: bool | str) -> None:
    """Raise ConfigError, about the setting `key`, if the environment cannot draw in its mode.

    That is ``render_mode`` of `env_config`, else the one of pictures, which `record_env` demands.
    MuJoCo's environments also need a screen. Makes and closes an environment.
    """
    named = config.env_config.get("render_mode", MODE)
    if key == "record_env" and named != MODE:
        raise ConfigError(
            "env_config.render_mode",
            named,
            hint=f"remove it: {key} sets {MODE} itself",
            problem=f"{named} cannot be used with {key}: {in_yaml(value)}, which needs pictures",
        )
    with closing(make_raw_env(config)) as env:
        modes = [str(mode) for mode in env.metadata.get("render_modes") or ()]
        why = mujoco.why_no_picture(env)
    if named not in modes:
        known = f"only the render modes {', '.join(modes)}" if modes else "no render modes"
        why = f"its metadata has {known}, not {named}"
    if why:
        raise ConfigError.of_conflict(key, value, config.env, "false", why)


def _check_picture(env: Env, config: EnvironmentConfig, key: str, value: bool | str) -> None:
    """Raise ConfigError, about the setting `key`, if ``render()`` raises or returns no picture.

    None and bools, of an environment that draws elsewhere, are refused only for `record_env`.
    """
    try:
        returned = draw(env)
    except Exception as error:
        why = f"its render() raised {type(error).__name__}: {error}"
        raise ConfigError.of_conflict(key, value, config.env, "false", why) from error
    if checked_picture(returned, key) is None and key == "record_env":
        why = f"its render() returned {returned} instead of a picture"
        raise ConfigError.of_conflict(key, value, config.env, "false", why)
