"""Evolution of a population towards a front of several objectives: NSGA-II.

Deb et al., A Fast and Elitist Multiobjective Genetic Algorithm: NSGA-II, 2002.
"""

from typing import ClassVar

from sweep.searchers import SearcherOptions, Supports
from sweep.searchers._shared.evolution import EvolutionOptions, Evolving, Nsga2, Sampler


class Options(EvolutionOptions):
    """How the population evolves."""


class Searcher(Evolving):
    """Crosses and mutates the best settings of a generation."""

    Options: ClassVar[type[SearcherOptions]] = Options
    supports: ClassVar[Supports] = Supports(
        proposes="evolves a population in generations",
        conditions="crossed where both parents have them, else drawn at random",
        choices="crossed and mutated",
        unfinished="does not wait for them; they belong to their generation",
        objectives=True,
        constraints=True,
    )
    sampler: ClassVar[type[Sampler]] = Nsga2
