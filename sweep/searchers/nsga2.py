"""Evolution of a population towards a front of several objectives: NSGA-II.

Deb et al., A Fast and Elitist Multiobjective Genetic Algorithm: NSGA-II, 2002.
"""

from typing import ClassVar

from sweep.searchers._shared.evolution import Evolving, Nsga2, Sampler


class Searcher(Evolving):
    """NSGA-II: crosses and mutates the best settings of a generation."""

    sampler: ClassVar[type[Sampler]] = Nsga2
