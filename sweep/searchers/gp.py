"""Bayesian optimisation with a Gaussian process.

Matern kernel (nu = 2.5) with a length scale per parameter and log expected improvement: Ament et
al., Unexpected Improvements to Expected Improvement for Bayesian Optimization, 2023. The process is
fitted with torch in a child process, so that the driver need not import torch.
"""

import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, ClassVar

import optuna
from optuna.trial import FrozenTrial, TrialState
from pydantic import Field

from sweep import searchers
from sweep.core.errors import BadSpace, SweepError
from sweep.searchers import Request, SearcherOptions, Supports
from sweep.searchers._shared import study
from sweep.searchers._shared.prior import PriorOptions
from sweep.searchers._shared.ranking import Ranking, front_order
from sweep.searchers._shared.study import AsComplete
from sweep.spec.space import Settings
from trainables.core.processes.child import ChildProcess, Patience
from trainables.errors import WorkerDied

#: Maximum number of child processes tried for one proposal.
_ASKED = 2
#: Options that Optuna's sampler does not have.
OURS = {*PriorOptions.model_fields, "window"}


class Options(PriorOptions):
    """Options of the Gaussian process."""

    n_startup_trials: int = Field(
        10,
        ge=1,
        description="Number of trials drawn at random before the Gaussian process is fitted.",
    )
    deterministic_objective: bool = Field(
        False, description="Assume that equal settings give equal scores, without noise."
    )
    window: int | None = Field(
        500,
        ge=50,
        description="Maximum number of finished trials to which the Gaussian process is fitted: "
        "half of them the best, a quarter the newest, and a quarter spread evenly over the "
        "others; running trials are added. null: all trials; the time for a fit then grows with "
        "the cube of their number.",
    )


class Searcher(searchers.Searcher):
    """Fits a Gaussian process to the scores and proposes where it expects the most improvement."""

    options: Options
    Options: ClassVar[type[SearcherOptions]] = Options
    supports: ClassVar[Supports] = Supports(
        proposes="fits a Gaussian process to the scores; for few, expensive trials",
        conditions="drawn at random",
        choices="modelled",
        unfinished="uses the scores that the process predicts for them",
        objectives=True,
        constraints=True,
    )

    def __init__(self, options: SearcherOptions) -> None:
        super().__init__(options)
        self._cache = study.Cache()
        self._ranking = Ranking()

    def suggest(self, request: Request) -> Settings:
        """Return settings that a newly fitted process proposes, in a child process with torch.

        They are random before `n_startup_trials` trials have scores. The child process is started
        if needed and kept. Raises BadSpace if the proposal is not a point of the space, and
        SweepError if the child process dies twice.
        """
        changed, sign = self._cache.update(request, AsComplete()), request.objective.signs[0]
        self._ranking.update(self._cache.frozen, changed, sign)
        options = self.options.model_dump(exclude=OURS)
        bare = replace(request, trials=(), learnt=(), touched=None)
        found = _helper().ask(bare, options, self._fitted_trials(request))
        if isinstance(found, str):
            raise BadSpace("space", "the proposal", "a point of the space", problem=found)
        return found

    def _fitted_trials(self, request: Request) -> Sequence[FrozenTrial]:
        """Return the trials to which the process is fitted: all running ones, and finished ones.

        Of more than `window` finished trials, only the best, the newest, and a sample of the rest
        are returned. Without a `window`, all are.
        """
        window, frozen, ranking = self.options.window, self._cache.frozen, self._ranking
        if window is None or len(ranking) <= window:
            return frozen
        best = ranking.best(window // 2)
        if request.objective.objectives:
            finished = [request.trials[number] for number in sorted(ranking.best(len(ranking)))]
            best = front_order(finished, math.inf)[: window // 2]
        return _select_window(frozen, best, window)


def _select_window(
    frozen: Sequence[FrozenTrial], best: Sequence[int], window: int
) -> list[FrozenTrial]:
    """Return at most `window` of the complete trials, and all that run, by number.

    `best` are indices of trials that are included, then the newest of the others, up to three
    quarters; the rest is chosen from those that are left, at even intervals.
    """
    chosen, running = set(best), list[int]()
    for place in reversed(range(len(frozen))):
        if frozen[place].state is TrialState.RUNNING:
            running.append(place)
        elif len(chosen) < 3 * window // 4 and frozen[place].state is TrialState.COMPLETE:
            chosen.add(place)
    left = [n for n, t in enumerate(frozen) if t.state is TrialState.COMPLETE and n not in chosen]
    count = min(window - len(chosen), len(left))
    chosen.update(left[len(left) * part // count] for part in range(count))
    return [frozen[place] for place in sorted([*chosen, *running])]


class _Fitting:
    """Object in the child process that fits and proposes."""

    def __init__(self) -> None:
        import torch

        # the matrices are small, and proposals do not depend on the number
        torch.set_num_threads(1)

    def suggest(
        self, request: Request, options: Mapping[str, Any], trials: Sequence[FrozenTrial]
    ) -> Settings | str:
        """Return the settings that Optuna's GPSampler proposes after `trials`.

        Returns a text instead if the proposal is not a point of the space. `options` are arguments
        of the sampler.
        """
        with study.without_warnings():
            sampler = optuna.samplers.GPSampler(
                seed=request.seed % 2**30, warn_independent_sampling=False, **options
            )
        try:
            return study.suggest(request, sampler, trials)
        except BadSpace as error:
            return str(error)

    def end(self) -> None:
        """Do nothing: there is nothing to close."""


class _Helper:
    """Child process with torch, started at the first proposal and ended with this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: ChildProcess | None = None

    def ask(self, *question: Any) -> Settings | str:
        """Send the arguments of `_Fitting.suggest` to the child process, and return its answer.

        The child process is started if needed; its answer is awaited without a time limit. Threads
        take turns. If it dies, a second one is tried. Raises SweepError if that dies, too.
        """
        with self._lock:
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
    """Return the one helper of this process, created at the first call."""
    return _Helper()
