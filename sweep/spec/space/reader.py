"""Syntax of one parameter of a search space.

lr: {loguniform: [1e-5, 1e-2]}              a number between two bounds, both included; or uniform
clip: {uniform: [0.1, 0.4], step: 0.1}      on a grid; also loguniform
epochs: {randint: [1, 20]}                  an integer, both bounds included; also lograndint
noise: {normal: [0, 0.1], bounds: [-1, 1]}  around a mean; lognormal: of the natural logarithm
activation: {choice: [tanh, relu]}          one of some values, any plain data
net: {choice: [cnn, mlp], weights: [1, 3]}  the second is drawn three times as often
size: {ordinal: [small, medium, large]}     one of some ordered values
env: {grid: [CartPole-v1, Acrobot-v1]}      the trials take them in turn
gamma: 0.99                                 fixed
lambda_: {value: "1 - _one_minus_lambda"}   derived from others, see `sweep.spec.space.expressions`
clip: {uniform: [5, 20], when: {filter: MeanStdFilter}}   see `sweep.spec.space.parameters`

The syntax of W&B's sweeps is accepted too, see `sweep.spec.space.wandb`; for groups see
`sweep.spec.space.groups`.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sweep.core.errors import KeyPath, Source
from sweep.spec.space import aliases, wandb
from sweep.spec.space.domains import (
    LEAST_MASS,
    Choice,
    Domain,
    Float,
    Int,
    Normal,
    Ordinal,
    equality_key,
    exact_decimal,
)
from sweep.spec.space.expressions import ALLOWED, LONGEST, Expression, ExpressionError
from sweep.spec.space.groups import Entry
from sweep.spec.space.parameters import Derived, Fixed, Parameter, read_conditions
from trainables.errors import nearest, shorten

#: Largest integer that is exact as a float, with which samplers compute.
LARGEST_INT = 2**53
#: Maximum number of a parameter's choices.
MOST_CHOICES = 10_000
#: Maximum distance of the sum of probabilities from 1.
_ROUNDING = 1e-6
#: Function of a bound or step that describes allowed values; empty text if it is allowed.
_Wrong = Callable[[Any], str]
#: Keys of the spec with mappings, which may be indented below ``space`` by mistake.
_SECTIONS = frozenset(
    ("stop", "scheduler", "searcher", "budget", "checkpoint", "limits", "resources", "config")
)
#: Number of standard deviations from the mean at which a log-normal number must be finite.
_REACH = 6.0
#: Smallest step of a domain.
_SMALLEST = 1e-300


@dataclass(frozen=True)
class Reading:
    """The description of one parameter in our keywords, with its place in the spec."""

    name: str
    """Name of the parameter with dots."""
    kind: str
    """Keyword of the parameter's kind, such as ``uniform``."""
    raw: Mapping[str, Any]
    """Keyword, such as ``uniform`` or ``step``, → its value."""
    source: Source
    """File and lines below the parameter, for messages."""
    paths: Mapping[KeyPath, KeyPath] = field(default_factory=dict)
    """Path in `raw` → path in the file, where the file has another tool's syntax."""

    @property
    def value(self) -> Any:
        """Value of the keyword that names the kind."""
        return self.raw[self.kind]

    def refuse(self, value: object, allowed: str, hint: str = "", *below: str | int) -> Exception:
        """Return the error for a mistake in the value of the kind's keyword, at `below` in it."""
        return self.refuse_at((self.kind, *below), value, allowed, hint)

    def refuse_at(
        self, path: KeyPath, value: object, allowed: str = "", hint: str = "", problem: str = ""
    ) -> Exception:
        """Return the error for a mistake at `path` in `raw`."""
        return self.source.refuse(self.paths.get(path, path), value, allowed, hint, problem)


def read(entry: Entry, space: Source) -> Parameter:
    """Parse the parameter that an entry of a space describes; `space` has its lines for messages.

    Raises BadSpace if the description is not valid.
    """
    source = space.sub_source(*entry.path)
    conditions = [
        one for path, raw in entry.conditions for one in read_conditions(raw, path, space)
    ]
    if not isinstance(entry.raw, Mapping):
        role = Fixed(_read_fixed(entry.raw, source))
        return Parameter(entry.name, role, tuple(conditions), path=entry.path)
    reading = _make_reading(entry.name, entry.raw, source)
    if "when" in reading.raw:
        conditions += read_conditions(
            require_plain_data(reading.raw["when"], ("when",), source), ("when",), source
        )
    return Parameter(
        entry.name,
        _KINDS[reading.kind](reading),
        tuple(conditions),
        crossed=reading.kind == "grid",
        path=entry.path,
    )


