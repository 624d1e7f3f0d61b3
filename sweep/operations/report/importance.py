"""Importance of each setting, comparing trials at the rungs that they have reached.

A trial that was stopped early has a poor score because it was trained less, not because its
settings are poor. So scores are compared level by level, as schedulers compare them:

1. At each level all trials that have reached it are ranked by their score there; a trial that was
   completed before keeps its score. In a population an offspring starts with what its parent has
   learnt, so there the gains since the previous level are ranked.
2. Ranks become normal scores (van der Waerden, 1952): the median is 0, whatever the metric's unit.
3. A forest predicts them from the settings, and its variance is divided among settings and pairs
   (`sweep.operations.report.forest`). The part not predicted for unseen trials is `unexplained`.
4. The shares of all levels are averaged, weighted by the number of trials compared there.
5. `unexplained` is divided by the variances between seeds and between evaluations, which the sweep
   shows at all its levels together (`sweep.history.posterior.shrinkage`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from sweep.history.events import Status
from sweep.history.history import History
from sweep.history.trial import Trial
from sweep.operations.report import forest
from sweep.operations.report.forest import Array, Forest
from sweep.spec.space import Choice, Space, choice_key
from sweep.views.lookup import Sweep
from trainables.core import rng

#: Minimum number of trials of a level.
LEAST = 10
#: Number of levels if the scheduler has no rungs and trials end at different times.
_LEVELS = 6


@dataclass(frozen=True)
class Compared:
    """The trials compared at one level of training, with their ranks as normal scores."""

    level: float
    """Value of `time_attr` at which the trials are compared; infinite for the end of each trial."""
    trials: list[Trial]
    """Trials that were compared."""
    scores: Array
    """Quantiles of the normal distribution at the trials' ranks, (n,); greater is better."""


@dataclass(frozen=True)
class Level:
    """The importance of settings among the trials at one level of training."""

    time: float
    """Value of `time_attr` at the level; infinite for the end of each trial."""
    trials: int
    """Number of trials compared there."""
    explained: float
    """Share of the variance of the scores of unseen trials that the settings predict, 0 to 1."""
    shares: Mapping[tuple[str, ...], float]
    """Name of a setting, or of a pair, → its share of the variance; for a pair, the share beyond
    the effects of both settings."""


@dataclass(frozen=True)
class Importance:
    """The importance of settings in the whole sweep, averaged over its levels."""

    levels: list[Level]
    """Importance at each level, ascending."""
    shares: Mapping[tuple[str, ...], float]
    """Name of a setting, or of a pair, → its share of the variance, greatest first; the rest to 1
    are `unexplained`, effects of more than two settings, and those of pairs of less important
    settings."""
    unexplained: float
    """Share of the variance that no setting explains, 0 to 1."""
    gained: bool
    """True if gains between two levels were compared instead of scores, as in a population."""

    @property
    def settings(self) -> list[str]:
        """Names of the settings by their effects, greatest first.

        Half of a pair's share counts for each.
        """
        total: dict[str, float] = {}
        for names, share in self.shares.items():
            for name in names:
                total[name] = total.get(name, 0.0) + share / len(names)
        return sorted(total, key=lambda name: -total[name])


@dataclass(frozen=True)
class Causes:
    """Shares of the causes of those differences between trials that no setting explains, 0 to 1."""

    seeds: float | None
    """Share that is due to the trials' seeds; None if unknown, for example with one seed per
    trial."""
    evaluations: float | None
    """Share that is due to the few episodes of each evaluation; None if unknown."""
    rest: float
    """Share of all other causes: interactions of more than two settings, too few trials, the
    unknown ones."""

    @classmethod
    def of(cls, importance: Importance, history: History) -> "Causes":
        """Estimate the shares from the variances between seeds and evaluations in a history.

        Both are 0 if results are known not to depend on random numbers, and None if gains were
        compared or too few trials have scores. Otherwise, that of seeds is None if no trial has
        several, and that of evaluations if no curve is long enough to show it.
        """
        left, spreads = importance.unexplained, history.expectations.spreads
        scored = history.ranked()
        if not history.expectations.is_random:
            return cls(0.0, 0.0, left)
        if spreads is None or importance.gained or not scored:
            return cls(None, None, left)
        measured = any(one.noise is not None for trial in scored for one in trial.compared_replicas)
        several = any(len(trial.compared_replicas) > 1 for trial in scored)
        # The variance of scores is `whole`; the mean of n seeds has an n-th of one seed's variance.
        part = math.fsum(1 / len(trial.compared_replicas) for trial in scored) / len(scored)
        noise, luck = spreads.seeds**2 * part, spreads.evaluations**2 * part
        whole = (spreads.settings**2 + noise) or 1.0
        evaluations = min(left, luck / whole) if measured else None
        seeds = None
        if several:
            seeds = max(0.0, min(left, noise / whole) - (evaluations or 0.0))
        return cls(seeds, evaluations, max(0.0, left - (seeds or 0.0) - (evaluations or 0.0)))


