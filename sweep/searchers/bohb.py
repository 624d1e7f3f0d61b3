"""The parzen estimator on the scores of the highest rung that enough trials have reached.

Falkner et al., BOHB: Robust and Efficient Hyperparameter Optimization at Scale, 2018, section 4.
Together with a scheduler that has rungs: `tpe` takes every trial of a higher rung for better than
all of a lower one; here trials are compared at one rung only.
"""

import math
from collections.abc import Iterator
from typing import ClassVar

import optuna
from pydantic import Field

from sweep import searchers
from sweep.events import Status
from sweep.history import Trial
from sweep.searchers import Request, SearcherOptions, Supports, _study
from sweep.searchers._views import AtLevel
from sweep.space import Settings, Space
from trainables import rng


class Options(SearcherOptions):
    """How the model is built."""

    min_points: int | None = Field(
        None,
        ge=1,
        description="Trials with a score that a rung needs to be modelled; default: one more "
        "than there are searched parameters.",
    )
    random_fraction: float = Field(
        1 / 3, ge=0, le=1, description="Share of proposals that are drawn at random all the same."
    )
    n_ei_candidates: int = Field(
        64, ge=1, description="Candidates compared by expected improvement per proposal."
    )


class Searcher(searchers.Searcher):
    """Models good and bad settings of the highest rung apart."""

    Options: ClassVar[type[SearcherOptions]] = Options
    supports: ClassVar[Supports] = Supports(
        proposes="as `tpe`, on the highest rung that enough trials have reached",
        conditions="drawn at random",
        choices="modelled",
        unfinished="counts them as bad",
    )

    def __init__(self, options: SearcherOptions) -> None:
        if not isinstance(options, Options):
            raise TypeError(f"expected {Options}, got {type(options)}")
        self.options: Options = options
        self._cache = _study.Cache()

    def check(self, space: Space) -> None:
        """Every space can be modelled."""

    def suggest(self, request: Request) -> Settings:
        """Settings from the good ones of one rung."""
        level = self._level(request)
        draw = rng.generator(request.seed, "bohb").random()
        if level is None or draw < self.options.random_fraction:
            return request.space.draw(request.seed)
        known = self._cache.bring_up(request, AtLevel(level))
        with _study.quiet():
            sampler = optuna.samplers.TPESampler(
                seed=request.seed % 2**32,
                n_startup_trials=0,
                n_ei_candidates=self.options.n_ei_candidates,
                multivariate=True,
            )
        return _study.suggest(request, sampler, known)

    def _level(self, request: Request) -> float | None:
        """The highest rung with enough points; infinite: the end; None: there is none yet."""
        wanted = self.options.min_points or len(request.space.domains) + 1
        for level in (math.inf, *reversed(request.levels)):
            if sum(1 for _ in _scored(request, level)) >= wanted:
                return level
        return None


def _scored(request: Request, level: float) -> Iterator[Trial]:
    for trial in request.trials:
        there = trial.reached(level) or trial.status is Status.COMPLETED
        if there and trial.status is not Status.FAILED and trial.score_at(level) is not None:
            yield trial
