"""Objectives of Optuna, functions of a trial that asks for its settings by `suggest_…` calls.

    def objective(trial):
        lr = trial.suggest_float("lr", 1e-5, 1e-1, log=True)      # returns the setting ``lr``
        for epoch in range(30):
            ...
            trial.report(accuracy, epoch)                         # ends an iteration
            if trial.should_prune():                              # True when the sweep ends it here
                raise optuna.TrialPruned()
        return accuracy                                           # the last value of the metric

`run` runs one with the settings of a trial. `explore` finds the settings it asks for, by running it
many times with other values, up to the point from which it asks for no more. Optuna itself is not
imported here.
"""

import ast
import contextlib
import functools
import inspect
import linecache
import math
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from types import CodeType, FrameType, FunctionType
from typing import Any

from trainables.core import rng
from trainables.core.results import named_result
from trainables.errors import TrainableError, shorten

#: Parameter of a function by which it is known as an objective.
_PARAMETERS = ("trial", "_trial")


def is_objective(function: Any) -> bool:
    """Return whether the only parameter without a default is ``trial``, as for Optuna."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    needed = [one for one in parameters if one.default is one.empty]
    return len(needed) == 1 and needed[0].name in _PARAMETERS


def innermost(function: Any) -> Any:
    """Return the plain function behind a partial, a method or a callable object.

    Returns other objects unchanged.
    """
    while isinstance(function, functools.partial):
        function = function.func
    if not isinstance(function, FunctionType):
        called = getattr(function, "__func__", None) or vars(type(function)).get("__call__")
        return called if isinstance(called, FunctionType) else function
    return function


def name_of(function: Any) -> str:
    """Return the name of an objective for messages, such as ``objective()``."""
    name = getattr(innermost(function), "__name__", "")
    return f"{name}()" if name.isidentifier() else "the objective"


# ---- what a trial is asked for ------------------------------------------------------------------


@dataclass(frozen=True)
class Suggestion:
    """One `suggest_…` call of an objective: a name with its range or choices."""

    name: str
    """Name of the parameter."""
    kind: str
    """Keyword of the range in a spec's ``space``: uniform, randint or choice."""
    options: tuple[Any, ...]
    """The lowest and the highest value of a range; all values of a choice."""
    log: bool = False
    """True if the values are spread evenly on a logarithmic scale."""
    step: float | None = None
    """Distance of the values of a range; None for all floats or integers."""

    @classmethod
    def number(
        cls, kind: str, name: str, low: Any, high: Any, step: Any = None, log: bool = False
    ) -> "Suggestion":
        """Return the call for a number; `kind` is the keyword of its range, such as ``uniform``."""
        convert = int if kind == "randint" else float
        low, high = convert(low), convert(high)
        if step is not None and high > low and step > 0:
            steps = (Decimal(str(high)) - Decimal(str(low))) // Decimal(str(step))
            high = convert(Decimal(str(low)) + steps * Decimal(str(step)))
        return cls(name, kind, (low, high), log, step)

    @property
    def entry(self) -> Any:
        """The parameter as it is written in a spec's ``space``: a mapping, or the only value."""
        if self.kind != "choice" and self.options[0] == self.options[1]:
            return self.options[0]
        word = f"log{self.kind}" if self.log else self.kind
        found: dict[str, Any] = {word: [_plain(one) for one in self.options]}
        if self.step is not None and not (self.kind == "randint" and self.step == 1):
            found["step"] = self.step
        return found

    def values(self, limit: int) -> list[Any] | None:
        """Return all values; None if they are more than `limit`."""
        if self.kind == "choice":
            return [_plain(one) for one in self.options] if len(self.options) <= limit else None
        low, high = self.options
        step = self.step or (1 if self.kind == "randint" else None)
        if low == high:
            return [low]
        if step is None or (high - low) / step >= limit:
            return None
        count = round((high - low) / step) + 1
        first, by, convert = Decimal(str(low)), Decimal(str(step)), type(low)
        return [convert(first + k * by) for k in range(count)]

    def values_to_try(self) -> list[Any]:
        """Return all values of a choice or of a short range, and both ends of a longer range."""
        few = self.values(FEW)
        return few if few is not None else [_plain(self.options[0]), _plain(self.options[-1])]

    def draw(self, share: float) -> Any:
        """Return the value at a share of the range or the choices, from 0 to 1."""
        if (few := self.values(FEW)) is not None:
            return few[min(int(share * len(few)), len(few) - 1)]
        if self.kind == "choice":
            return _plain(self.options[min(int(share * len(self.options)), len(self.options) - 1)])
        low, high = self.options
        if self.log and low > 0:
            value = math.exp(math.log(low) + share * (math.log(high) - math.log(low)))
        else:
            value = low + share * (high - low)
        value = min(max(value, low), high)
        return int(value) if self.kind == "randint" else value


