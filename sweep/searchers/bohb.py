"""Kernel densities of the good and the bad settings at the highest rung with enough of both.

Falkner et al., BOHB: Robust and Efficient Hyperparameter Optimization at Scale, 2018, section 4.
Intended for a scheduler with rungs: `tpe` considers every trial of a higher rung better than all of
a lower one; here trials are compared at one rung only. A high rung has only promoted trials, which
say little about regions that none of them came from; so proposals are drawn near good settings, and
never from an end of a range only because it is unexplored. With several objectives, the good ones
are those of the first fronts at that rung.
"""

import math
from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from sweep import searchers
from sweep.history.events import Status
from sweep.history.trial import Trial, rank_key
from sweep.searchers import Request, SearcherOptions, Supports
from sweep.searchers._shared.changes import Changes
from sweep.searchers._shared.kernels import Density, Points
from sweep.searchers._shared.prior import PriorOptions
from sweep.searchers._shared.ranking import front_order
from sweep.spec.space import Choice, Domain, Settings, choice_key
from trainables.core import rng

_Key = tuple[bool, float, int]
"""Sort key of a trial at a level, best first: True without a score, cost (less is better), number
of the trial."""


class Options(PriorOptions):
    """Options of BOHB: the densities, and the draws from them."""

    min_points: int | None = Field(
        None,
        ge=2,
        description="Minimum number of trials for each of the two densities, that of good "
        "settings and that of bad ones. The highest rung with at least 2 more trials than this is "
        "modelled. null: number of searched parameters + 1.",
    )
    top_fraction: float = Field(
        0.15, gt=0, lt=1, description="Fraction of the modelled rung's trials that count as good."
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
        description="Factor by which the distribution of candidates is wider than the density of "
        "good settings.",
    )


class Searcher(searchers.Searcher):
    """BOHB: proposes settings likely among the good ones of a rung, unlikely among the bad ones."""

    options: Options
    Options: ClassVar[type[SearcherOptions]] = Options
    supports: ClassVar[Supports] = Supports(
        proposes="models good and bad settings of the highest rung with enough trials",
        conditions="modelled; an inactive parameter counts as any value",
        choices="modelled",
        unfinished="ignores them",
        objectives=True,
    )

    def __init__(self, options: SearcherOptions) -> None:
        super().__init__(options)
        self._rungs: _Rungs | None = None

    def suggest(self, request: Request) -> Settings:
        """Return the best of some draws near the good settings of the highest modelled rung.

        Without a rung with enough trials, and for the fraction `random_fraction` of proposals,
        settings are drawn at random. Raises BadSpace if the proposal is not a point of the space.
        """
        few, stream = self._least_points(request), rng.generator(request.seed, "bohb")
        rungs = self._update_rungs(request)
        level = rungs.highest_with(few + 2)
        if level is None or stream.random() < self.options.random_fraction:
            return request.space.draw(request.seed)
        domains = request.space.domains
        ranked = rungs.ranked_points(request, level)
        best = max(few, int(self.options.top_fraction * len(ranked)))
        worst = max(few, len(ranked) - best)  # with few trials some are both
        counts = tuple(len(d.values) if isinstance(d, Choice) else 0 for d in domains.values())
        good = Density.fit_to(ranked[:best], counts)
        bad = Density.fit_to(ranked[-worst:], counts)
        draws = good.draw(stream, self.options.n_ei_candidates, self.options.bandwidth_factor)
        improvement = good.densities(draws) / np.maximum(bad.densities(draws), 1e-32)
        place = dict(zip(domains, draws[int(np.argmax(improvement))].tolist(), strict=True))
        return request.space.resolve(lambda name, domain: _value(domain, place[name]))

    def _update_rungs(self, request: Request) -> "_Rungs":
        """Return the trials of a request by rungs, and keep them for the next request.

        Those of the last request are updated if they fit, else all trials are read.
        """
        if self._rungs is None or not self._rungs.fits(request):
            self._rungs = _Rungs(request)
        self._rungs.update(request)
        return self._rungs

    def _least_points(self, request: Request) -> int:
        """Return the minimum number of trials for the density of good or of bad settings.

        It is the option `min_points`; by default one more than the number of searched parameters.
        """
        return self.options.min_points or len(request.space.domains) + 1


