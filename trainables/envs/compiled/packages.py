"""Environments of other packages: their import, and errors about names and settings."""

from collections.abc import Iterable, Mapping
from typing import Any

from trainables.core.importing import import_module
from trainables.errors import ConfigError, NotImportable, nearest, shorten


def import_package(module: str, value: str, distributions: str) -> Any:
    """Import and return a module of an optional package.

    Raises ConfigError about `value` of ``env`` if that fails. `distributions` are arguments of pip
    that install the package, for the message.
    """
    try:
        return import_module(module)
    except NotImportable as error:
        package = module.partition(".")[0]
        problem = f"{value} needs the package {package}, which cannot be imported ({error})"
        hint = f"install it: pip install {distributions}"
        raise ConfigError("env", value, hint=hint, problem=problem) from error


def check_name(name: str, known: Iterable[str], value: str, place: str) -> None:
    """Raise ConfigError about `value` of ``env`` if `name` is not among the `known` names.

    The message says that they are found at `place` in the package, and names a similar one.
    """
    names = sorted(known)
    if name not in names:
        hint = nearest(name, names).removeprefix("; ")
        hint = hint or f"choose a name in {place}"
        problem = f"{value.partition(':')[0]} has no environment {shorten(name)}"
        raise ConfigError("env", value, hint=hint, problem=problem)


def refused_settings(config: Mapping[str, Any], name: str, error: Exception) -> ConfigError:
    """Return an error that the environment `name` cannot be made from `config`.

    `error` is the exception that was raised; the message has the first line of its text.
    """
    text = str(error.args[0] if error.args else error).splitlines() or [""]
    raised = f"it raised {type(error).__name__}: {text[0]}"
    problem = f"{name} cannot be made from {shorten(dict(config))}: {raised}"
    return ConfigError("env_config", dict(config), problem=problem)
