"""How one parameter of a search space is written.

lr: {loguniform: [1e-5, 1e-2]}              a number between two bounds, both included; also uniform
clip: {uniform: [0.1, 0.4], step: 0.1}      on a grid
epochs: {randint: [1, 20]}                  a whole number, both bounds included; also lograndint
activation: {choice: [tanh, relu]}          one of some values, any plain data
gamma: 0.99                                 fixed
lambda_: {value: "1 - _one_minus_lambda"}   derived from others, see `sweep.space.expressions`
clip: {uniform: [5, 20], when: {filter: MeanStdFilter}}      there only if others have these values
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from sweep.source import KeyPath, Source
from sweep.space.domains import Choice, Domain, Float, Int
from sweep.space.expressions import ALLOWED, LONGEST, Expression, ExpressionError
from sweep.space.parameters import Condition, Derived, Fixed, Parameter
from sweep.space.values import equality_key
from trainables.errors import nearest

MOST_CHOICES = 10_000
#: Whole numbers up to here are exact as floating-point numbers, which samplers compute with.
LARGEST_INT = 2**53

_NAME = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_LONGEST_NAME = 200
_WANDB_KEYS = frozenset(
    ("min", "max", "distribution", "values", "probabilities", "mu", "sigma", "q", "parameters")
)
_ELSEWHERE = {
    "quniform": "write {uniform: [low, high], step: q}",
    "qloguniform": "write {loguniform: [low, high]}",
    "qrandint": "write {randint: [low, high], step: q}",
    "grid_search": "write {choice: [...]}",
    "normal": "write {uniform: [low, high]}",
    "randn": "write {uniform: [low, high]}",
}


def read(name: object, raw: Any, where: Source) -> Parameter:
    """The parameter that `raw` describes.

    Args:
        name: its key in the space.
        raw: the plain data beside the key.
        where: the source, seen from the space.

    Raises:
        BadSpace: it cannot work.
    """
    checked = _read_name(name, where)
    if not isinstance(raw, Mapping):
        return Parameter(checked, Fixed(_plain(raw, (checked,), where)))
    kind = _kind(checked, raw, where)
    role = _READERS[kind](_Reading(checked, kind, raw, where))
    return Parameter(checked, role, _read_when(checked, raw, where))


def _read_name(name: object, where: Source) -> str:
    if isinstance(name, str) and len(name) <= _LONGEST_NAME and _NAME.fullmatch(name):
        return name
    raise where.refuse(
        (str(name),),
        name,
        f"up to {_LONGEST_NAME} letters, digits, _ and -, in parts joined by dots",
        problem="" if isinstance(name, str) else f"the name {name!r} is not text",
    )


def _kind(name: str, raw: Mapping[str, Any], where: Source) -> str:
    kinds = [key for key in _READERS if key in raw]
    if len(kinds) == 1:
        for key in raw:
            _check_companion(key, kinds[0], name, where)
        return kinds[0]
    allowed = f"exactly one of {', '.join(_READERS)}"
    if kinds:
        raise where.refuse((name,), " and ".join(kinds), allowed)
    strange = next((key for key in raw if key not in ("when", "step")), None)
    hint = "a fixed mapping belongs in config"
    if _WANDB_KEYS & raw.keys():
        hint = "min, max, values and distribution are not available in this version"
        hint += "; write {uniform: [min, max]} or {choice: [...]}"
    elif strange is not None:
        hint = _ELSEWHERE.get(strange) or nearest(strange, _READERS) or hint
    path = (name,) if strange is None else (name, strange)
    raise where.refuse(path, strange or dict(raw), allowed, hint)


def _check_companion(key: str, kind: str, name: str, where: Source) -> None:
    if key in (kind, "when") or (key == "step" and kind in ("uniform", "randint")):
        return
    companions = "when, step" if kind in ("uniform", "randint") else "when"
    hint = nearest(key, ("when", "step"))
    if key == "step":
        hint = "a step stands beside uniform and randint only"
    raise where.refuse((name, key), key, f"beside {kind} only {companions}", hint)


@dataclass(frozen=True)
class _Reading:
    """What a reader of one kind is given."""

    name: str
    kind: str
    raw: Mapping[str, Any]
    where: Source

    @property
    def value(self) -> Any:
        return self.raw[self.kind]

    def refuse(self, value: object, allowed: str, hint: str = "", *below: str | int) -> Exception:
        return self.where.refuse((self.name, self.kind, *below), value, allowed, hint)


def _read_float(reading: _Reading) -> Float:
    low, high = (float(bound) for bound in _bounds(reading, _real))
    if not math.isfinite(high - low):
        raise reading.refuse([low, high], "bounds whose distance is a finite number")
    log = reading.kind.startswith("log")
    step = _step(reading, low, high, _real)
    return Float(low, high, log, None if step is None else float(step))


def _read_int(reading: _Reading) -> Int:
    low, high = _bounds(reading, _whole)
    log = reading.kind.startswith("log")
    return Int(low, high, log, _step(reading, low, high, _whole) or 1)


_Number = Callable[[Any], str]


def _real(value: Any) -> str:
    """What `value` should be instead; empty: it is a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "a number"
    if isinstance(value, int):
        return "" if abs(value) <= LARGEST_INT else "a whole number within ±2**53"
    return "" if math.isfinite(value) else "a finite number"


