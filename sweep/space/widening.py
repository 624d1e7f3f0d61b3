"""Comparison of a space with a wider one: more values, and every earlier one is still there.

What old trials were given must stay a value of its parameter, and stand in the same relations.
So names, kinds, scales, conditions and expressions stay as they are; ranges, choices and the grid
of a step may grow. Weights may change: they only say how often chance takes a choice.
"""

from dataclasses import replace
from typing import Any

from sweep.space import Choice, Float, Int, Normal, Ordinal, Space
from sweep.space.domains import same
from sweep.space.parameters import Derived, Fixed, Parameter
from trainables.errors import nearest


def check(old: Space, new: Space) -> None:
    """Raise BadSpace where `new` has less than `old`, or something else."""
    for name, parameter in old.parameters.items():
        if name not in new.parameters:
            renamed = [other for other in new.parameters if other not in old.parameters]
            hint = nearest(name, renamed) or "old trials have a value of it"
            problem = f"the parameter {name} is gone"
            raise new.where.refuse((), name, "all parameters under their names", hint, problem)
        _check_parameter(parameter, new.parameters[name], new)
    for name, parameter in new.parameters.items():
        if name not in old.parameters:
            hint = "old trials have no value of it; start a new sweep with `searcher.prior`"
            raise new.where.refuse(parameter.path, name, "no new parameter", hint)


def _check_parameter(old: Parameter, new: Parameter, space: Space) -> None:
    changed = "" if old.when == new.when else "its conditions have changed"
    reason = changed or _narrower(old.role, new.role)
    if not reason and old.crossed != new.crossed:
        reason = "a grid and a choice are of different kinds"
    if not reason and old.crossed and old.role != new.role:
        reason = "the trials have taken the values of the grid in turn"
    if reason:
        was = f"more than {old.describe()}, or the same"
        problem = f"{new.describe()} is no wider space: {reason}"
        raise space.where.refuse(new.path, new.describe(), was, problem=problem)


def _narrower(old: Any, new: Any) -> str:
    """Why `new` is no widening of `old`; empty: it is one."""
    if type(old) is not type(new):
        return "it is of another kind"
    match old:
        case Fixed(value):
            return "" if same(value, new.value) else "a fixed value has changed"
        case Derived(expression):
            return "" if expression == new.expression else "an expression has changed"
        case Choice():
            return _missing(old, new)
        case Ordinal():
            return _missing(old, new) or _out_of_order(old, new)
        case Normal() if replace(old, low=None, high=None, step=None) != replace(
            new, low=None, high=None, step=None
        ):
            return "its mean, deviation or scale has changed"
        case Float() | Int() if old.log != new.log:
            return "its scale has changed"
    return _outside(old, new) or _off_grid(old, new)


def _missing(old: Choice | Ordinal, new: Choice | Ordinal) -> str:
    gone = [key for key in old.by_key if key not in new.by_key]
    return f"{', '.join(gone[:5])} is gone" if gone else ""


def _out_of_order(old: Ordinal, new: Ordinal) -> str:
    places = [new.index[key] for key in old.by_key]
    return "" if places == sorted(places) else "its old values stand in another order"


def _outside(old: Float | Int | Normal, new: Float | Int | Normal) -> str:
    if new.low is not None and (old.low is None or old.low < new.low):
        return f"values below {new.low!r} are gone"
    if new.high is not None and (old.high is None or old.high > new.high):
        return f"values above {new.high!r} are gone"
    return ""


def _off_grid(old: Float | Int | Normal, new: Float | Int | Normal) -> str:
    """A grid holds another one if it holds two neighbours of it, however long the two are."""
    if new.step is None or (isinstance(new, Int) and new.step == 1):
        return ""
    if old.step is None:
        return "values between the steps are gone"
    first = next((edge for edge in (old.low, old.high) if edge is not None), 0)
    neighbour = first + old.step if first != old.high else first - old.step
    if new.contains(first) and new.contains(neighbour):
        return ""
    return "its steps leave out old values"
