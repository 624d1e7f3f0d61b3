"""Functions written for other tools: each form is adapted to a training function of the settings.

    def train(config):                        report({"loss": ...}) ends an iteration
    def train(config): yield {"loss": ...}    each yielded dict or number does; also a pair of
                                              that and a checkpoint
    def objective(trial): ...                 Optuna's; see `trainables.function.objectives`
    def train(config): tune.report(...)       Ray Tune's, which then ends an iteration here

The form is recognised from the function's kind and the names in it. Of these tools only Ray is
imported here, and only for a function that would import it anyway.
"""

import ast
import contextlib
import functools
import importlib
import importlib.util
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from trainables.core.results import named_result
from trainables.errors import printable
from trainables.function import objectives
from trainables.function.objectives import plain_function


@dataclass(frozen=True)
class ReportingCalls:
    """The functions of `trainables.function` with which a training function reports.

    They are passed here, since that module imports this one.
    """

    report: Callable[..., None]
    """Function that ends an iteration with its metrics and checkpoint."""
    get_checkpoint: Callable[[], Any]
    """Function that returns the last checkpoint, or None."""
    metric: Callable[[], str]
    """Function that returns the name of the metric by which trials are compared; empty without
    one."""
    is_inside: Callable[[], bool]
    """Function that returns whether its caller runs in a training function of a trial."""
    number: Callable[[], int]
    """Function that returns the number of the trial in its sweep; 0 outside a sweep."""
    objectives: Callable[[], tuple[str, ...]]
    """Function that returns the names of the objectives other than the metric."""
    ends: type[BaseException]
    """Exception that `report` raises if the trial is stopped there."""


def adapt(function: Callable[..., Any], ours: ReportingCalls) -> Callable[[dict[str, Any]], Any]:
    """Return a function of the settings that runs `function`, whose form may be another tool's.

    Generators and Optuna's objectives are wrapped. For a function that reports to Ray, ``ray.tune``
    is imported if the function imports Ray, and Ray's functions are replaced in its modules
    (`_redirect_ray`); it is returned itself, as is any other function. `ours` are the functions to
    report with.
    """
    if inspect.isgeneratorfunction(plain_function(function)):
        return functools.partial(_run_generator, function, ours)
    if objectives.is_objective(function):
        return functools.partial(_run_objective, function, ours)
    inner = plain_function(function)
    if late := _imports_ray(getattr(inner, "__code__", None)):
        with contextlib.suppress(ImportError):  # the function meets the error itself
            importlib.import_module("ray.tune")
    if late or _names_ray(inner):
        _redirect_ray(inner, ours)
    return function


def signature_problem(function: Callable[..., Any]) -> str:
    """Return a message if `function` cannot be called with the settings as its only argument.

    Returns "" if it can, or does not say what it takes.
    """
    try:
        inspect.signature(function).bind({})
    except TypeError:
        name = getattr(plain_function(function), "__name__", type(function).__name__)
        parameters = ", ".join(inspect.signature(function).parameters)
        found = f"takes ({parameters})" if parameters else "takes no argument"
        return f"{printable(name)}() {found}; expected one, the settings: def {name}(config)"
    except ValueError:  # one of C, which does not say what it takes
        return ""
    return ""


# ---- generators -----------------------------------------------------------------------------


def _run_generator(
    function: Callable[..., Any], ours: ReportingCalls, config: dict[str, Any]
) -> Any:
    """Run a generator with the settings `config`; report each yielded result as an iteration.

    A result is a dict, or the number of the metric; it may be yielded in a pair with a checkpoint.
    Returns the generator's return value.
    """
    with contextlib.closing(function(config)) as made:
        while True:
            try:
                given = next(made)
            except StopIteration as end:
                return end.value
            pair = isinstance(given, tuple) and len(given) == 2
            metrics, checkpoint = given if pair else (given, None)
            ours.report(named_result(metrics, ours.metric()), checkpoint=checkpoint)


def _run_objective(
    function: Callable[..., Any], ours: ReportingCalls, config: dict[str, Any]
) -> Any:
    """Call Optuna's objective `function` with a `Trial` of these settings; return its last result.

    The result is name → number, for the metric or for each objective. If the function raises
    TrialPruned, it is None after a report, and NaN for the metric before the first report. Raises
    TrainableError if the function returns another number of values.
    """
    names = ours.metric(), *ours.objectives()
    told = ours.number(), ours.report, names, ours.ends
    return objectives.run_objective(function, config, *told)


