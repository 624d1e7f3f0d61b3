"""Combinations that may not be: the key ``forbid`` of a spec.

forbid:
  - {activation: relu, lr: {">": 0.01}}     all of it at once, see `sweep.space.conditions`
  - "num_sgd_iter * epochs > 1000"          an expression
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sweep.errors import BadSpace, KeyPath, Source
from sweep.space import conditions
from sweep.space.checks import check_known
from sweep.space.conditions import Condition
from sweep.space.parameters import Parameter
from sweep.space.syntax.grammar import ExpressionError
from sweep.space.syntax.reading import plain
from trainables.errors import shorten

MOST_CLAUSES = 1000


@dataclass(frozen=True)
class Clause:
    """A combination that may not be; one of a parameter that is not there does not occur."""

    conditions: tuple[Condition, ...]
    place: KeyPath
    where: Source

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters that it speaks of."""
        return tuple(name for condition in self.conditions for name in condition.names)

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Whether the combination occurs in `values`.

        Raises:
            BadSpace: an expression has no value there.
        """
        try:
            return conditions.hold(self.conditions, values)
        except ExpressionError as error:
            text = self.describe()
            given = ", ".join(f"{name} = {values[name]!r}" for name in dict.fromkeys(self.names))
            raise self.where.refuse(
                self.place,
                text,
                "an expression that is true or false everywhere in the space",
                problem=f"{text!r} {error}, at {given}",
            ) from error

    def describe(self) -> str:
        """In words."""
        return " and ".join(condition.describe() for condition in self.conditions)


class Forbidden(BadSpace):
    """A point that a clause of ``forbid`` takes out of the space."""

    def __init__(self, clause: Clause, values: Mapping[str, Any]) -> None:
        given = ", ".join(f"{n} = {shorten(values[n], 30)}" for n in dict.fromkeys(clause.names))
        super().__init__(
            clause.where.place(clause.place),
            clause.describe(),
            "a point that is not forbidden",
            at=clause.where.at(clause.place),
            problem=f"{clause.describe()} is forbidden, at {given}",
        )


def read_clauses(
    raw: Sequence[Any], parameters: Mapping[str, Parameter], where: Source
) -> tuple[Clause, ...]:
    """The combinations that ``forbid`` lists.

    Args:
        raw: the plain data beside the key.
        parameters: those of the space, by name.
        where: the source of the spec.

    Raises:
        BadSpace: one of them cannot be read, or speaks of what is not there.
    """
    if len(raw) > MOST_CLAUSES:
        raise where.refuse(
            ("forbid",), f"a list of {len(raw)}", f"at most {MOST_CLAUSES} combinations"
        )
    clauses = []
    for index, item in enumerate(raw):
        path = ("forbid", index)
        found = conditions.read(plain(item, path, where), path, where)
        for condition in found:
            check_known(condition, parameters, path, where)
            if not condition.names:
                raise where.refuse(path, item, "an expression that speaks of a parameter")
        clauses.append(Clause(found, path, where))
    return tuple(clauses)
