"""The tree-structured Parzen estimator.

Bergstra et al., Algorithms for Hyper-Parameter Optimization, 2011, section 4.
"""

from collections.abc import Sequence
from typing import ClassVar

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers._tpe.sampler import default_gamma
from optuna.trial import FrozenTrial, TrialState
from pydantic import Field

from sweep import searchers
from sweep.core.errors import BadConfig
from sweep.searchers import Request, SearcherOptions, Supports
from sweep.searchers._shared import study
from sweep.searchers._shared.prior import PriorOptions
from sweep.searchers._shared.ranking import Ranking
from sweep.searchers._shared.study import AsComplete, WithRungs, shared_distributions
from sweep.spec.space import Settings, Space
from trainables.core import rng

#: Options that Optuna's sampler does not have.
OURS = {*PriorOptions.model_fields, "random_fraction", "window"}
#: Default fraction of random proposals with a scheduler that has rungs: the model proposes many
#: settings that are almost the same, and the luckiest of them take the places at the next rung.
RANDOM_WITH_RUNGS = 0.85


class Options(PriorOptions):
    """Options of the tree-structured Parzen estimator."""

    n_startup_trials: int = Field(
        10, ge=0, description="Number of trials drawn at random before the estimator is used."
    )
    n_ei_candidates: int = Field(
        24, ge=1, description="Number of candidates per proposal, compared by expected improvement."
    )
    multivariate: bool = Field(
        True, description="true: model the parameters jointly; false: model each on its own."
    )
    group: bool = Field(
        False,
        description="With multivariate: model each branch of conditional parameters separately.",
    )
    constant_liar: bool = Field(
        True,
        description="Count the settings of running trials as bad, so similar settings are not "
        "proposed at the same time.",
    )
    random_fraction: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Fraction of proposals that are drawn at random. null: 0.85 with a scheduler "
        "that has rungs, where similar proposals would otherwise take all places at the next "
        "rung; 0 with other schedulers.",
    )
    window: int | None = Field(
        200,
        ge=50,
        description="Maximum number of trials that are modelled: the best tenth (at most 25) and "
        "the newest others; with several objectives, only the newest. null: all trials, so each "
        "proposal takes longer than the one before.",
    )


class Searcher(searchers.Searcher):
    """Tree-structured Parzen estimator: models good and bad settings, proposes by their ratio."""

    options: Options
    Options: ClassVar[type[SearcherOptions]] = Options
    supports: ClassVar[Supports] = Supports(
        proposes="models good and bad settings separately",
        conditions="drawn at random, or modelled with `group: true`",
        choices="modelled",
        unfinished="counts them as bad",
        objectives=True,
        constraints=True,
    )

    def __init__(self, options: SearcherOptions) -> None:
        super().__init__(options)
        self._cache = study.Cache()
        self._ranking = Ranking()

    def check(self, space: Space) -> None:
        """Raise BadConfig for ``group`` without ``multivariate``; every space can be modelled."""
        if self.options.group and not self.options.multivariate:
            problem = "true has no effect, because multivariate is false"
            hint = "set it to false, or multivariate to true"
            raise BadConfig("searcher.group", True, hint=hint, problem=problem)

    def suggest(self, request: Request) -> Settings:
        """Return settings that resemble good ones of the history more than its other ones.

        They are random before `n_startup_trials` trials have paused or ended, and some are later
        (`Options.random_fraction`): a model of what reached the upper rungs would otherwise propose
        the same again, and never learn whether anything else is better. At most `window` trials are
        modelled. Raises BadSpace if the proposal is not a point of the space.
        """
        if rng.generator(request.seed, "tpe").random() < self._random_fraction(request):
            return request.space.draw(request.seed)
        several = len(request.objective.signs) > 1  # Optuna then compares only complete trials
        view = AsComplete() if several else WithRungs(request.levels)
        changed = self._cache.update(request, view)
        frozen = self._cache.frozen
        self._ranking.update(frozen, changed, request.objective.signs[0])
        ranking = self._ranking
        good = [] if several else ranking.best(default_gamma(len(ranking)))
        known = frozen if self._limit is None else _select_window(frozen, good, self._limit)
        settings = self.options.model_dump(exclude=OURS)
        with study.without_warnings():
            sampler = _Sampler(seed=request.seed % 2**32, **settings)
        if not several:
            sampler._gamma = lambda _: len(good)
        return study.suggest(request, sampler, known)

    def _random_fraction(self, request: Request) -> float:
        """Return the probability that a proposal is drawn at random.

        It is the option's value; by default `RANDOM_WITH_RUNGS` if the scheduler has rungs, else 0.
        """
        given = self.options.random_fraction
        return (RANDOM_WITH_RUNGS if request.levels else 0.0) if given is None else given

    @property
    def _limit(self) -> int | None:
        """Maximum number of modelled trials, enough to end the random start; None for all."""
        window = self.options.window
        return None if window is None else max(window, self.options.n_startup_trials)


def _select_window(
    frozen: Sequence[FrozenTrial], good: Sequence[int], limit: int
) -> Sequence[FrozenTrial]:
    """Return the trials at the indices `good` and the newest others, at most `limit`.

    They are in the order of `frozen`, without failed ones. If `frozen` is no longer than `limit`,
    it is returned itself, with failed ones.
    """
    if len(frozen) <= limit:
        return frozen
    places = set(good)
    for place in reversed(range(len(frozen))):
        if len(places) >= limit:
            break
        if frozen[place].state is not TrialState.FAIL:
            places.add(place)
    return [frozen[place] for place in sorted(places)]


class _Sampler(optuna.samplers.TPESampler):
    """Optuna's TPESampler without comparisons of distributions.

    In all trials of a sweep, a parameter has the same distribution.
    """

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Return the distributions of the parameters that all complete and pruned trials have.

        Parameters with a single value are left out. With `group`, or without `multivariate`, it is
        the result of Optuna's own sampler.
        """
        if self._group or not self._is_multivariate(study):
            return super().infer_relative_search_space(study, trial)
        states = (TrialState.COMPLETE, TrialState.PRUNED)
        finished = study.get_trials(deepcopy=False, states=states)
        return shared_distributions(finished)
