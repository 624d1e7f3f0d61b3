"""Dotted paths ``package.module:Name``: their objects, and the names that packages give to them.

A package gives a path a name with an entry point: in its ``pyproject.toml``, under
``[project.entry-points."GROUP"]``, ``name = "package.module:Name"``.
"""

import contextlib
import gc
import importlib
import sys
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from types import ModuleType
from typing import Any

from trainables.errors import ConfigError, NotImportable, nearest, printable


@contextlib.contextmanager
def large_import() -> Iterator[None]:
    """Entered while a large library is imported: Python looks for no garbage in what it makes.

    All of it stays, and to look through it again and again takes a quarter of the time.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


#: Package of another tool → what does its work here.
_INSTEAD = {
    "ray": "; what it reports with tune.report is reported with `from trainables import report`",
    "wandb": "; results are reported with `from trainables import report`",
}


def import_module(path: str) -> ModuleType:
    """The module of ``package.module:Name``; NotImportable if it cannot be imported."""
    name = path.partition(":")[0]
    shown = printable(name)
    try:
        with large_import(), _own_arguments(name):
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if f"{name}.".startswith(f"{error.name}."):
            raise NotImportable(f"no module '{shown}'", absent=True) from error
        needs = f"the module '{printable(str(error.name))}', which is not installed"
        needs += _INSTEAD.get(str(error.name).partition(".")[0], "")
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
def _own_arguments(name: str) -> Iterator[None]:
    """Entered while `name` is imported: it sees no arguments, as those of our command are not its.

    So what a program reads at its import has its defaults, and errors name that program.
    """
    before = sys.argv
    sys.argv = [f"{name.rpartition('.')[2]}.py"]
    try:
        yield
    finally:
        sys.argv = before


def _place_of(error: BaseException, name: str) -> str:
    """Return the place in the module `name` where an error was raised, in brackets, or nothing."""
    own = f"{name.replace('.', '/')}.py"
    frames = traceback.extract_tb(error.__traceback__)
    found = [one for one in frames if one.filename.endswith(own)]
    return f" ({found[-1].filename}:{found[-1].lineno})" if found else ""


def import_object(path: str) -> object:
    """Return the object of ``package.module:Name``; NotImportable if there is none."""
    module = import_module(path)
    name = path.partition(":")[2]
    if not hasattr(module, name):
        own = [n for n, v in vars(module).items() if _is_of(module, v) and not n.startswith("_")]
        problem = f"{module.__name__} has no '{printable(name)}'"
        raise NotImportable(problem, known=own)
    found: object = getattr(module, name)
    return found


def path_to(value: Any) -> str | None:
    """``package.module:Name`` if that leads to `value` in any process."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    if module in (None, "__main__") or "." in name or "<" in name:
        return None
    found = getattr(importlib.import_module(module), name, None)
    return f"{module}:{name}" if found is value else None


def _is_of(module: ModuleType, value: object) -> bool:
    return getattr(value, "__module__", "") == module.__name__


def load_module(place: str, path: str) -> ModuleType:
    """`import_module` for a setting; ConfigError at `place` if it cannot be imported."""
    try:
        return import_module(path)
    except NotImportable as error:
        raise ConfigError(place, path, "a module that can be imported", str(error)) from error


def load(place: str, path: str, what: str) -> Callable[..., Any]:
    """The callable at `path`; ConfigError at `place`, which wants `what`, if there is none."""
    module = load_module(place, path)
    allowed = f"{what} in {module.__name__}"
    try:
        found = import_object(path)
    except NotImportable as error:
        hint = nearest(path.partition(":")[2], error.known or ()).removeprefix("; ")
        raise ConfigError(place, path, allowed, hint) from error
    if not callable(found):
        raise ConfigError(place, path, allowed, f"it is a {type(found).__name__}")
    loaded: Callable[..., Any] = found
    return loaded


def entry_points(group: str) -> list[str]:
    """The names of a group of entry points, sorted; nothing is imported."""
    return sorted(_entry_points(group, tuple(sys.path)))


def path_of(group: str, name: str) -> str | None:
    """The path of an entry point, or None; NotImportable if two packages give two paths."""
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
    """Name → paths; read once, as every installed package is looked into."""
    from importlib import metadata  # a hundredth of a second, which most workers can do without

    found = defaultdict(set)
    for point in metadata.entry_points(group=group):
        found[point.name].add(point.value.partition("[")[0].replace(" ", ""))
    return {name: frozenset(paths) for name, paths in found.items()}
