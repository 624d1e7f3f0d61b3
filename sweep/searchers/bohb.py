"""Kernel densities of the good and the bad settings at the highest rung with enough of both.

Falkner et al., BOHB: Robust and Efficient Hyperparameter Optimization at Scale, 2018, section 4.
Intended for a scheduler with rungs: `tpe` considers every trial of a higher rung better than all of
a lower one; here trials are compared at one rung only. A high rung has only promoted trials, which
say little about regions that none of them came from; so proposals are drawn near good settings, and
never from an end of a range only because it is unexplored. With several objectives, the good ones
are those of the first fronts at that rung.
"""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from sweep import searchers
from sweep.history import fronts
from sweep.history.events import Status
from sweep.history.trial import Trial, rank_key
from sweep.searchers import Request, SearcherOptions, Supports
from sweep.searchers._shared.kernels import Density, Points
from sweep.searchers._shared.prior import PriorOptions
from sweep.spec.space import Choice, Domain, Settings, choice_key
from trainables.core import rng


class Options(PriorOptions):
    """Settings of the densities and of the draws from them."""

    min_points: int | None = Field(
        None,
        ge=2,
        description="Minimum number of trials from which the densities of good and of bad settings "
        "are estimated; a rung with two more trials is modelled; default: number of searched "
        "parameters + 1.",
    )
    top_fraction: float = Field(
        0.15, gt=0, lt=1, description="Fraction of a rung's trials that count as good."
    )
    random_fraction: float = Field(
        1 / 3, ge=0, le=1, description="Fraction of proposals that are drawn at random."
    )
    n_ei_candidates: int = Field(
        64, ge=1, description="Number of candidates per proposal, compared by expected improvement."
    )
    bandwidth_factor: float = Field(
        3.0,
        gt=0,
        description="Factor by which the density for drawing candidates is wider than that of the "
        "good settings.",
    )


class Searcher(searchers.Searcher):
    """Proposes settings likely among the good ones of one rung and unlikely among the bad ones."""

    options: Options
    Options: ClassVar[type[SearcherOptions]] = Options
    supports: ClassVar[Supports] = Supports(
        proposes="models good and bad settings of the highest rung with enough trials",
        conditions="modelled; one that is absent counts as anywhere",
        choices="modelled",
        unfinished="does not look at them",
        objectives=True,
    )

    def suggest(self, request: Request) -> Settings:
        """Return the best of some draws near the good settings of one rung."""
        ranked, few = self._ranked(request), self._least_points(request)
        stream = rng.generator(request.seed, "bohb")
        if not ranked or stream.random() < self.options.random_fraction:
            return request.space.draw(request.seed)
        domains = request.space.domains
        best = max(few, int(self.options.top_fraction * len(ranked)))
        worst = max(few, len(ranked) - best)  # with few trials some are both
        counts = tuple(len(d.values) if isinstance(d, Choice) else 0 for d in domains.values())
        good = Density.fit_to(_points(ranked[:best], domains), counts)
        bad = Density.fit_to(_points(ranked[-worst:], domains), counts)
        draws = good.draw(stream, self.options.n_ei_candidates, self.options.bandwidth_factor)
        improvement = good.at(draws) / np.maximum(bad.at(draws), 1e-32)
        place = dict(zip(domains, draws[int(np.argmax(improvement))].tolist(), strict=True))
        return request.space.resolve(lambda name, domain: _value(domain, place[name]))

    def _least_points(self, request: Request) -> int:
        """Return the minimum number of trials for each density."""
        return self.options.min_points or len(request.space.domains) + 1

    def _ranked(self, request: Request) -> list[Trial]:
        """Return the trials of the highest rung with enough of them, best first.

        Empty if none has.
        """
        for level in (math.inf, *reversed(request.levels)):
            known = [
                (trial, score)
                for trial in request.trials
                if (score := _score(trial, level)) is not None
            ]
            if len(known) >= self._least_points(request) + 2:
                ranked = [trial for trial, _ in sorted(known, key=lambda pair: rank_key(*pair))]
                return _by_fronts(ranked, level) if request.objective.objectives else ranked
        return []


def _by_fronts(ranked: Sequence[Trial], level: float) -> list[Trial]:
    """Return trials in the order of fronts at a rung; each front is spread from its first trial."""
    by_number = {trial.number: trial for trial in ranked}
    placed = fronts.arrange([fronts.compare(trial, level) for trial in ranked])
    return [by_number[one.number] for one in placed]


def _score(trial: Trial, level: float) -> float | None:
    """Return the score of a trial's settings at a rung (infinity: the end); None if unknown."""
    there = trial.reached(level) or trial.status is Status.COMPLETED
    if not there or trial.status is Status.FAILED or trial.parent is not None:
        return None  # an offspring's score depends on its ancestors' settings too
    score = trial.score_at(level)
    return None if score is None or math.isnan(score) else score


def _points(trials: Sequence[Trial], domains: dict[str, Domain]) -> Points:
    """Return trials as points (trials, parameters); NaN for an inactive parameter."""
    rows = [
        [_place(d, t.searched[n]) if n in t.searched else math.nan for n, d in domains.items()]
        for t in trials
    ]
    return np.array(rows, dtype=np.float64)


def _place(domain: Domain, value: Any) -> float:
    """Return the coordinate of a value: the index of a choice, else its quantile."""
    if isinstance(domain, Choice):
        return float(domain.index[choice_key(value)])
    return domain.quantile(value)


def _value(domain: Domain, place: float) -> object:
    """Return the value at a coordinate."""
    return domain.values[int(place)] if isinstance(domain, Choice) else domain.value_at(place)
