"""Independent random points of the space."""

from typing import ClassVar

from sweep import searchers
from sweep.searchers import Request, SearcherOptions, Supports
from sweep.searchers._shared.prior import PriorOptions
from sweep.spec.space import Settings


class Searcher(searchers.Searcher):
    """Draws each trial's settings at random, independently of all results."""

    Options: ClassVar[type[SearcherOptions]] = PriorOptions
    supports: ClassVar[Supports] = Supports(
        proposes="draws at random",
        conditions="drawn if their condition holds",
        choices="drawn",
        unfinished="ignores them",
        objectives=True,
    )

    def suggest(self, request: Request) -> Settings:
        """Return settings drawn at random by the request's seed alone.

        Raises BadSpace if many random points are all forbidden.
        """
        return request.space.draw(request.seed)
