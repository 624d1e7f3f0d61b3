"""Every point of a finite space once, in a shuffled order derived from the sweep's seed."""

from typing import ClassVar

from sweep.searchers import SearcherOptions, Supports
from sweep.searchers._shared.points import Enumerating


class Searcher(Enumerating):
    """Tries every point of a finite space in a shuffled order, which covers all parts early."""

    Options: ClassVar[type[SearcherOptions]] = SearcherOptions
    supports: ClassVar[Supports] = Supports(
        proposes="goes through all points in a random order",
        conditions="points that differ only in inactive parameters count once",
        choices="part of the enumeration",
        unfinished="their points are not proposed again",
        objectives=True,
    )
    name = "brute_force"