def _plain(value: Any) -> Any:
    """Return a choice as plain data: tuples as lists."""
    return [_plain(one) for one in value] if isinstance(value, tuple | list) else value


def _is_plain(value: Any) -> bool:
    """Return whether a choice can be written in a spec."""
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


class Trial(dict[str, Any]):
    """A trial's settings with the methods of Optuna's `Trial`.

    Args:
        name: name of the objective, for errors.
        report: ends an iteration with a result.
        names: name of the metric, which the value of a report gets, and of further objectives, in
            the order of the values that the function returns.
        ends: type of the error by which `report` says that the trial ends there; an objective that
            asks `should_prune` is told by that instead.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        number: int,
        name: str,
        report: Callable[[dict[str, Any]], None],
        names: Sequence[str],
        ends: type[BaseException] | tuple[()] = (),
    ) -> None:
        super().__init__(config)
        self.number = number
        self.params: dict[str, Any] = {}
        self.user_attrs: dict[str, Any] = {}
        self.system_attrs: dict[str, Any] = {}
        self._name = name
        self._report = report
        self._names = tuple(names)
        self._ends = ends
        self._is_over = False
        self.has_reported = False

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"a trial of a sweep has no {shorten(name)}, as it sees no other trials; it has the "
            f"suggest_… calls, report, should_prune, set_user_attr, user_attrs, params and number"
        )

    def _value(self, suggestion: Suggestion) -> Any:
        """Return the setting that a call asks for.

        Raises TrainableError if it does not exist; the message says what to write in the spec.
        """
        try:
            return _setting(self, suggestion.name)
        except KeyError:
            raise TrainableError(
                f"{self._name} asks for {shorten(suggestion.name)}, which the trial's settings do "
                f"not have; write space: {{{suggestion.name}: {_written(suggestion.entry)}}} in "
                "the spec"
            ) from None

    def _ask(self, suggestion: Suggestion) -> Any:
        """Return the setting that a call asks for, and remember it in `params`."""
        self.params[suggestion.name] = value = self._value(suggestion)
        return value

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        """Return the setting `name`."""
        return float(self._ask(Suggestion.number("uniform", name, low, high, step, log)))

    def suggest_int(
        self, name: str, low: int, high: int, *, step: int = 1, log: bool = False
    ) -> int:
        """Return the setting `name`."""
        return int(self._ask(Suggestion.number("randint", name, low, high, step, log)))

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """Return the setting `name`: the member of `choices` that is equal to it, if there is one.

        A tuple among the choices is a list in the settings.
        """
        value = self._ask(Suggestion(name, "choice", tuple(choices)))
        same = (one for one in choices if type(_plain(one)) is type(value) and _plain(one) == value)
        return next(same, value)

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
        named = named_result(float(value), self._names[0])
        self.has_reported = True
        try:
            self._report({**named, "step": step, **self._numbers()})
        except self._ends:
            if self._is_over:
                raise
            self._is_over = True  # the objective asks should_prune() next, and cleans up

    def should_prune(self) -> bool:
        """Return whether the sweep ends the trial at the report before this call."""
        return self._is_over

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
        """Return the objective's value as a result, with the user attributes that are numbers.

        Raises TrainableError for several values without a name for each.
        """
        if isinstance(returned, tuple | list):
            if len(returned) != len(self._names):
                raise TrainableError(
                    f"{self._name} returned {len(returned)} values, but the spec names "
                    f"{', '.join(self._names)}; name those after the first in their order, "
                    f"objectives: {{NAME: min or max}}"
                )
            returned = {
                name: value
                for one, name in zip(returned, self._names, strict=True)
                for value in named_result(one, name).values()
            }
        named = named_result(returned, self._names[0])
        return {**named, **self._numbers()} if isinstance(named, dict) else named


def _setting(config: Mapping[str, Any], name: str) -> Any:
    """Return the setting `name`, also a dotted path of nested ones; KeyError if it is missing."""
    if name in config:
        return config[name]
    inner: Any = config
    for part in name.split("."):
        if not isinstance(inner, Mapping):
            raise KeyError(name)
        inner = inner[part]
    return inner


def _written(entry: Any) -> str:
    """Return a parameter in the syntax of a spec."""
    if not isinstance(entry, Mapping):
        return str(entry)
    return f"{{{', '.join(f'{word}: {value}' for word, value in entry.items())}}}"


def run(
    function: Callable[..., Any],
    config: Mapping[str, Any],
    number: int,
    report: Callable[[dict[str, Any]], None],
    names: Sequence[str],
    ends: type[BaseException],
) -> Any:
    """Run an objective and return its result.

    If it raised TrialPruned, that is None after a report, since what was reported stands, and NaN
    before the first one. See `Trial` for the arguments.
    """
    asks = "should_prune" in _names_in(innermost(function))
    trial = Trial(config, number, name_of(function), report, names, ends if asks else ())
    try:
        return trial.result(function(trial))
    except Exception as error:
        if type(error).__name__ == "TrialPruned":
            return None if trial.has_reported else trial.result(math.nan)
        raise


def never_saves(function: Any) -> bool:
    """Return whether an objective reports without checkpoints, as Optuna's `report` does."""
    return "get_checkpoint" not in _names_in(innermost(function))


