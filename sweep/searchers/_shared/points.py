"""The points of a finite space that no trial has yet, in the order of the file or of chance."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sweep.errors import BadSpace
from sweep.history.trial import Trial
from sweep.searchers import Exhausted, Request
from sweep.space import (
    Choice,
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


def check(space: Space, name: str) -> None:
    """Refuse a space that has infinitely or very many points."""
    for parameter in space.searched:
        domain = space.role(parameter)
        if domain.size() is None:
            raise space.where.refuse(
                space.parameters[parameter].path,
                domain.describe(),
                f"a finite number of values under searcher: {name}",
                "write {choice: [...]}, or give a step; searcher: qmc covers ranges evenly",
            )
    count = enumeration.Points(space).count
    if count > MOST:
        raise space.where.refuse(
            (),
            f"{count} points",
            f"at most {MOST} points under searcher: {name}",
            "searcher: qmc covers a large space evenly",
        )


def countable(space: Space) -> enumeration.Points | None:
    """The points of a space; None: there are too many to enumerate."""
    try:
        points = enumeration.Points(space)
    except BadSpace:
        return None
    return points if points.count <= MOST else None


@dataclass
class Enumeration:
    """The points of one space; kept, since counting them takes a while, and made again at will."""

    space: Space | None = None
    points: enumeration.Points | None = None

    def of(self, space: Space) -> enumeration.Points:
        """All points of `space`."""
        if self.points is None or self.space != space:
            self.space, self.points = space, enumeration.Points(space)
        return self.points

    def next(self, request: Request, shuffled: bool, duplicates: bool) -> Settings:
        """The first point that no trial has; with `duplicates` round and round.

        Raises:
            Exhausted: each has a trial.
        """
        points = self.of(request.space)
        order: Sequence[int] = range(points.count)
        if shuffled:
            stream = rng.generator(request.sweep_seed, "order of points")
            order = stream.permutation(points.count).tolist()
        if duplicates and order:
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
    everything = (points.nth(index) for index in order)
    return (point for point in everything if choice_key(point.searched) not in tried)


# -------------------------------------------------------------------------------------------------
# Where values lie in their domains, 0 … 1: the other way round than `Domain.at`.

Ordered = Float | Int | Normal | Ordinal


def is_ordered(domain: Domain) -> bool:
    """Whether neighbours in the domain are alike."""
    return not isinstance(domain, Choice)


def quantile(domain: Domain, value: object) -> float:
    """A quantile at which the domain has `value`; of several the middle one.

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
