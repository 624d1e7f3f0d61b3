"""Bayesian optimisation with a Gaussian process.

Matern kernel (nu = 2.5) with a length scale per parameter and log expected improvement: Ament et
al., Unexpected Improvements to Expected Improvement for Bayesian Optimization, 2023. The process is
fitted with torch, in a process of its own: the driver starts, and stays, without it.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, ClassVar

import optuna
from optuna.trial import FrozenTrial
from pydantic import Field

from sweep import searchers
from sweep.errors import BadSpace, SweepError
from sweep.searchers import Request, SearcherOptions, Supports
from sweep.searchers._shared import study
from sweep.searchers._shared.prior import PriorOptions
from sweep.searchers._shared.study import AsComplete
from sweep.space import Settings
from trainables.core.processes.child import ChildProcess, Patience
from trainables.errors import WorkerDied

#: Processes that are asked for one proposal.
_ASKED = 2


class Options(PriorOptions):
    """Settings of the Gaussian process."""

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
        self._cache.bring_up(request, AsComplete())
        options = self.options.model_dump(exclude={"duplicates", "prior"})
        found = _helper().ask(replace(request, trials=(), learnt=()), options, self._cache.frozen)
        if isinstance(found, str):
            raise BadSpace("space", "the proposal", "a point of the space", problem=found)
        return found


class _Fitting:
    """Fits and proposes: the helper's end."""

    def __init__(self) -> None:
        import torch

        torch.set_num_threads(1)  # the matrices are small, and no proposal depends on the number

    def suggest(
        self, request: Request, options: Mapping[str, Any], known: Sequence[FrozenTrial]
    ) -> Settings | str:
        """The settings; or why what was proposed is no point of the space."""
        with study.quiet():
            sampler = optuna.samplers.GPSampler(
                seed=request.seed % 2**30, warn_independent_sampling=False, **options
            )
        try:
            return study.suggest(request, sampler, known)
        except BadSpace as error:
            return str(error)

    def end(self) -> None:
        """Keeps nothing that has to be closed."""


class _Helper:
    """The process that has torch, started with the first proposal and ended with this one."""

    def __init__(self) -> None:
        self._asking = threading.Lock()
        self._child: ChildProcess | None = None

    def ask(self, *question: Any) -> Settings | str:
        """Return the answer of `_Fitting.suggest`; if its process dies, another one is asked.

        Raises:
            SweepError: that one died, too.
        """
        with self._asking:
            for _ in range(_ASKED):
                if self._child is None:
                    self._child = ChildProcess("searcher gp", _Fitting, (), Patience())
                try:
                    self._child.send("suggest", *question)
                    answer: Settings | str = self._child.receive(Patience())
                except WorkerDied as error:
                    self._child.kill()
                    self._child, died = None, error
                else:
                    return answer
        raise SweepError(f"{died}; free some memory and resume the sweep") from died


@cache
def _helper() -> _Helper:
    return _Helper()