def _names_in(function: Any) -> set[str]:
    """Return the names of attributes and globals in a function and the functions within it."""
    code, names = getattr(function, "__code__", None), set[str]()
    waiting = [code]
    while waiting:
        if isinstance(code := waiting.pop(), CodeType):
            names |= set(code.co_names)
            waiting += [one for one in code.co_consts if isinstance(one, CodeType)]
    return names


# ---- which settings an objective asks for -------------------------------------------------------

#: A range or choice with at most as many values is explored value by value.
FEW = 32
#: Runs after which the exploration ends, at most; runs without a new name after which it ends
#: earlier, if the objective always asks for the same names, and if not.
_MOST_RUNS, _QUIET_RUNS, _QUIET_BRANCHED_RUNS = 200, 3, 24


@dataclass(frozen=True)
class ObjectiveRun:
    """The names and values that one run of an objective asked for."""

    values: Mapping[str, Any]
    """Name → value, in the order of the calls."""
    is_whole: bool
    """True if the run reached the line after which it requests no further value."""
    error: str = ""
    """Error that ended the run, as a text; empty for none."""


@dataclass
class Exploration:
    """The names that several runs of an objective asked for."""

    suggestions: dict[str, Suggestion] = field(default_factory=dict)
    """Name → call, in the order in which they were seen."""
    fixed_names: frozenset[str] = frozenset()
    """Names whose ranges in calls do not matter, since the spec has ranges of its own."""
    runs: list[ObjectiveRun] = field(default_factory=list)
    """Runs of the objective, in order."""
    problem: str = ""
    """Message about a call that no space can express; empty if there is none."""
    is_finished: bool = False
    """False if time ran out."""

    def visited(self, name: str) -> set[str]:
        """Return the values of a parameter that were tried, as texts."""
        return {repr(run.values[name]) for run in self.runs if name in run.values}

    def is_always(self, name: str) -> bool:
        """Return whether each whole run asked for this name."""
        return all(name in run.values for run in self.runs if run.is_whole)


def explore(
    function: Callable[..., Any],
    config: Mapping[str, Any],
    seconds: float,
    fixed_names: Collection[str] = (),
) -> Exploration:
    """Run an objective with different values to find the names it asks for.

    Each value of a choice and of a short range is tried, and the ends of other ranges; then random
    ones, until nothing new comes.
    Each run ends where the function can ask for nothing more, or at its first report. Equal
    functions give equal explorations, unless time runs out. Must be called in the main thread.

    Args:
        config: settings that the spec fixes; they are answered without being explored.
        seconds: limit of the time for all runs.
        fixed_names: names that may be asked for with any ranges.
    """
    exploration, quiet = Exploration(fixed_names=frozenset(fixed_names)), 0
    ends_at = time.monotonic() + seconds
    while len(exploration.runs) < _MOST_RUNS and not exploration.problem:
        left = ends_at - time.monotonic()
        if left <= 0:
            return exploration
        known = len(exploration.suggestions)
        exploration.runs.append(_run_once(function, config, exploration, left))
        quiet = 0 if len(exploration.suggestions) > known else quiet + 1
        branches = not all(map(exploration.is_always, exploration.suggestions))
        if quiet >= (_QUIET_BRANCHED_RUNS if branches else _QUIET_RUNS) and not _untried(
            exploration
        ):
            break
    exploration.is_finished = True
    return exploration


