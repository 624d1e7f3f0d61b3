"""The pick: the expected score of each trial's settings under a new seed.

A score is partly luck: of the seed, of the evaluation's episodes, and of having been chosen for it.
So the best of many scores overstates its settings. The model that separates luck from quality is in
`posterior`; this module extracts its input from trials and derives results from its output. All
numbers depend only on the current state of the trials, not on the order of events.
"""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from sweep.history.events import FINISHED
from sweep.history.objective import Objective
from sweep.history.order import Summary
from sweep.history.trial import Milestone, Trial

if TYPE_CHECKING:  # numpy is imported only where a pick is computed: many commands need none
    from sweep.history.posterior.outlook import Outlook
    from sweep.history.posterior.scores import Scores, Whole
    from sweep.history.posterior.shrinkage import Estimates

#: Minimum number of trials with a score from which a variance between settings is estimated.
FEWEST = 3
#: Minimum number of trials that pause at a level for it to count, and minimum ratio of two levels.
CROWD, RATIO = 3, 1.2
#: For an outlook: the minimum number of trials that trained far, and the minimum ratio of the range
#: to the pick's error.
WHOLE, APART = 6, 2.0
#: Maximum number of candidates for the best trial, and points of the grid on which their chances
#: are integrated.
CANDIDATES, GRID = 200, 401
#: Maximum number of further seeds considered, and the z-score from which a difference is
#: significant.
MOST_SEEDS, SURE = 20, 1.645
_TINY, _NARROW = 1e-300, 1e-9


@dataclass(frozen=True)
class Expected:
    """Expected score of a trial's settings under a new seed at the end of training."""

    value: float
    """Expected score, in units of the metric."""
    error: float | None
    """Standard error of `value`; None if too few trials have scores, if all scores are equal, or if
    results do not depend on random numbers."""
    noise: float | None
    """Variance of the score of one further seed around the expectation; None where `error` is."""
    seeds: int
    """Number of the trial's seeds that have a score."""

    def seeds_to_tell_from(self, other: "Expected") -> int | None:
        """Return how many further seeds each of both trials needs to show which is better.

        With these, the difference is significant at even odds. Returns 0 if it already is. Returns
        None if `MOST_SEEDS` each would not suffice, or if an `error` or `noise` is None.
        """
        if None in (self.error, other.error, self.noise, other.noise):
            return None
        apart = abs(self.value - other.value)
        pairs = [(one.error or 0.0, one.noise or 0.0) for one in (self, other)]
        whole = math.hypot(pairs[0][0], pairs[1][0])
        for count in range(MOST_SEEDS + 1):
            left = math.hypot(*(_remaining_error(error, noise, count) for error, noise in pairs))
            # whole² - left², in factors since squares overflow
            learnt = math.sqrt(max(0.0, whole - left)) * math.sqrt(whole + left)
            # The future difference is normal around the present one: require even odds of
            # significance.
            if _tail_probability(apart, learnt, SURE * left) >= 0.5:
                return count
        return None


def _remaining_error(error: float, noise: float, further_seeds: int) -> float:
    """Return the standard error that is left of `error` after some further seeds.

    Each further seed has a score of variance `noise`.
    """
    if not (further_seeds and error):
        return error
    one_seed = math.sqrt(noise)  # deviations, since a square of `error` may be 0 or infinite
    return error * (one_seed / math.hypot(one_seed, math.sqrt(further_seeds) * error))


def _tail_probability(mean: float, deviation: float, reach: float) -> float:
    """Return the probability that |x| exceeds `reach` for x ~ Normal(`mean`, `deviation`).

    `mean` must be at least 0; `deviation` may be 0.
    """
    if deviation == 0:
        return float(mean > reach)
    sides = ((reach - mean) / deviation, (reach + mean) / deviation)
    return sum(math.erfc(side / math.sqrt(2)) / 2 for side in sides)


@dataclass(frozen=True)
class Spreads:
    """Standard deviations of scores at the end of training, by cause, in units of the metric."""

    settings: float
    """Deviation between settings, each averaged over seeds."""
    seeds: float
    """Deviation between seeds of the same settings."""
    evaluations: float
    """Part of `seeds` that is due to the episodes drawn in one evaluation."""


