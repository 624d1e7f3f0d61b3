"""Check that a space contains an earlier one.

Values of old trials must remain values of their parameters, in the same relations. So names, kinds,
scales, conditions and expressions must stay the same; ranges, choices and grids may grow. Weights
may change, since they only affect random draws.
"""

from dataclasses import replace
from typing import Any

from sweep.spec.space import Choice, Float, Int, Normal, Ordinal, Space
from sweep.spec.space.domains import are_equal
from sweep.spec.space.parameters import Derived, Fixed, Parameter
from trainables.errors import nearest


def check(old: Space, new: Space) -> None:
    """Raise BadSpace if `new` lacks something of `old`, or differs otherwise."""
    for name, parameter in old.parameters.items():
        if name not in new.parameters:
            renamed = [other for other in new.parameters if other not in old.parameters]
            hint = nearest(name, renamed) or "old trials have a value of it"
            problem = f"the parameter {name} is gone"
            raise new.source.refuse((), name, "all parameters of the old space", hint, problem)
        _check_parameter(parameter, new.parameters[name], new)
    for name, parameter in new.parameters.items():
        if name not in old.parameters:
            hint = "old trials have no value of it; start a new sweep with `searcher.prior`"
            raise new.source.refuse(parameter.path, name, "no new parameter", hint)


def _check_parameter(old: Parameter, new: Parameter, space: Space) -> None:
    """Raise BadSpace if a parameter is not a widening of its old form."""
    changed = "" if old.when == new.when else "its conditions have changed"
    reason = changed or _narrower(old.role, new.role)
    if not reason and old.crossed != new.crossed:
        reason = "a grid and a choice are of different kinds"
    if not reason and old.crossed and old.role != new.role:
        reason = "the trials have taken the values of the grid in turn"
    if reason:
        was = f"more than {old.describe()}, or the same"
        problem = f"{new.describe()} is not a wider space: {reason}"
        raise space.source.refuse(new.path, new.describe(), was, problem=problem)


def _narrower(old: Any, new: Any) -> str:
    """Return why `new` is not a widening of `old`; empty if it is one."""
    if type(old) is not type(new):
        return "it is of another kind"
    match old:
        case Fixed(value):
            return "" if are_equal(value, new.value) else "a fixed value has changed"
        case Derived(expression):
            return "" if expression == new.expression else "an expression has changed"
        case Choice():
            return _find_missing(old, new)
        case Ordinal():
            return _find_missing(old, new) or _check_order(old, new)
        case Normal() if replace(old, low=None, high=None, step=None) != replace(
            new, low=None, high=None, step=None
        ):
            return "its mean, deviation or scale has changed"
        case Float() | Int() if old.log != new.log:
            return "its scale has changed"
    return _find_outside(old, new) or _check_grid(old, new)


def _find_missing(old: Choice | Ordinal, new: Choice | Ordinal) -> str:
    """Return a text about choices that are gone; empty if none is."""
    gone = [key for key in old.by_key if key not in new.by_key]
    return f"{', '.join(gone[:5])} is gone" if gone else ""


def _check_order(old: Ordinal, new: Ordinal) -> str:
    """Return a text if the old values have another order; else empty."""
    places = [new.index[key] for key in old.by_key]
    return "" if places == sorted(places) else "its old values are in another order"


def _find_outside(old: Float | Int | Normal, new: Float | Int | Normal) -> str:
    """Return a text if old values are outside the new bounds; else empty."""
    if new.low is not None and (old.low is None or old.low < new.low):
        return f"values below {new.low!r} are gone"
    if new.high is not None and (old.high is None or old.high > new.high):
        return f"values above {new.high!r} are gone"
    return ""


def _check_grid(old: Float | Int | Normal, new: Float | Int | Normal) -> str:
    """Return a text if old values are not on the new grid; else empty.

    A grid contains another one if it contains two neighbours of it, whatever their lengths.
    """
    if new.step is None or (isinstance(new, Int) and new.step == 1):
        return ""
    if old.step is None:
        return "values between the steps are gone"
    first = next((edge for edge in (old.low, old.high) if edge is not None), 0)
    neighbour = first + old.step if first != old.high else first - old.step
    if new.contains(first) and new.contains(neighbour):
        return ""
    return "its steps leave out old values"
