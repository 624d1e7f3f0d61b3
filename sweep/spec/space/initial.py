"""Given settings: those to try first, and those that the trials take in turn.

initial:
  - {lr: 3e-4, activation: tanh}      trial 0
  - {model: {hidden: [64]}}           trial 1; the searcher fills in the rest

Values of parameters with ``grid`` are given too: after the first settings, the trials take its
values in turn, or all combinations of values of several such parameters. A combination without a
further point is skipped.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sweep.core.errors import BadSpace, Gathering, KeyPath, Source
from sweep.spec.space import Space
from trainables.errors import nearest, shorten

#: Maximum number of combinations of ``grid`` values that are checked to have an allowed point.
MOST_CELLS = 1000


def space_of(space: Space, initial: Sequence[Mapping[str, Any]], index: int) -> Space:
    """Return the space in which the searched trial `index`, from 0, has its given settings pinned.

    These are its entry of `initial`, in which ``grid`` parameters that it lacks have their first
    values; after the last entry, the trials take the combinations of ``grid`` values in turn.
    """
    return next(spaces_of(space, initial, index))


def spaces_of(space: Space, initial: Sequence[Mapping[str, Any]], index: int) -> Iterator[Space]:
    """Yield `space_of` the trial, then the spaces with the next combinations of ``grid`` values.

    A trial with an entry of `initial` has only one. Without ``grid``, the only one is `space`. The
    caller takes the first space that has a point left.
    """
    if index < len(initial):
        given = {name: value for _, name, value in _entries(space, initial[index])}
        yield space.pin({**_cell(space, 0), **given})
        return
    for further in range(space.cells):
        yield (
            space.pin(_cell(space, index - len(initial) + further))
            if space.crossed_domains
            else space
        )


def read_suggestion(space: Space, settings: Mapping[str, Any], source: Source) -> dict[str, Any]:
    """Check a user's suggested settings, and return them by dotted name; some may be absent.

    Raises BadSpace for a name given twice, a parameter that is not searched, a value that is not in
    its domain, and settings that no point of the space has.

    Args:
        settings: name → value; settings of a group may stand below its name.
        source: place of each setting, for messages.
    """
    entries = list(_entries(space, settings))
    _check_one(space, entries, (), source)
    return {name: value for _, name, value in entries}


def spaces_of_suggestion(
    space: Space, initial: Sequence[Mapping[str, Any]], index: int, settings: Mapping[str, Any]
) -> Iterator[Space]:
    """Yield spaces in which a user's suggested settings are pinned.

    `settings` has dotted names. Parameters with ``grid`` that are not suggested have the values of
    the searched trial `index`, then of those after it, one space for each combination.
    """
    for one in spaces_of(space, (), max(0, index - len(initial))):
        yield one.pin(settings)


def _cell(space: Space, index: int) -> dict[str, Any]:
    """Return the value of each ``grid`` parameter for the trial `index`, from 0, that takes them.

    The last one changes fastest. After all combinations, the first one follows again.
    """
    cell = {}
    for name in reversed(space.crossed_domains):
        domain = space.domain_of(name)
        size = domain.size() or 1
        cell[name] = domain.at_index(index % size)
        index //= size
    return cell


def check(space: Space, initial: Sequence[Any], source: Source) -> None:
    """Raise BadSpace if an entry of the spec's ``initial`` is not a part of a point of the space.

    If combinations are forbidden, each combination of ``grid`` values must leave a point, too; the
    first `MOST_CELLS` are checked.
    """
    gathering = Gathering()
    for index, given in enumerate(initial):
        path = ("initial", index)
        with gathering.collect():
            if not isinstance(given, Mapping):
                raise source.refuse(path, given, "a mapping such as {lr: 1e-3}")
            _check_one(space, list(_entries(space, given)), path, source)
    gathering.check()
    if space.forbidden:
        for index in range(min(space.cells, MOST_CELLS)):
            space.pin(_cell(space, index)).draw(0)


def _check_one(
    space: Space, entries: list[tuple[KeyPath, str, Any]], path: KeyPath, source: Source
) -> None:
    """Raise BadSpace if the given settings of one trial are not a part of a point of the space.

    It is also raised for a name given twice. `entries` have path, name and value of each; `path` is
    the path above them.
    """
    given: dict[str, Any] = {}
    for below, name, value in entries:
        if name in given:
            problem = f"{name} is given twice"
            place = (*path, *below)
            raise source.refuse(place, name, hint="remove one of the two", problem=problem)
        _check_value(space, name, value, (*path, *below), source)
        given[name] = value
    for below, name, _ in entries:
        _check_active(space, name, given, (*path, *below), source)
    try:  # there must be an allowed completion
        space.pin(given).draw(0)
    except BadSpace as error:
        problem = f"no point with {shorten(given)} belongs to the space: {error}"
        place = path or ("settings",)
        raise source.refuse(place, given, "settings of the space", problem=problem) from error


def _entries(
    space: Space, settings: Mapping[str, Any], prefix: str = "", base: KeyPath = ()
) -> Iterator[tuple[KeyPath, str, Any]]:
    """Yield path, dotted name and value of each setting; those of a group may be nested.

    `prefix` and `base` are name and path of the group around.
    """
    for part, value in settings.items():
        name = f"{prefix}{part}"
        group = any(other.startswith(f"{name}.") for other in space.searched)
        if group and isinstance(value, Mapping):
            yield from _entries(space, value, f"{name}.", (*base, part))
        else:
            yield (*base, part), name, value


def _check_value(space: Space, name: str, value: Any, path: KeyPath, source: Source) -> None:
    """Raise BadSpace if a given parameter is not searched, or its value is not in its domain."""
    if name not in space.searched:
        fixed = name in space.parameters
        hint = "remove it" if fixed else nearest(name, space.searched)
        known = ", ".join(space.searched[:20])
        problem = f"{name} is fixed in the space" if fixed else f"there is no parameter {name}"
        raise source.refuse(path, name, f"one of {known}", hint, problem)
    domain = space.domain_of(name)
    if not domain.contains(value):
        raise source.refuse(
            path, value, domain.describe(), "give a value of the space, or widen it"
        )


def _check_active(
    space: Space, name: str, settings: Mapping[str, Any], path: KeyPath, source: Source
) -> None:
    """Raise BadSpace if a given parameter is inactive at the given, fixed and derived values.

    It is so, too, if a searched parameter that it needs is not given.
    """
    values: dict[str, Any] = {}
    for known in space.order:
        if space.is_active(known, values) and (known in settings or known not in space.searched):
            values[known] = space.resolve_parameter(
                known, values, lambda searched, _domain: settings[searched]
            )
    if name in values:
        return
    when = " and ".join(condition.describe() for condition in space.parameters[name].when)
    missing = [needed for needed in space.parameters[name].needs if needed not in values]
    hint = f"give {', '.join(missing)} too" if missing else "remove it"
    problem = f"{name} is used only when {when}"
    raise source.refuse(path, settings[name], hint=hint, problem=problem)
