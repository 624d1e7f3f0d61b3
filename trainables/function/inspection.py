"""Names in a training function, and the modules in which its parts are defined."""

import ast
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CodeType, FunctionType, ModuleType
from typing import Any

#: A function of the settings; `trainables.function.forms` describes its possible forms.
TrainingFunction = Callable[
    [Any], Mapping[str, Any] | float | Sequence[float] | Iterator[Any] | None
]

#: Packages, and names of trainables, without random numbers except where something is named so.
_PREDICTABLE = frozenset(
    {
        *("__future__", "abc", "bisect", "collections", "copy", "csv", "dataclasses", "datetime"),
        *("decimal", "enum", "fractions", "functools", "heapq", "itertools", "json", "logging"),
        *("math", "numbers", "numpy", "operator", "pathlib", "re", "statistics", "string"),
        *("textwrap", "time", "typing", "warnings"),
        *("trainables.get_checkpoint", "trainables.get_context", "trainables.report"),
    }
)


def name_of(function: object) -> str:
    """Return the name of a function; for another callable object, that of its class."""
    inner = innermost(function)
    return str(getattr(inner, "__name__", type(inner).__name__))


def innermost(function: Any) -> Any:
    """Return the function behind `functools.partial`; any other object unchanged."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def module_of(value: Any) -> str:
    """Return the name of a module, or of the module in which a value or its class is defined."""
    kind = type(value)
    if issubclass(kind, ModuleType):
        return str(value.__name__)
    return str((value if issubclass(kind, FunctionType | type) else kind).__module__)


def may_draw(function: TrainingFunction) -> bool:
    """Return whether a function may draw random numbers, as the source of its module shows.

    It draws none if the source has no word "random", and imports only modules in `_PREDICTABLE`.
    Returns True if the source cannot be read.
    """
    return _may_draw_in(inspect.getmodule(innermost(function)))


@functools.cache
def _may_draw_in(module: ModuleType | None) -> bool:
    """Return whether the functions of a module may draw, see `may_draw`; cached.

    `module` is None if it is not known.
    """
    try:
        text = "" if module is None else inspect.getsource(module)
        tree = ast.parse(text)
    except (OSError, TypeError, SyntaxError):
        return True
    return not text or "random" in text or not _PREDICTABLE.issuperset(_imports(tree))


def _imports(tree: ast.AST) -> Iterator[str]:
    """Yield the packages that a module's syntax tree imports, also within functions.

    Of an import from trainables, each name is yielded, as ``trainables.name``.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.level, node.module) == (0, "trainables"):
            yield from (f"trainables.{name.name}" for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "" if node.level else str(node.module).partition(".")[0]


def is_own(module: str) -> bool:
    """Return whether a module belongs to the packages trainables or sweep."""
    return module.partition(".")[0] in ("trainables", "sweep")


def names_in(part: Any) -> set[str]:
    """Return the global names and attributes that a function, or a class's methods, use.

    Those of inner functions are included. The set is empty for a callable without Python code.
    """
    if isinstance(part, type):
        methods = [m for m in vars(part).values() if isinstance(m, FunctionType)]
        return set().union(*(names_in(method) for method in methods))
    names, waiting = set[str](), [getattr(part, "__code__", None)]
    while waiting:
        if isinstance(code := waiting.pop(), CodeType):
            names |= set(code.co_names)
            waiting += code.co_consts
    return names
