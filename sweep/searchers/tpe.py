"""The tree-structured Parzen estimator.

Bergstra et al., Algorithms for Hyper-Parameter Optimization, 2011, section 4.
"""

from dataclasses import replace
from typing import ClassVar

import optuna
from pydantic import Field

from sweep import searchers
from sweep.errors import BadConfig
from sweep.searchers import Request, SearcherOptions, Supports
from sweep.searchers._shared import study
from sweep.searchers._shared.prior import PriorOptions
from sweep.searchers._shared.study import AsComplete, WithRungs
from sweep.space import Settings, Space


class Options(PriorOptions):
    """Settings of the estimator."""

    n_startup_trials: int = Field(
        10, ge=0, description="Trials drawn at random before the estimator is trusted."
    )
    n_ei_candidates: int = Field(
        24, ge=1, description="Candidates compared by expected improvement per proposal."
    )
    multivariate: bool = Field(
        True, description="Whether parameters are modelled together, not one by one."
    )
    group: bool = Field(
        False,
        description="With multivariate: whether each branch of conditions is modelled apart.",
    )
    constant_liar: bool = Field(
        True,
        description="Whether running settings count as bad, so that none is tried again.",
    )
    window: int | None = Field(
        None,
        ge=50,
        description="How many of the newest trials are modelled, and up to a quarter more; null: "
        "all, and a proposal takes the longer the more there are (1,000: 15 ms, 3,000: 46 ms).",
    )


class Searcher(searchers.Searcher):
    """Models good and bad settings apart and proposes where their ratio is best."""

    options: Options
    Options: ClassVar[type[SearcherOptions]] = Options
    supports: ClassVar[Supports] = Supports(
        proposes="models good and bad settings apart",
        conditions="drawn at random; modelled with `group: true`",
        choices="modelled",
        unfinished="counts them as bad",
        objectives=True,
        constraints=True,
    )

    def __init__(self, options: SearcherOptions) -> None:
        super().__init__(options)
        self._cache = study.Cache()

    def check(self, space: Space) -> None:
        """Every space can be modelled; ``group`` needs ``multivariate``."""
        if self.options.group and not self.options.multivariate:
            raise BadConfig("searcher.group", True, "false, as multivariate is false")

    def suggest(self, request: Request) -> Settings:
        """Settings from the history's good ones."""
        several = len(request.objective.signs) > 1  # then Optuna compares complete trials only
        view = AsComplete() if several else WithRungs(request.levels)
        known = self._cache.bring_up(self._newest(request), view)
        settings = self.options.model_dump(exclude={"duplicates", "prior", "window"})
        with study.quiet():
            sampler = optuna.samplers.TPESampler(seed=request.seed % 2**32, **settings)
        return study.suggest(request, sampler, known)

    def _newest(self, request: Request) -> Request:
        """The request with the trials that are modelled; which these are follows from its number.

        The window moves by quarters: all that it holds is converted anew then.
        """
        window = self.options.window
        if window is None or len(request.trials) <= window:
            return request
        quarter = window // 4
        first = (len(request.trials) - window) // quarter * quarter
        return replace(request, trials=request.trials[first:])
