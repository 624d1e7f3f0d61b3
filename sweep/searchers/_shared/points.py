"""The points of a finite space that no trial has yet, in the order of the file or of chance."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

from sweep import searchers
from sweep.errors import BadSpace
from sweep.history.trial import Trial
from sweep.searchers import Exhausted, Request, SearcherOptions
from sweep.space import Settings, Space, choice_key, enumeration
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
    """Goes through all points of a finite space; with ``duplicates: true`` then round and round."""

    name: ClassVar[str]
    """The searcher's, for messages."""

    def __init__(self, options: SearcherOptions) -> None:
        super().__init__(options)
        self._looked: _Looked | None = None
        """Through the points of one space: to count them, and to look anew, takes a while."""

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
        """True if the order is drawn from the sweep's seed, False if it is that of the file."""
        return True

    def suggest(self, request: Request) -> Settings:
        """The first point that no trial has; with ``duplicates`` any one, where there is none."""
        if self._looked is None or not self._looked.fits(request):
            self._looked = _Looked(request, self.shuffled)
        looked = self._looked
        if (found := looked.first_untried(request.trials)) is not None:
            return found
        if self.options.duplicates and looked.points.count:
            return looked.nth(request.index % looked.points.count)
        raise Exhausted(f"each of the {looked.points.count} points of the space has a trial")


class _Looked:
    """Which points of a space have a trial, kept from one proposal to the next.

    It follows from the history, which only grows, and is made again where it does not fit.
    """

    def __init__(self, request: Request, shuffled: bool) -> None:
        self.points = enumeration.Points(request.space)
        self._of = request.space, request.sweep_seed
        self._order: Sequence[int] = range(self.points.count)
        if shuffled:
            stream = rng.generator(request.sweep_seed, "order of points")
            self._order = stream.permutation(self.points.count).tolist()
        self._tried: set[str] = set()
        self._trials: int = 0
        """The number of trials that were looked at."""
        self._newest: dict[str, Any] = {}
        """The searched settings of the last of them."""
        self._place: int = 0
        """All points before it are tried."""

    def fits(self, request: Request) -> bool:
        """Return whether the points are of the request's space and of its history's beginning."""
        seen, trials = self._trials, request.trials
        if self._of != (request.space, request.sweep_seed) or seen > len(trials):
            return False
        return not seen or trials[seen - 1].searched == self._newest

    def nth(self, place: int) -> Settings:
        """The point at a place of the order."""
        return self.points.nth(self._order[place])

    def first_untried(self, trials: Sequence[Trial]) -> Settings | None:
        """The first point that no trial has; None: each has one."""
        for number in range(self._trials, len(trials)):
            self._newest = trials[number].searched
            if trials[number].parent is None:
                self._tried.add(choice_key(self._newest))
        self._trials = len(trials)
        while self._place < self.points.count:
            found = self.nth(self._place)
            if choice_key(found.searched) not in self._tried:
                return found
            self._place += 1
        return None


def untried(
    points: enumeration.Points, trials: Iterable[Trial], order: Iterable[int]
) -> Iterator[Settings]:
    """The points that no trial has, in `order`."""
    tried = {choice_key(trial.searched) for trial in trials if trial.parent is None}
    found = (points.nth(index) for index in order)
    return (point for point in found if choice_key(point.searched) not in tried)
