"""Functions written for other tools: each form is adapted to a training function of the settings.

    def train(config):                        report({"loss": ...}) ends an iteration
    def train(config): yield {"loss": ...}    each yielded dict or number does; also a pair of
                                              that and a checkpoint
    def objective(trial): ...                 Optuna's: `suggest_float("lr", …)` returns the setting
                                              ``lr``; `trial.report(value, step)` ends an iteration
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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from trainables.errors import ConfigError, TrainableError, printable, shorten


@dataclass(frozen=True)
class ReportingCalls:
    """Calls of `trainables.function` with which a training function reports."""

    #: Ends an iteration with its metrics and checkpoint.
    report: Callable[..., None]
    #: Returns the last checkpoint, or None.
    get_checkpoint: Callable[[], Any]
    metric: Callable[[], str]
    """Returns the name of the metric by which trials are compared; empty if there is none."""
    is_inside: Callable[[], bool]
    """Returns whether the caller is a running training function."""


def adapt(function: Callable[..., Any], ours: ReportingCalls) -> Callable[[dict[str, Any]], Any]:
    """Return a function of the settings that does what `function` does, whatever its form."""
    if _is_generator(function):
        return functools.partial(_run_generator, function, ours)
    if is_objective(function):
        return functools.partial(_run_objective, function, ours)
    inner = _innermost(function)
    if late := _imports_ray(getattr(inner, "__code__", None)):
        with contextlib.suppress(ImportError):  # the function meets the error itself
            importlib.import_module("ray.tune")
    if late or _names_ray(inner):
        _redirect_ray(inner, ours)
    return function


def problem(function: Callable[..., Any]) -> str:
    """Return why `function` cannot be called with the settings as its only argument.

    Empty if it can.
    """
    try:
        inspect.signature(function).bind({})
    except TypeError:
        name = getattr(_innermost(function), "__name__", type(function).__name__)
        parameters = ", ".join(inspect.signature(function).parameters)
        found = f"takes ({parameters})" if parameters else "takes no argument"
        return f"{printable(name)}() {found}; expected one, the settings: def {name}(config)"
    except ValueError:  # one of C, which does not say what it takes
        return ""
    return ""


def _innermost(function: Any) -> Any:
    """Return the plain function behind a partial, a method or a callable object.

    Returns other objects unchanged.
    """
    while isinstance(function, functools.partial):
        function = function.func
    if not isinstance(function, FunctionType):
        called = getattr(function, "__func__", None) or vars(type(function)).get("__call__")
        return called if isinstance(called, FunctionType) else function
    return function


# ---- generators -----------------------------------------------------------------------------


def _is_generator(function: Any) -> bool:
    """Return whether `function` is a generator function."""
    return inspect.isgeneratorfunction(_innermost(function))


def _run_generator(
    function: Callable[..., Any], ours: ReportingCalls, config: dict[str, Any]
) -> Any:
    """Run a generator: each yielded result ends an iteration; return its return value."""
    with contextlib.closing(function(config)) as made:
        while True:
            try:
                given = next(made)
            except StopIteration as end:
                return end.value
            pair = isinstance(given, tuple) and len(given) == 2
            metrics, checkpoint = given if pair else (given, None)
            ours.report(_as_result(metrics, ours), checkpoint=checkpoint)


def _as_result(value: Any, ours: ReportingCalls) -> Any:
    """Return a number as a result with the metric's name, and anything else unchanged."""
    if getattr(value, "shape", None) == () and callable(item := getattr(value, "item", None)):
        value = item()
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return {ours.metric() or "value": value} if number else value


# ---- objectives of Optuna -------------------------------------------------------------------


