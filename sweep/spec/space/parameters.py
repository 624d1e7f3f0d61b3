"""One parameter of a search space: proposed, fixed or derived, with its conditions.

Conditions are used for parameters (``when``) and for forbidden combinations (``forbid``):

when: {filter: Mean}                    it has this value
when: {filter: [Mean, Median]}          one of these values
when: {layers: {">": 2, "<=": 8}}       a comparison: < <= > >= == !=
when: {use_lstm: true, filter: Mean}    all of them hold
when: "layers > 2 or filter == 'Mean'"  an expression, see `sweep.spec.space.expressions`

A condition on an inactive parameter does not hold.
"""

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sweep.core.errors import KeyPath, Source
from sweep.spec.space.domains import Domain, are_equal
from sweep.spec.space.expressions import ALLOWED, LONGEST, Expression, ExpressionError
from trainables.errors import nearest, shorten

SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": are_equal,
    "!=": lambda one, other: not are_equal(one, other),
}
_FORMS = '{parent: value}, {parent: [value, value]}, {parent: {">": 3}} or an expression in quotes'


@dataclass(frozen=True)
class _ParentCondition:
    """A condition on one parameter."""

    parent: str
    """Name of the parameter that the condition is about."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters that the condition uses."""
        return (self.parent,)


@dataclass(frozen=True)
class OneOf(_ParentCondition):
    """Condition that the parameter has one of these values."""

    values: tuple[Any, ...]
    """Values of which the parameter must have one."""

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Return whether the condition is true of `values`, which must have all of `names`."""
        return any(are_equal(values[self.parent], value) for value in self.values)

    def describe(self) -> str:
        """Return the condition as a text."""
        return f"{self.parent} is {' or '.join(repr(value) for value in self.values)}"


@dataclass(frozen=True)
class Compared(_ParentCondition):
    """Condition that the parameter compares with a bound; texts have no order."""

    sign: str
    """Comparison, such as ``<=``."""
    bound: Any
    """Number that the parameter's value is compared with."""

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Return whether the condition is true of `values`, which must have all of `names`."""
        value = values[self.parent]
        ordered = self.sign not in ("==", "!=")
        if ordered and not isinstance(value, int | float):
            return False
        return SIGNS[self.sign](value, self.bound)

    def describe(self) -> str:
        """Return the condition as a text."""
        return f"{self.parent} {self.sign} {self.bound!r}"


#: An expression is a condition that holds if it is true.
Condition = OneOf | Compared | Expression


def hold(conditions: Iterable[Condition], values: Mapping[str, Any]) -> bool:
    """Return whether all parameters of the conditions are active, and all conditions hold."""
    return all(
        all(name in values for name in one.names) and one.holds(values) for one in conditions
    )


def read_conditions(raw: Any, path: KeyPath, source: Source) -> tuple[Condition, ...]:
    """Return the conditions that `raw` at `path` describes, which all must hold.

    Raises BadSpace if `raw` is not valid.
    """
    if isinstance(raw, str):
        return (_read_expression(raw, path, source),)
    if not isinstance(raw, Mapping) or not raw:
        raise source.refuse(path, raw, _FORMS)
    found: list[Condition] = []
    for parent, wanted in raw.items():
        found += _read_parent(parent, wanted, (*path, parent), source)
    return tuple(found)


def _read_expression(text: str, path: KeyPath, source: Source) -> Expression:
    """Return an expression; BadSpace if it is not valid."""
    try:
        return Expression(text)
    except ExpressionError as error:
        allowed = f"{ALLOWED}, up to {LONGEST} characters"
        problem = f"{shorten(text, LONGEST)} {error}"
        raise source.refuse(path, text, allowed, problem=problem) from error


def _read_parent(parent: str, condition: Any, path: KeyPath, source: Source) -> list[Condition]:
    """Return the conditions on one parameter; BadSpace if they are not valid."""
    if isinstance(condition, Mapping) and any(sign in SIGNS for sign in condition):
        return [
            _read_comparison(parent, sign, bound, path, source) for sign, bound in condition.items()
        ]
    values = condition if isinstance(condition, list | tuple) else [condition]
    if not values:
        raise source.refuse(path, condition, _FORMS)
    return [OneOf(parent, tuple(values))]


def _read_comparison(parent: str, sign: str, bound: Any, path: KeyPath, source: Source) -> Compared:
    """Return a comparison; BadSpace if its sign or bound is not valid."""
    if sign not in SIGNS:
        raise source.refuse((*path, sign), sign, f"one of {' '.join(SIGNS)}", nearest(sign, SIGNS))
    number = isinstance(bound, int | float) and not isinstance(bound, bool)
    if sign not in ("==", "!=") and not number:
        hint = f"{shorten(bound)} has no order; == and != compare any values"
        raise source.refuse((*path, sign), bound, "a number", hint)
    return Compared(parent, sign, bound)


@dataclass(frozen=True)
class Fixed:
    """A fixed value."""

    value: Any
    """The value, as plain data."""


@dataclass(frozen=True)
class Derived:
    """A value computed from other parameters; inactive if one of them is."""

    expression: Expression
    """Expression that computes the value."""


@dataclass(frozen=True)
class Parameter:
    """A named parameter."""

    name: str
    """Name with dots, as a setting of the trainable."""
    role: Domain | Fixed | Derived
    """Range of a searched parameter, or its fixed value or expression."""
    when: tuple[Condition, ...] = ()
    """Conditions that all must hold; otherwise the parameter is inactive: not proposed or passed
    on."""
    crossed: bool = False
    """True if the trials take its values in turn instead of the searcher proposing them."""
    path: KeyPath = ()
    """Path in the space, in which a group is one step."""

    @property
    def hidden(self) -> bool:
        """True if the parameter is used only in expressions, and is not passed to the trainable."""
        return any(part.startswith("_") for part in self.name.split("."))

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of the parameters to be resolved before this one."""
        names = self.role.expression.names if isinstance(self.role, Derived) else ()
        return (*(name for condition in self.when for name in condition.names), *names)

    def describe(self) -> str:
        """Return domain, value or expression, and conditions, as a text."""
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