class _LevelScores(NamedTuple):
    """Scores of a trial at one level, with the sign changed if the metric is minimised."""

    level: float
    """Value of `time_attr` at which the scores are compared."""
    score: float
    """Score of the trial: the aggregate over `seeds`."""
    seeds: tuple[float, ...]
    """Score of each seed; of tests past a target, their late means (`_scores_past_targets`)."""
    curves: tuple[float, ...]
    """Weighted mean of each seed's curve (`Replica.curve_mean`); empty if one is unknown."""
    length: float
    """Value of `time_attr` at the end of the shortest curve of the seeds."""
    early: tuple[bool | None, ...] = ()
    """`Replica.is_early` of each seed; empty if unknown."""

    @property
    def all_values(self) -> tuple[float, ...]:
        """The score, the seeds' scores and the means of their curves, in one tuple."""
        return (self.score, *self.seeds, *self.curves)


class _TrialScores(NamedTuple):
    """Properties of a trial that determine its expectation.

    The sign of scores is changed if the metric is minimised, so that greater is better.
    """

    path: tuple[_LevelScores, ...]
    """Scores at each level at which the trial paused or ended, by ascending level."""
    has_reached_goal: bool
    """True if the trial ever reached a goal or its end; otherwise `path` has only its present
    level."""
    evaluations: float
    """Variance of the trial's score due to the episodes of one evaluation, the mean over its seeds;
    0 if unknown."""
    steps: float
    """Environment steps that the trial has trained."""
    is_random: bool | None
    """True if the trial's results may depend on random numbers, False if they do not; None if
    unknown."""
    top: float | None
    """Value of `time_attr` at which the trial is COMPLETED; None without one."""
    has_short_test: bool
    """True if a seed that was added later completed before the top rung, for instance by itself."""

    @property
    def seeds(self) -> tuple[float, ...]:
        """Scores of the trial's seeds at the last level."""
        return self.path[-1].seeds

    @property
    def exponent(self) -> int:
        """Smallest integer e for which all absolute values of its scores are below 2 ** e."""
        return math.frexp(max(abs(number) for there in self.path for number in there.all_values))[1]


def _extract_scores(trial: Trial) -> _TrialScores | None:
    """Return the properties of a trial for the model.

    They contain the scores of its pauses and its end so far, or its present score if there is no
    such. Returns None if it has no score or one is not finite.
    """
    if trial.score is None:
        return None
    objective = trial.objective
    scored = [rest for rest in trial.milestones if rest.score is not None] or [
        trial.milestone(trial.newest_event)
    ]
    path = {rest.level: _level_scores(rest, objective) for rest in scored}
    newest = scored[-1]
    if math.inf in path and newest.level < math.inf:
        # The trial's further seeds were stopped, or the end of training was moved.
        del path[math.inf]
        if newest.status in FINISHED:
            path[math.inf] = _level_scores(newest, objective)._replace(level=math.inf)
    points = tuple(path[level] for level in sorted(path))
    if any(math.isnan(level) for level in path):
        return None
    if not all(math.isfinite(number) for there in points for number in there.all_values):
        return None
    noises = [replica.noise for replica in trial.compared_replicas]
    known = [noise for noise in noises if noise is not None and math.isfinite(noise)]
    noise = math.fsum(known) / len(known) if known else 0.0
    drawn = {replica.is_random for replica in trial.compared_replicas}
    is_random = None if drawn <= {None} else True in drawn
    has_short_test = any(
        replica.joined_at is not None and replica.completed_early is True
        for replica in trial.replicas
    )
    return _TrialScores(
        points,
        bool(trial.milestones),
        noise,
        trial.steps,
        is_random,
        trial.goal.top,
        has_short_test,
    )


def _level_scores(milestone: Milestone, objective: Objective) -> _LevelScores:
    """Return the scores of a pause or end of a trial, with the sign changed if it is minimised.

    Seeds without a score are left out, and the means of curves if not every such seed has one.
    """
    sign, score = objective.sign, milestone.score or 0.0
    values = _scores_past_targets(milestone)
    if any(milestone.is_early):
        score = objective.aggregate.combine(values, objective.mode)
    flags = zip(milestone.is_early, milestone.scores, strict=True)
    curves = tuple(sign * mean for mean in milestone.curve_means if mean is not None)
    is_complete = len(curves) == len(values)
    return _LevelScores(
        milestone.level,
        sign * score,
        tuple(sign * value for value in values),
        curves if is_complete else (),
        milestone.curve_length,
        tuple(flag for flag, score in flags if score is not None),
    )


