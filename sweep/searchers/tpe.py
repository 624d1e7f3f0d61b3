"""The tree-structured Parzen estimator.

Bergstra et al., Algorithms for Hyper-Parameter Optimization, 2011, section 4.
"""

import warnings
from typing import ClassVar

import optuna
from pydantic import BaseModel, ConfigDict, Field

from sweep import searchers
from sweep.searchers import Request, _study
from sweep.space import Settings


class Options(BaseModel):
    """How the estimator is built."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

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


class Searcher(searchers.Searcher):
    """Models good and bad settings apart and proposes where their ratio is best."""

    Options: ClassVar[type[BaseModel]] = Options

    def __init__(self, options: BaseModel) -> None:
        self._options = options.model_dump()

    def suggest(self, request: Request) -> Settings:
        """Settings from the history's good ones."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = optuna.samplers.TPESampler(seed=request.seed % 2**32, **self._options)
        return _study.suggest(request, sampler)
