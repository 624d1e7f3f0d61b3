"""Evolution of a population towards a front of many objectives: NSGA-III.

Deb and Jain, An Evolutionary Many-Objective Optimization Algorithm Using Reference-Point-Based
Nondominated Sorting Approach, Part I, 2014. For three objectives and more.
"""

from dataclasses import replace
from typing import ClassVar

from pydantic import Field

from sweep.searchers import SearcherOptions, Supports
from sweep.searchers._shared.evolution import EvolutionOptions, Evolving, Nsga3, Sampler


class Options(EvolutionOptions):
    """Options of NSGA-III: those of an evolution, and the reference directions."""

    dividing_parameter: int = Field(
        3,
        ge=1,
        le=100,
        description="Number of parts into which the range of each objective is divided to place "
        "the reference directions.",
    )


class Searcher(Evolving):
    """NSGA-III: crosses and mutates the best settings of a generation, for many objectives."""

    Options: ClassVar[type[SearcherOptions]] = Options
    supports: ClassVar[Supports] = replace(
        Evolving.supports, proposes="as `nsga2`, but for three or more objectives"
    )
    sampler: ClassVar[type[Sampler]] = Nsga3