def _whole(value: Any) -> str:
    """What `value` should be instead; empty: it is a whole number that samplers can represent."""
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > LARGEST_INT:
        return "a whole number within ±2**53, written without a point"
    return ""


def _bounds(reading: _Reading, wrong: _Number) -> tuple[Any, Any]:
    bounds = reading.value
    if not isinstance(bounds, list | tuple) or len(bounds) != 2:
        raise reading.refuse(bounds, "[low, high], two numbers, both included")
    for index, bound in enumerate(bounds):
        if instead := wrong(bound):
            raise reading.refuse(bound, instead, "", index)
    low, high = bounds
    if low > high:
        raise reading.refuse(bounds, "low < high", f"write [{high}, {low}]")
    if low == high:
        raise reading.refuse(
            bounds, "low < high", f"write it as a fixed value, {reading.name}: {low}"
        )
    if reading.kind.startswith("log") and low <= 0:
        raise reading.refuse(low, "a low bound above 0 on a log scale", "", 0)
    return low, high


def _step(reading: _Reading, low: Any, high: Any, wrong: _Number) -> Any:
    if "step" not in reading.raw:
        return None
    step, path = reading.raw["step"], (reading.name, "step")
    if instead := wrong(step):
        raise reading.where.refuse(path, step, instead)
    if step <= 0:
        raise reading.where.refuse(path, step, "a step above 0")
    steps = Fraction(repr(high)) - Fraction(repr(low))
    steps /= Fraction(repr(step))
    if steps.denominator != 1:
        last = type(high)(Fraction(repr(low)) + int(steps) * Fraction(repr(step)))
        hint = f"with this step the last value is {last!r}" if steps > 1 else "take a smaller step"
        raise reading.where.refuse(path, step, f"a step that divides {high!r} - {low!r}", hint)
    if steps > LARGEST_INT:
        raise reading.where.refuse(path, step, "a step of at most 2**53 in the range")
    return step


def _read_choice(reading: _Reading) -> Choice:
    values = reading.value
    allowed = f"a list of 1 to {MOST_CHOICES} different values"
    if not isinstance(values, list | tuple):
        raise reading.refuse(values, allowed)
    if not 1 <= len(values) <= MOST_CHOICES:
        raise reading.refuse(f"a list of {len(values)}", allowed)
    seen: dict[str, int] = {}
    for index, value in enumerate(values):
        _plain(value, (reading.name, reading.kind, index), reading.where)
        first = seen.setdefault(equality_key(value), index)
        if first != index:
            hint = f"it equals {values[first]!r}, value {first}; write each value once"
            raise reading.refuse(value, allowed, hint, index)
    return Choice(tuple(values))


def _read_value(reading: _Reading) -> Fixed | Derived:
    value = reading.value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Fixed(_plain(value, (reading.name, reading.kind), reading.where))
    if not isinstance(value, str):
        raise reading.refuse(value, "a number or an expression in quotes")
    try:
        return Derived(Expression(value))
    except ExpressionError as error:
        raise reading.where.refuse(
            (reading.name, reading.kind),
            value,
            f"{ALLOWED}, up to {LONGEST} characters",
            f"a fixed value is written bare, {reading.name}: …",
            problem=f"{value!r} {error}",
        ) from error


_READERS: dict[str, Callable[[_Reading], Domain | Fixed | Derived]] = {
    "uniform": _read_float,
    "loguniform": _read_float,
    "randint": _read_int,
    "lograndint": _read_int,
    "choice": _read_choice,
    "value": _read_value,
}


def _read_when(name: str, raw: Mapping[str, Any], where: Source) -> tuple[Condition, ...]:
    if "when" not in raw:
        return ()
    when = raw["when"]
    allowed = "{parent: value} or {parent: [value, value]}"
    if not isinstance(when, Mapping) or not when:
        raise where.refuse((name, "when"), when, allowed)
    conditions = []
    for parent, values in when.items():
        alternatives = values if isinstance(values, list | tuple) else [values]
        if not alternatives:
            raise where.refuse((name, "when", parent), values, allowed)
        _plain(values, (name, "when", parent), where)
        conditions.append(Condition(parent, tuple(alternatives)))
    return tuple(conditions)


def _plain(value: Any, path: KeyPath, where: Source) -> Any:
    """`value`, if it is plain data that JSON can hold; numbers finite."""
    match value:
        case None | bool() | str():
            pass
        case int() | float() if math.isfinite(value):
            pass
        case list() | tuple():
            for index, item in enumerate(value):
                _plain(item, (*path, index), where)
        case dict() if all(isinstance(key, str) for key in value):
            for key, item in value.items():
                _plain(item, (*path, key), where)
        case _:
            raise where.refuse(
                path, value, "text, a finite number, true, false, null, or these in lists"
            )
    return value