def _untried(exploration: Exploration) -> bool:
    """Return whether a value that is to be tried was never tried."""
    return any(
        {repr(value) for value in asked.values_to_try()} - exploration.visited(name)
        for name, asked in exploration.suggestions.items()
    )


class _Enough(BaseException):
    """Ends a run of an objective that asks for nothing more, or whose time is up."""

    def __init__(self, *, is_whole: bool) -> None:
        super().__init__()
        self.is_whole = is_whole


class _Explorer(Trial):
    """A trial that answers each call with a value that was not tried yet, or a random one."""

    def __init__(self, config: Mapping[str, Any], name: str, exploration: Exploration) -> None:
        super().__init__(config, 0, name, self._stop, ("",))
        self._found = exploration
        self._stream = rng.generator(0, "explore", len(exploration.runs))
        self.asked: dict[str, Any] = {}

    def _value(self, suggestion: Suggestion) -> Any:
        """Return a value for a call of `Trial`, and remember the call."""
        with contextlib.suppress(KeyError):
            return _setting(self, suggestion.name)
        if suggestion.kind == "choice" and (
            strange := [v for v in suggestion.options if not _is_plain(v)]
        ):
            self._refuse(
                f"{self._name} chooses {shorten(suggestion.name)} among values such as "
                f"{shorten(strange[0])}, but a setting is a number, text, true, false, none or a "
                f"list of those; choose among their names"
            )
        before = self._found.suggestions.setdefault(suggestion.name, suggestion)
        if before.entry != suggestion.entry and suggestion.name not in self._found.fixed_names:
            self._refuse(
                f"{self._name} asks for {shorten(suggestion.name)} with {_written(before.entry)} "
                f"and with {_written(suggestion.entry)}, but a parameter has one range; give each "
                f"range a name of its own, or write space: {{{suggestion.name}: …}} in the spec"
            )
        if suggestion.name in self.asked:
            return self.asked[suggestion.name]
        tried = self._found.visited(suggestion.name)
        left = [one for one in suggestion.values_to_try() if repr(one) not in tried]
        share = float(self._stream.random())
        value = left[int(share * len(left))] if left else suggestion.draw(share)
        self.asked[suggestion.name] = value
        return value

    def _refuse(self, problem: str) -> None:
        """End the exploration with a message, by raising _Enough."""
        self._found.problem = problem
        raise _Enough(is_whole=False)

    def _stop(self, _metrics: Mapping[str, Any]) -> None:
        """End the run at its first report, by raising _Enough."""
        raise _Enough(is_whole=True)


def _run_once(
    function: Callable[..., Any],
    config: Mapping[str, Any],
    exploration: Exploration,
    seconds: float,
) -> ObjectiveRun:
    """Run an objective once, up to the point from which it asks for no more."""
    trial = _Explorer(config, name_of(function), exploration)

    def out_of_time(_number: int, _frame: FrameType | None) -> None:
        raise _Enough(is_whole=False)

    handler = signal.signal(signal.SIGALRM, out_of_time)
    timer = signal.setitimer(signal.ITIMER_REAL, seconds)
    tracing = sys.gettrace()
    is_whole, error = True, ""
    try:
        sys.settrace(_Watch(trial).call)
        function(trial)
    except _Enough as end:
        is_whole = end.is_whole
    except BaseException as raised:  # noqa: BLE001 whatever it is, trials will meet it, too
        is_whole, error = False, f"{type(raised).__name__}: {raised}"
    finally:
        sys.settrace(tracing)
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, *timer)
    return ObjectiveRun(trial.asked, is_whole, error)


# ---- the point from which an objective asks for no more -----------------------------------------


