"""The environment of compiled programs that a value of ``env`` names."""

import functools
import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from trainables.core.importing import load_callable
from trainables.envs.compiled import classic, is_compiled
from trainables.envs.compiled.contract import Environment
from trainables.envs.compiled.gymnax_env import GymnaxEnv
from trainables.envs.compiled.packages import refused_settings
from trainables.envs.compiled.physics_env import make_brax, make_playground
from trainables.envs.compiled.user_class import UserEnvironment
from trainables.errors import ConfigError, nearest, shorten

#: Prefix of ``env`` → function from name and settings to an object that `UserEnvironment` steps.
_PACKAGES: Mapping[str, Callable[[str, Mapping[str, Any]], Any]] = {
    "gymnax": GymnaxEnv,
    "brax": make_brax,
    "playground": make_playground,
}


class EnvKey(NamedTuple):
    """The settings that name an environment of compiled programs; hashable."""

    name: str
    """Value of ``env``."""
    config: str = "{}"
    """Value of ``env_config`` as JSON."""


def key_of(name: str, config: Mapping[str, Any]) -> EnvKey | None:
    """Return the settings of an environment of compiled programs; None if `name` is none of these.

    Names of gymnasium's classic control need no prefix. The environment is not made.

    Raises:
        ConfigError: it takes no such ``env_config``, or that is no JSON data.
    """
    if name not in classic.KNOWN and not is_compiled(name):
        return None
    if config and name.removeprefix("jax:") in classic.KNOWN:
        problem = f"{name} has no settings in a compiled program"
        raise ConfigError("env_config", dict(config), hint="remove it", problem=problem)
    try:
        return EnvKey(name, json.dumps(config, sort_keys=True))
    except (TypeError, ValueError) as error:
        problem = f"the settings of {name} in a compiled program must be JSON data: {error}"
        hint = "write only numbers, texts, lists and dicts"
        raise ConfigError("env_config", dict(config), hint=hint, problem=problem) from error


@functools.cache
def make(key: EnvKey) -> Environment:
    """Return the environment that these settings name; the same object for equal settings.

    Raises:
        ConfigError: there is no such environment, it cannot be made from its ``env_config``, or it
            does not fulfil the contract.
    """
    kind, name = ("jax", key.name) if key.name in classic.KNOWN else key.name.split(":", 1)
    config = json.loads(key.config)
    if (package := _PACKAGES.get(kind)) is not None:
        return UserEnvironment(package(name, config), key.name)
    if (found := classic.KNOWN.get(name)) is not None:
        return found
    if ":" not in name:
        hint = nearest(name, classic.KNOWN)
        named = f"one of {', '.join(classic.KNOWN)}"
        allowed = f"jax:NAME, where NAME is {named}, or the path of a class, my_module:Corridor"
        problem = f"there is no compiled environment {shorten(name)}"
        raise ConfigError("env", key.name, allowed, hint, problem)
    try:
        cls = load_callable("env", name, "a class")
    except ConfigError as error:
        mistake = (error.allowed, error.hint, error.problem)
        raise ConfigError("env", key.name, *mistake) from error
    try:
        made = cls(**config)
    except Exception as error:
        raise refused_settings(config, name, error) from error
    return UserEnvironment(made, key.name)
