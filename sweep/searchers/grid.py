"""Every point of a finite space once, in the order of the file."""

from typing import ClassVar

from pydantic import Field

from sweep import searchers
from sweep.searchers import Request, SearcherOptions, Supports
from sweep.searchers._shared import points
from sweep.space import Settings, Space


class Options(SearcherOptions):
    """In which order."""

    shuffle: bool = Field(
        False, description="Whether the points come in an order drawn from the sweep's seed."
    )


class Searcher(searchers.Searcher):
    """Goes through the points; the last parameter of the file moves fastest.

    With ``duplicates: true`` it goes round: every point twice, and so on.
    """

    Options: ClassVar[type[SearcherOptions]] = Options
    supports: ClassVar[Supports] = Supports(
        proposes="goes through all points in the order of the file",
        conditions="points that differ only where no condition holds are one",
        choices="part of the grid",
        unfinished="they have their points",
        objectives=True,
    )

    def __init__(self, options: SearcherOptions) -> None:
        if not isinstance(options, Options):
            raise TypeError(f"expected {Options}, got {type(options)}")
        self.options: Options = options
        self._points = points.Enumeration()

    def check(self, space: Space) -> None:
        """Every parameter must have few values."""
        points.check(space, "grid")

    def suggest(self, request: Request) -> Settings:
        """The next point."""
        return self._points.next(request, self.options.shuffle, self.options.duplicates)
