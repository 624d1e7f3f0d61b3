"""Dotted paths ``package.module:Name``: their objects, and the names that packages give to them.

A package gives a path a name with an entry point: in its ``pyproject.toml``, under
``[project.entry-points."GROUP"]``, ``name = "package.module:Name"``.
"""

import contextlib
import gc
import importlib
import importlib.util
import sys
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from types import ModuleType
from typing import Any

from trainables.errors import ConfigError, NotImportable, nearest, printable, shorten, type_of


@contextlib.contextmanager
def large_import() -> Iterator[None]:
    """Disable garbage collection inside the block, which imports a large library.

    All that an import makes stays alive, so collections only cost time: a quarter of the import.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


#: Top-level package of another tool → advice on which function replaces it here.
_REPLACEMENTS = {
    "ray": "; what it reports with tune.report is reported with `from trainables import report`",
    "wandb": "; results are reported with `from trainables import report`",
}


def import_module(path: str) -> ModuleType:
    """Import and return the module of ``package.module:Name``.

    Raises NotImportable if the module does not exist, or importing it raised or ended the program.
    """
    name = path.partition(":")[0]
    shown = printable(name)
    try:
        with large_import(), _hidden_arguments(name):
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if f"{name}.".startswith(f"{error.name}."):
            raise NotImportable(f"there is no module '{shown}'", absent=True) from error
        needs = f"the module '{printable(str(error.name))}', which is not installed"
        needs += _REPLACEMENTS.get(str(error.name).partition(".")[0], "")
        raise NotImportable(f"'{shown}' imports {needs}") from error
    except SystemExit as error:
        raise NotImportable(
            f"'{shown}' ended the program while it was imported{_place_of(error, name)}: it reads "
            f"its arguments, or runs, as soon as it is imported; put that below "
            f"`if __name__ == '__main__':`"
        ) from error
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        raised = f"{type(error).__name__}: {error} ({where.filename}:{where.lineno})"
        raise NotImportable(f"importing '{shown}' raised {raised}") from error


@contextlib.contextmanager
def _hidden_arguments(name: str) -> Iterator[None]:
    """Hide this command's arguments from the code that the block imports.

    `sys.argv` is the file name of the module `name` alone, such as ``["train.py"]``. A script that
    parses arguments when imported then gets its defaults, and its error messages name that script.
    """
    before = sys.argv
    sys.argv = [f"{name.rpartition('.')[2]}.py"]
    try:
        yield
    finally:
        sys.argv = before


def _place_of(error: BaseException, name: str) -> str:
    """Return the line of the module `name` from which `error` came, as `` (file:line)``, or ""."""
    own = f"{name.replace('.', '/')}.py"
    frames = traceback.extract_tb(error.__traceback__)
    found = [one for one in frames if one.filename.endswith(own)]
    return f" ({found[-1].filename}:{found[-1].lineno})" if found else ""


def module_origin(name: str) -> str | None:
    """Return the path of a top-level module's file, or its kind, such as "built-in".

    Imports nothing. Returns None if there is no such module, or it has no file, as a namespace
    package.
    """
    try:
        found = importlib.util.find_spec(name)
    except ValueError:  # as of __main__, which was imported by no name
        return None
    return None if found is None else found.origin


def import_object(path: str) -> object:
    """Return the object at ``package.module:Name``.

    Raises NotImportable if the module cannot be imported or has no such name.
    """
    module = import_module(path)
    name = path.partition(":")[2]
    if not hasattr(module, name):
        public = [
            n
            for n, v in vars(module).items()
            if getattr(v, "__module__", "") == module.__name__ and not n.startswith("_")
        ]
        problem = f"{module.__name__} has no '{printable(name)}'"
        raise NotImportable(problem, known_names=public)
    found: object = getattr(module, name)
    return found


def import_path_of(value: Any) -> str | None:
    """Return the path ``package.module:Name`` by which any process can import a class or function.

    Imports the module. Returns None for values that are local, nested, defined in ``__main__`` or
    not found in their module by their name. Raises ImportError if the module cannot be imported.
    """
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    if module in (None, "__main__") or "." in name or "<" in name:
        return None
    found = getattr(importlib.import_module(module), name, None)
    return f"{module}:{name}" if found is value else None


def load_module(place: str, path: str) -> ModuleType:
    """Import the module of ``package.module:Name``, the value of the setting `place`.

    Raises ConfigError, which names `place`, if the import fails.
    """
    try:
        return import_module(path)
    except NotImportable as error:
        problem = f"{shorten(path)} cannot be loaded: {error}"
        hint = "correct the name, or install its package" if error.absent else ""
        raise ConfigError(place, path, hint=hint, problem=problem) from error


def load_callable(place: str, path: str, description: str) -> Callable[..., Any]:
    """Import the callable at ``package.module:Name``, the value of the setting `place`.

    Raises ConfigError if there is none; the message says that `description` was expected.
    """
    module = load_module(place, path)
    allowed = f"{description} in {module.__name__}"
    try:
        imported = import_object(path)
    except NotImportable as error:
        hint = nearest(path.partition(":")[2], error.known or ()).removeprefix("; ")
        raise ConfigError(place, path, allowed, hint, str(error)) from error
    if not callable(imported):
        problem = f"{shorten(path)} is {type_of(imported)}, which cannot be called"
        raise ConfigError(place, path, allowed, problem=problem)
    loaded: Callable[..., Any] = imported
    return loaded


def entry_points(group: str) -> list[str]:
    """Return the sorted names of the entry points in `group`, without importing them."""
    return sorted(_entry_points(group, tuple(sys.path)))


def entry_point_path(group: str, name: str) -> str | None:
    """Return the path ``package.module:Name`` to which an installed entry point leads.

    Returns None if no package declares `name` in the entry-point group `group`.

    Raises NotImportable if two installed packages use the name for different paths.
    """
    paths = _entry_points(group, tuple(sys.path)).get(name, ())
    if len(paths) > 1:
        meant = " and ".join(sorted(paths))
        problem = f"installed packages call both {meant} '{printable(name)}'; write the path"
        raise NotImportable(problem)
    return next(iter(paths), None)


@lru_cache(maxsize=64)
def _entry_points(
    group: str,
    path: tuple[str, ...],  # noqa: ARG001 what is kept holds for this import path alone
) -> Mapping[str, frozenset[str]]:
    """Return name → paths of the entry points in `group`.

    Cached by import path, since it reads the metadata of every installed package.
    """
    from importlib import metadata  # a hundredth of a second, which most workers can do without

    found = defaultdict(set)
    for point in metadata.entry_points(group=group):
        found[point.name].add(point.value.partition("[")[0].replace(" ", ""))
    return {name: frozenset(paths) for name, paths in found.items()}