def is_objective(function: Any) -> bool:
    """Return whether the only parameter without a default is ``trial``, as for Optuna."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    needed = [one for one in parameters if one.default is one.empty]
    return len(needed) == 1 and needed[0].name in ("trial", "_trial")


class Trial(dict[str, Any]):
    """A trial's settings with the methods of Optuna's `Trial`.

    Args:
        config: the settings.
        name: name of the objective, for errors.
        ours: this package's calls.
    """

    def __init__(self, config: Mapping[str, Any], name: str, ours: ReportingCalls) -> None:
        super().__init__(config)
        self._name = name
        self._ours = ours
        self.number = 0
        self.user_attrs: dict[str, Any] = {}
        self.system_attrs: dict[str, Any] = {}

    @property
    def params(self) -> dict[str, Any]:
        """The settings."""
        return dict(self)

    def _setting(self, name: str, written: str) -> Any:
        """Return the setting `name`, also a dotted path of nested ones.

        Raises TrainableError if it does not exist; `written` is the range to write in the spec.
        """
        inner: Any = self
        if name in self:
            return self[name]
        for part in name.split("."):
            if not isinstance(inner, Mapping) or part not in inner:
                raise TrainableError(_missing_setting_text(self._name, name, written))
            inner = inner[part]
        return inner

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        """Return the setting `name`; the range is used in the error for a missing one only."""
        return float(self._setting(name, _range("uniform", low, high, step, log)))

    def suggest_int(
        self, name: str, low: int, high: int, *, step: int = 1, log: bool = False
    ) -> int:
        """Return the setting `name`; the range is used in the error for a missing one only."""
        return int(self._setting(name, _range("randint", low, high, step, log)))

    def suggest_categorical(self, name: str, choices: Any) -> Any:
        """Return the setting `name`; the choices are used in the error for a missing one only."""
        return self._setting(name, f"{{choice: {list(choices)}}}")

    def suggest_uniform(self, name: str, low: float, high: float) -> float:
        """Return the setting `name`; Optuna's former name for `suggest_float`."""
        return self.suggest_float(name, low, high)

    def suggest_loguniform(self, name: str, low: float, high: float) -> float:
        """Return the setting `name`; Optuna's former name for `suggest_float` with ``log``."""
        return self.suggest_float(name, low, high, log=True)

    def suggest_discrete_uniform(self, name: str, low: float, high: float, q: float) -> float:
        """Return the setting `name`; Optuna's former name for `suggest_float` with ``step``."""
        return self.suggest_float(name, low, high, step=q)

    def report(self, value: float, step: int) -> None:
        """End an iteration with the metric's value and the objective's own step number."""
        named = _as_result(float(value), self._ours)
        self._ours.report({**named, "step": step, **self._numbers()})

    def should_prune(self) -> bool:
        """Return False: the sweep's scheduler ends trials from outside."""
        return False

    def set_user_attr(self, key: str, value: Any) -> None:
        """Store a value; numbers are part of all further results."""
        self.user_attrs[key] = value

    def set_system_attr(self, key: str, value: Any) -> None:
        """Store a value; it is not part of results."""
        self.system_attrs[key] = value

    def _numbers(self) -> dict[str, Any]:
        """Return the user attributes that are numbers."""
        return {
            key: value
            for key, value in self.user_attrs.items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        }

    def result(self, returned: Any) -> Any:
        """Return the objective's value as a result, with the user attributes that are numbers."""
        named = _as_result(returned, self._ours)
        return {**named, **self._numbers()} if isinstance(named, dict) else named


def _run_objective(
    function: Callable[..., Any], ours: ReportingCalls, config: dict[str, Any]
) -> Any:
    """Run an objective of Optuna's; return its result, or None if it raised TrialPruned."""
    trial = Trial(config, getattr(_innermost(function), "__name__", "the objective"), ours)
    try:
        return trial.result(function(trial))
    except Exception as error:
        if type(error).__name__ == "TrialPruned":
            return None  # what was reported stands
        raise


def _range(kind: str, low: Any, high: Any, step: Any, log: bool) -> str:
    """Return a range as it is written in a spec's ``space``."""
    kind = f"log{kind}" if log else kind
    stepped = f", step: {step}" if step not in (None, 1) else ""
    return f"{{{kind}: [{low}, {high}]{stepped}}}"


def _missing_setting_text(function: str, name: str, written: str) -> str:
    """Return the message for a missing setting."""
    return (
        f"{function}() asks for {shorten(name)}, which the trial's settings do not have; write "
        f"space: {{{name}: {written}}} in the spec"
    )


def check(function: Any, config: Mapping[str, Any]) -> None:
    """Raise ConfigError if an objective is certain to ask for a setting that does not exist."""
    if is_objective(function):
        name = getattr(_innermost(function), "__name__", "the objective")
        for call in _suggestions(_innermost(function)):
            _check_call(call, Trial(config, name, _NO_CALLS))