def _scores_past_targets(milestone: Milestone) -> list[float]:
    """Return the score of each seed that has one; of a test past a target, its late mean.

    Beside seeds that ended at a target, the others show whether the settings keep what they have
    learnt. The last result alone misses falls just before it; the mean over the last quarter of
    training (`Replica.late_mean`) does not.
    """
    if not any(milestone.is_early):
        return [score for score in milestone.scores if score is not None]
    seeds = zip(milestone.scores, milestone.late_means, milestone.is_early, strict=True)
    return [
        score if mean is None or is_early is not False else mean
        for score, mean, is_early in seeds
        if score is not None
    ]


class Expectations(Summary):
    """Expected scores of all trials' settings, updated when trials change.

    The model is fitted anew, for all trials, when a result is read after a change.
    """

    def __init__(self, objective: Objective) -> None:
        super().__init__()
        self._objective = objective
        self._of: dict[int, _TrialScores] = {}
        self._crowds: Counter[float] = Counter()
        """Level (value of `time_attr`) → number of trials that paused or ended there."""
        self._tops: Counter[float | None] = Counter()
        self._random: Counter[bool | None] = Counter()
        """`_TrialScores.is_random` → number of trials with it."""
        self._exponents: Counter[int] = Counter()
        """`_TrialScores.exponent` → number of trials with it."""
        self._short_tests = 0
        """Number of trials with `_TrialScores.has_short_test`."""
        self._table: _Table | None = None
        self._stale: dict[int, None] = {}
        """Numbers of trials whose rows in `_table` are out of date; a dict used as an ordered
        set."""
        self._fit: _Fit | None = None

    def update(self, trials: Sequence[Trial], touched: Sequence[int]) -> None:
        """Read the scores of the trials that changed since the last call.

        `touched` lists the numbers of all trials changed so far, in the order of the changes.
        """
        for number in self.changed(trials, touched):
            old, new = self._of.pop(number, None), _extract_scores(trials[number])
            if new is not None:
                self._of[number] = new
            if old == new:
                continue
            for seen, sign in ((old, -1), (new, 1)):
                for there in seen.path if seen and seen.has_reached_goal else ():
                    self._crowds[there.level] += sign
                if seen:
                    self._tops[seen.top] += sign
                    self._random[seen.is_random] += sign
                    self._exponents[seen.exponent] += sign
                    self._short_tests += sign * seen.has_short_test
            self._stale[number] = None
            self._fit = None

    def expected(self, trial: Trial) -> Expected | None:
        """Return the expected score of a trial's settings; None if it has no finite score yet.

        With fewer than `FEWEST` trials that have one, it is the mean of the scores of the trial's
        seeds, without an error. The model is fitted first if a trial has changed.
        """
        seen = self._of.get(trial.number)
        if seen is None:
            return None
        fit, sign, seeds = self._current_fit, self._objective.sign, len(seen.seeds)
        found = fit.estimates
        if found is None:
            middle = sign * math.fsum(score / seeds for score in seen.seeds)
            return Expected(middle, None, None, seeds)
        row = fit.rows[trial.number]
        # Scores that are all equal do not show how much seeds differ.
        if not self.is_random or found.deviation == 0:
            return Expected(sign * float(found.value[row]), None, None, seeds)
        value, error, noise = (float(one[row]) for one in (found.value, found.error, found.noise))
        return Expected(sign * value, error, noise, seeds)

    @property
    def is_random(self) -> bool:
        """True if results may depend on random numbers.

        It is False if a trial is known to depend on none, and no trial is known to depend on some.
        """
        return self._random[True] > 0 or not self._random[False]

    @property
    def order(self) -> Sequence[int]:
        """Numbers of the trials that have an expectation, best first.

        With fewer than `FEWEST` trials their own scores decide. Of equals, the trial with fewer
        environment steps is first, then the one with the lower number.
        """
        return self._current_fit.order

    def position_of(self, number: int) -> float:
        """Return the index in `order` of the trial with this number; infinity without one."""
        return self._current_fit.places.get(number, math.inf)

    @property
    def spreads(self) -> Spreads | None:
        """Standard deviations of scores by cause.

        It is None with fewer than `FEWEST` trials or without randomness.
        """
        found = self._current_fit.estimates
        if found is None or not self.is_random:
            return None
        parts = (1 - found.share, found.share, min(found.evaluations, found.share))
        # A deviation beyond the range of floats is infinite, of which no part is NaN.
        return Spreads(*(math.sqrt(part) * found.deviation if part else 0.0 for part in parts))

    def chances(self) -> dict[int, float]:
        """Return trial → probability that its settings are the best, for the first in `order`.

        These are the first `CANDIDATES` trials, and the probabilities add up to 1. Settings that
        reach the ceiling of scores are equally good, so they share the probability that one of them
        is the best. Returns an empty dict with fewer than `FEWEST` trials or without randomness.
        """
        import numpy as np
        from scipy import special

        fit = self._current_fit
        if fit.estimates is None or not self.is_random:
            return {}
        numbers = fit.order[:CANDIDATES]
        rows = [fit.rows[number] for number in numbers]
        # Estimates beyond the range of floats count as the greatest float.
        estimates = (fit.estimates.unlimited[rows], fit.estimates.error[rows])
        value, error = (np.nan_to_num(one) / 16 for one in estimates)
        scale = max(float(np.abs(value).max()), float(error.max()), _TINY)
        value, error = value / scale, np.maximum(error / scale, _NARROW)
        ceiling = fit.estimates.ceiling / 16 / scale
        low, high = float((value - 5 * error).min()), float((value + 5 * error).max())
        near = np.linspace(-5, 5, GRID)
        # they would fall between the points of the common grid
        narrow = error < (high - low) / GRID * 10
        parts = [v + e * near for v, e in zip(value[narrow], error[narrow], strict=True)]
        grid = np.unique(np.concatenate([np.linspace(low, high, GRID), *parts]))
        below = special.ndtr((np.append(grid[grid < ceiling], ceiling)[:, None] - value) / error)
        # Above the ceiling, ranks are drawn uniformly, so that settings there are equally good.
        above = np.linspace(0, 1, GRID)[1:, None]
        below = np.concatenate([below, below[-1] + above * (1 - below[-1])])
        logs = np.log(np.maximum(below, _TINY))
        others = np.exp(logs.sum(axis=1, keepdims=True) - logs)
        found = (np.diff(below, axis=0) * (others[1:] + others[:-1])).sum(axis=0)
        return dict(zip(numbers, (found / found.sum()).tolist(), strict=True))

    def improvements(self, numbers: Sequence[int], best: int) -> dict[int, float]:
        """Return trial → expected improvement of its settings on those of trial `best`.

        It is `Estimates.improvements`, in standard deviations between trainings. All `numbers` and
        `best` are trials with an expectation. Returns an empty dict with fewer than `FEWEST` trials
        or without randomness.
        """
        import numpy as np

        fit = self._current_fit
        if fit.estimates is None or not self.is_random:
            return {}
        rows = np.array([fit.rows[number] for number in numbers], dtype=np.int64)
        gains = fit.estimates.improvements(rows, fit.rows[best])
        return dict(zip(numbers, gains.tolist(), strict=True))

    def outlook(self, training: float = 1.0) -> "Outlook | None":
        """Return the improvement of the best settings to expect from more training.

        `training` is the amount of further training as a multiple of the past one. Returns None if
        fewer than eight trials have scores, if fewer than `WHOLE` trials have trained for more than
        half of the way, or if the range of scores is at most `APART` times the pick's standard
        error.
        """
        import numpy as np

        from sweep.history.posterior.outlook import outlook

        fit, table = self._current_fit, self._table
        if fit.estimates is None or table is None:
            return None
        far = np.array([self._unseen_share(level) < 0.5 for level in table.columns])
        if int(far[table.last_levels[table.last_levels >= 0]].sum()) < WHOLE:
            return None
        found, pick = outlook(fit.estimates.value, training), fit.rows[fit.order[0]]
        error = float(fit.estimates.error[pick])
        return found if found is not None and found.range > APART * error else None

    # ---- the table of scores, updated row by row ---------------------------------------------

    @property
    def _current_fit(self) -> "_Fit":
        """The estimates for the trials as they are now, computed first if out of date."""
        if self._fit is None:
            self._fit = self._compute_fit()
        return self._fit

    def _compute_fit(self) -> "_Fit":
        """Bring `_table` up to date and return the estimates for all trials with finite scores.

        With fewer than `FEWEST` such trials there are no estimates, and their scores give the
        order. Of equals, the trial with fewer environment steps is first. Empties `_stale`; the
        caller stores the result.
        """
        import numpy as np

        from sweep.history.posterior.shrinkage import estimate

        size = max(self._of, default=-1) + 1
        columns = self._columns()
        exponent = max((e for e, count in self._exponents.items() if count > 0), default=0)
        table = self._table
        if table is None or not table.fits(columns, exponent, size):
            table = self._table = _Table(columns, exponent, 2 * size)
            self._stale = dict.fromkeys(self._of)
        for number in self._stale:
            table.write_row(number, self._of.get(number))
        self._stale = {}
        rows = np.flatnonzero(table.last_levels[:size] >= 0)
        scores, numbers = table.select(rows), rows.tolist()
        if self._short_tests:  # then trainings end early for other reasons than a target
            scores = scores._replace(early=None)
        if len(rows) < FEWEST:
            own = scores.level_scores[np.arange(len(rows)), scores.last_levels]
            order = rows[np.lexsort((rows, table.steps[rows], -own))]
            return _Fit(order.tolist())
        found = estimate(scores, self._unseen_share(columns[-1]), self.is_random).times(exponent)
        order = rows[np.lexsort((rows, table.steps[rows], -found.value))]
        of = {number: row for row, number in enumerate(numbers)}
        return _Fit(order.tolist(), of, found)

    def _columns(self) -> tuple[float, ...]:
        """Return the levels (values of `time_attr`) at which scores are compared, ascending.

        Finite levels with fewer trials than `CROWD` are left out if another level has more, and so
        are levels within `RATIO` of a higher one. Without any level, the result is (0.0,).
        """
        crowded = sorted((n, c) for n, c in self._crowds.items() if c > 0)
        most = max((count for _, count in crowded), default=0)
        kept: list[float] = []
        for level, count in reversed(crowded):
            few = math.isfinite(level) and count < min(CROWD, most)
            near = kept and math.isfinite(kept[-1]) and level * RATIO > kept[-1]
            if not (few or near):
                kept.append(level)
        return tuple(reversed(kept)) or (0.0,)

    def _unseen_share(self, level: float) -> float:
        """Return the fraction of a full training that lies beyond `level`, 0 to 1.

        Returns 0 if no trial has a top level.
        """
        tops = [top for top, count in self._tops.items() if top is not None and count > 0]
        top = max(tops, default=None)
        return 0.0 if top is None or level >= top else 1 - max(0.0, level) / top