def _read_fixed(raw: Any, source: Source) -> Any:
    """Return a fixed value unchanged; BadSpace if it looks like a call or is not plain data."""
    if isinstance(raw, str) and (remedy := aliases.remedy_for_call(raw)):
        raise source.refuse((), raw, "a value, or a mapping such as {uniform: [0, 1]}", remedy)
    return require_plain_data(raw, (), source)


def _make_reading(name: str, raw: Mapping[str, Any], source: Source) -> Reading:
    """Return a parameter's description with its kind, in our keywords if it has W&B's.

    Raises BadSpace unless there is one kind, and only keywords that may stand next to it.
    """
    kinds = [word for word in _READERS if word in raw]
    if raw.keys() & wandb.WORDS and kinds in ([], ["value"]):
        ours, paths = wandb.translate(raw, source)
        kind = next(word for word in _KINDS if word in ours)
        return Reading(name, kind, ours, source, paths)
    if len(kinds) != 1:
        raise _kind_error(name, raw, kinds, source)
    for word in raw:
        _check_companion(word, kinds[0], source)
    return Reading(name, kinds[0], raw, source)


#: Advice on a mapping that may be a setting itself.
_OF_FIXED = "if this mapping is not searched, move it to config"


def _kind_error(name: str, raw: Mapping[str, Any], kinds: list[str], source: Source) -> Exception:
    """Return the error that the mapping of a parameter has none, or several, of the kinds' words.

    Its `name` may be that of a key of the spec, which was indented too far.
    """
    allowed = f"exactly one of {', '.join(_READERS)}"
    if kinds:
        together = " and ".join(kinds)
        return source.refuse((), together, allowed, problem=f"{together} cannot be used together")
    strange = next((word for word in raw if word != "when"), None)
    if strange is None:
        problem = "the kind of the parameter is missing"
        return source.refuse((), dict(raw), allowed, _OF_FIXED, problem)
    known = (aliases.WORDS[word] for word in raw if word in aliases.WORDS)
    if name in _SECTIONS:
        hint = f"to set the spec's key {name}, do not indent it below space"
        return source.refuse((), dict(raw), allowed, hint, "the kind of the parameter is missing")
    hint = next(known, "") or nearest(strange, _READERS) or _OF_FIXED
    problem = f"{shorten(strange)} is not a kind of parameter"
    return source.refuse((strange,), strange, allowed, hint, problem)


def _check_companion(word: str, kind: str, source: Source) -> None:
    """Raise BadSpace if the keyword `word` is not allowed next to that of the kind."""
    companions = COMPANIONS.get(kind, ())
    if word in (kind, "when", *companions):
        return
    hint = nearest(word, ("when", *companions))
    kinds = [other for other, words in COMPANIONS.items() if word in words]
    if kinds:
        hint = f"{word} can be used with {', '.join(kinds)}"
    allowed = f"only {', '.join(('when', *companions))}"
    problem = f"{shorten(word)} cannot be used next to {kind}"
    raise source.refuse((word,), word, allowed, hint, problem)


# ---- numbers: bounds, steps, means and deviations -----------------------------------------------


def read_float(reading: Reading) -> Float:
    """Parse ``uniform`` or ``loguniform`` with its step; BadSpace if it is not valid.

    Bounds and step become floats; without a step it is None.
    """
    low, high = (float(bound) for bound in _bounds(reading, number_problem))
    if not math.isfinite(high - low):
        raise reading.refuse([low, high], "bounds whose distance is a finite number")
    log = reading.kind.startswith("log")
    step = _step(reading, low, high, number_problem)
    return Float(low, high, log, None if step is None else float(step))


def read_int(reading: Reading) -> Int:
    """Parse ``randint`` or ``lograndint`` with its step, 1 by default; BadSpace if not valid."""
    low, high = _bounds(reading, integer_problem)
    log = reading.kind.startswith("log")
    return Int(low, high, log, _step(reading, low, high, integer_problem) or 1)


