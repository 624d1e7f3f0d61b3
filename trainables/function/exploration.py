"""Finds the settings that an objective of Optuna asks for, by running it many times."""

import ast
import contextlib
import functools
import linecache
import math
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

from trainables.core import rng
from trainables.errors import shorten
from trainables.function.objectives import (
    Suggestion,
    Trial,
    describe_entry,
    find_setting,
    is_plain,
    name_of,
)

#: Runs after which the exploration ends, at most; runs without a new name after which it ends
#: earlier, if the objective always asks for the same names, and if not.
_MOST_RUNS, _QUIET_RUNS, _QUIET_BRANCHED_RUNS = 200, 3, 24


@dataclass(frozen=True)
class ObjectiveRun:
    """Record of one run of an objective: the parameters that it asked for, and its end."""

    values: Mapping[str, Any]
    """Parameter → value that it got, in the order of the ``suggest_…`` calls.

    Those that the spec fixes are left out.
    """
    is_whole: bool
    """True if the run made all its ``suggest_…`` calls; False if an error or the time limit
    ended it."""
    error: str = ""
    """Error that ended the run, as a text; empty for none."""


@dataclass
class Exploration:
    """The parameters that several runs of an objective asked for, and the runs themselves."""

    suggestions: dict[str, Suggestion] = field(default_factory=dict)
    """Parameter → its first ``suggest_…`` call, in the order in which they were seen."""
    fixed_names: frozenset[str] = frozenset()
    """Parameters whose ranges in calls do not matter, since the spec gives their ranges."""
    runs: list[ObjectiveRun] = field(default_factory=list)
    """Runs of the objective, in order."""
    problem: str = ""
    """Error message about a call that no search space can express; empty if there is none."""
    is_finished: bool = False
    """True if the exploration ended by itself; False if its time ran out."""

    def tried_values(self, name: str) -> set[str]:
        """Return the reprs of the values that a parameter had in any run."""
        return {repr(run.values[name]) for run in self.runs if name in run.values}

    def is_asked_in_each_run(self, name: str) -> bool:
        """Return whether every whole run asked for the parameter: it depends on no other."""
        return all(name in run.values for run in self.runs if run.is_whole)


def explore(
    function: Callable[..., Any],
    config: Mapping[str, Any],
    seconds: float,
    fixed_names: Collection[str] = (),
) -> Exploration:
    """Run an objective of Optuna with different values to find the parameters it asks for.

    Each value of a short choice or range is tried (at most 32, `objectives.FEW`), and the first and
    last of longer ones; then random ones, until nothing new comes, in at most 200 runs. Each run
    ends where the function can ask for nothing more, or at its first report. A call that no search
    space can express ends the exploration; `problem` then says so. Equal functions give equal
    explorations, unless time runs out. Must be called in the main thread.

    Args:
        config: settings that the spec fixes; they are answered without being explored.
        seconds: limit of the time for all runs.
        fixed_names: parameters that may be asked for with any ranges.
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
        branches = not all(map(exploration.is_asked_in_each_run, exploration.suggestions))
        if quiet >= (_QUIET_BRANCHED_RUNS if branches else _QUIET_RUNS) and not _untried(
            exploration
        ):
            break
    exploration.is_finished = True
    return exploration


def _untried(exploration: Exploration) -> bool:
    """Return whether a value that should be tried, of any parameter, was in no run yet."""
    return any(
        {repr(value) for value in asked.values_to_try()} - exploration.tried_values(name)
        for name, asked in exploration.suggestions.items()
    )


class _Enough(BaseException):
    """Raised to end a run of an objective: no more to ask, time is up, or an impossible call.

    `is_whole` is True if it has asked for all.
    """

    def __init__(self, *, is_whole: bool) -> None:
        super().__init__()
        self.is_whole = is_whole


class _Explorer(Trial):
    """A trial for one run, which answers each call with a value not tried yet, or a random one."""

    def __init__(self, config: Mapping[str, Any], name: str, exploration: Exploration) -> None:
        super().__init__(config, 0, name, self._stop, ("",))
        self._found = exploration
        self._stream = rng.generator(0, "explore", len(exploration.runs))
        self.asked: dict[str, Any] = {}

    def _value(self, suggestion: Suggestion) -> Any:
        """Return a value for a ``suggest_…`` call, and record the call and the value.

        A setting that the spec fixes is returned without a record. A second call in a run gets the
        same value. Ends the exploration, by raising _Enough, if a search space cannot express the
        call.
        """
        with contextlib.suppress(KeyError):
            return find_setting(self, suggestion.name)
        if suggestion.kind == "choice" and (
            strange := [v for v in suggestion.options if not is_plain(v)]
        ):
            self._refuse(
                f"{self._name} chooses {shorten(suggestion.name)} among values such as "
                f"{shorten(strange[0])}, but a setting is a number, text, true, false, none "
                "or a list of those; let it choose among the names of these values"
            )
        if suggestion.kind != "choice":
            is_empty = suggestion.options[0] > suggestion.options[1]
        else:
            is_empty = not suggestion.options
        if is_empty:
            self._refuse(
                f"{self._name} asks for {shorten(suggestion.name)} with "
                f"{describe_entry(suggestion.entry)}, which has no value"
            )
        before = self._found.suggestions.setdefault(suggestion.name, suggestion)
        if before.entry != suggestion.entry and suggestion.name not in self._found.fixed_names:
            first, second = describe_entry(before.entry), describe_entry(suggestion.entry)
            self._refuse(
                f"{self._name} asks for {shorten(suggestion.name)} with {first} and with {second}, "
                f"but a parameter has one range; give each range a name of its own, "
                f"or write space: {{{suggestion.name}: …}} in the spec"
            )
        if suggestion.name in self.asked:
            return self.asked[suggestion.name]
        tried = self._found.tried_values(suggestion.name)
        left = [one for one in suggestion.values_to_try() if repr(one) not in tried]
        share = float(self._stream.random())
        value = left[int(share * len(left))] if left else suggestion.draw(share)
        self.asked[suggestion.name] = value
        return value

    def _refuse(self, problem: str) -> None:
        """Record `problem`, which ends the exploration, and end this run by raising _Enough."""
        self._found.problem = problem
        raise _Enough(is_whole=False)

    def _stop(self, _metrics: Mapping[str, Any]) -> None:
        """End the run at the objective's first report, by raising _Enough."""
        raise _Enough(is_whole=True)