@dataclass
class _Table:
    """Scores in arrays with one row per trial number.

    They are divided by a power of two so that no square overflows.
    """

    columns: tuple[float, ...]
    """Levels (values of `time_attr`), ascending."""
    exponent: int
    """Exponent e of the power of two, 2 ** e, that the scores were divided by."""
    rows: int
    """Number of rows; may exceed the number of trials."""

    def __post_init__(self) -> None:
        import numpy as np

        self.scores = np.full((self.rows, len(self.columns)), np.nan)
        """Score at each level, (trials, levels); NaN below a trial's first level and above its
        last."""
        self.paired_scores = self.scores.copy()
        """Scores like `scores`, but only over the seeds that the trial had at the previous
        level."""
        self.last_levels = np.full(self.rows, -1)
        """Column of each trial's last score; -1 without a score."""
        self.seeds = np.ones((self.rows, len(self.columns)))
        self.curves, self.paired_curves = self.scores.copy(), self.scores.copy()
        """Arrays like `scores` and `paired_scores`, but of the means of the learning curves; NaN if
        unknown."""
        self.lengths = np.zeros_like(self.scores)
        """Length of the shortest curve at each level, in units of `time_attr`, (trials, levels)."""
        self.products = np.zeros((self.rows, 3))
        """Sums over the seeds at the last level, (trials, 3): squared distances of their scores
        from the mean, products of these distances with those of the curves' means, and squares of
        the latter. If curves are unknown, scores replace their means."""
        self.early = np.zeros((self.rows, 6))
        """Columns of `Scores.early`, (trials, 6)."""
        self.evaluations = np.zeros(self.rows)
        self.steps = np.zeros(self.rows)

    def fits(self, columns: tuple[float, ...], exponent: int, rows: int) -> bool:
        """Return whether the table has these levels and this exponent, and at least `rows` rows."""
        return (columns, exponent) == (self.columns, self.exponent) and rows <= self.rows

    def select(self, rows: "Whole") -> "Scores":
        """Return the rows with these indices (trial numbers) as the model's input."""
        from sweep.history.posterior.scores import Scores

        squares, products, curve_squares = self.products[rows].T
        return Scores(
            self.scores[rows],
            self.paired_scores[rows],
            self.seeds[rows],
            self.last_levels[rows],
            squares,
            self.evaluations[rows],
            self.curves[rows],
            self.paired_curves[rows],
            products,
            curve_squares,
            self.lengths[rows],
            self.early[rows],
        )

    def write_row(self, row: int, scores: _TrialScores | None) -> None:
        """Write the scores of a trial into its row; None clears the row.

        `row` is the number of the trial. A level that the trial passed without a pause gets the
        score of the next one.
        """
        import numpy as np

        tables = self.scores, self.paired_scores, self.curves, self.paired_curves
        for table in tables:
            table[row] = np.nan
        self.last_levels[row] = -1
        if scores is None:
            return
        small, above = -self.exponent, 0
        for level, score, seeds, curves, length, _ in scores.path:
            column = self._column(level)
            first = min(above or column, column)
            before = (
                int(self.seeds[row, first - 1])
                if first and self.last_levels[row] >= 0
                else math.inf
            )
            paired = score if before >= len(seeds) else _mean(seeds[: int(before)])
            mean = _mean(curves)
            paired_mean = mean if before >= len(seeds) else _mean(curves[: int(before)])
            # Levels passed without a pause count as reached: the trial may end well before its
            # goal.
            values = (score, score, mean, mean)
            for table, value in zip(tables, values, strict=True):
                table[row, first : column + 1] = math.ldexp(value, small)
            self.paired_scores[row, first] = math.ldexp(paired, small)
            self.paired_curves[row, first] = math.ldexp(paired_mean, small)
            self.seeds[row, first : column + 1] = len(seeds)
            self.lengths[row, first : column + 1] = length
            self.last_levels[row], above = column, column + 1
        end = scores.path[-1]
        up, along = _distances(end.seeds, small), _distances(end.curves or end.seeds, small)
        self.products[row] = [
            math.fsum(a * b for a, b in zip(*pair, strict=True))
            for pair in ((up, up), (up, along), (along, along))
        ]
        early = [flag is True for flag in end.early] or [False] * len(end.seeds)
        paired_seeds = early[: int(before)] if before < len(early) else early
        self.early[row] = [
            sum(early),
            sum(flag is False for flag in end.early),
            first,
            sum(paired_seeds) / len(paired_seeds),
            *(_sum_where(early, distances) for distances in (up, along)),
        ]
        self.evaluations[row] = math.ldexp(scores.evaluations, 2 * small)
        self.steps[row] = scores.steps

    def _column(self, level: float) -> int:
        """Return the index of the highest level of the table that is at most `level`, or 0."""
        return max(0, bisect_right(self.columns, level) - 1)


def _mean(values: Sequence[float]) -> float:
    """Return the mean; NaN without values."""
    return math.fsum(value / len(values) for value in values) if values else math.nan


def _sum_where(flags: Sequence[bool], values: Sequence[float]) -> float:
    """Return the sum of the values whose flags are True."""
    return math.fsum(value for flag, value in zip(flags, values, strict=True) if flag)


def _distances(values: Sequence[float], exponent: int) -> list[float]:
    """Return the differences between the values and their mean, times 2 ** `exponent`."""
    small = [math.ldexp(value, exponent) for value in values]
    middle = math.fsum(small) / len(small)
    return [value - middle for value in small]


@dataclass(frozen=True)
class _Fit:
    """Estimates of the model, and the order of the trials by them."""

    order: list[int]
    """Numbers of the trials, best first."""
    rows: dict[int, int] = field(default_factory=dict)
    """Number of a trial → its index in the arrays of `estimates`."""
    estimates: "Estimates | None" = None
    """Estimates in units of the metric, with the sign changed if it is minimised; None with too few
    trials, which are then ordered by their scores."""

    @cached_property
    def places(self) -> dict[int, int]:
        """Number of a trial → its index in `order`."""
        return {number: place for place, number in enumerate(self.order)}
