"""Finding plugins: a name, a dotted path or an entry point becomes a class.

Five packages contain the built-in plugins: ``trainables/algorithms``, and ``schedulers``,
``searchers``, ``pools`` and ``trackers`` in ``sweep``. A file's name is its plugin's name, and
adding the file registers the plugin. Other plugins are given by a path ``package.module:Name``, or
by the name of an entry point of an installed package, in a group with the package's name.
"""

import contextlib
import importlib
import inspect
import pkgutil
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sweep.core.errors import NotLoaded, SweepError, UnknownName, UsageError
from trainables.core import importing
from trainables.errors import NotImportable, nearest, printable, type_of

if TYPE_CHECKING:
    from sweep.core.pickled import PickledTrainable
    from trainables.trainable import Trainable


T = TypeVar("T")
#: Prefix of the note that names the plugin that raised an error.
_RAISED_BY = "raised by "


def names(package: str) -> list[str]:
    """Return the names of the built-in plugins in a package, sorted.

    They are its modules without a leading underscore. The package is imported, not its modules.
    """
    found = pkgutil.iter_modules(importlib.import_module(package).__path__)
    return sorted(module.name for module in found if not module.name.startswith("_"))


def raised_by(error: Exception) -> str:
    """Return the user's plugin and method that raised an error, as noted by `Kind.calling`.

    For example ``plan() of the scheduler 'mine:Scheduler'``; empty if no plugin raised it.
    """
    notes = (note for note in getattr(error, "__notes__", ()) if note.startswith(_RAISED_BY))
    return next(notes, "").removeprefix(_RAISED_BY)


def add_paths(paths: Iterable[str]) -> None:
    """Append folders that are missing to `sys.path`; at its end they hide no installed modules.

    Child processes inherit the path: workers, environments and evaluation workers.
    """
    for path in paths:
        if path not in sys.path:
            sys.path.append(path)


def _module_names(paths: Iterable[str]) -> list[str]:
    """Return the names of the modules directly in these folders."""
    return [file.stem for folder in paths for file in sorted(Path(folder).glob("*.py"))]


def _hiding(module: str, paths: Iterable[str]) -> str:
    """Return `` (FILE, which comes before …)`` if FILE is imported instead of a module in `paths`.

    Returns an empty text if none hides it, or if `module` is inside a package.
    """
    top, _, below = module.partition(".")
    origin = importing.module_origin(top)
    own = [file for folder in paths if (file := Path(folder, f"{top}.py")).is_file()]
    if below or not own or origin is None or own[0].resolve() == Path(origin).resolve():
        return ""
    return f" ({printable(origin)}, which comes before {printable(str(own[0]))}: rename that file)"


