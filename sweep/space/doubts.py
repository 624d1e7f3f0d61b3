"""What a person may not have meant: parameters that are never there, points that come twice."""

import contextlib
from collections import Counter
from collections.abc import Iterator

from sweep.errors import BadSpace
from sweep.space import Settings, Space
from sweep.space.enumeration import Points
from sweep.space.values import choice_key
from trainables import rng
from trainables.errors import shorten

#: The most points that are all looked at; of larger spaces that many are drawn.
MOST = 2000


def count(space: Space) -> int | None:
    """How many points there are; None: infinitely many, or more than can be counted."""
    try:
        found = Points(space).count
    except BadSpace:
        return None
    return found if found < 2**63 else None


def find(space: Space, trials: int) -> list[str]:
    """Doubts in words, one line each.

    Args:
        space: what is searched.
        trials: how many points of it are tried.
    """
    number = count(space)
    found = []
    if number is not None and number < trials:
        found.append(f"{trials} trials are asked for, but the space has only {number} points")
    if number is not None and number <= MOST:
        everything = list(_all(space, number))
        return [*found, *_never(space, everything, "at any point"), *_twice(everything)]
    if not any(parameter.needs for parameter in space.parameters.values()):
        return found
    drawn = [space.draw(rng.integer(0, "doubts", index)) for index in range(MOST)]
    return [*found, *_never(space, drawn, f"at any of {MOST} points drawn by chance")]


def _all(space: Space, number: int) -> Iterator[Settings]:
    points = Points(space)
    for index in range(number):
        with contextlib.suppress(BadSpace):  # an expression has no value: there is no such point
            yield points.nth(index)


def _never(space: Space, points: list[Settings], where: str) -> list[str]:
    there = {name for point in points for name in (*point.searched, *point.settings)}
    lines = []
    for name, parameter in space.parameters.items():
        if name in there or (parameter.hidden and name not in space.searched):
            continue
        when = " and ".join(condition.describe() for condition in parameter.when)
        cause = f"{when} never holds" if when else "it needs what is not there"
        lines.append(f"{name} is not there {where}: {cause}")
    return lines


def _twice(points: list[Settings]) -> list[str]:
    """Points that give the trainable the same settings."""
    keys = [choice_key(point.settings) for point in points]
    counts = Counter(keys)
    more = sum(number - 1 for number in counts.values())
    if not more:
        return []
    key = next(key for key in keys if counts[key] > 1)
    same = [point.searched for point, own in zip(points, keys, strict=True) if own == key]
    one, other = (shorten(point) for point in same[:2])
    return [f"{more} of {len(points)} points repeat another's settings, such as {one} and {other}"]