def read_normal(reading: Reading) -> Normal:
    """Parse ``normal`` or ``lognormal`` with its bounds and step.

    A lognormal with a step but no lower bound gets the step as its lower bound. Raises BadSpace if
    it is not valid, or if the bounds leave less than `LEAST_MASS` of the distribution.
    """
    log = reading.kind == "lognormal"
    mean, deviation = _moments(reading, log)
    low, high = _limits(reading, log)
    step = _step(reading, low, high, number_problem)
    if step is not None:
        _check_fine(reading, step, 0.0 if log else abs(mean) + _REACH * deviation)
    if log and step is not None and low is None:
        low = float(step)
        _check_steps(reading, low, high, step)
    normal = Normal(mean, deviation, log, low, high, None if step is None else float(step))
    if normal.mass < LEAST_MASS:
        hint = "widen the bounds, or move the mean into them"
        raise reading.refuse_at(
            ("bounds",),
            [low, high],
            "bounds that contain at least a millionth of the distribution",
            hint,
        )
    return normal


def _bounds(reading: Reading, wrong: _Wrong) -> tuple[Any, Any]:
    """Return the lower and the upper bound of a range.

    Raises BadSpace unless they are two allowed ones with low < high, above 0 on a log scale.
    `wrong` is a function of a bound that returns a description of allowed values, or an empty text
    if the bound is allowed.
    """
    low, high = _pair(reading, "[low, high], two numbers, both included")
    for index, bound in enumerate((low, high)):
        if instead := wrong(bound):
            raise reading.refuse(bound, instead, "", index)
    _check_order(reading, (reading.kind,), low, high)
    if reading.kind.startswith("log") and low <= 0:
        raise reading.refuse(low, "a low bound above 0 on a log scale", "", 0)
    return low, high


def _pair(reading: Reading, allowed: str) -> tuple[Any, Any]:
    """Return the two values of the kind's keyword.

    Raises BadSpace, with the text `allowed`, if there are not two.
    """
    pair = reading.value
    if not isinstance(pair, list | tuple) or len(pair) != 2:
        raise reading.refuse(pair, allowed)
    return pair[0], pair[1]


def _check_order(reading: Reading, path: tuple[str], low: Any, high: Any) -> None:
    """Raise BadSpace unless low < high; `path` is the place of the two bounds."""
    if low > high:
        problem, hint = f"{low} is more than {high}", f"write [{high}, {low}]"
        raise reading.refuse_at(path, [low, high], hint=hint, problem=problem)
    if low == high:
        hint = f"write a fixed value, {reading.name}: {low}"
        problem = f"both bounds are {low}"
        raise reading.refuse_at(path, [low, high], hint=hint, problem=problem)


def _step(reading: Reading, low: Any, high: Any, wrong: _Wrong) -> Any:
    """Return the step, or None without one; BadSpace if it does not divide the range.

    It must be above 0. `wrong` returns a description of the allowed values if the step is not one
    of them, else an empty text. A missing bound is None; the range is then not checked.
    """
    if reading.raw.get("step") is None:
        return None
    step = reading.raw["step"]
    if instead := wrong(step):
        raise reading.refuse_at(("step",), step, instead)
    if step <= 0:
        raise reading.refuse_at(("step",), step, "a step above 0")
    if low is not None:
        _check_steps(reading, low, high, step)
    return step


def _check_steps(reading: Reading, low: Any, high: Any, step: Any) -> None:
    """Raise BadSpace unless steps from `low` end exactly at `high`, or if they are too small.

    A `high` of None is no bound; nothing is checked then.
    """
    if high is None:
        return
    steps = (exact_decimal(high) - exact_decimal(low)) / exact_decimal(step)
    if steps.denominator != 1 or steps < 1:
        last = type(high)(exact_decimal(low) + int(steps) * exact_decimal(step))
        hint = f"with this step the last value is {last!r}" if steps > 1 else "take a smaller step"
        allowed = f"a step that divides {high!r} - {low!r}"
        raise reading.refuse_at(("step",), step, allowed, hint)
    _check_fine(reading, step, max(abs(low), abs(high)))


