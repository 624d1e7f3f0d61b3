"""What one parameter of a search space is: proposed, fixed or derived, and when it is there."""

from dataclasses import dataclass
from typing import Any

from sweep.errors import KeyPath
from sweep.space.conditions import Condition
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
class Parameter:
    """A name and what stands behind it."""

    name: str
    role: Domain | Fixed | Derived
    when: tuple[Condition, ...] = ()
    """All must hold; else the parameter is inactive: not proposed and not passed on."""
    crossed: bool = False
    """Whether the trials take its values in turn, and no searcher proposes it."""
    path: KeyPath = ()
    """Where it stands in the space; a group is a step on the way."""

    @property
    def hidden(self) -> bool:
        """Whether the parameter serves expressions only and is not a setting of the trainable."""
        return any(part.startswith("_") for part in self.name.split("."))

    @property
    def needs(self) -> tuple[str, ...]:
        """The parameters to be settled before this one."""
        names = self.role.expression.names if isinstance(self.role, Derived) else ()
        return (*(name for condition in self.when for name in condition.names), *names)

    def describe(self) -> str:
        """What it may be, in words."""
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
