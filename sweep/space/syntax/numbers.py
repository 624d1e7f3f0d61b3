"""How numbers are written: bounds, steps, means and deviations."""

import math
from collections.abc import Callable
from typing import Any

from sweep.space.domains import Float, Int
from sweep.space.grids import written
from sweep.space.normal import LEAST_MASS, Normal
from sweep.space.syntax.reading import LARGEST_INT, Reading, real, whole

_Wrong = Callable[[Any], str]
#: Deviations from the mean at which a log-normal number must still be a number.
_REACH = 6.0
_SMALLEST = 1e-300


def read_float(reading: Reading) -> Float:
    """``uniform`` and ``loguniform``."""
    low, high = (float(bound) for bound in _bounds(reading, real))
    if not math.isfinite(high - low):
        raise reading.refuse([low, high], "bounds whose distance is a finite number")
    log = reading.kind.startswith("log")
    step = _step(reading, low, high, real)
    return Float(low, high, log, None if step is None else float(step))


def read_int(reading: Reading) -> Int:
    """``randint`` and ``lograndint``."""
    low, high = _bounds(reading, whole)
    log = reading.kind.startswith("log")
    return Int(low, high, log, _step(reading, low, high, whole) or 1)


def read_normal(reading: Reading) -> Normal:
    """``normal`` and ``lognormal``, with their ``bounds``."""
    log = reading.kind == "lognormal"
    mean, deviation = _moments(reading, log)
    low, high = _limits(reading, log)
    step = _step(reading, low, high, real)
    if step is not None:
        _check_fine(reading, step, 0.0 if log else abs(mean) + _REACH * deviation)
    if log and step is not None and low is None:
        low = float(step)
        _check_steps(reading, low, high, step)
    normal = Normal(mean, deviation, log, low, high, None if step is None else float(step))
    if normal.mass < LEAST_MASS:
        hint = "widen the bounds, or move the mean into them"
        raise reading.refuse_at(
            ("bounds",), [low, high], "bounds that leave a millionth of the distribution", hint
        )
    return normal


def _bounds(reading: Reading, wrong: _Wrong) -> tuple[Any, Any]:
    low, high = _pair(reading, "[low, high], two numbers, both included")
    for index, bound in enumerate((low, high)):
        if instead := wrong(bound):
            raise reading.refuse(bound, instead, "", index)
    _check_order(reading, (reading.kind,), low, high)
    if reading.kind.startswith("log") and low <= 0:
        raise reading.refuse(low, "a low bound above 0 on a log scale", "", 0)
    return low, high


def _pair(reading: Reading, allowed: str) -> tuple[Any, Any]:
    pair = reading.value
    if not isinstance(pair, list | tuple) or len(pair) != 2:
        raise reading.refuse(pair, allowed)
    return pair[0], pair[1]


def _check_order(reading: Reading, path: tuple[str], low: Any, high: Any) -> None:
    if low > high:
        raise reading.refuse_at(path, [low, high], "low < high", f"write [{high}, {low}]")
    if low == high:
        hint = f"write it as a fixed value, {reading.name}: {low}"
        raise reading.refuse_at(path, [low, high], "low < high", hint)


def _step(reading: Reading, low: Any, high: Any, wrong: _Wrong) -> Any:
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
    """The step must lead from `low` to `high`, if there is one."""
    if high is None:
        return
    steps = (written(high) - written(low)) / written(step)
    if steps.denominator != 1 or steps < 1:
        last = type(high)(written(low) + int(steps) * written(step))
        hint = f"with this step the last value is {last!r}" if steps > 1 else "take a smaller step"
        allowed = f"a step that divides {high!r} - {low!r}"
        raise reading.refuse_at(("step",), step, allowed, hint)
    _check_fine(reading, step, max(abs(low), abs(high)))


def _check_fine(reading: Reading, step: Any, farthest: float) -> None:
    """Neighbours must be different numbers of floating point."""
    if step < _SMALLEST or written(farthest) / written(step) > LARGEST_INT:
        allowed = f"a step of at least {max(_SMALLEST, farthest / LARGEST_INT):.3g}"
        raise reading.refuse_at(("step",), step, allowed, "2**53 steps lead from 0 to a number")


def _moments(reading: Reading, log: bool) -> tuple[float, float]:
    mean, deviation = _pair(reading, "[mean, deviation], two numbers")
    for index, number in enumerate((mean, deviation)):
        if instead := real(number):
            raise reading.refuse(number, instead, "", index)
    if deviation <= 0:
        raise reading.refuse(deviation, "a deviation above 0", "", 1)
    far = abs(mean) + _REACH * deviation
    if not math.isfinite(far) or (log and far > math.log(1e300)):
        allowed = "a mean and a deviation whose numbers are finite"
        hint = "of a lognormal they are those of the natural logarithm" if log else ""
        raise reading.refuse([mean, deviation], allowed, hint)
    return float(mean), float(deviation)


def _limits(reading: Reading, log: bool) -> tuple[float | None, float | None]:
    bounds = reading.raw.get("bounds")
    if bounds is None and "bounds" not in reading.raw:
        return None, None
    allowed = "[low, high], both included; null for none"
    if not isinstance(bounds, list | tuple) or len(bounds) != 2 or list(bounds) == [None, None]:
        raise reading.refuse_at(("bounds",), bounds, allowed)
    for index, bound in enumerate(bounds):
        if bound is not None and (instead := real(bound)):
            raise reading.refuse_at(("bounds", index), bound, f"{instead}, or null")
    low, high = (None if bound is None else float(bound) for bound in bounds)
    if low is not None and high is not None:
        _check_order(reading, ("bounds",), low, high)
    for index, bound in enumerate((low, high)):
        if log and bound is not None and bound <= 0:
            raise reading.refuse_at(("bounds", index), bound, "a bound above 0")
    return low, high
