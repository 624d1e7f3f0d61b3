"""Checks of a whole space: names, dependencies, conditions, forbidden combinations, and config.

forbid:
  - {activation: relu, lr: {">": 0.01}}     all conditions at once, see `parameters`
  - "num_sgd_iter * epochs > 1000"          an expression
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any

from sweep.core.errors import BadConfig, BadSpace, Gathering, KeyPath, Source
from sweep.spec.space.domains import choice_key
from sweep.spec.space.expressions import ExpressionError
from sweep.spec.space.parameters import (
    Compared,
    Condition,
    Derived,
    Fixed,
    OneOf,
    Parameter,
    hold,
    read_conditions,
)
from sweep.spec.space.reader import require_plain_data
from trainables.errors import nearest, shorten

#: Maximum number of parameter names in a message.
_SHOWN = 20


def check(parameters: Mapping[str, Parameter], source: Source) -> None:
    """Raise BadSpace if expressions or conditions name unknown parameters, or form a circle.

    A condition with a value or comparison that can never be is refused, too, and so is a parameter
    whose dotted name is inside another's. The error has all mistakes of names and conditions; the
    rest is checked only without these.
    """
    gathering = Gathering()
    for parameter in parameters.values():
        if isinstance(parameter.role, Derived):
            for name in parameter.role.expression.names:
                with gathering.collect():
                    check_name(name, parameters, (*parameter.path, "value"), source)
        for condition in parameter.when:
            with gathering.collect():
                check_known(condition, parameters, (*parameter.path, "when"), source)
    gathering.check()
    _check_order(parameters, source)
    _check_names(parameters, source)


def order_names(parameters: Mapping[str, Parameter]) -> tuple[str, ...]:
    """Return all names, each after those that it needs; CycleError if they need each other."""
    graph = {name: parameter.needs for name, parameter in parameters.items()}
    return tuple(TopologicalSorter(graph).static_order())


def check_known(
    condition: Condition,
    parameters: Mapping[str, Parameter],
    path: KeyPath,
    source: Source,
) -> None:
    """Raise BadSpace if a condition at `path` names an unknown parameter, or can never hold.

    Of several values, each must be possible. Of an expression, only the names are checked.
    """
    place = path if not isinstance(condition, OneOf | Compared) else (*path, condition.parent)
    for name in condition.names:
        check_name(name, parameters, place, source)
    match condition:
        case OneOf(parent, values):
            for value in values:
                if not _can_equal(parameters[parent], value):
                    hint = (
                        "change or remove this value; a value that is itself a list needs two "
                        "brackets: [[…]]"
                    )
                    usable = parameters[parent].describe()
                    never = f"{parent} can never be {shorten(value)}, because it is {usable}"
                    raise source.refuse(place, value, hint=hint, problem=never)
        case Compared(parent, sign, bound) if not _can_compare(parameters[parent], condition):
            never = (
                f"{parent} can never be {sign} {bound}, because it is "
                f"{parameters[parent].describe()}"
            )
            hint = "change or remove this condition"
            raise source.refuse(place, f"{sign} {bound}", hint=hint, problem=never)


def check_name(
    name: str, parameters: Mapping[str, Parameter], path: KeyPath, source: Source
) -> None:
    """Raise BadSpace if the space has no parameter `name`, which is used at `path`."""
    if name in parameters:
        return
    known = ", ".join(list(parameters)[:_SHOWN])
    more = ", …" if len(parameters) > _SHOWN else ""
    hint = nearest(name, parameters) or "to use a fixed setting here, write it in space"
    problem = f"there is no parameter {shorten(name)}"
    raise source.refuse(path, name, f"one of {known}{more}", hint, problem)


def _can_equal(parameter: Parameter, value: Any) -> bool:
    """Return whether a parameter can have this value.

    1, 1.0 and true are different values here, except in a range of reals. A derived parameter can
    have None and any number or text.
    """
    match parameter.role:
        case Fixed(fixed):
            return choice_key(fixed) == choice_key(value)
        case Derived():
            return value is None or isinstance(value, int | float | str)
        case domain:
            return domain.contains(value)


def _can_compare(parameter: Parameter, condition: Compared) -> bool:
    """Return whether a comparison with a parameter can be true.

    All values of a list are tried; of a range its ends, but for ``==`` whether it has the bound.
    With a derived parameter any comparison is taken to be possible.
    """
    match parameter.role:
        case Fixed(fixed):
            values: tuple[Any, ...] = (fixed,)
        case Derived():
            return True
        case domain if hasattr(domain, "values"):
            values = domain.values
        case domain:
            if condition.sign == "==":
                return domain.contains(condition.bound)
            values = (domain.value_at(0.0), domain.value_at(1.0))
    return any(condition.holds({parameter.name: value}) for value in values)


def _check_order(parameters: Mapping[str, Parameter], source: Source) -> None:
    """Raise BadSpace if parameters need each other in a circle."""
    try:
        order_names(parameters)
    except CycleError as error:
        circle = list(reversed(error.args[1]))
        needed = " needs ".join(circle)
        problem = f"the parameters need each other: {needed}"
        raise source.refuse(
            parameters[circle[0]].path,
            needed,
            hint="remove one of these when or value entries",
            problem=problem if len(set(circle)) > 1 else f"{circle[0]} needs itself",
        ) from error


def _check_names(parameters: Mapping[str, Parameter], source: Source) -> None:
    """Raise BadSpace if one parameter's dotted name is within another's."""
    for name, parameter in parameters.items():
        dots = [index for index, letter in enumerate(name) if letter == "."]
        for outer in (parameters[name[:dot]] for dot in dots if name[:dot] in parameters):
            hint = f"{outer.name} is at {source.locate(outer.path)}; remove one of the two"
            problem = f"{outer.name} is a parameter, so it cannot contain others"
            raise source.refuse(parameter.path, name, hint=hint, problem=problem)


def check_against(
    parameters: Mapping[str, Parameter], source: Source, config: Mapping[str, Any]
) -> None:
    """Raise BadConfig if the spec's ``config`` sets a setting of the space, or blocks its path.

    A path is blocked by a value that is no mapping. Parameters with a leading underscore are not
    settings.
    """
    gathering = Gathering()
    for name, parameter in parameters.items():
        clash = None if parameter.hidden else _find_clash(config, name.split("."))
        if clash is None:
            continue
        path, value = clash
        refusal = Source(source.file, source.marks).refuse(
            ("config", *path),
            value,
            hint=f"remove one of the two; to fix a searched setting, use --set space.{name}=VALUE",
            problem=f"{name} is set in space too, at {source.locate(parameter.path)}",
        )
        gathering.add(refusal)
    gathering.check()


def _find_clash(config: Mapping[str, Any], names: list[str]) -> tuple[tuple[str, ...], Any] | None:
    """Return path and value in `config` at the nested keys `names`, or at a key that blocks them.

    Returns None if there is neither.
    """
    inner: Any = config
    for end, part in enumerate(names, start=1):
        if part not in inner:
            return None
        inner = inner[part]
        if end == len(names) or not isinstance(inner, Mapping):
            return tuple(names[:end]), inner
    return None


# ---- forbidden combinations ---------------------------------------------------------------------

#: Maximum number of forbidden combinations.
MOST_CLAUSES = 1000


@dataclass(frozen=True)
class Clause:
    """A combination of values that ``forbid`` excludes."""

    conditions: tuple[Condition, ...]
    """Conditions that hold together at excluded points."""
    path: KeyPath
    """Path of the combination in the spec, for messages."""
    source: Source
    """File and lines of the spec, for messages."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters in its conditions; one that several use is repeated."""
        return tuple(name for condition in self.conditions for name in condition.names)

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Return whether all conditions hold for `values`, name → value of active parameters.

        They do not if a parameter that they use is missing, which means inactive. Raises BadSpace
        if an expression has no value or is neither true nor false.
        """
        try:
            return hold(self.conditions, values)
        except ExpressionError as error:
            text = self.describe()
            given = ", ".join(f"{name} = {values[name]!r}" for name in dict.fromkeys(self.names))
            raise self.source.refuse(
                self.path,
                text,
                "an expression that is true or false everywhere in the space",
                problem=f"{text!r} {error}, at {given}",
            ) from error

    def describe(self) -> str:
        """Return the conditions as a text, joined by "and"."""
        return " and ".join(condition.describe() for condition in self.conditions)


class Forbidden(BadSpace):
    """Error that a point is excluded by a combination of ``forbid``."""

    def __init__(self, clause: Clause, values: Mapping[str, Any]) -> None:
        given = ", ".join(f"{n} = {shorten(values[n], 30)}" for n in dict.fromkeys(clause.names))
        super().__init__(
            clause.source.key(clause.path),
            clause.describe(),
            "a point that is not forbidden",
            place=clause.source.locate(clause.path),
            problem=f"{clause.describe()} is forbidden, at {given}",
        )


def possible_combinations(raw: Sequence[Any], parameters: Mapping[str, Parameter]) -> list[Any]:
    """Return those of the combinations `raw` that can hold in a space of these parameters.

    The combinations are of another space with the same names, so this space may lack some values.
    Of several values of a parameter, those that it can have are left. Expressions stay as they are.
    """
    found = (
        _possible_combination(one, parameters) if isinstance(one, Mapping) else one for one in raw
    )
    return [one for one in found if one is not None]


def _possible_combination(
    raw: Mapping[str, Any], parameters: Mapping[str, Parameter]
) -> dict[str, Any] | None:
    """Return a combination with the values that are left; None if it can never hold."""
    found: dict[str, Any] = dict(raw)
    for name, wanted in raw.items():
        if _can_hold({name: wanted}, parameters):
            continue
        values = wanted if isinstance(wanted, list | tuple) else ()
        found[name] = [value for value in values if _can_hold({name: [value]}, parameters)]
        if not found[name]:
            return None
    return found


def _can_hold(raw: Mapping[str, Any], parameters: Mapping[str, Parameter]) -> bool:
    """Return whether all conditions in `raw` can hold, each by itself."""
    source = Source()
    try:
        for condition in read_conditions(raw, (), source):
            check_known(condition, parameters, (), source)
    except BadConfig:
        return False
    return True


def read_clauses(
    raw: Sequence[Any], parameters: Mapping[str, Parameter], source: Source
) -> tuple[Clause, ...]:
    """Parse the combinations that the spec's key ``forbid`` lists.

    Raises BadSpace if there are more than `MOST_CLAUSES`, or if one cannot be read, names an
    unknown parameter or none at all, or has a value or comparison that can never be.
    """
    if len(raw) > MOST_CLAUSES:
        raise source.refuse(
            ("forbid",),
            f"a list of {len(raw)}",
            f"at most {MOST_CLAUSES}",
            problem=f"it has {len(raw)} combinations",
        )
    clauses = []
    for index, item in enumerate(raw):
        path = ("forbid", index)
        found = read_conditions(require_plain_data(item, path, source), path, source)
        for condition in found:
            check_known(condition, parameters, path, source)
            if not condition.names:
                hint, problem = "name one", f"{shorten(item)} names no parameter"
                raise source.refuse(path, item, hint=hint, problem=problem)
        clauses.append(Clause(found, path, source))
    return tuple(clauses)