@dataclass(frozen=True)
class Surface:
    """The joint effect of two settings, averaged over the others, at a grid of their values."""

    names: tuple[str, str]
    """Names of the two settings."""
    values: tuple[list[Any], list[Any]]
    """Values of each of the two settings, which span the grid."""
    better_than: Array
    """Share of the trials of the same rung that the settings at a grid point beat, (first setting,
    second setting)."""


@dataclass(frozen=True)
class Model:
    """Forests that predict the scores at each level from the settings."""

    space: Space
    """Search space of the sweep."""
    columns: list[str]
    """Names of the settings that differ between trials, in the order of the forests' columns."""
    compared: list[Compared]
    """Trials and scores of each level, in the order of `forests`."""
    forests: list[Forest]
    """Forest of each level, which predicts its normal scores."""
    encoded: "list[_Encoding]"
    """Encoding of settings as numbers at each level."""
    gained: bool
    """True if gains between two levels were compared instead of scores."""

    @classmethod
    def of(cls, sweep: Sweep) -> "Model | None":
        """Fit the model of a sweep; None with too few trials, or only equal settings or scores."""
        return cls.fit(sweep.spec.space, compare(sweep), sweep.spec.seed, _is_population(sweep))

    @classmethod
    def fit(
        cls, space: Space, compared: list[Compared], seed: int, gained: bool = False
    ) -> "Model | None":
        """Fit a forest at each level with `LEAST` trials or more whose scores are not all equal.

        Returns None if there is no such level, or no setting differs. `seed` seeds the forests'
        random stream. `gained` is true if the scores are gains.
        """
        used = [one for one in compared if len(one.trials) >= LEAST and np.ptp(one.scores) > 0]
        columns = [name for name in space.searched if _differs(name, used)]
        if not used or not columns:
            return None
        forests, encoded = [], []
        for place, one in enumerate(used):
            encoding = _Encoding.of(space, columns, one)
            rows = np.array([encoding.row(trial.searched) for trial in one.trials])
            forests.append(forest.grow(rows, one.scores, rng.generator(seed, "importance", place)))
            encoded.append(encoding)
        return cls(space, columns, used, forests, encoded, gained)

    @property
    def _weights(self) -> Array:
        """Weight of each level in averages: its share of the compared trials, with the sum 1."""
        counts = np.array([len(one.trials) for one in self.compared], dtype=float)
        shares: Array = counts / counts.sum()
        return shares

    def importance(self) -> Importance:
        """Return each setting's share of the variance, by level and in total."""
        levels = []
        for one, trees in zip(self.compared, self.forests, strict=True):
            shares = {
                tuple(self.columns[c] for c in columns): share * trees.skill
                for columns, share in trees.shares(len(self.columns)).items()
            }
            levels.append(Level(one.level, len(one.trials), trees.skill, shares))
        together: dict[tuple[str, ...], float] = {}
        for weight, level in zip(self._weights, levels, strict=True):
            for names, share in level.shares.items():
                together[names] = together.get(names, 0.0) + float(weight) * share
        ordered = dict(sorted(together.items(), key=lambda item: -item[1]))
        explained = float(self._weights @ [level.explained for level in levels])
        return Importance(levels, ordered, 1.0 - explained, self.gained)

    def surface(self, first: str, second: str, points: int = 24) -> Surface:
        """Return the joint effect of two settings (by name), averaged over the levels.

        The grid has up to `points` values of each setting, over its range. Raises ValueError if
        one of the two is not in `columns`.
        """
        values = (self._points(first, points), self._points(second, points))
        columns = [self.columns.index(name) for name in (first, second)]
        total = np.zeros([len(values[0]), len(values[1])])
        for weight, trees, encoding in zip(self._weights, self.forests, self.encoded, strict=True):
            places = [
                np.array([encoding.place(name, value) for value in axis])
                for name, axis in zip((first, second), values, strict=True)
            ]
            every = np.unique(np.concatenate(places))
            means = trees.surface(columns, every)
            at = [np.searchsorted(every, axis) for axis in places]
            total += weight * means[np.ix_(*at)]
        normal = NormalDist()
        return Surface((first, second), values, np.vectorize(normal.cdf)(total))

    def _points(self, name: str, count: int) -> list[Any]:
        """Return all values of a setting if there are at most `count`.

        Otherwise returns up to `count` different ones, at equal distances of their quantiles.
        """
        domain = self.space.domain_of(name)
        size = domain.size()
        if size is not None and size <= count:
            return [domain.at_index(index) for index in range(size)]
        found = (domain.value_at(place / (count - 1)) for place in range(count))
        return list({choice_key(value): value for value in found}.values())  # lists have no hash


