"""One parameter of a search space: proposed, fixed or derived, and the conditions on it.

Parameters have conditions on others (``when``), and so have combinations that may not be
(``forbid``):

when: {filter: Mean}                    it has this value
when: {filter: [Mean, Median]}          one of these
when: {layers: {">": 2, "<=": 8}}       it compares like this: < <= > >= == !=
when: {use_lstm: true, filter: Mean}    all of them hold
when: "layers > 2 or filter == 'Mean'"  an expression, see `sweep.space.expressions`

A condition on a parameter that is not there does not hold.
"""

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sweep.errors import KeyPath, Source
from sweep.space.domains import Domain, same
from sweep.space.expressions import ALLOWED, LONGEST, Expression, ExpressionError
from trainables.errors import nearest, shorten

_SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": same,
    "!=": lambda one, other: not same(one, other),
}
_FORMS = '{parent: value}, {parent: [value, value]}, {parent: {">": 3}} or an expression in quotes'


@dataclass(frozen=True)
class _OfParent:
    """It speaks of one parameter."""

    parent: str

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters that it speaks of."""
        return (self.parent,)


@dataclass(frozen=True)
class OneOf(_OfParent):
    """The parameter has one of these values."""

    values: tuple[Any, ...]

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Return whether the condition is true of `values`, which has all of `names`."""
        return any(same(values[self.parent], value) for value in self.values)

    def describe(self) -> str:
        """In words."""
        return f"{self.parent} is {' or '.join(repr(value) for value in self.values)}"


@dataclass(frozen=True)
class Compared(_OfParent):
    """The parameter compares with a bound; text has no order."""

    sign: str
    bound: Any

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Return whether the condition is true of `values`, which has all of `names`."""
        value = values[self.parent]
        ordered = self.sign not in ("==", "!=")
        if ordered and not isinstance(value, int | float):
            return False
        return _SIGNS[self.sign](value, self.bound)

    def describe(self) -> str:
        """In words."""
        return f"{self.parent} {self.sign} {self.bound!r}"


#: An expression holds where it is true.
Condition = OneOf | Compared | Expression


def hold(conditions: Iterable[Condition], values: Mapping[str, Any]) -> bool:
    """Return whether all parameters of the conditions are active, and all conditions hold."""
    return all(
        all(name in values for name in one.names) and one.holds(values) for one in conditions
    )


def read_conditions(raw: Any, path: KeyPath, where: Source) -> tuple[Condition, ...]:
    """The conditions that `raw` at `path` describes, which all must hold; or BadSpace."""
    if isinstance(raw, str):
        return (_formula(raw, path, where),)
    if not isinstance(raw, Mapping) or not raw:
        raise where.refuse(path, raw, _FORMS)
    found: list[Condition] = []
    for parent, wanted in raw.items():
        found += _of_parent(parent, wanted, (*path, parent), where)
    return tuple(found)


def _formula(text: str, path: KeyPath, where: Source) -> Expression:
    try:
        return Expression(text)
    except ExpressionError as error:
        allowed = f"{ALLOWED}, up to {LONGEST} characters"
        problem = f"{shorten(text, LONGEST)} {error}"
        raise where.refuse(path, text, allowed, problem=problem) from error


def _of_parent(parent: str, wanted: Any, path: KeyPath, where: Source) -> list[Condition]:
    if isinstance(wanted, Mapping) and any(sign in _SIGNS for sign in wanted):
        return [_compared(parent, sign, bound, path, where) for sign, bound in wanted.items()]
    values = wanted if isinstance(wanted, list | tuple) else [wanted]
    if not values:
        raise where.refuse(path, wanted, _FORMS)
    return [OneOf(parent, tuple(values))]


def _compared(parent: str, sign: str, bound: Any, path: KeyPath, where: Source) -> Compared:
    if sign not in _SIGNS:
        raise where.refuse((*path, sign), sign, f"one of {' '.join(_SIGNS)}", nearest(sign, _SIGNS))
    number = isinstance(bound, int | float) and not isinstance(bound, bool)
    if sign not in ("==", "!=") and not number:
        hint = f"{shorten(bound)} has no order; == and != compare any values"
        raise where.refuse((*path, sign), bound, "a number", hint)
    return Compared(parent, sign, bound)


@dataclass(frozen=True)
class Fixed:
    """Always the same value."""

    value: Any


@dataclass(frozen=True)
class Derived:
    """Computed from other parameters; inactive where one of them is."""

    expression: Expression


@dataclass(frozen=True)
class Parameter:
    """A name and what stands behind it."""

    name: str
    role: Domain | Fixed | Derived
    when: tuple[Condition, ...] = ()
    """All must hold; else the parameter is inactive: not proposed and not passed on."""
    crossed: bool = False
    """True if the trials take its values in turn, and no searcher proposes it."""
    path: KeyPath = ()
    """The place in the space, in which a group is a step."""

    @property
    def hidden(self) -> bool:
        """True if the parameter serves expressions only and is not a setting of the trainable."""
        return any(part.startswith("_") for part in self.name.split("."))

    @property
    def needs(self) -> tuple[str, ...]:
        """The parameters to be settled before this one."""
        names = self.role.expression.names if isinstance(self.role, Derived) else ()
        return (*(name for condition in self.when for name in condition.names), *names)

    def describe(self) -> str:
        """Return the domain or the value in words."""
        match self.role:
            case Fixed(value):
                text = f"fixed at {value!r}"
            case Derived(expression):
                text = f"= {expression.text}"
            case domain:
                text = domain.describe()
        if self.crossed:
            text = f"each {text.removeprefix('one ')} in turn"
        conditions = " and ".join(condition.describe() for condition in self.when)
        return f"{text}, when {conditions}" if conditions else text
