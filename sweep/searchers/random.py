"""Independent draws from the space."""

from typing import ClassVar

import optuna
from pydantic import BaseModel, ConfigDict

from sweep import searchers
from sweep.searchers import Request, _study
from sweep.space import Settings


class Options(BaseModel):
    """No settings."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Searcher(searchers.Searcher):
    """Draws each trial's settings from its own number."""

    Options: ClassVar[type[BaseModel]] = Options

    def __init__(self, options: BaseModel) -> None:
        self._options = options

    def suggest(self, request: Request) -> Settings:
        """Settings that depend on the seed alone."""
        sampler = optuna.samplers.RandomSampler(seed=request.seed % 2**32)
        return _study.suggest(request, sampler, view="drawn")
