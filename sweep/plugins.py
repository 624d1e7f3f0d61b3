"""Finding plugins: a name, a dotted path or an entry point becomes a class.

Five packages hold what is shipped: ``trainables/algorithms``, and ``schedulers``, ``searchers``,
``pools`` and ``trackers`` in ``sweep``. A file's name is its plugin's name, and adding the file is
the registration. One of somebody else's is named by its path ``package.module:Name``, or by the
entry point with which an installed package names it, in a group called like the package.
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

from sweep.errors import SweepError, UnknownName, UsageError
from trainables.core import importing
from trainables.errors import NotImportable, printable

if TYPE_CHECKING:
    from sweep.pickled import Kept
    from trainables.trainable import Trainable


T = TypeVar("T")
#: Begins the note of an error that says which plugin raised it.
_RAISED_BY = "raised by "


def names(package: str) -> list[str]:
    """The plugins of `package`: its modules whose names have no leading underscore."""
    found = pkgutil.iter_modules(importlib.import_module(package).__path__)
    return sorted(module.name for module in found if not module.name.startswith("_"))


def raised_by(error: Exception) -> str:
    """Which plugin of somebody else's raised an error; empty: none did."""
    notes = (note for note in getattr(error, "__notes__", ()) if note.startswith(_RAISED_BY))
    return next(notes, "").removeprefix(_RAISED_BY)


def add_paths(paths: Iterable[str]) -> None:
    """Append folders to the import path, so that nothing installed is ever hidden by them.

    Children inherit it: rollout workers, environments of their own, evaluation workers.
    """
    for path in paths:
        if path not in sys.path:
            sys.path.append(path)


def _hiding(module: str, paths: Iterable[str]) -> str:
    """Return which file a module was taken for, and before which other; mostly empty."""
    top, _, below = module.partition(".")
    origin = importing.origin(top)
    own = [file for folder in paths if (file := Path(folder, f"{top}.py")).is_file()]
    if below or not own or origin is None or own[0].resolve() == Path(origin).resolve():
        return ""
    return f" ({printable(origin)}, which comes before {printable(str(own[0]))}: rename that file)"


@dataclass(frozen=True)
class Kind(Generic[T]):
    """One kind of plugin; what it finds is derived from ``T``."""

    what: str
    """The word for one in messages."""
    package: str
    """The package of the shipped ones; the group of the entry points has the same name."""
    base: type[Any]
    """The base class of all."""
    attribute: str = ""
    """The class's name in a shipped file; empty: the only one there that is derived from `base`."""
    defines: tuple[str, ...] = ()
    """Names that `base` only declares, and each class must define."""

    def is_shipped(self, name: str) -> bool:
        """Return whether `name` is a file of ours."""
        return ":" not in name and name in names(self.package)

    def is_installed(self, name: str) -> bool:
        """Return whether `name` is a file of ours or an entry point, so no code of a sweep."""
        return self.is_shipped(name) or name in importing.entry_points(self.package)

    def find(self, name: str, paths: Iterable[str] = ()) -> type[T]:
        """The class that `name` stands for.

        Args:
            name: a file's name, ``package.module:Name``, or the name of an entry point.
            paths: folders in which modules are looked for after everything installed.

        Raises:
            UnknownName: there is no such file and no such entry point, or its module lacks it.
            UsageError: it cannot be imported, or is something else.
        """
        if self.is_shipped(name):
            return self._shipped(name)
        return self.checked(name, self.imported(name, paths))

    def imported(self, name: str, paths: Iterable[str]) -> object:
        """Return the object that a path or an entry point leads to."""
        add_paths(paths)
        path: str | None = name
        try:
            if ":" not in name:
                path = importing.path_of(self.package, name)
            if path is None:
                known = [*names(self.package), *importing.entry_points(self.package)]
                raise UnknownName(self.what, name, known, "or your own, as package.module:Name")
            return importing.import_object(path)
        except NotImportable as error:
            if path is not None and error.known is not None:
                module, _, attribute = path.partition(":")
                where = f"{self.what} in {module}{_hiding(module, paths)}"
                raise UnknownName(where, attribute, error.known) from error
            beside = " beside the spec file, in the current folder or among the installed packages"
            module, _, attribute = name.partition(":")
            if error.absent and module.endswith(".py"):
                beside = f"; a module is named without .py, as {module[:-3]}:{attribute}"
            raise UsageError(f"{self.what}: {error}{beside if error.absent else ''}") from error

    @contextlib.contextmanager
    def calling(self, name: str, method: str) -> Iterator[None]:
        """Around a call of plugin `name`: an error of one of somebody else's says whose it is."""
        try:
            yield
        except SweepError:
            raise
        except Exception as error:
            if not self.is_shipped(name):
                error.add_note(f"{_RAISED_BY}{method}() of the {self.what} '{printable(name)}'")
            raise

    def checked(self, name: str, found: Any, also: str = "") -> type[T]:
        """`found`, if it is derived from `base`; `also` says what else would have been accepted."""
        if isinstance(found, type) and self.base in inspect.getmro(found)[1:]:
            missing = object()
            for own in self.defines:
                if getattr(found, own, missing) is getattr(self.base, own, missing):
                    raise UsageError(
                        f"{self.what}: '{printable(name)}' does not define {own}; "
                        f"{self.base.__module__}.{self.base.__qualname__} says what that is"
                    )
            return found
        seen = (
            f"the class {found.__name__}" if inspect.isclass(found) else f"a {type(found).__name__}"
        )
        raise UsageError(
            f"{self.what}: '{printable(name)}' is {seen}; expected a subclass of "
            f"{self.base.__module__}.{self.base.__qualname__}{also}"
        )

    def _shipped(self, name: str) -> type[T]:
        """Import the plugin `name` of this package and return its class."""
        with importing.large_import():
            module = importlib.import_module(f"{self.package}.{name}")
        if self.attribute:
            return self.checked(name, getattr(module, self.attribute, None))
        own: list[type[Any]] = [
            value
            for value in vars(module).values()
            if inspect.isclass(value)
            and issubclass(value, self.base)
            and value.__module__ == module.__name__
        ]
        if len(own) != 1:
            many = f"defines {len(own)} {self.what}s"
            raise UsageError(f"{module.__name__}: {many}; expected exactly one")
        return own[0]


@cache
def trainables() -> "Kind[Trainable]":
    """Trainables, imported when one is looked for: to look at a sweep needs none."""
    from trainables.trainable import Trainable

    return Kind("trainable", "trainables.algorithms", Trainable)


def find_trainable(
    name: str, paths: Iterable[str], kept: "Kept | None" = None
) -> "type[Trainable]":
    """The trainable that a spec names; from then on what its settings name is found there too.

    Args:
        name: as for `Kind.find`; a path or an entry point may lead to a function, too, or to
            another object that can be called.
        paths: folders in which modules are looked for after everything installed.
        kept: where the one of a script lies (``__main__:name``).
    """
    from sweep import pickled
    from trainables import forms
    from trainables.function import wrap

    add_paths(paths)
    if pickled.is_of_script(name):
        return pickled.load(name, kept)
    kind = trainables()
    if kind.is_shipped(name):
        return kind.find(name)
    found = kind.imported(name, paths)
    if callable(found) and not inspect.isclass(found):
        if problem := forms.problem(found):
            raise UsageError(f"trainable: {problem}")
        return wrap(found)
    return kind.checked(name, found, also=" or a function")
