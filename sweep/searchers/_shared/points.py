"""The points of a finite space that have no trial yet, in the order of the file or shuffled."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

from sweep import searchers
from sweep.core.errors import BadSpace
from sweep.history.trial import Trial
from sweep.searchers import Exhausted, Request, SearcherOptions
from sweep.spec.space import Settings, Space, choice_key, enumeration
from trainables.core import rng

#: Maximum number of points to enumerate.
MOST = 1_000_000


def countable(space: Space) -> enumeration.Points | None:
    """Return all points of a space; None if they are infinitely many or more than a million."""
    try:
        points = enumeration.Points(space)
    except BadSpace:
        return None
    return points if points.count <= MOST else None


class Enumerating(searchers.Searcher):
    """Base of searchers that go through all points of a finite space.

    Each point is proposed once, or repeatedly with ``duplicates: true``.
    """

    name: ClassVar[str]
    """Name of the searcher in a spec, for messages."""

    def __init__(self, options: SearcherOptions) -> None:
        super().__init__(options)
        self._progress: _Progress | None = None
        """Points of the space that have a trial, kept from one proposal to the next; None before
        the first."""

    def check(self, space: Space) -> None:
        """Raise BadSpace if the space has infinitely many points, or more than `MOST`."""
        for parameter in space.searched:
            domain = space.domain_of(parameter)
            if domain.size() is None:
                given = domain.describe()
                problem = (
                    f"the parameter has infinitely many values ({given}), but the "
                    f"searcher {self.name} tries all values"
                )
                hint = (
                    "write {choice: [...]}, give a step, or use searcher: qmc, which covers ranges "
                    "evenly"
                )
                path = space.parameters[parameter].path
                raise space.source.refuse(path, given, hint=hint, problem=problem)
        count = enumeration.Points(space).count
        if count > MOST:
            problem = f"the space has {count} points, too many for the searcher {self.name}, "
            problem += "which tries all of them"
            hint = "use searcher: qmc, which covers a large space evenly"
            raise space.source.refuse((), f"{count} points", f"at most {MOST}", hint, problem)

    @property
    def shuffled(self) -> bool:
        """True if the sweep's seed decides the order of the points, else it is the file's."""
        return True

    def suggest(self, request: Request) -> Settings:
        """Return the first point, in the searcher's order, that has no trial.

        With ``duplicates`` and none left, points repeat in the same order. Otherwise raises
        Exhausted if every point has a trial.
        """
        if self._progress is None or not self._progress.fits(request):
            self._progress = _Progress(request, self.shuffled)
        looked = self._progress
        if (found := looked.first_untried(request.trials)) is not None:
            return found
        if self.options.duplicates and looked.points.count:
            return looked.at_index(request.index % looked.points.count)
        raise exhausted(looked.points.count)


def exhausted(count: int) -> Exhausted:
    """Return the exception for a space of `count` points that all have a trial."""
    if count == 1:
        return Exhausted("a trial already has the only point of the space")
    return Exhausted(f"all {count} points of the space have a trial")


class _Progress:
    """Order of the points of a space, with the position up to which each has a trial.

    It follows from the history, which only grows; the object is remade if it does not fit.
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
        """Number of first trials of the history that were processed."""
        self._newest: dict[str, Any] = {}
        """Searched settings of the last trial that was processed."""
        self._place: int = 0
        """Index in the order before which all points have trials."""

    def fits(self, request: Request) -> bool:
        """Return whether the object fits a request.

        It does if it was made for the same space and seed, and for the beginning of the same
        history.
        """
        seen, trials = self._trials, request.trials
        if self._of != (request.space, request.sweep_seed) or seen > len(trials):
            return False
        return not seen or trials[seen - 1].searched == self._newest

    def at_index(self, place: int) -> Settings:
        """Return the settings of the point that is proposed at index `place`, from 0."""
        return self.points.at_index(self._order[place])

    def first_untried(self, trials: Sequence[Trial]) -> Settings | None:
        """Return the first point of the order without a trial, or None if each has one.

        Trials that are new since the last call are read first. Offspring do not count as trials of
        their points.
        """
        for number in range(self._trials, len(trials)):
            self._newest = trials[number].searched
            if trials[number].parent is None:
                self._tried.add(choice_key(self._newest))
        self._trials = len(trials)
        while self._place < self.points.count:
            found = self.at_index(self._place)
            if choice_key(found.searched) not in self._tried:
                return found
            self._place += 1
        return None


def untried_points(
    points: enumeration.Points, trials: Iterable[Trial], order: Iterable[int]
) -> Iterator[Settings]:
    """Yield the points that no trial has, in the order of their indices in `order`.

    Offspring do not count as trials of their points.
    """
    tried = {choice_key(trial.searched) for trial in trials if trial.parent is None}
    found = (points.at_index(index) for index in order)
    return (point for point in found if choice_key(point.searched) not in tried)