class _Rungs:
    """Trials at each rung, best first, and their settings as points; a cache of the history."""

    def __init__(self, request: Request) -> None:
        self._parameters = request.space.parameters
        self._domains = request.space.domains
        self._levels = (math.inf, *reversed(request.levels))
        self._changes = Changes()
        self._points: Points = np.empty((0, len(self._domains)))
        """Settings of the trials as points, by number, (trials or more, parameters); NaN for an
        inactive parameter, and for a trial outside the space."""
        self._keys: dict[float, list[_Key]] = {level: [] for level in self._levels}
        """Level → sort keys of the trials there, ascending; infinity is the end of training."""
        self._of: list[dict[float, _Key]] = []
        """Level → sort key there, for each trial by number; empty for a trial at no rung."""

    def fits(self, request: Request) -> bool:
        """Return whether a request has the space and the rungs for which this was made."""
        space, levels = request.space, (math.inf, *reversed(request.levels))
        same = space.parameters is self._parameters and [*space.domains] == [*self._domains]
        return same and levels == self._levels

    def update(self, request: Request) -> None:
        """Read the trials of a request that have changed since the last one.

        Trials that are gone are removed. A trial outside the space is at no rung.
        """
        trials = request.trials
        changed = self._changes.update(request)
        while len(self._of) > len(trials):
            self._remove(self._of.pop())
        for number in changed:
            trial = trials[number]
            if number < len(self._of):
                self._remove(self._of[number])
            keys, inside = dict[float, _Key](), request.space.has(trial.searched)
            for level in self._levels if inside else ():
                if (score := _score(trial, level)) is not None:
                    keys[level] = rank_key(trial, score)
            self._of[number : number + 1] = [keys]
            for level, key in keys.items():
                insort(self._keys[level], key)
            # A trial outside a changed space is at no rung, so its point is never used.
            nowhere = [math.nan] * len(self._domains)
            self._set_point(number, _point(trial, self._domains) if inside else nowhere)

    def highest_with(self, count: int) -> float | None:
        """Return the highest rung at which at least `count` trials have a score; None if none has.

        Infinity is the end of training. Failed trials, offspring and trials outside the space do
        not count.
        """
        return next((level for level, keys in self._keys.items() if len(keys) >= count), None)

    def ranked_points(self, request: Request, level: float) -> Points:
        """Return the settings of a rung's trials as points (trials, parameters), best first.

        They have NaN for inactive parameters. With several objectives the order is that of fronts.
        """
        numbers = [*map(itemgetter(-1), self._keys[level])]
        if request.objective.objectives:
            numbers = front_order([request.trials[number] for number in numbers], level)
        ranked: Points = self._points[numbers]
        return ranked

    def _remove(self, keys: Mapping[float, _Key]) -> None:
        """Remove a trial's sort keys (level → key) from the sorted lists."""
        for level, key in keys.items():
            of_level = self._keys[level]
            del of_level[bisect_left(of_level, key)]

    def _set_point(self, number: int, point: Sequence[float]) -> None:
        """Store the settings of trial `number` as a point; the array doubles when it is full."""
        if number >= len(self._points):
            more = np.empty((max(64, 2 * number), len(point)))
            more[:number] = self._points[:number]
            self._points = more
        self._points[number] = point


def _score(trial: Trial, level: float) -> float | None:
    """Return the score of a trial at a rung (infinity is the end); None if it has not reached it.

    A completed trial has reached every rung. Returns None also for a score that is missing or NaN,
    for failed trials, and for offspring, whose scores depend on their ancestors' settings too.
    """
    there = trial.reached(level) or trial.status is Status.COMPLETED
    if not there or trial.status is Status.FAILED or trial.parent is not None:
        return None  # an offspring's score depends on its ancestors' settings too
    score = trial.score_at(level)
    return None if score is None or math.isnan(score) else score


def _point(trial: Trial, domains: Mapping[str, Domain]) -> list[float]:
    """Return the settings of a trial as a point, one coordinate for each domain.

    The coordinate of an inactive parameter is NaN.
    """
    known = trial.searched
    return [_place(d, known[name]) if name in known else math.nan for name, d in domains.items()]


def _place(domain: Domain, value: Any) -> float:
    """Return the coordinate of a value: the index of a choice, else its quantile, 0 to 1."""
    if isinstance(domain, Choice):
        return float(domain.index[choice_key(value)])
    return domain.quantile(value)


def _value(domain: Domain, place: float) -> object:
    """Return the value of a domain at a coordinate, the inverse of `_place`."""
    return domain.values[int(place)] if isinstance(domain, Choice) else domain.value_at(place)
