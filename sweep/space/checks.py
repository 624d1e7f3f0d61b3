"""Checks of a whole space: names, needs, conditions, and that something is left of it."""

from collections.abc import Callable, Mapping
from graphlib import CycleError
from typing import Any, Protocol

from sweep.errors import KeyPath, Source
from sweep.space.conditions import Compared, Condition, OneOf
from sweep.space.domains import Domain
from sweep.space.parameters import Derived, Fixed, Parameter
from sweep.space.values import choice_key
from trainables.errors import nearest

#: How many names of the space a message lists.
_SHOWN = 20


class Checkable(Protocol):
    """What the checks read of a space."""

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """Parameters by name."""

    @property
    def where(self) -> Source:
        """The source of the key ``space``."""

    @property
    def order(self) -> tuple[str, ...]:
        """Names in an order in which each follows what it depends on."""

    def resolve(self, suggest: Callable[[str, Domain], Any]) -> object:
        """One point of the space."""


def check(space: Checkable) -> None:
    """Raise BadSpace where parameters do not fit together."""
    for parameter in space.parameters.values():
        _check_needs(space, parameter)
    _check_order(space)
    _check_names(space)
    _check_corners(space)


def check_known(
    condition: Condition,
    parameters: Mapping[str, Parameter],
    path: KeyPath,
    where: Source,
) -> None:
    """Raise BadSpace where a condition speaks of what is not there, or can never hold."""
    at = path if not isinstance(condition, OneOf | Compared) else (*path, condition.parent)
    for name in condition.names:
        check_name(name, parameters, at, where)
    match condition:
        case OneOf(parent, values):
            for value in values:
                if not _can_be(parameters[parent], value):
                    raise _unreachable(parameters[parent], value, at, where)
        case Compared(parent, sign, bound) if not _can_compare(parameters[parent], condition):
            raise _unreachable(parameters[parent], f"{sign} {bound}", at, where)


def check_name(
    name: str, parameters: Mapping[str, Parameter], path: KeyPath, where: Source
) -> None:
    """Raise BadSpace if the space has no such parameter."""
    if name in parameters:
        return
    known = ", ".join(list(parameters)[:_SHOWN])
    more = ", …" if len(parameters) > _SHOWN else ""
    hint = nearest(name, parameters) or "a fixed setting can stand in space too"
    raise where.refuse(path, name, f"a parameter of this space: {known}{more}", hint)


def _check_needs(space: Checkable, parameter: Parameter) -> None:
    path = parameter.path
    if isinstance(parameter.role, Derived):
        for name in parameter.role.expression.names:
            check_name(name, space.parameters, (*path, "value"), space.where)
    for condition in parameter.when:
        check_known(condition, space.parameters, (*path, "when"), space.where)


def _unreachable(parent: Parameter, value: Any, path: KeyPath, where: Source) -> Exception:
    return where.refuse(
        path,
        value,
        f"a value that {parent.name} can take: {parent.describe()}",
        "a value that is a list stands in a list of its own: [[…]]",
    )


def _can_be(parameter: Parameter, value: Any) -> bool:
    match parameter.role:
        case Fixed(fixed):
            return choice_key(fixed) == choice_key(value)
        case Derived():
            return value is None or isinstance(value, int | float | str)
        case domain:
            return domain.contains(value)


def _can_compare(parameter: Parameter, condition: Compared) -> bool:
    """Whether some value fulfils the comparison; a range does if one of its ends does."""
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
            values = (domain.at(0.0), domain.at(1.0))
    return any(condition.holds({parameter.name: value}) for value in values)


def _check_order(space: Checkable) -> None:
    try:
        space.order  # noqa: B018 computing it is the check
    except CycleError as error:
        circle = list(reversed(error.args[1]))
        raise space.where.refuse(
            space.parameters[circle[0]].path,
            " needs ".join(circle),
            "parameters that do not need themselves",
            "remove one of these when or value entries",
        ) from error


def _check_names(space: Checkable) -> None:
    for name, parameter in space.parameters.items():
        parts = name.split(".")
        for end in range(1, len(parts)):
            outer = space.parameters.get(".".join(parts[:end]))
            if outer is not None:
                at = space.where.at(outer.path)
                hint = f"{outer.name} stands at {at}; remove one of the two"
                raise space.where.refuse(parameter.path, name, f"no name inside {outer.name}", hint)


def _check_corners(space: Checkable) -> None:
    """Try the lowest and the highest values at once: no expression may fail there."""
    space.resolve(lambda _, domain: domain.at(0.0))
    space.resolve(lambda _, domain: domain.at(1.0))


def check_against(space: Checkable, config: Mapping[str, Any]) -> None:
    """Raise BadConfig where `config` sets what the space sets too, or bars its way."""
    whole = Source(space.where.file, space.where.marks)
    for name, parameter in space.parameters.items():
        clash = None if parameter.hidden else _clash(config, name.split("."))
        if clash is None:
            continue
        path, value = clash
        raise whole.refuse(
            ("config", *path),
            value,
            f"no value, since space sets {name} (at {space.where.at(parameter.path)})",
            f"remove one of the two; --set space.{name}=VALUE fixes a searched setting",
        )


def _clash(config: Mapping[str, Any], parts: list[str]) -> tuple[tuple[str, ...], Any] | None:
    """Path and value in `config` that stand where `parts` leads, or in its way."""
    inner: Any = config
    for end, part in enumerate(parts, start=1):
        if part not in inner:
            return None
        inner = inner[part]
        if end == len(parts) or not isinstance(inner, Mapping):
            return tuple(parts[:end]), inner
    return None
