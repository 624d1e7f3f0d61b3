"""Every point of a finite space once, in the order of the file or shuffled."""

from typing import ClassVar

from pydantic import Field

from sweep.searchers import SearcherOptions, Supports
from sweep.searchers._shared.points import Enumerating


class Options(SearcherOptions):
    """Options of a grid: the order of its points."""

    shuffle: bool = Field(
        False,
        description="Shuffle the points with the sweep's seed instead of taking them in the order "
        "of the file.",
    )


class Searcher(Enumerating):
    """Tries every point of a finite space; the last parameter of the file changes fastest."""

    options: Options
    Options: ClassVar[type[SearcherOptions]] = Options
    supports: ClassVar[Supports] = Supports(
        proposes="goes through all points in the order of the file",
        conditions="points that differ only in inactive parameters count once",
        choices="part of the grid",
        unfinished="their points are not proposed again",
        objectives=True,
    )
    name = "grid"

    @property
    def shuffled(self) -> bool:
        """True if the option `shuffle` asks for a random order."""
        return self.options.shuffle
