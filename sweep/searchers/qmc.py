"""Scrambled Sobol or Halton points, which cover the space more evenly than random points.

Owen, Scrambling Sobol and Niederreiter-Xing Points, 1998. The sequence follows from the sweep's
seed; trial n gets its point n. If the space has no such point, or an earlier trial has its
settings, the trial gets point n of the next stretch of the sequence.
"""

from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy.stats import qmc

from sweep import searchers
from sweep.searchers import Request, SearcherOptions, Supports
from sweep.spec.space import Settings
from trainables.core import rng

#: Length of a stretch: more than the number of trials of any sweep.
STRETCH = 2**20


class Options(SearcherOptions):
    """Options of quasi-random points: the kind of sequence."""

    sequence: Literal["sobol", "halton"] = Field(
        "sobol",
        description="Sequence of points: sobol, which is most even if the number of trials is a "
        "power of two, or halton.",
    )


class Searcher(searchers.Searcher):
    """Spreads the trials evenly over the space by a quasi-random sequence."""

    options: Options
    Options: ClassVar[type[SearcherOptions]] = Options
    supports: ClassVar[Supports] = Supports(
        proposes="covers the space evenly, without regard to scores",
        conditions="part of the sequence if their condition holds",
        choices="part of the sequence",
        unfinished="ignores them",
        objectives=True,
    )

    def suggest(self, request: Request) -> Settings:
        """Return the point of the sequence whose number is that of the trial among searched ones.

        After a rejected attempt it is the point at the same place of the next stretch. Raises
        BadSpace if it is not a point of the space.
        """
        domains = request.space.domains
        point = self._point(
            request.sweep_seed, len(domains), request.index + STRETCH * request.attempt
        )
        share = dict(zip(domains, point.tolist(), strict=False))
        return request.space.resolve(lambda name, domain: domain.value_at(share[name]))

    def _point(self, seed: int, dimensions: int, number: int) -> NDArray[np.float64]:
        """Return point `number` of the sequence scrambled by `seed`, (dimensions,), each 0 to 1.

        Without dimensions it is (1,).
        """
        kind = qmc.Sobol if self.options.sequence == "sobol" else qmc.Halton
        engine = kind(max(dimensions, 1), scramble=True, rng=rng.generator(seed, "qmc"))
        if number:
            engine.fast_forward(number)
        point: NDArray[np.float64] = engine.random(1)[0]
        return point