def _check_fine(reading: Reading, step: Any, farthest: float) -> None:
    """Raise BadSpace if a step is so small that neighbouring numbers would be equal floats.

    `farthest` is the largest absolute number that the domain may have.
    """
    if step < _SMALLEST or exact_decimal(farthest) / exact_decimal(step) > LARGEST_INT:
        allowed = f"a step of at least {max(_SMALLEST, farthest / LARGEST_INT):.3g}"
        raise reading.refuse_at(
            ("step",),
            step,
            allowed,
            "with this step, some values would be more than 2**53 steps from 0",
        )


def _moments(reading: Reading, log: bool) -> tuple[float, float]:
    """Return mean and standard deviation of a normal distribution, of the logarithm if `log`.

    Raises BadSpace unless they are two numbers, the second above 0, and numbers as far as `_REACH`
    deviations from the mean are finite.
    """
    mean, deviation = _pair(reading, "[mean, deviation], two numbers")
    for index, number in enumerate((mean, deviation)):
        if instead := number_problem(number):
            raise reading.refuse(number, instead, "", index)
    if deviation <= 0:
        raise reading.refuse(deviation, "a deviation above 0", "", 1)
    far = abs(mean) + _REACH * deviation
    if not math.isfinite(far) or (log and far > math.log(1e300)):
        allowed = f"a mean and a deviation so small that mean ± {_REACH} deviations are finite"
        hint = "for a lognormal they are those of the natural logarithm" if log else ""
        raise reading.refuse([mean, deviation], allowed, hint)
    return float(mean), float(deviation)


def _limits(reading: Reading, log: bool) -> tuple[float | None, float | None]:
    """Return lower and upper bound of a normal distribution, each None if missing or null.

    Raises BadSpace unless ``bounds`` has two, not both null, with low < high, above 0 with `log`.
    """
    bounds = reading.raw.get("bounds")
    if bounds is None and "bounds" not in reading.raw:
        return None, None
    allowed = "[low, high], both included; null for no bound"
    if not isinstance(bounds, list | tuple) or len(bounds) != 2 or list(bounds) == [None, None]:
        raise reading.refuse_at(("bounds",), bounds, allowed)
    for index, bound in enumerate(bounds):
        if bound is not None and (instead := number_problem(bound)):
            raise reading.refuse_at(("bounds", index), bound, f"{instead}, or null")
    low, high = (None if bound is None else float(bound) for bound in bounds)
    if low is not None and high is not None:
        _check_order(reading, ("bounds",), low, high)
    for index, bound in enumerate((low, high)):
        if log and bound is not None and bound <= 0:
            raise reading.refuse_at(("bounds", index), bound, "a bound above 0")
    return low, high


# ---- choices and values ---------------------------------------------------------------------


def _values(reading: Reading) -> tuple[Any, ...]:
    """Return the values that the kind's keyword lists.

    Raises BadSpace unless they are a list of 1 to `MOST_CHOICES` different ones of plain data.
    """
    values = reading.value
    allowed = f"a list of 1 to {MOST_CHOICES} different values"
    if not isinstance(values, list | tuple):
        raise reading.refuse(values, allowed)
    if not 1 <= len(values) <= MOST_CHOICES:
        given, problem = f"a list of {len(values)}", f"the list has {len(values)} values"
        raise reading.refuse_at((reading.kind,), given, allowed, problem=problem)
    seen: dict[str, int] = {}
    for index, value in enumerate(values):
        path = (reading.kind, index)
        require_plain_data(value, reading.paths.get(path, path), reading.source)
        first = seen.setdefault(equality_key(value), index)
        if first != index:
            hint = "write each value once"
            shown, other = shorten(value), shorten(values[first])
            problem = f"{shown} equals {other}, value {first} of the list"
            problem = f"{shown} is listed twice" if shown == other else problem
            raise reading.refuse_at(path, value, hint=hint, problem=problem)
    return tuple(values)


def _read_choice(reading: Reading) -> Choice:
    """Parse ``choice`` with its weights or probabilities; BadSpace if not valid, or with both."""
    values = _values(reading)
    given = [word for word in ("weights", "probabilities") if word in reading.raw]
    if not given:
        return Choice(values)
    if len(given) > 1:
        raise reading.refuse_at((given[1],), given[1], "weights or probabilities, not both")
    return Choice(values, _weights(reading, given[0], len(values)))


