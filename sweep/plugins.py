"""Finding plugins: a file's name is its plugin's name, and adding the file is the registration.

Five places hold plugins: ``trainables/algorithms``, and ``schedulers``, ``searchers``, ``pools``
and ``trackers`` in ``sweep``. A trainable or a scheduler can be named by a path
``package.module:Name`` too.
"""

import importlib
import inspect
import pkgutil
import sys
import traceback
from collections.abc import Iterable
from types import ModuleType

from sweep.errors import UnknownName, UsageError
from trainables.errors import printable
from trainables.function import wrap
from trainables.trainable import Trainable


def names(package: str) -> list[str]:
    """The plugins of `package`: its modules whose names have no leading underscore."""
    found = pkgutil.iter_modules(importlib.import_module(package).__path__)
    return sorted(module.name for module in found if not module.name.startswith("_"))


def check(package: str, name: str, what: str) -> None:
    """Raise UnknownName if `package` has no plugin `name`; nothing of it is imported."""
    known = names(package)
    if name not in known:
        raise UnknownName(what, name, known)


def load(package: str, name: str, what: str) -> ModuleType:
    """The module of plugin `name`; `what` names its kind in the error."""
    check(package, name, what)
    return importlib.import_module(f"{package}.{name}")


def find_trainable(name: str, paths: Iterable[str]) -> type[Trainable]:
    """The trainable that a spec names; from then on what its settings name is found there too.

    Args:
        name: a file in ``trainables/algorithms``, or ``package.module:Name``.
        paths: folders in which modules are looked for after everything installed.
    """
    add_paths(paths)
    if ":" in name:
        return _as_trainable(import_object(name, paths, "trainable"), name)
    module = load("trainables.algorithms", name, "trainable")
    own = [
        value
        for value in vars(module).values()
        if inspect.isclass(value)
        and issubclass(value, Trainable)
        and value.__module__ == module.__name__
    ]
    if len(own) != 1:
        raise UsageError(f"{module.__name__}: defines {len(own)} trainables; expected exactly one")
    return own[0]


def add_paths(paths: Iterable[str]) -> None:
    """Append folders to the import path, so that nothing installed is ever hidden by them.

    Children inherit it: rollout workers, environments of their own, evaluation workers.
    """
    for path in paths:
        if path not in sys.path:
            sys.path.append(path)


def import_object(name: str, paths: Iterable[str], what: str) -> object:
    """What ``package.module:Name`` stands for; `what` names its kind in errors.

    Args:
        name: the path.
        paths: folders in which modules are looked for after everything installed.
        what: for example ``trainable``.
    """
    add_paths(paths)
    module_name, _, attribute = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if not f"{module_name}.".startswith(f"{error.name}."):
            raise UsageError(
                f"{what}: '{printable(module_name)}' imports the module "
                f"'{printable(str(error.name))}', which is not installed"
            ) from error
        raise UsageError(
            f"{what}: no module '{printable(module_name)}' beside the spec file, in the current "
            f"folder or among the installed packages"
        ) from error
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        raise UsageError(
            f"{what}: importing '{printable(module_name)}' raised {type(error).__name__}: "
            f"{error} ({where.filename}:{where.lineno})"
        ) from error
    if not hasattr(module, attribute):
        raise UnknownName(f"{what} in {module_name}", attribute, _public(module))
    found: object = getattr(module, attribute)
    return found


def _as_trainable(found: object, name: str) -> type[Trainable]:
    if inspect.isclass(found) and issubclass(found, Trainable):
        return found
    if inspect.isfunction(found):
        return wrap(found)
    raise UsageError(
        f"trainable: '{printable(name)}' is a {type(found).__name__}; expected a subclass of "
        f"trainables.Trainable or a function"
    )


def _public(module: ModuleType) -> list[str]:
    here = [n for n, v in vars(module).items() if getattr(v, "__module__", "") == module.__name__]
    return [name for name in here if not name.startswith("_")]
