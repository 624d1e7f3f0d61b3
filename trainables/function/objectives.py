"""Objectives of Optuna, functions of a trial that asks for its settings by `suggest_…` calls.

    def objective(trial):
        lr = trial.suggest_float("lr", 1e-5, 1e-1, log=True)      # returns the setting ``lr``
        for epoch in range(30):
            ...
            trial.report(accuracy, epoch)                         # ends an iteration
            if trial.should_prune():                              # True when the sweep ends it here
                raise optuna.TrialPruned()
        return accuracy                                           # the last value of the metric

`run` runs one with the settings of a trial. Optuna itself is not imported here.
"""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from types import FunctionType
from typing import Any

from trainables.core.results import named_result
from trainables.errors import TrainableError, shorten
from trainables.function.inspection import innermost, names_in

#: A range or choice with at most as many values is explored value by value.
FEW = 32
#: Parameter of a function by which it is known as an objective.
_PARAMETERS = ("trial", "_trial")


def is_objective(function: Any) -> bool:
    """Return whether a function is an objective of Optuna.

    It is if the only parameter without a default is called ``trial`` or ``_trial``.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    needed = [one for one in parameters if one.default is one.empty]
    return len(needed) == 1 and needed[0].name in _PARAMETERS


def plain_function(function: Any) -> Any:
    """Return the plain function behind a partial, a method or a callable object.

    Returns other objects unchanged.
    """
    function = innermost(function)
    if not isinstance(function, FunctionType):
        called = getattr(function, "__func__", None) or vars(type(function)).get("__call__")
        return called if isinstance(called, FunctionType) else function
    return function


def name_of(function: Any) -> str:
    """Return the name of an objective as messages show it, such as ``objective()``."""
    name = getattr(plain_function(function), "__name__", "")
    return f"{name}()" if name.isidentifier() else "the objective"


# ---- what a trial is asked for ------------------------------------------------------------------


@dataclass(frozen=True)
class Suggestion:
    """A parameter that an objective asks for by a ``suggest_…`` call, with its range or choices."""

    name: str
    """Name of the parameter."""
    kind: str
    """Keyword of the parameter in a spec's ``space``: uniform, randint or choice."""
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
        """Return the suggestion of a number from `low` to `high`.

        `kind` is ``uniform`` or ``randint``. With a `step`, `high` is lowered to the last value
        that steps reach.
        """
        convert = int if kind == "randint" else float
        low, high = convert(low), convert(high)
        if step is not None and high > low and step > 0:
            steps = (Decimal(str(high)) - Decimal(str(low))) // Decimal(str(step))
            high = convert(Decimal(str(low)) + steps * Decimal(str(step)))
        return cls(name, kind, (low, high), log, step)

    @property
    def entry(self) -> Any:
        """The parameter as a spec's ``space`` has it, such as ``{"uniform": [0.0, 1.0]}``.

        It is the value itself for a range of a single value.
        """
        if self.kind != "choice" and self.options[0] == self.options[1]:
            return self.options[0]
        word = f"log{self.kind}" if self.log else self.kind
        found: dict[str, Any] = {word: [_plain(one) for one in self.options]}
        if self.step is not None and not (self.kind == "randint" and self.step == 1):
            found["step"] = self.step
        return found

    def values(self, limit: int) -> list[Any] | None:
        """Return all values that the parameter can have.

        Returns None if there are more than `limit`, as for a range of floats without a step.
        """
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
        """Return all values if there are at most 32 (`FEW`); else the first and the last one.

        Those are the ends of a range, or of the list of choices.
        """
        few = self.values(FEW)
        return few if few is not None else [_plain(self.options[0]), _plain(self.options[-1])]

    def draw(self, share: float) -> Any:
        """Return the value at the fraction `share`, 0 to 1, of the range or the list of choices.

        A logarithmic range is divided on its scale.
        """
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
    """Return a choice as it is in settings: a tuple becomes a list, also within others."""
    return [_plain(one) for one in value] if isinstance(value, tuple | list) else value