class _Watch:
    """Raises `_Enough` in a running objective as soon as no line ahead mentions the trial.

    That is looked up in the source of each function that was given the trial. One whose source
    cannot be read runs to its end. Calls of `report` and the like do not count.
    """

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._running: list[tuple[FrameType, _Mentions]] = []

    def call(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        """Watch the lines of a called function that gets the trial; for `sys.settrace`."""
        code = frame.f_code
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        if not names or code.co_filename == __file__:
            return None
        home = frame.f_locals
        given = next((name for name in names if home.get(name) is self._trial), None)
        if given is None:
            return None
        self._running.append((frame, _mentions(code, given)))
        return self._line

    def _line(self, frame: FrameType, event: str, _argument: Any) -> Any:
        """Follow a watched function by its lines, up to its return."""
        if event == "return":
            self._running = [one for one in self._running if one[0] is not frame]
        elif event == "line" and self._running and self._running[-1][0] is frame:
            *callers, (_, own) = self._running
            if own.are_past(frame.f_lineno) and all(m.are_last(f.f_lineno) for f, m in callers):
                raise _Enough(is_whole=True)
        return self._line


@dataclass(frozen=True)
class _Mentions:
    """The lines of a function that mention the trial."""

    last: float = math.inf
    """Line of the last mention; a loop counts as a whole. Infinite if the line is not known."""
    calls: range = range(0)
    """Lines of the last statement that mentions the trial, if it only passes the trial to one other
    function."""

    def are_past(self, line: int) -> bool:
        """Return whether no line from `line` on mentions the trial."""
        return line > self.last

    def are_last(self, line: int) -> bool:
        """Return whether nothing mentions the trial after a call at `line` has returned."""
        return line > self.last or line in self.calls


#: Methods and attributes of a trial that suggest nothing.
_OTHER_METHODS = frozenset(name for name in dir(Trial) if not name.startswith("suggest_")) | {
    *("number", "params", "user_attrs", "system_attrs")
}


@functools.cache
def _mentions(code: CodeType, parameter: str) -> _Mentions:
    """Return the lines of a function that mention its parameter `parameter`."""
    source = "".join(linecache.getlines(code.co_filename))
    with contextlib.suppress(SyntaxError, ValueError):
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.Lambda) and _is_definition_of(node, code):
                body = node.body if isinstance(node.body, list) else [ast.Return(node.body)]
                if isinstance(node, ast.Lambda):
                    ast.copy_location(body[0], node.body)
                return _find_last(body, parameter)
    return _Mentions()


def _is_definition_of(node: ast.FunctionDef | ast.Lambda, code: CodeType) -> bool:
    """Return whether `code` was compiled from this definition, by line and names for a lambda."""
    names = [one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))])
    whole = code.co_argcount + code.co_kwonlyargcount
    return first == code.co_firstlineno and names == list(code.co_varnames[:whole])


#: Expressions whose parts may be computed several times, or later.
_REPEATED = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def _find_last(body: Sequence[ast.stmt], parameter: str) -> _Mentions:
    """Return the last lines of a function's body that mention the trial, named `parameter`."""
    names, last = {parameter}, _Mentions(0)
    for part in _parts(body):
        count = _count(part, names)
        if not count:
            continue
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(part.name)  # it is called later
            continue
        if isinstance(part, ast.Assign) and isinstance(part.value, ast.Lambda | ast.Name):
            names |= {one.id for one in part.targets if isinstance(one, ast.Name)}
        if (part.end_lineno or 0) >= last.last:
            once = not any(isinstance(node, _REPEATED) for node in ast.walk(part))
            one = count == 1 and once and isinstance(part, ast.Assign | ast.Expr | ast.Return)
            calls = range(part.lineno, (part.end_lineno or 0) + 1) if one else range(0)
            last = _Mentions(part.end_lineno or 0, calls)
    return last


def _parts(body: Sequence[ast.stmt]) -> Iterator[ast.stmt | ast.expr]:
    """Yield statements in their order; of those with blocks that run once, head and members."""
    for statement in body:
        if isinstance(statement, ast.With | ast.AsyncWith):
            yield from (item.context_expr for item in statement.items)
        elif isinstance(statement, ast.If):
            yield statement.test
        elif not isinstance(statement, ast.Try):
            yield statement
            continue
        for name in ("body", "handlers", "orelse", "finalbody"):
            for inner in getattr(statement, name, ()):
                yield from _parts(inner.body if isinstance(inner, ast.ExceptHandler) else [inner])


def _count(part: ast.AST, names: set[str]) -> int:
    """Return how often a part of the syntax tree mentions `names`, other than to report results."""
    harmless = {
        id(node.value)
        for node in ast.walk(part)
        if isinstance(node, ast.Attribute) and node.attr in _OTHER_METHODS
    }
    found = [n for n in ast.walk(part) if isinstance(n, ast.Name) and n.id in names]
    return sum(id(node) not in harmless for node in found)
