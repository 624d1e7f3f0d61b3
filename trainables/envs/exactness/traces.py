"""Traces of environments outside their state: in their objects, classes and modules.

A short run does not reach a counter's effect after a thousand episodes, but it can see that
something counts. Only values that Python can read are compared, not a simulator's own memory.
"""

import functools
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from trainables.envs.state.capture import CODE, STRUCTURE, KeepsState, layers
from trainables.envs.state.plain import fingerprint, is_plain

Traces = Mapping[str, str]
"""Path of a value inside an environment → SHA-256 of the value."""

#: Largest number of values.
MAX_VALUES = 20_000
#: Largest nesting depth of values.
MAX_DEPTH = 6

#: Package that is skipped: it holds the registry, and its environments write to no module.
LIBRARY = "gymnasium"
#: Packages whose classes are skipped: they hold no environment's own values.
NO_PACKAGES = (LIBRARY, "builtins", "typing", "abc", "trainables")
#: Standard modules that make results depend on more than a seed: clocks, threads, other processes.
CHANCE = frozenset(
    {
        *("asyncio", "concurrent", "datetime", "multiprocessing", "queue", "secrets", "selectors"),
        *("socket", "subprocess", "_thread", "threading", "time", "uuid"),
    }
)
#: Types of values that are skipped.
NO_TRACE = (
    *CODE,
    functools.partial,
    property,
    classmethod,
    staticmethod,
    types.MethodType,
    types.GeneratorType,
    spaces.Space,  # their streams are seeded, not remembered
)


def object_values(sub_env: Any) -> Traces:
    """Return fingerprints of the values in one environment's objects, except gymnasium's wrappers.

    At most `MAX_VALUES` are recorded.
    """
    walk = _Walk()
    for layer in _all_layers(sub_env):
        if not type(layer).__module__.startswith(f"{LIBRARY}.wrappers"):
            own = {name: value for name, value in vars(layer).items() if name not in STRUCTURE}
            walk.visit_names(type(layer).__name__, own)
    return walk.found


def class_values(sub_env: Any) -> Traces:
    """Return fingerprints of the values in an environment's classes and its package's modules.

    Classes and modules of gymnasium, `trainables` and Python itself are left out. At most
    `MAX_VALUES` are recorded.
    """
    walk = _Walk()
    for layer in _all_layers(sub_env):
        for kind in type(layer).__mro__:
            if _package(kind.__module__) not in NO_PACKAGES:
                walk.visit_names(kind.__qualname__, _data(vars(kind)))
                for names in _carried(kind):
                    walk.visit_names(str(names["__name__"]), _data(names))
    for name in sorted(_modules(sub_env)):
        walk.visit_names(name, _data(vars(sys.modules[name])))
    return walk.found


def hints_of_chance(sub_env: Any) -> list[str]:
    """Return the standard modules by which an environment may depend on chance, such as ``time``.

    They are those of `CHANCE` in the global names of the environment's package, sorted, without
    leading underscores.
    """
    packages = {_package(one) for name in _modules(sub_env) for one in _source_modules(name)}
    return sorted({package.lstrip("_") for package in packages & CHANCE})


def changed(before: Traces, after: Traces) -> list[str]:
    """Return the paths whose values differ, or that exist on one side only."""
    return sorted(path for path in {*before, *after} if before.get(path) != after.get(path))


def _all_layers(sub_env: Any) -> Iterator[Any]:
    """Yield the environment and all its wrappers, also those inside a `KeepsState`."""
    for layer in layers(sub_env):
        if not isinstance(layer, KeepsState):
            yield layer
            continue
        yield from _all_layers(getattr(layer, "env", None))


def _carried(kind: type[Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the global variables, name → value, of methods that came with a pickled class.

    None of a class that was imported.
    """
    seen = list[Any]()
    for value in list(vars(kind).values()):
        names = getattr(value, "__globals__", None)
        if not isinstance(names, dict) or any(names is one for one in seen):
            continue
        seen.append(names)
        home = sys.modules.get(str(names.get("__name__")))
        if "__name__" in names and (home is None or vars(home) is not names):
            yield names


def _modules(sub_env: Any) -> set[str]:
    """Return the names of modules of an environment's classes, and those of its package they use.

    Without modules of gymnasium and of `trainables`, and those that are not imported.
    """
    waiting = [type(layer).__module__ for layer in _all_layers(sub_env)]
    packages = {_package(name) for name in waiting} - {LIBRARY, "trainables"}
    names: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in names or _package(name) not in packages or name not in sys.modules:
            continue
        names.add(name)
        waiting += _source_modules(name)
    return names


def _source_modules(module: str) -> list[str]:
    """Return the names of modules to which a module's global names refer, or that define them."""
    values = list(vars(sys.modules[module]).values())
    origins = [
        value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", 0)
        for value in values
    ]
    return [origin for origin in origins if isinstance(origin, str)]


def _package(module: str) -> str:
    """Return the top-level package of a module, by the module's name."""
    return module.partition(".")[0]


def _data(names: Mapping[str, Any]) -> dict[str, Any]:
    """Return `names` without those that begin with two underscores."""
    return {name: value for name, value in names.items() if not name.startswith("__")}


class _Walk:
    """A walk through values that collects their fingerprints by path in `found`.

    It descends into containers and objects.
    """

    def __init__(self) -> None:
        self.found: dict[str, str] = {}
        self._seen: dict[int, Any] = {}  # the values as well: an identity is free when they are

    def visit_names(self, path: str, names: Mapping[Any, Any], depth: int = 0) -> None:
        """Record the fingerprints of the values of `names` below `path` in `found`.

        `depth` is the number of containers around them; values that are too deep, code, spaces, and
        values beyond `MAX_VALUES` are left out.
        """
        for name, value in names.items():
            self._visit(f"{path}.{name}", value, depth)

    def _visit(self, path: str, value: Any, depth: int) -> None:
        """Record a value's fingerprint under `path` in `found`, or descend into the value.

        Does nothing for code and spaces, for a value that was visited before, at too great a depth,
        or once `MAX_VALUES` are recorded. `depth` is the number of containers around it.
        """
        if isinstance(value, NO_TRACE) or len(self.found) >= MAX_VALUES or depth > MAX_DEPTH:
            return
        if is_plain(value):
            self.found[path] = fingerprint(value)
            return
        if id(value) in self._seen:
            return
        self._seen[id(value)] = value
        if isinstance(value, Mapping | list | tuple):
            self.found[path] = str(len(value))
            items = value if isinstance(value, Mapping) else enumerate(value)
            self.visit_names(path, dict(items), depth + 1)
        elif not isinstance(value, np.ndarray):
            self.visit_names(path, _data(getattr(value, "__dict__", {})), depth + 1)
