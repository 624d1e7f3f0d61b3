"""The forms in which functions are written that are trained, each as a function of the settings.

    def train(config):                        report({"loss": ...}) ends an iteration
    def train(config): yield {"loss": ...}    each dict or number that it yields does; also a pair
                                              of that and a checkpoint
    def objective(trial): ...                 Optuna's: `suggest_float("lr", …)` gives the setting
                                              ``lr``; `trial.report(value, step)` ends an iteration
    def train(config): tune.report(...)       Ray Tune's, which then ends an iteration here

Of those tools only Ray is imported here, for a function that would do so when it runs: the form
is seen by what the function is and names.
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
class Ours:
    """The calls with which a training function reports; see `trainables.function`."""

    report: Callable[..., None]
    get_checkpoint: Callable[[], Any]
    metric: Callable[[], str]
    """Gives the metric by which trials are compared, or an empty text."""
    is_inside: Callable[[], bool]
    """Tells whether the caller is a training function that runs."""


def adapted(function: Callable[..., Any], ours: Ours) -> Callable[[dict[str, Any]], Any]:
    """Return a function of the settings that does what `function` does."""
    if _is_generator(function):
        return functools.partial(_run_generator, function, ours)
    if is_objective(function):
        return functools.partial(_run_objective, function, ours)
    inner = _innermost(function)
    if late := _imports_ray(getattr(inner, "__code__", None)):
        with contextlib.suppress(ImportError):  # the function meets the error itself
            importlib.import_module("ray.tune")
    if late or _names_ray(inner):
        _lead_ray_here(inner, ours)
    return function


def problem(function: Callable[..., Any]) -> str:
    """Why `function` cannot be called with the settings, in words; empty: it can."""
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
    """The function of a partial, a method or an object that can be called."""
    while isinstance(function, functools.partial):
        function = function.func
    if not isinstance(function, FunctionType):
        called = getattr(function, "__func__", None) or vars(type(function)).get("__call__")
        return called if isinstance(called, FunctionType) else function
    return function


# ---- generators -----------------------------------------------------------------------------


def _is_generator(function: Any) -> bool:
    return inspect.isgeneratorfunction(_innermost(function))


def _run_generator(function: Callable[..., Any], ours: Ours, config: dict[str, Any]) -> Any:
    with contextlib.closing(function(config)) as made:
        while True:
            try:
                given = next(made)
            except StopIteration as end:
                return end.value
            pair = isinstance(given, tuple) and len(given) == 2
            metrics, checkpoint = given if pair else (given, None)
            ours.report(_named(metrics, ours), checkpoint=checkpoint)


def _named(value: Any, ours: Ours) -> Any:
    """A number as the metric; anything else as it is."""
    if getattr(value, "shape", None) == () and callable(item := getattr(value, "item", None)):
        value = item()
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return {ours.metric() or "value": value} if number else value


# ---- objectives of Optuna -------------------------------------------------------------------


def is_objective(function: Any) -> bool:
    """Return true if its only parameter without a value is ``trial``, as in Optuna's objectives."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    needed = [one for one in parameters if one.default is one.empty]
    return len(needed) == 1 and needed[0].name in ("trial", "_trial")


class Trial(dict[str, Any]):
    """The settings of a trial, with the verbs of Optuna's."""

    def __init__(self, config: Mapping[str, Any], name: str, ours: Ours) -> None:
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

    def _given(self, name: str, written: str) -> Any:
        inner: Any = self
        if name in self:
            return self[name]
        for part in name.split("."):
            if not isinstance(inner, Mapping) or part not in inner:
                raise TrainableError(_unknown(self._name, name, written))
            inner = inner[part]
        return inner

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        """The setting `name`."""
        return float(self._given(name, _range("uniform", low, high, step, log)))

    def suggest_int(
        self, name: str, low: int, high: int, *, step: int = 1, log: bool = False
    ) -> int:
        """The setting `name`."""
        return int(self._given(name, _range("randint", low, high, step, log)))

    def suggest_categorical(self, name: str, choices: Any) -> Any:
        """The setting `name`."""
        return self._given(name, f"{{choice: {list(choices)}}}")

    def suggest_uniform(self, name: str, low: float, high: float) -> float:
        """The setting `name`."""
        return self.suggest_float(name, low, high)

    def suggest_loguniform(self, name: str, low: float, high: float) -> float:
        """The setting `name`."""
        return self.suggest_float(name, low, high, log=True)

    def suggest_discrete_uniform(self, name: str, low: float, high: float, q: float) -> float:
        """The setting `name`."""
        return self.suggest_float(name, low, high, step=q)

    def report(self, value: float, step: int) -> None:
        """End an iteration."""
        named = _named(float(value), self._ours)
        self._ours.report({**named, "step": step, **self._numbers()})

    def should_prune(self) -> bool:
        """No: the scheduler of the sweep ends trials, from outside."""
        return False

    def set_user_attr(self, key: str, value: Any) -> None:
        """Keep a value; one that is a number stands in the results from now on."""
        self.user_attrs[key] = value

    def set_system_attr(self, key: str, value: Any) -> None:
        """Keep a value."""
        self.system_attrs[key] = value

    def _numbers(self) -> dict[str, Any]:
        return {
            key: value
            for key, value in self.user_attrs.items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        }

    def result(self, returned: Any) -> Any:
        """Return the objective's value as a result, with the trial's own numbers."""
        named = _named(returned, self._ours)
        return {**named, **self._numbers()} if isinstance(named, dict) else named


