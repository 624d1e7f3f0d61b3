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

#: Sign of a condition → its function of the parent's value and the given one.
SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": are_equal,
    "!=": lambda one, other: not are_equal(one, other),
}
#: Rule for ``when``, for messages.
_FORMS = '{parent: value}, {parent: [value, value]}, {parent: {">": 3}} or an expression in quotes'


@dataclass(frozen=True)
class _ParentCondition:
    """Base of conditions on one parameter."""

    parent: str
    """Name of the parameter on which the condition is."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters that the condition uses."""
        return (self.parent,)


@dataclass(frozen=True)
class OneOf(_ParentCondition):
    """The condition that a parameter has one of some values."""

    values: tuple[Any, ...]
    """Values of which the parameter has one."""

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Return whether the condition holds for `values`, name → value.

        1 equals 1.0 and True. Raises KeyError without a value of `parent`.
        """
        return any(are_equal(values[self.parent], value) for value in self.values)

    def describe(self) -> str:
        """Return the condition as a text, such as ``filter is 'Mean' or 'Median'``."""
        return f"{self.parent} is {' or '.join(repr(value) for value in self.values)}"


@dataclass(frozen=True)
class Compared(_ParentCondition):
    """The condition that a parameter compares with a bound; an order holds only between numbers."""

    sign: str
    """Comparison, one of `SIGNS`, such as ``<=``."""
    bound: Any
    """Number, or for ``==`` and ``!=`` any value, that is compared with the parameter's."""

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Return whether the condition holds for `values`, name → value.

        An order, such as ``<``, does not hold for a value that is no number. Raises KeyError
        without a value of `parent`.
        """
        value = values[self.parent]
        ordered = self.sign not in ("==", "!=")
        if ordered and not isinstance(value, int | float):
            return False
        return SIGNS[self.sign](value, self.bound)

    def describe(self) -> str:
        """Return the condition as a text, such as ``layers >= 2``."""
        return f"{self.parent} {self.sign} {self.bound!r}"


#: An expression is a condition that holds if it is true.
Condition = OneOf | Compared | Expression


def hold(conditions: Iterable[Condition], values: Mapping[str, Any]) -> bool:
    """Return whether all conditions hold; `values` has the active parameters only.

    A condition on an inactive parameter does not hold.
    """
    return all(
        all(name in values for name in one.names) and one.holds(values) for one in conditions
    )


def read_conditions(raw: Any, path: KeyPath, source: Source) -> tuple[Condition, ...]:
    """Parse the conditions that `raw` at `path` of the spec describes; all of them must hold.

    `raw` is the text of one expression, or parameter → value, list of values, or comparisons such
    as ``{">": 2}``. Raises BadSpace if it is not valid, but does not check names.
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
    """Parse the text of an expression at `path`; BadSpace if it is not valid."""
    try:
        return Expression(text)
    except ExpressionError as error:
        allowed = f"{ALLOWED}, up to {LONGEST} characters"
        problem = f"{shorten(text, LONGEST)} {error}"
        raise source.refuse(path, text, allowed, problem=problem) from error


def _read_parent(parent: str, condition: Any, path: KeyPath, source: Source) -> list[Condition]:
    """Parse the conditions on one parameter, its name being `parent`.

    Raises BadSpace if they are invalid.
    """
    if isinstance(condition, Mapping) and any(sign in SIGNS for sign in condition):
        return [
            _read_comparison(parent, sign, bound, path, source) for sign, bound in condition.items()
        ]
    values = condition if isinstance(condition, list | tuple) else [condition]
    if not values:
        raise source.refuse(path, condition, _FORMS)
    return [OneOf(parent, tuple(values))]


def _read_comparison(parent: str, sign: str, bound: Any, path: KeyPath, source: Source) -> Compared:
    """Parse one comparison with a parameter; BadSpace if its sign or bound is not valid.

    The bound must be a number, except for ``==`` and ``!=``.
    """
    if sign not in SIGNS:
        problem = f"{shorten(sign)} is not a comparison"
        allowed, hint = f"one of {' '.join(SIGNS)}", nearest(sign, SIGNS)
        raise source.refuse((*path, sign), sign, allowed, hint, problem)
    number = isinstance(bound, int | float) and not isinstance(bound, bool)
    if sign not in ("==", "!=") and not number:
        problem = f"{shorten(bound)} has no order, so it cannot be compared by {sign}"
        hint = "write a number, or compare with == or !="
        raise source.refuse((*path, sign), bound, hint=hint, problem=problem)
    return Compared(parent, sign, bound)


@dataclass(frozen=True)
class Fixed:
    """The role of a parameter that always has one value."""

    value: Any
    """Value of the parameter, as plain data."""


@dataclass(frozen=True)
class Derived:
    """The role of a parameter that is computed from others; it is inactive if one of them is."""

    expression: Expression
    """Expression that computes the value from those of other parameters."""


@dataclass(frozen=True)
class Parameter:
    """One parameter of a search space."""

    name: str
    """Dotted name, which is that of a setting of the trainable unless it is `hidden`."""
    role: Domain | Fixed | Derived
    """Domain of a searched parameter; a fixed value or an expression for others."""
    when: tuple[Condition, ...] = ()
    """Conditions; where one does not hold, the parameter is inactive: not proposed, and not passed
    to the trainable."""
    crossed: bool = False
    """True for ``grid``: the trials take its values in turn, and the searcher does not propose
    them."""
    path: KeyPath = ()
    """Path below ``space`` in the spec, in which a group is a key."""

    @property
    def hidden(self) -> bool:
        """True if a part of its name begins with ``_``: the trainable does not get it."""
        return any(part.startswith("_") for part in self.name.split("."))

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of the parameters that its conditions and its expression use."""
        names = self.role.expression.names if isinstance(self.role, Derived) else ()
        return (*(name for condition in self.when for name in condition.names), *names)

    def describe(self) -> str:
        """Return a text for people, such as ``fixed at 3, when layers >= 2`` or ``= 1 - x``."""
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