def _run_once(
    function: Callable[..., Any],
    config: Mapping[str, Any],
    exploration: Exploration,
    seconds: float,
) -> ObjectiveRun:
    """Run an objective once, up to the line from which it asks for no more; return the record.

    Parameters that are asked for the first time are added to `exploration`. The run ends after
    `seconds` at the latest (SIGALRM). Its own exceptions are recorded, not raised.
    """
    trial = _Explorer(config, name_of(function), exploration)

    def out_of_time(_number: int, _frame: FrameType | None) -> None:
        """Handle the alarm: end the run, which has used up its time."""
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


#: Files of the methods that get a trial as `self`.
_OWN_FILES = frozenset({__file__, Trial.report.__code__.co_filename})


class _Watch:
    """A trace function that raises `_Enough` once no line ahead in the objective uses the trial.

    The lines are looked up in the source of each function that was given the trial. A function
    whose source cannot be read runs to its end. Calls of `report` and the like do not count.
    """

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._running: list[tuple[FrameType, _Mentions]] = []

    def call(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        """Begin to watch a called function if the trial is one of its arguments.

        For `sys.settrace`: returns the function that traces its lines, or None.
        """
        code = frame.f_code
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        if not names or code.co_filename in _OWN_FILES:
            return None
        home = frame.f_locals
        given = next((name for name in names if home.get(name) is self._trial), None)
        if given is None:
            return None
        self._running.append((frame, _mentions(code, given)))
        return self._line

    def _line(self, frame: FrameType, event: str, _argument: Any) -> Any:
        """Raise _Enough before a line if no function that got the trial uses it any more.

        A trace function of lines; it also notices that a watched function returns.
        """
        if event == "return":
            self._running = [one for one in self._running if one[0] is not frame]
        elif event == "line" and self._running and self._running[-1][0] is frame:
            *callers, (_, own) = self._running
            if own.are_past(frame.f_lineno) and all(m.are_last(f.f_lineno) for f, m in callers):
                raise _Enough(is_whole=True)
        return self._line


@dataclass(frozen=True)
class _Mentions:
    """The place of the last use of the trial in a function's source."""

    last: float = math.inf
    """Number of the last line that uses the trial; of a loop, its last line. Infinite if not
    known."""
    calls: range = range(0)
    """Line numbers of the last statement that uses the trial, if it only passes the trial to one
    other function; else empty."""

    def are_past(self, line: int) -> bool:
        """Return whether neither `line` nor any later line uses the trial."""
        return line > self.last

    def are_last(self, line: int) -> bool:
        """Return whether nothing uses the trial after a function that `line` calls has returned."""
        return line > self.last or line in self.calls


#: Methods and attributes of a trial that suggest nothing.
_OTHER_METHODS = frozenset(name for name in dir(Trial) if not name.startswith("suggest_")) | {
    *("number", "params", "user_attrs", "system_attrs")
}


@functools.cache
def _mentions(code: CodeType, parameter: str) -> _Mentions:
    """Find where a compiled function uses its parameter `parameter`, from its source; cached.

    If the source cannot be read, the last line of the result is infinite.
    """
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
    """Return whether `code` was compiled from this definition: same first line, same parameters."""
    names = [one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))])
    whole = code.co_argcount + code.co_kwonlyargcount
    return first == code.co_firstlineno and names == list(code.co_varnames[:whole])


#: Expressions whose parts may be computed several times, or later.
_REPEATED = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def _find_last(body: Sequence[ast.stmt], parameter: str) -> _Mentions:
    """Return the last place in a function's body that uses the trial, its parameter `parameter`.

    Names to which the trial, or an inner function that uses it, is assigned count as well.
    """
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
    """Yield the statements of a body in their order, with those in ``if``, ``with`` and ``try``.

    Of ``if`` and ``with``, their expressions are yielded, too. A loop is yielded as a whole.
    """
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
    """Return how often a part of a syntax tree uses `names`, other than as `_OTHER_METHODS` do."""
    harmless = {
        id(node.value)
        for node in ast.walk(part)
        if isinstance(node, ast.Attribute) and node.attr in _OTHER_METHODS
    }
    found = [n for n in ast.walk(part) if isinstance(n, ast.Name) and n.id in names]
    return sum(id(node) not in harmless for node in found)
