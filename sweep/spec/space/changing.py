"""Check that a space may replace an earlier one in a sweep that has begun.

Ranges, steps, scales, choices, grids and weights may change. The trials so far have a value for
each parameter that was active in them, so names, kinds, conditions, expressions and fixed values
must stay the same: settings of old and new trials then mean the same.
"""

from typing import Any

from sweep.spec.space import Space
from sweep.spec.space.domains import are_equal
from sweep.spec.space.parameters import Derived, Fixed, Parameter
from trainables.errors import nearest


def check(old: Space, new: Space) -> None:
    """Raise BadSpace if `new` may not replace `old`."""
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
    """Raise BadSpace if a parameter may not replace its old form."""
    reason = "its conditions have changed" if old.when != new.when else ""
    reason = reason or _difference(old.role, new.role)
    if not reason and old.crossed != new.crossed:
        reason = "a grid and a choice are of different kinds"
    if reason:
        was = f"other values in place of {old.describe()}"
        hint = "old trials have another meaning; start a new sweep with `searcher.prior`"
        problem = f"{new.describe()} is not the same parameter: {reason}"
        raise space.source.refuse(new.path, new.describe(), was, hint, problem)


def _difference(old: Any, new: Any) -> str:
    """Return why the meaning of a parameter has changed; empty if it has not."""
    if type(old) is not type(new):
        return "it is of another kind"
    match old:
        case Fixed(value):
            return "" if are_equal(value, new.value) else "a fixed value has changed"
        case Derived(expression):
            return "" if expression == new.expression else "an expression has changed"
    return ""
