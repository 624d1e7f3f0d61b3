"""The points of a finite space that no trial has yet, in the order of the file or of chance."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

from sweep import searchers
from sweep.errors import BadSpace
from sweep.history.trial import Trial
from sweep.searchers import Exhausted, Request, SearcherOptions
from sweep.space import (
    Domain,
    Float,
    Int,
    Normal,
    Ordinal,
    Settings,
    Space,
    choice_key,
    enumeration,
)
from trainables.core import rng

#: The most points that are put into an order of chance.
MOST = 1_000_000


def countable(space: Space) -> enumeration.Points | None:
    """The points of a space, or None if there are too many to enumerate."""
    try:
        points = enumeration.Points(space)
    except BadSpace:
        return None
    return points if points.count <= MOST else None


class Enumerating(searchers.Searcher):
    """Goes through all points of a finite space; with ``duplicates: true`` round and round."""

    name: ClassVar[str]
    """The searcher's, for messages."""

    def __init__(self, options: SearcherOptions) -> None:
        super().__init__(options)
        self._cached: tuple[Space, enumeration.Points] | None = None
        """The points of one space: counting them takes a while."""

    def check(self, space: Space) -> None:
        """Refuse a space that has infinitely or very many points."""
        for parameter in space.searched:
            domain = space.role(parameter)
            if domain.size() is None:
                allowed = f"a finite number of values under searcher: {self.name}"
                hint = "write {choice: [...]}, or give a step; searcher: qmc covers ranges evenly"
                path = space.parameters[parameter].path
                raise space.where.refuse(path, domain.describe(), allowed, hint)
        count = enumeration.Points(space).count
        if count > MOST:
            allowed = f"at most {MOST} points under searcher: {self.name}"
            hint = "searcher: qmc covers a large space evenly"
            raise space.where.refuse((), f"{count} points", allowed, hint)

    @property
    def shuffled(self) -> bool:
        """Whether the order is drawn from the sweep's seed, or is that of the file."""
        return True

    def suggest(self, request: Request) -> Settings:
        """The first point that no trial has."""
        if self._cached is None or self._cached[0] != request.space:
            self._cached = (request.space, enumeration.Points(request.space))
        points = self._cached[1]
        order: Sequence[int] = range(points.count)
        if self.shuffled:
            stream = rng.generator(request.sweep_seed, "order of points")
            order = stream.permutation(points.count).tolist()
        if self.options.duplicates and order:
            return points.nth(order[request.index % points.count])
        found = next(untried(points, request.trials, order), None)
        if found is None:
            raise Exhausted(f"each of the {points.count} points of the space has a trial")
        return found


def untried(
    points: enumeration.Points, trials: Iterable[Trial], order: Iterable[int]
) -> Iterator[Settings]:
    """The points that no trial has, in `order`."""
    tried = {choice_key(trial.searched) for trial in trials if trial.parent is None}
    found = (points.nth(index) for index in order)
    return (point for point in found if choice_key(point.searched) not in tried)


def quantile(domain: Domain, value: object) -> float:
    """A quantile (0 … 1) at which the domain has `value`, the inverse of `Domain.at`.

    Of several the middle one.

    Raises:
        TypeError: the domain has no order, or the value is not one of it.
    """
    match domain, value:
        case Normal(), int() | float():
            return domain.quantile(value)
        case Ordinal(), _:
            return (domain.index[choice_key(value)] + 0.5) / domain.size()
        case Float() | Int(), int() | float():
            if domain.log:
                return _share(*map(math.log, (*domain.edges, value)))
            half = (domain.step or 0.0) / 2
            return _share(domain.low - half, domain.high + half, value)
    raise TypeError(f"no place of {value!r} in {domain!r}")


def _share(low: float, high: float, value: float) -> float:
    return min(max((value - low) / (high - low), 0.0), 1.0) if high > low else 0.5