@dataclass(frozen=True)
class Kind(Generic[T]):
    """One kind of plugin, such as searchers, whose classes are derived from one base."""

    noun: str
    """Name of the kind in messages, such as ``searcher``."""
    package: str
    """Package with the built-in plugins, which is also the group of entry points."""
    base: type[Any]
    """Base class of all plugins of this kind."""
    attribute: str = ""
    """Name of the class in the file of a built-in plugin; empty to take the only class derived from
    `base`."""
    defines: tuple[str, ...] = ()
    """Names of attributes that each class must define, instead of inheriting those of `base`."""

    def is_shipped(self, name: str) -> bool:
        """Return whether a built-in plugin has this name."""
        return ":" not in name and name in names(self.package)

    def is_installed(self, name: str) -> bool:
        """Return whether a built-in plugin or an entry point has this name.

        Its code belongs to an installed package, not to the author of a spec.
        """
        return self.is_shipped(name) or name in importing.entry_points(self.package)

    def find(self, name: str, paths: Iterable[str] = ()) -> type[T]:
        """Import and return the class of the plugin `name`.

        Args:
            name: a file's name, ``package.module:Name``, or the name of an entry point.
            paths: folders in which modules are looked for after everything installed; unless the
                plugin is built in, they are appended to `sys.path`.

        Raises:
            UnknownName: no such plugin or entry point exists, or the module lacks the name.
            UsageError: it cannot be imported, or is not a class of this kind.
        """
        if self.is_shipped(name):
            return self._shipped(name)
        return self.checked(name, self.imported(name, paths))

    def imported(self, name: str, paths: Iterable[str]) -> object:
        """Import and return the object at a path or entry point, without checking it.

        Appends `paths` to `sys.path`. Raises UnknownName if there is no such entry point, or the
        module lacks the name, and UsageError if the import fails.
        """
        add_paths(paths)
        path: str | None = name
        try:
            if ":" not in name:
                path = importing.entry_point_path(self.package, name)
            if path is None:
                known = [*names(self.package), *importing.entry_points(self.package)]
                raise UnknownName(self.noun, name, known, "or name your own as package.module:Name")
            return importing.import_object(path)
        except NotImportable as error:
            if path is not None and error.known is not None:
                module, _, attribute = path.partition(":")
                where = f"{self.noun} in {module}{_hiding(module, paths)}"
                raise UnknownName(where, attribute, error.known) from error
            beside = " beside the spec file, in the current folder or among the installed packages"
            module, _, attribute = name.partition(":")
            if error.absent and module.endswith(".py"):
                beside = f"; a module is named without .py, as {module[:-3]}:{attribute}"
            elif error.absent:
                beside += nearest(module, _module_names(paths))
            raise NotLoaded(self.noun, f"{error}{beside if error.absent else ''}") from error

    @contextlib.contextmanager
    def calling(self, name: str, method: str) -> Iterator[None]:
        """Add a note to an error that a user's plugin raises inside the block.

        The note names the plugin and its method, for `raised_by`. Errors of sweep and of built-in
        plugins get none. The error passes on.
        """
        try:
            yield
        except SweepError:
            raise
        except Exception as error:
            if not self.is_shipped(name):
                error.add_note(f"{_RAISED_BY}{method}() of the {self.noun} '{printable(name)}'")
            raise

    def checked(self, name: str, loaded: Any, alternative: str = "") -> type[T]:
        """Return `loaded` if it is derived from `base` and defines all attributes in `defines`.

        Raises UsageError if not, also for `base` itself. `name` is the plugin's name for the
        message, and `alternative` a text about what else is allowed.
        """
        if isinstance(loaded, type) and self.base in inspect.getmro(loaded)[1:]:
            missing = object()
            for own in self.defines:
                if getattr(loaded, own, missing) is getattr(self.base, own, missing):
                    raise UsageError(
                        f"{self.noun}: '{printable(name)}' does not define {own}; define it "
                        f"as {self.base.__module__}.{self.base.__qualname__} describes"
                    )
            return loaded
        described = f"the class {loaded.__name__}" if inspect.isclass(loaded) else type_of(loaded)
        raise UsageError(
            f"{self.noun}: '{printable(name)}' is {described}; expected a subclass of "
            f"{self.base.__module__}.{self.base.__qualname__}{alternative}"
        )

    def _shipped(self, name: str) -> type[T]:
        """Import the built-in plugin `name` and return its class.

        Raises UsageError if the file does not define exactly one; or, if `attribute` is set, if the
        class of that name is missing or not of this kind.
        """
        with importing.large_import():
            module = importlib.import_module(f"{self.package}.{name}")
        if self.attribute:
            return self.checked(name, getattr(module, self.attribute, None))
        classes: list[type[Any]] = [
            value
            for value in vars(module).values()
            if inspect.isclass(value)
            and issubclass(value, self.base)
            and value.__module__ == module.__name__
        ]
        if len(classes) != 1:
            many = f"defines {len(classes)} {self.noun}s"
            raise UsageError(f"{module.__name__}: {many}; expected exactly one")
        return classes[0]


@cache
def trainables() -> "Kind[Trainable]":
    """Return the kind of trainables, imported at the first call, since most commands need none."""
    from trainables.trainable import Trainable

    return Kind("trainable", "trainables.algorithms", Trainable)


def find_trainable(
    name: str, paths: Iterable[str], stored: "PickledTrainable | None" = None
) -> "type[Trainable]":
    """Import or unpickle a spec's trainable, and return its class; a function is wrapped in one.

    Appends `paths` to the import path, where environments and callbacks are found, too. Raises
    UsageError if it cannot be found, or is no class or function that can be trained, and
    CheckpointError if the file `stored` is unusable.

    Args:
        name: as for `Kind.find`; a path or an entry point may lead to a function, too, or to
            another object that can be called.
        paths: folders in which modules are looked for after everything installed.
        stored: file of a script's trainable (``__main__:name``), or None.
    """
    from sweep.core import pickled
    from trainables.function import forms, wrap

    add_paths(paths)
    if pickled.is_of_script(name):
        return pickled.load(name, stored)
    kind = trainables()
    if kind.is_shipped(name):
        return kind.find(name)
    found = kind.imported(name, paths)
    if callable(found) and not inspect.isclass(found):
        if problem := forms.signature_problem(found):
            raise UsageError(f"trainable: {problem}")
        return wrap(found)
    return kind.checked(name, found, alternative=" or a function")
