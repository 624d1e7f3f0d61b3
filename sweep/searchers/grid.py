"""Every point of a finite space once, in the order of the file."""

from typing import ClassVar

from pydantic import Field

from sweep.searchers import SearcherOptions, Supports
from sweep.searchers._shared.points import Enumerating


class Options(SearcherOptions):
    """In which order."""

    shuffle: bool = Field(
        False, description="Whether the points come in an order drawn from the sweep's seed."
    )


class Searcher(Enumerating):
    """Goes through the points; the last parameter of the file moves fastest."""

    options: Options
    Options: ClassVar[type[SearcherOptions]] = Options
    supports: ClassVar[Supports] = Supports(
        proposes="goes through all points in the order of the file",
        conditions="points that differ only where no condition holds are one",
        choices="part of the grid",
        unfinished="they have their points",
        objectives=True,
    )
    name = "grid"

    @property
    def shuffled(self) -> bool:
        """As the option says."""
        return self.options.shuffle