@dataclass(frozen=True)
class _Encoding:
    """Settings as numbers from 0 to 1, with room in proportion to their probability.

    Choices are ordered by their scores: the best of all splits of a choice is one of that order
    (Breiman et al., Classification and Regression Trees, 1984, 4.2). An inactive setting is below
    all values, with room in proportion to the trials without it.
    """

    space: Space
    """Search space of the sweep."""
    columns: list[str]
    """Names of the settings, in the order of coordinates."""
    absent: dict[str, float]
    """Setting → share of the trials in which it is inactive."""
    orders: dict[str, dict[str, int]]
    """Setting with choices → choice (in JSON) → its rank by mean score, from 0."""

    @classmethod
    def of(cls, space: Space, columns: list[str], compared: Compared) -> "_Encoding":
        """Compute the encoding from the settings and scores of the trials at one level."""
        absent, orders = {}, {}
        for name in columns:
            without = sum(name not in trial.searched for trial in compared.trials)
            absent[name] = without / len(compared.trials)
            domain = space.domain_of(name)
            if isinstance(domain, Choice):
                orders[name] = _order_choices(name, domain, compared)
        return cls(space, columns, absent, orders)

    def row(self, searched: Mapping[str, Any]) -> list[float]:
        """Return the coordinates of a trial's settings, 0 to 1, in the order of `columns`.

        That of an inactive setting is half its share of `absent`.
        """
        return [
            self.place(name, searched[name]) if name in searched else self.absent[name] / 2
            for name in self.columns
        ]

    def place(self, name: str, value: Any) -> float:
        """Return the coordinate of a setting's value, 0 to 1.

        A choice that is unknown counts as the worst one, another value outside the present space as
        the median.
        """
        domain = self.space.domain_of(name)
        if isinstance(domain, Choice):
            order = self.orders[name]
            inside = (order.get(choice_key(value), 0) + 0.5) / len(order)
        else:
            try:
                inside = domain.quantile(value)
            except (TypeError, LookupError, ValueError, ArithmeticError):
                inside = 0.5  # not a value of the present space
        return self.absent[name] + (1.0 - self.absent[name]) * inside


def _order_choices(name: str, domain: Choice, compared: Compared) -> dict[str, int]:
    """Return choice (in JSON) → its rank by the mean score of its trials, from 0 for the worst.

    A choice without trials counts with the mean 0, and choices outside `domain` are included.
    """
    reached: dict[str, list[float]] = {key: [] for key in domain.values_by_key}
    for trial, score in zip(compared.trials, compared.scores, strict=True):
        if name in trial.searched:
            reached.setdefault(choice_key(trial.searched[name]), []).append(score)
    means = {key: math.fsum(found) / max(1, len(found)) for key, found in reached.items()}
    return {key: place for place, key in enumerate(sorted(means, key=lambda key: means[key]))}


def _differs(name: str, compared: Sequence[Compared]) -> bool:
    """Return whether the trials of all levels together differ in a setting.

    Inactive counts as the value None.
    """
    found = {choice_key(trial.searched.get(name)) for one in compared for trial in one.trials}
    return len(found) > 1


