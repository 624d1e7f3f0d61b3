"""Checks of a whole space: names, needs, conditions, and what a config sets beside it."""

from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any

from sweep.errors import KeyPath, Source
from sweep.space.conditions import Compared, Condition, OneOf
from sweep.space.parameters import Derived, Fixed, Parameter
from sweep.space.values import choice_key
from trainables.errors import nearest

#: How many names of the space a message lists.
_SHOWN = 20


def check(parameters: Mapping[str, Parameter], where: Source) -> None:
    """Raise BadSpace where parameters do not fit together.

    Args:
        parameters: by name.
        where: the source of the key ``space``.
    """
    for parameter in parameters.values():
        _check_needs(parameter, parameters, where)
    _check_order(parameters, where)
    _check_names(parameters, where)


def in_order(parameters: Mapping[str, Parameter]) -> tuple[str, ...]:
    """All names, each after those that it needs; CycleError where that cannot be."""
    graph = {name: parameter.needs for name, parameter in parameters.items()}
    return tuple(TopologicalSorter(graph).static_order())


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


def _check_needs(parameter: Parameter, parameters: Mapping[str, Parameter], where: Source) -> None:
    path = parameter.path
    if isinstance(parameter.role, Derived):
        for name in parameter.role.expression.names:
            check_name(name, parameters, (*path, "value"), where)
    for condition in parameter.when:
        check_known(condition, parameters, (*path, "when"), where)


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


def _check_order(parameters: Mapping[str, Parameter], where: Source) -> None:
    try:
        in_order(parameters)
    except CycleError as error:
        circle = list(reversed(error.args[1]))
        raise where.refuse(
            parameters[circle[0]].path,
            " needs ".join(circle),
            "parameters that do not need themselves",
            "remove one of these when or value entries",
        ) from error


def _check_names(parameters: Mapping[str, Parameter], where: Source) -> None:
    for name, parameter in parameters.items():
        dots = [index for index, letter in enumerate(name) if letter == "."]
        for outer in (parameters[name[:dot]] for dot in dots if name[:dot] in parameters):
            hint = f"{outer.name} stands at {where.at(outer.path)}; remove one of the two"
            raise where.refuse(parameter.path, name, f"no name inside {outer.name}", hint)


def check_against(
    parameters: Mapping[str, Parameter], where: Source, config: Mapping[str, Any]
) -> None:
    """Raise BadConfig where `config` sets what the space sets too, or bars its way."""
    for name, parameter in parameters.items():
        clash = None if parameter.hidden else _clash(config, name.split("."))
        if clash is None:
            continue
        path, value = clash
        raise Source(where.file, where.marks).refuse(
            ("config", *path),
            value,
            f"no value, since space sets {name} (at {where.at(parameter.path)})",
            f"remove one of the two; --set space.{name}=VALUE fixes a searched setting",
        )


def _clash(config: Mapping[str, Any], names: list[str]) -> tuple[tuple[str, ...], Any] | None:
    """Path and value in `config` that stand where `names` leads, or in its way."""
    inner: Any = config
    for end, part in enumerate(names, start=1):
        if part not in inner:
            return None
        inner = inner[part]
        if end == len(names) or not isinstance(inner, Mapping):
            return tuple(names[:end]), inner
    return None
