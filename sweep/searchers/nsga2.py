"""Evolution of a population towards a front of several objectives: NSGA-II.

Deb et al., A Fast and Elitist Multiobjective Genetic Algorithm: NSGA-II, 2002.
"""

from typing import ClassVar

from optuna.trial import FrozenTrial

from sweep import searchers
from sweep.searchers import Request, SearcherOptions, Supports
from sweep.searchers._evolution import Evolution, EvolutionOptions, Nsga2
from sweep.space import Settings, Space


class Options(EvolutionOptions):
    """How the population evolves."""


class Searcher(searchers.Searcher):
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

    def _make(self, parents: list[FrozenTrial], seed: int) -> Nsga2:
        sampler = Nsga2(seed=seed, **self.options.model_dump(exclude={"duplicates"}))
        sampler.parents = parents
        return sampler
