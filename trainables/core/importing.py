"""What a dotted path ``package.module:Name`` in the settings stands for."""

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

from trainables.errors import ConfigError, nearest


def load_module(place: str, path: str) -> ModuleType:
    """The module of ``package.module:Name``; ConfigError at `place` if it cannot be imported."""
    try:
        return importlib.import_module(path.partition(":")[0])
    except Exception as error:
        why = f"it raised {type(error).__name__}: {error}"
        raise ConfigError(place, path, "a module that can be imported", why) from error


def load(place: str, path: str, what: str) -> Callable[..., Any]:
    """The class or callable at `path`.

    Args:
        place: the setting that names it, for errors.
        path: ``package.module:Name``.
        what: it should be, in words, for errors.

    Raises:
        ConfigError: no such module, or nothing callable of that name in it.
    """
    module_name, _, name = path.partition(":")
    module = load_module(place, path)
    found = getattr(module, name, None)
    if not callable(found):
        hint = nearest(name, vars(module)).removeprefix("; ")
        raise ConfigError(place, path, f"{what} in {module_name}", hint)
    loaded: Callable[..., Any] = found
    return loaded