def _is_population(sweep: Sweep) -> bool:
    """Return whether a scheduler of the sweep has created offspring from other trials."""
    return any(_is_offspring(trial) for trial in sweep.history.trials)


def _is_offspring(trial: Trial) -> bool:
    """Return whether a scheduler created the trial from another one; users' clones do not count."""
    return trial.parent is not None and trial.clone_of is None


def compare(sweep: Sweep) -> list[Compared]:
    """Return the trials that are compared at each level, with their normal scores.

    Left out are failed trials, those without a score, and levels without trials; users' clones
    too, except in a population. There the gains since the previous level are compared, and all
    levels are joined to one, with level infinity.
    """
    history, gains = sweep.history, _is_population(sweep)
    levels = comparison_levels(history, sweep.aim.levels)
    scores_at: list[list[tuple[Trial, float]]] = [[] for _ in levels]
    for trial in history.trials:
        ahead = trial.parent is not None and not gains
        if trial.status is Status.FAILED or trial.score is None or ahead:
            continue  # a user's clone had learnt before it started
        scores = list(enumerate(trial.scores_at(levels)))
        before = _starting_score(trial, history) if gains else 0.0
        for place, score in scores:
            if score is None or not _has_score(trial, levels[place], gains):
                continue
            if before is not None:
                scores_at[place].append((trial, score - before))
            before = score if gains else 0.0
    sign = history.objective.sign
    compared = [
        normal_scores(level, its, sign) for level, its in zip(levels, scores_at, strict=True) if its
    ]
    return [_pool_levels(compared)] if gains and compared else compared


def _pool_levels(compared: Sequence[Compared]) -> Compared:
    """Return the trials of all levels of a population as one group, whose level is infinite.

    Each level alone has only as many trials as the population has members. A trial is in the group
    once for each level.
    """
    trials = [trial for one in compared for trial in one.trials]
    scores = np.concatenate([one.scores for one in compared])
    return Compared(math.inf, trials, scores)


def comparison_levels(history: History, rungs: Sequence[float]) -> list[float]:
    """Return the values of `time_attr` at which trials are compared, ascending.

    These are the rungs. Without any, they are the times that the trials of a population have
    reached; or else quantiles of the times at which trials ended early, and the latest time. If
    none ended early, the only one is infinity, for the end of each trial.
    """
    if rungs:
        return list(rungs)
    scored = [trial for trial in history.trials if trial.score is not None]
    if any(_is_offspring(trial) for trial in scored):
        return sorted({trial.time for trial in scored})
    ended = sorted(trial.time for trial in scored if trial.status is not Status.COMPLETED)
    if not ended:
        return [math.inf]
    steps = {ended[len(ended) * place // _LEVELS] for place in range(_LEVELS)}
    whole = [max(trial.time for trial in scored)]
    return sorted({step for step in steps if step > 0} | set(whole))


def normal_scores(level: float, scored: Sequence[tuple[Trial, float]], sign: float) -> Compared:
    """Return the trials with the normal quantiles of their ranks by score.

    Greater scores are better if `sign` is 1.0, smaller ones if it is -1.0. Equal scores share a
    rank; NaN is worst.
    """
    values = np.array([sign * score for _, score in scored])
    values[np.isnan(values)] = -np.inf
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks = (ends - (counts - 1) / 2)[place]
    normal = NormalDist()
    scores = [normal.inv_cdf((rank - 0.5) / len(values)) for rank in ranks.tolist()]
    return Compared(level, [trial for trial, _ in scored], np.array(scores))


def _has_score(trial: Trial, level: float, gains: bool) -> bool:
    """Return whether the trial has a score at `level`, by reaching it or being completed before.

    With `gains`, it must have started below the level and reached it.
    """
    if gains:
        birth = trial.replicas[0].birth
        return (0.0 if birth is None else birth.time) < level and trial.reached(level)
    return trial.status is Status.COMPLETED or math.isinf(level) or trial.reached(level)


def _starting_score(trial: Trial, history: History) -> float | None:
    """Return the score of an offspring's parent at the offspring's birth.

    For other trials it is the first value of the best seed's curve. Returns None without one.
    """
    birth = trial.replicas[0].birth
    if birth is None:
        return next((p.value for p in trial.leader.curve if p.value is not None), None)
    return history.trials[birth.trial].score_at(birth.time)
