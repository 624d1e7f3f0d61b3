"""Evolution of a population towards a front of many objectives: NSGA-III.

Deb and Jain, An Evolutionary Many-Objective Optimization Algorithm Using Reference-Point-Based
Nondominated Sorting Approach, Part I, 2014. For three objectives and more.
"""

from typing import ClassVar

from optuna.trial import FrozenTrial
from pydantic import Field

from sweep import searchers
from sweep.searchers import Request, SearcherOptions, Supports
from sweep.searchers._evolution import Evolution, EvolutionOptions, Nsga3
from sweep.space import Settings, Space


class Options(EvolutionOptions):
    """How the population evolves."""

    dividing_parameter: int = Field(
        3, ge=1, le=100, description="Parts that each objective is divided into for the directions."
    )


class Searcher(searchers.Searcher):
    """Crosses and mutates the best settings of a generation."""

    Options: ClassVar[type[SearcherOptions]] = Options
    supports: ClassVar[Supports] = Supports(
        proposes="as `nsga2`, for three objectives and more",
        conditions="crossed where both parents have them, else drawn at random",
        choices="crossed and mutated",
        unfinished="does not wait for them; they belong to their generation",
        objectives=True,
        constraints=True,
    )

    def __init__(self, options: SearcherOptions) -> None:
        if not isinstance(options, Options):
            raise TypeError(f"expected {Options}, got {type(options)}")
        self.options: Options = options
        self._evolution = Evolution(self._make, options.population_size)

    def check(self, space: Space) -> None:
        """Every space can be crossed."""

    def suggest(self, request: Request) -> Settings:
        """Settings of a child of the newest generation's parents."""
        return self._evolution.suggest(request)

    def _make(self, parents: list[FrozenTrial], seed: int) -> Nsga3:
        sampler = Nsga3(seed=seed, **self.options.model_dump(exclude={"duplicates"}))
        sampler.parents = parents
        return sampler
