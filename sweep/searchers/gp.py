"""Bayesian optimisation with a Gaussian process.

Matern kernel (nu = 2.5) with a length scale per parameter and log expected improvement: Ament et
al., Unexpected Improvements to Expected Improvement for Bayesian Optimization, 2023.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

import optuna
import torch
from pydantic import Field

from sweep import searchers
from sweep.searchers import Request, SearcherOptions, Supports
from sweep.searchers._shared import study
from sweep.searchers._shared.study import AsComplete
from sweep.space import Settings


class Options(SearcherOptions):
    """How the process is fitted."""

    n_startup_trials: int = Field(
        10, ge=1, description="Trials drawn at random before the process is fitted."
    )
    deterministic_objective: bool = Field(
        False, description="Whether equal settings give equal scores, so that none of it is noise."
    )


class Searcher(searchers.Searcher):
    """Fits a smooth function to the scores and proposes where it expects most improvement."""

    Options: ClassVar[type[SearcherOptions]] = Options
    supports: ClassVar[Supports] = Supports(
        proposes="fits a Gaussian process to the scores; few trials, each dear",
        conditions="drawn at random",
        choices="modelled",
        unfinished="expects from them what the process does",
        objectives=True,
        constraints=True,
    )

    def __init__(self, options: SearcherOptions) -> None:
        super().__init__(options)
        self._cache = study.Cache()

    def suggest(self, request: Request) -> Settings:
        """Settings from a process that is fitted anew, so that it keeps nothing between calls."""
        known = self._cache.bring_up(request, AsComplete())
        with study.quiet():
            sampler = optuna.samplers.GPSampler(
                seed=request.seed % 2**30,
                warn_independent_sampling=False,
                **self.options.model_dump(exclude={"duplicates"}),
            )
        with _one_thread():
            return study.suggest(request, sampler, known)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Use one thread: the matrices are small, and the proposal must not depend on the number."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