def _run_objective(function: Callable[..., Any], ours: Ours, config: dict[str, Any]) -> Any:
    trial = Trial(config, getattr(_innermost(function), "__name__", "the objective"), ours)
    try:
        return trial.result(function(trial))
    except Exception as error:
        if type(error).__name__ == "TrialPruned":
            return None  # what was reported stands
        raise


def _range(kind: str, low: Any, high: Any, step: Any, log: bool) -> str:
    kind = f"log{kind}" if log else kind
    stepped = f", step: {step}" if step not in (None, 1) else ""
    return f"{{{kind}: [{low}, {high}]{stepped}}}"


def _unknown(function: str, name: str, written: str) -> str:
    return (
        f"{function}() asks for {shorten(name)}, which the trial's settings do not have; write "
        f"space: {{{name}: {written}}} in the spec"
    )


def check(function: Any, config: Mapping[str, Any]) -> None:
    """Raise ConfigError where an objective is sure to ask for a setting that there is not."""
    if is_objective(function):
        name = getattr(_innermost(function), "__name__", "the objective")
        for call in _suggestions(_innermost(function)):
            _check_call(call, Trial(config, name, _NONE))


def _check_call(call: ast.Call, trial: "Trial") -> None:
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


_NONE = Ours(lambda *_, **__: None, lambda: None, lambda: "", lambda: False)


def _suggestions(function: Any) -> Iterator[ast.Call]:
    """The calls of ``trial.suggest_…`` that every run comes to."""
    with contextlib.suppress(OSError, TypeError, SyntaxError, IndexError):
        body = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
        for statement in getattr(body, "body", ()):
            if isinstance(statement, ast.Assign | ast.AnnAssign | ast.Expr | ast.Return):
                yield from filter(_suggests, ast.walk(statement))


def _suggests(node: ast.AST) -> bool:
    called = node.func if isinstance(node, ast.Call) and node.args else None
    return isinstance(called, ast.Attribute) and called.attr.startswith("suggest_")


# ---- functions of Ray Tune ------------------------------------------------------------------

#: Where Ray has its verbs.
_OF_RAY = ("ray.tune", "ray.train", "ray.air.session")
_VERBS = ("report", "get_checkpoint")


def _imports_ray(code: object) -> bool:
    """Return whether a function imports Ray when it runs, or one within it does."""
    if not isinstance(code, CodeType):
        return False
    return any(name.partition(".")[0] == "ray" for name in code.co_names) or any(
        map(_imports_ray, code.co_consts)
    )


def _names_ray(function: Any) -> bool:
    names: dict[str, Any] = getattr(function, "__globals__", {})
    return any(_home(value).partition(".")[0] == "ray" for value in list(names.values()))


def _lead_ray_here(function: Any, ours: Ours) -> None:
    """Let Ray's verbs that a function names report here, while it runs as a trial of ours."""
    names: dict[str, Any] = getattr(function, "__globals__", {})
    for home in _OF_RAY:
        module = sys.modules.get(home)
        for verb in _VERBS:
            before = getattr(module, verb, None)
            if module is None or before is None:
                continue
            here = before if isinstance(before, _Verb) else _Verb(before, verb, ours)
            setattr(module, verb, here)
            for name, value in list(names.items()):
                if value is here.before:
                    names[name] = here


def _home(value: Any) -> str:
    """The module that a value is, or that a function is of; empty for anything else."""
    if isinstance(value, ModuleType):
        return value.__name__
    ours = isinstance(value, _Verb)
    return "ray" if ours else str(value.__module__) if isinstance(value, FunctionType) else ""


class _Verb:
    """One of Ray's verbs, which does what it did where no trial of ours runs."""

    def __init__(self, before: Callable[..., Any], verb: str, ours: Ours) -> None:
        self.before = before
        self._verb = verb
        self._ours = ours

    def __call__(self, *given: Any, **named: Any) -> Any:
        if not self._ours.is_inside():
            return self.before(*given, **named)
        if self._verb == "get_checkpoint":
            return _of_folder(self._ours.get_checkpoint())
        checkpoint = named.pop("checkpoint", given[1] if len(given) > 1 else None)
        metrics = given[0] if given else named.pop("metrics", named)
        path = getattr(checkpoint, "path", checkpoint)
        self._ours.report(metrics, checkpoint=None if path is None else Path(str(path)))
        return None


def _of_folder(folder: Any) -> Any:
    """A checkpoint of Ray's for what ours is."""
    kinds = (getattr(sys.modules.get(home), "Checkpoint", None) for home in _OF_RAY)
    made = next(filter(None, kinds), None)
    return folder if folder is None or made is None else made.from_directory(folder)


# ---- what the source shows before it runs ---------------------------------------------------


def missing_packages(function: Any) -> list[str]:
    """Return the packages that a function imports but nobody installed, each with its place."""
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
            if not _is_there(top):
                found.setdefault(top, f"'{top}' ({file}:{first + node.lineno - 1})")
    return list(found.values())


def _imports(tree: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports in a function, without those that it tries."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and not node.level):
            yield node
        elif not isinstance(node, ast.Try | ast.If):
            yield from _imports(node)


def _is_there(module: str) -> bool:
    if module in sys.modules:
        return True
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False