# ---- functions of Ray Tune ------------------------------------------------------------------

#: Modules in which Ray keeps its reporting functions.
_RAY_MODULES = ("ray.tune", "ray.train", "ray.air.session")
#: Names of Ray's reporting functions.
_RAY_FUNCTIONS = ("report", "get_checkpoint")


def _imports_ray(code: object) -> bool:
    """Return whether a function's code, or that of an inner function, has an import of Ray."""
    if not isinstance(code, CodeType):
        return False
    return any(name.partition(".")[0] == "ray" for name in code.co_names) or any(
        map(_imports_ray, code.co_consts)
    )


def _names_ray(function: Any) -> bool:
    """Return whether a global variable of the function's module is of Ray."""
    names: dict[str, Any] = getattr(function, "__globals__", {})
    return any(_module_name(value).partition(".")[0] == "ray" for value in list(names.values()))


def _redirect_ray(function: Any, ours: ReportingCalls) -> None:
    """Replace Ray's ``report`` and ``get_checkpoint`` by functions that report to the trial here.

    They are replaced for good, in those of Ray's modules that are imported already and in the
    function's globals. Outside a trial they call Ray's. Earlier replacements stay, with their
    `ours`.
    """
    names: dict[str, Any] = getattr(function, "__globals__", {})
    for home in _RAY_MODULES:
        module = sys.modules.get(home)
        for verb in _RAY_FUNCTIONS:
            before = getattr(module, verb, None)
            if module is None or before is None:
                continue
            here = before if isinstance(before, _RayFunction) else _RayFunction(before, verb, ours)
            setattr(module, verb, here)
            for name, value in list(names.items()):
                if value is here.before:
                    names[name] = here


def _module_name(value: Any) -> str:
    """Return the name of a module, or of that which defines a function; "" for other values.

    It is ``ray`` for a `_RayFunction`.
    """
    if isinstance(value, ModuleType):
        return value.__name__
    ours = isinstance(value, _RayFunction)
    return "ray" if ours else str(value.__module__) if isinstance(value, FunctionType) else ""


class _RayFunction:
    """A replacement of Ray's function `verb`, ``report`` or ``get_checkpoint``.

    In a trial it calls the function of `ours`, elsewhere `before`, the original.
    """

    def __init__(self, before: Callable[..., Any], verb: str, ours: ReportingCalls) -> None:
        self.before = before
        self._verb = verb
        self._ours = ours

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if not self._ours.is_inside():
            return self.before(*arguments, **named)
        if self._verb == "get_checkpoint":
            return _to_ray_checkpoint(self._ours.get_checkpoint())
        checkpoint = named.pop("checkpoint", arguments[1] if len(arguments) > 1 else None)
        metrics = arguments[0] if arguments else named.pop("metrics", named)
        path = getattr(checkpoint, "path", checkpoint)
        self._ours.report(metrics, checkpoint=None if path is None else Path(str(path)))
        return None


def _to_ray_checkpoint(folder: Any) -> Any:
    """Return a checkpoint folder as Ray's `Checkpoint`; unchanged if it is None or Ray has none."""
    kinds = (getattr(sys.modules.get(home), "Checkpoint", None) for home in _RAY_MODULES)
    made = next(filter(None, kinds), None)
    return folder if folder is None or made is None else made.from_directory(folder)


# ---- what the source shows before it runs ---------------------------------------------------


def missing_packages(function: Any) -> list[str]:
    """Return the packages that a function imports, but that are not installed.

    Each is text with its place, ``'package' (file.py:12)``. Imports inside ``try`` or ``if`` do not
    count. Returns [] if the source cannot be read.
    """
    inner = plain_function(function)
    try:
        lines, first = inspect.getsourcelines(inner)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return []
    file = Path(inspect.getsourcefile(inner) or "").name
    missing: dict[str, str] = {}
    for node in _imports(tree):
        names = [one.name for one in node.names] if isinstance(node, ast.Import) else [node.module]
        for top in (str(name).partition(".")[0] for name in names if name):
            if not _is_installed(top):
                missing.setdefault(top, f"'{top}' ({file}:{first + node.lineno - 1})")
    return list(missing.values())


def _imports(tree: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the absolute imports in a syntax tree, except those inside ``try`` or ``if``."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and not node.level):
            yield node
        elif not isinstance(node, ast.Try | ast.If):
            yield from _imports(node)


def _is_installed(module: str) -> bool:
    """Return whether a module is imported or can be found."""
    if module in sys.modules:
        return True
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False