def _check_call(call: ast.Call, trial: "Trial") -> None:
    """Raise ConfigError if a ``trial.suggest_…`` call asks for a missing setting.

    Calls with arguments that are not literals are skipped.
    """
    verb = getattr(trial, str(getattr(call.func, "attr", "")), None)
    try:
        given = [ast.literal_eval(one) for one in call.args]
        named = {one.arg: ast.literal_eval(one.value) for one in call.keywords if one.arg}
    except ValueError:
        return  # what is not written out is known when it runs
    try:
        if verb is not None:
            verb(*given, **named)
    except TrainableError as error:
        remedy = str(error).rpartition("; ")[2]
        allowed = "a setting, as trials ask for it"
        raise ConfigError(str(given[0]), None, allowed, remedy) from None
    except (TypeError, ValueError):
        return  # a value that is none of its kind is told when it runs


#: Calls that do nothing.
_NO_CALLS = ReportingCalls(lambda *_, **__: None, lambda: None, lambda: "", lambda: False)


def _suggestions(function: Any) -> Iterator[ast.Call]:
    """Yield the ``trial.suggest_…`` calls that every run of an objective makes."""
    with contextlib.suppress(OSError, TypeError, SyntaxError, IndexError):
        body = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
        for statement in getattr(body, "body", ()):
            if isinstance(statement, ast.Assign | ast.AnnAssign | ast.Expr | ast.Return):
                yield from filter(_is_suggestion, ast.walk(statement))


def _is_suggestion(node: ast.AST) -> bool:
    """Return whether a syntax node is a ``….suggest_…`` call with positional arguments."""
    called = node.func if isinstance(node, ast.Call) and node.args else None
    return isinstance(called, ast.Attribute) and called.attr.startswith("suggest_")


# ---- functions of Ray Tune ------------------------------------------------------------------

#: Modules in which Ray keeps its reporting functions.
_RAY_MODULES = ("ray.tune", "ray.train", "ray.air.session")
#: Names of Ray's reporting functions.
_RAY_FUNCTIONS = ("report", "get_checkpoint")


def _imports_ray(code: object) -> bool:
    """Return whether a function, or one within it, imports Ray when it runs."""
    if not isinstance(code, CodeType):
        return False
    return any(name.partition(".")[0] == "ray" for name in code.co_names) or any(
        map(_imports_ray, code.co_consts)
    )


def _names_ray(function: Any) -> bool:
    """Return whether a global name of the function belongs to Ray."""
    names: dict[str, Any] = getattr(function, "__globals__", {})
    return any(_module_name(value).partition(".")[0] == "ray" for value in list(names.values()))


def _redirect_ray(function: Any, ours: ReportingCalls) -> None:
    """Replace Ray's reporting functions by ours, in Ray's modules and the function's globals.

    They report here only while the function runs as a trial.
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
    """Return the module that a value is, or that a function is defined in.

    Empty for anything else.
    """
    if isinstance(value, ModuleType):
        return value.__name__
    ours = isinstance(value, _RayFunction)
    return "ray" if ours else str(value.__module__) if isinstance(value, FunctionType) else ""


class _RayFunction:
    """A replacement of one of Ray's reporting functions.

    Outside our trials it calls the original.
    """

    def __init__(self, before: Callable[..., Any], verb: str, ours: ReportingCalls) -> None:
        self.before = before
        self._verb = verb
        self._ours = ours

    def __call__(self, *given: Any, **named: Any) -> Any:
        if not self._ours.is_inside():
            return self.before(*given, **named)
        if self._verb == "get_checkpoint":
            return _to_ray_checkpoint(self._ours.get_checkpoint())
        checkpoint = named.pop("checkpoint", given[1] if len(given) > 1 else None)
        metrics = given[0] if given else named.pop("metrics", named)
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
    """Return the packages that a function imports but that are not installed.

    Each is text with its place: ``'package' (file.py:12)``. Empty if the source cannot be read.
    """
    inner = _innermost(function)
    try:
        lines, first = inspect.getsourcelines(inner)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return []
    file = Path(inspect.getsourcefile(inner) or "").name
    found: dict[str, str] = {}
    for node in _imports(tree):
        names = [one.name for one in node.names] if isinstance(node, ast.Import) else [node.module]
        for top in (str(name).partition(".")[0] for name in names if name):
            if not _is_installed(top):
                found.setdefault(top, f"'{top}' ({file}:{first + node.lineno - 1})")
    return list(found.values())


def _imports(tree: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the imports in a function, except those inside ``try`` or ``if``."""
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
