"""What a dotted path ``package.module:Name`` in the settings stands for."""

import importlib
from collections.abc import Callable
from typing import Any

from trainables.errors import ConfigError, nearest


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
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        why = f"it raised {type(error).__name__}: {error}"
        raise ConfigError(place, path, "a module that can be imported", why) from error
    found = getattr(module, name, None)
    if not callable(found):
        hint = nearest(name, vars(module)).removeprefix("; ")
        raise ConfigError(place, path, f"{what} in {module_name}", hint)
    loaded: Callable[..., Any] = found
    return loaded