def is_plain(value: Any) -> bool:
    """Return whether a choice is plain data, so that it can be written in a spec."""
    if isinstance(value, list | tuple):
        return all(map(is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


class Trial(dict[str, Any]):
    """A trial's settings as a dict, with the methods of Optuna's `Trial` for an objective.

    Args:
        config: the settings, from which ``suggest_…`` calls are answered.
        number: number of the trial in its sweep.
        name: name of the objective, for errors.
        report: ends an iteration with a result.
        names: name of the metric, which the value of a report gets, and of further objectives, in
            the order of the values that the function returns.
        ends: exception by which `report` says that the trial ends there; `should_prune` then
            returns True instead. Empty if the objective does not call `should_prune`.
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
        """Return the setting that a ``suggest_…`` call asks for.

        Raises TrainableError if it does not exist; the message says what to write in the spec.
        """
        try:
            return find_setting(self, suggestion.name)
        except KeyError:
            entry = describe_entry(suggestion.entry)
            raise TrainableError(
                f"{self._name} asks for {shorten(suggestion.name)}, which the trial's settings do "
                f"not have; write space: {{{suggestion.name}: {entry}}} in the spec"
            ) from None

    def _ask(self, suggestion: Suggestion) -> Any:
        """Return the setting that a ``suggest_…`` call asks for, and record it in `params`."""
        self.params[suggestion.name] = value = self._value(suggestion)
        return value

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        """Return the setting `name`, as float, and record it in `params`.

        The range only appears in error messages. Raises TrainableError if there is no such setting.
        """
        return float(self._ask(Suggestion.number("uniform", name, low, high, step, log)))

    def suggest_int(
        self, name: str, low: int, high: int, *, step: int = 1, log: bool = False
    ) -> int:
        """Return the setting `name`, as int, and record it in `params`.

        The range only appears in error messages. Raises TrainableError if there is no such setting.
        """
        return int(self._ask(Suggestion.number("randint", name, low, high, step, log)))

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """Return the choice that is equal to the setting `name`; else the setting itself.

        A tuple among the choices is a list in the settings. The setting is recorded in `params`.
        Raises TrainableError if there is none.
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
        """End an iteration whose metric is `value`.

        Results contain `step`, the objective's own count.

        Blocks until the next iteration is wanted. If the sweep has ended the trial, raises an
        exception; but if the objective calls `should_prune`, only at the report after that.
        """
        named = named_result(float(value), self._names[0])
        self.has_reported = True
        try:
            self._report({**named, "step": step, **self._numbers()})
        except self._ends:
            if self._is_over:
                raise
            self._is_over = True  # the objective asks should_prune() next, and cleans up

    def should_prune(self) -> bool:
        """Return True if the sweep has ended the trial at the objective's latest report."""
        return self._is_over

    def set_user_attr(self, key: str, value: Any) -> None:
        """Store a value in `user_attrs`; numbers there are part of all further results."""
        self.user_attrs[key] = value

    def set_system_attr(self, key: str, value: Any) -> None:
        """Store a value in `system_attrs`; it is not part of results."""
        self.system_attrs[key] = value

    def _numbers(self) -> dict[str, Any]:
        """Return the entries of `user_attrs` that are numbers, also numpy's or torch's."""
        numbers: dict[str, Any] = {}
        for key, value in self.user_attrs.items():
            result = None if isinstance(value, Mapping) else named_result(value, key)
            numbers |= result if isinstance(result, dict) else {}
        return numbers

    def result(self, returned: Any) -> Any:
        """Return the objective's return value as the last result: name → number.

        User attributes that are numbers are added. A dict is taken as the result; any other value
        that is no number, such as None, is returned as it is. Raises TrainableError if it returned
        several values, but not one for each objective of the spec.
        """
        if isinstance(returned, tuple | list):
            if len(returned) != len(self._names):
                raise TrainableError(
                    f"{self._name} returned {len(returned)} values, but the spec names "
                    f"{', '.join(self._names)}; name those after the first in their order, "
                    f"objectives: {{NAME: min or max}}"
                )
            named = [named_result(*pair) for pair in zip(returned, self._names, strict=True)]
            returned = {
                name: one[name] if isinstance(one, dict) and name in one else one
                for one, name in zip(named, self._names, strict=True)
            }
        result = named_result(returned, self._names[0])
        return {**result, **self._numbers()} if isinstance(result, dict) else result


def find_setting(config: Mapping[str, Any], name: str) -> Any:
    """Return the setting `name`, which may be a dotted path; raises KeyError if it is missing."""
    if name in config:
        return config[name]
    inner: Any = config
    for part in name.split("."):
        if not isinstance(inner, Mapping):
            raise KeyError(name)
        inner = inner[part]
    return inner


def describe_entry(entry: Any) -> str:
    """Return a parameter's entry as one writes it in a spec, for messages."""
    if not isinstance(entry, Mapping):
        return str(entry)
    return f"{{{', '.join(f'{word}: {value}' for word, value in entry.items())}}}"


def run_objective(
    function: Callable[..., Any],
    config: Mapping[str, Any],
    number: int,
    report: Callable[[dict[str, Any]], None],
    names: Sequence[str],
    ends: type[BaseException],
) -> Any:
    """Call an objective with a `Trial`, and return the last result.

    The trial gets `config`, `number`, `report`, `names`, and `ends` if the objective calls
    `should_prune`. If the objective raised TrialPruned, the result is None after a report, since
    that report stands, and a NaN for the metric before the first report.
    """
    asks = "should_prune" in names_in(plain_function(function))
    trial = Trial(config, number, name_of(function), report, names, ends if asks else ())
    try:
        return trial.result(function(trial))
    except Exception as error:
        if type(error).__name__ == "TrialPruned":
            return None if trial.has_reported else trial.result(math.nan)
        raise


def never_saves(function: Any) -> bool:
    """Return whether no report of an objective has a checkpoint.

    True if its code does not name `get_checkpoint`, since Optuna's ``report`` takes no checkpoint.
    """
    return "get_checkpoint" not in names_in(plain_function(function))