def _weights(reading: Reading, word: str, count: int) -> tuple[float, ...]:
    """Return the weights below the keyword `word`, one for each of `count` values.

    Each must be from 1e-12 to 1e12, and probabilities must have the sum 1; they are returned as
    they are. Raises BadSpace if they are not valid.
    """
    weights = reading.raw[word]
    if not isinstance(weights, list | tuple) or len(weights) != count:
        raise reading.refuse_at((word,), weights, f"a list of {count} numbers, one per value")
    for index, weight in enumerate(weights):
        if instead := number_problem(weight):
            raise reading.refuse_at((word, index), weight, instead)
        if not 1e-12 <= weight <= 1e12:
            hint = "leave out a value that is never to be drawn"
            raise reading.refuse_at((word, index), weight, "a number from 1e-12 to 1e12", hint)
    total = math.fsum(weights)
    if word == "probabilities" and abs(total - 1.0) > _ROUNDING:
        hint = "weights may have any sum"
        raise reading.refuse_at((word,), weights, f"numbers whose sum is 1, not {total:g}", hint)
    return tuple(float(weight) for weight in weights)


def _read_value(reading: Reading) -> Fixed | Derived:
    """Parse ``value``: text is an expression, anything else a fixed value.

    Raises BadSpace if the text is no expression, or the value no plain data.
    """
    value = reading.value
    if not isinstance(value, str):
        return Fixed(require_plain_data(value, (reading.kind,), reading.source))
    try:
        return Derived(Expression(value))
    except ExpressionError as error:
        raise reading.refuse_at(
            (reading.kind,),
            value,
            f"{ALLOWED}, up to {LONGEST} characters",
            f"write a fixed value without a keyword, {reading.name}: …",
            f"{shorten(value, LONGEST)} {error}",
        ) from error


#: Keyword of a parameter → function that reads it.
_READERS: dict[str, Callable[[Reading], Domain | Fixed | Derived]] = {
    "uniform": read_float,
    "loguniform": read_float,
    "randint": read_int,
    "lograndint": read_int,
    "normal": read_normal,
    "lognormal": read_normal,
    "choice": _read_choice,
    "ordinal": lambda reading: Ordinal(_values(reading)),
    "grid": lambda reading: Choice(_values(reading)),
    "value": _read_value,
}
#: The same with W&B's constant, which is never an expression.
_KINDS: dict[str, Callable[[Reading], Domain | Fixed | Derived]] = {
    **_READERS,
    "constant": lambda reading: Fixed(_read_fixed(reading.value, reading.source)),
}
#: Keyword → keywords that may stand beside it.
COMPANIONS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("uniform", "loguniform", "randint", "lograndint"), ("step",)),
    **dict.fromkeys(("normal", "lognormal"), ("bounds", "step")),
    "choice": ("weights", "probabilities"),
}
#: Keywords that make a mapping a parameter instead of a group.
WORDS = frozenset({*_READERS, "distribution", "values"})


# ---- plain data ---------------------------------------------------------------------------------


def number_problem(value: Any) -> str:
    """Return a description of allowed numbers if `value` is not allowed, else an empty text.

    Finite floats and integers within ±2**53 are; booleans are not.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "a number"
    if isinstance(value, int):
        return "" if abs(value) <= LARGEST_INT else "a whole number within ±2**53"
    return "" if math.isfinite(value) else "a finite number"


def integer_problem(value: Any) -> str:
    """Return a description of allowed integers if `value` is not allowed, else an empty text.

    Integers within ±2**53 are; booleans and whole floats are not.
    """
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > LARGEST_INT:
        return "a whole number within ±2**53, written without a point"
    return ""


def require_plain_data(value: Any, path: KeyPath, source: Source) -> Any:
    """Return `value` unchanged; it must be JSON data with finite numbers and 64-bit integers.

    Raises BadSpace if it is not.
    """
    match value:
        case None | bool() | str():
            pass
        case int() if abs(value) < 2**63:
            pass
        case float() if math.isfinite(value):
            pass
        case list() | tuple():
            for index, item in enumerate(value):
                require_plain_data(item, (*path, index), source)
        case dict() if all(isinstance(key, str) for key in value):
            for key, item in value.items():
                require_plain_data(item, (*path, key), source)
        case _:
            raise source.refuse(
                path, value, "text, a finite number, true, false, null, or these in lists"
            )
    return value
