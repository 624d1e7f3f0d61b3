"""What one parameter of a search space is: proposed, fixed or derived, and when it is there."""

from dataclasses import dataclass
from typing import Any

from sweep.space.domains import Domain
from sweep.space.expressions import Expression


@dataclass(frozen=True)
class Fixed:
    """Always the same value."""

    value: Any


@dataclass(frozen=True)
class Derived:
    """Computed from other parameters; inactive where one of them is."""

    expression: Expression


@dataclass(frozen=True)
class Condition:
    """Holds where the parent is active and has one of these values."""

    parent: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Parameter:
    """A name and what stands behind it."""

    name: str
    role: Domain | Fixed | Derived
    when: tuple[Condition, ...] = ()
    """All must hold; else the parameter is inactive: not proposed and not passed on."""

    @property
    def hidden(self) -> bool:
        """Whether it is for expressions only and not passed on."""
        return self.name.startswith("_")

    @property
    def needs(self) -> tuple[str, ...]:
        """The parameters to be settled before this one."""
        names = self.role.expression.names if isinstance(self.role, Derived) else ()
        return (*(condition.parent for condition in self.when), *names)

    def describe(self) -> str:
        """What it may be, in words."""
        match self.role:
            case Fixed(value):
                text = f"fixed at {value!r}"
            case Derived(expression):
                text = f"= {expression.text}"
            case domain:
                text = domain.describe()
        conditions = [f"{c.parent} is {_alternatives(c.values)}" for c in self.when]
        return f"{text}, when {' and '.join(conditions)}" if conditions else text


def _alternatives(values: tuple[Any, ...]) -> str:
    return " or ".join(repr(value) for value in values)
