"""Every point of a finite space once, in an order drawn from the sweep's seed."""

from typing import ClassVar

from sweep import searchers
from sweep.searchers import Request, SearcherOptions, Supports
from sweep.searchers._shared import points
from sweep.space import Settings, Space


class Options(SearcherOptions):
    """No settings of its own."""


class Searcher(searchers.Searcher):
    """Leaves no point out, and shows every part of the space early.

    With ``duplicates: true`` it goes round: every point twice, and so on.
    """

    Options: ClassVar[type[SearcherOptions]] = Options
    supports: ClassVar[Supports] = Supports(
        proposes="goes through all points in an order of chance",
        conditions="points that differ only where no condition holds are one",
        choices="part of the enumeration",
        unfinished="they have their points",
        objectives=True,
    )

    def __init__(self, options: SearcherOptions) -> None:
        self.options = options
        self._points = points.Enumeration()

    def check(self, space: Space) -> None:
        """Every parameter must have few values."""
        points.check(space, "brute_force")

    def suggest(self, request: Request) -> Settings:
        """The next point."""
        return self._points.next(request, shuffled=True, duplicates=self.options.duplicates)
