"""Settings that are given: those to try first, and those that the trials take in turn.

initial:
  - {lr: 3e-4, activation: tanh}      trial 0
  - {model: {hidden: [64]}}           trial 1; the searcher fills in the rest

A parameter with ``grid`` is given too: behind the first settings, the trials take its values in
turn, and every combination of the values of several such parameters. A combination that has no
further point is passed over.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sweep.errors import BadSpace, Gathering, KeyPath, Source
from sweep.space import Space
from trainables.errors import nearest, shorten

#: Combinations of ``grid`` values of each of which it is checked that it is not all forbidden.
MOST_CELLS = 1000


def space_of(space: Space, initial: Sequence[Mapping[str, Any]], index: int) -> Space:
    """The sweep's space for the searched trial `index`, from 0, with what is given pinned."""
    return next(spaces_of(space, initial, index))


def spaces_of(space: Space, initial: Sequence[Mapping[str, Any]], index: int) -> Iterator[Space]:
    """`space_of`, and behind it those with the combinations of ``grid`` values that come next."""
    if index < len(initial):
        given = {name: value for _, name, value in _entries(space, initial[index])}
        yield space.pin({**_cell(space, 0), **given})
        return
    for further in range(space.cells):
        yield space.pin(_cell(space, index - len(initial) + further)) if space.crossed else space


def _cell(space: Space, index: int) -> dict[str, Any]:
    """The values of ``grid`` parameters; the last one changes fastest."""
    cell = {}
    for name in reversed(space.crossed):
        domain = space.role(name)
        size = domain.size() or 1
        cell[name] = domain.nth(index % size)
        index //= size
    return cell


def check(space: Space, initial: Sequence[Any], where: Source) -> None:
    """Raise BadSpace where given settings do not belong to the space; `where`: the spec's."""
    found = Gathering()
    for index, given in enumerate(initial):
        path = ("initial", index)
        with found.one():
            if not isinstance(given, Mapping):
                raise where.refuse(path, given, "a mapping such as {lr: 1e-3}")
            _check_one(space, list(_entries(space, given)), path, where)
    found.check()
    if space.forbidden:
        for index in range(min(space.cells, MOST_CELLS)):
            space.pin(_cell(space, index)).draw(0)


def _check_one(
    space: Space, entries: list[tuple[KeyPath, str, Any]], path: KeyPath, where: Source
) -> None:
    given: dict[str, Any] = {}
    for below, name, value in entries:
        if name in given:
            raise where.refuse((*path, *below), name, "each name once", "remove one of the two")
        _check_value(space, name, value, (*path, *below), where)
        given[name] = value
    for below, name, _ in entries:
        _check_active(space, name, given, (*path, *below), where)
    try:  # one way to fill in the rest must be allowed
        space.pin(given).draw(0)
    except BadSpace as error:
        problem = f"no point with {shorten(given)} belongs to the space: {error}"
        raise where.refuse(path, given, "settings of the space", problem=problem) from error


def _entries(
    space: Space, given: Mapping[str, Any], prefix: str = "", above: KeyPath = ()
) -> Iterator[tuple[KeyPath, str, Any]]:
    """Path, name and value of each setting; those of a group may stand below its name."""
    for part, value in given.items():
        name = f"{prefix}{part}"
        group = any(other.startswith(f"{name}.") for other in space.searched)
        if group and isinstance(value, Mapping):
            yield from _entries(space, value, f"{name}.", (*above, part))
        else:
            yield (*above, part), name, value


def _check_value(space: Space, name: str, value: Any, path: KeyPath, where: Source) -> None:
    if name not in space.searched:
        fixed = name in space.parameters
        hint = "it is not searched" if fixed else nearest(name, space.searched)
        known = ", ".join(space.searched[:20])
        raise where.refuse(path, name, f"a searched parameter: {known}", hint)
    domain = space.role(name)
    if not domain.contains(value):
        raise where.refuse(path, value, domain.describe(), "give a value of the space, or widen it")


def _check_active(
    space: Space, name: str, given: Mapping[str, Any], path: KeyPath, where: Source
) -> None:
    """Refuse a given parameter whose presence does not follow from the values given beside it."""
    values: dict[str, Any] = {}
    for known in space.order:
        if space.is_active(known, values) and (known in given or known not in space.searched):
            values[known] = space.settle(known, values, lambda searched, _domain: given[searched])
    if name in values:
        return
    when = " and ".join(condition.describe() for condition in space.parameters[name].when)
    missing = [needed for needed in space.parameters[name].needs if needed not in values]
    hint = f"give {', '.join(missing)} too" if missing else "remove it"
    raise where.refuse(path, given[name], f"{name} only when {when}", hint)
