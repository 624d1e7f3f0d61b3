"""The pick: what the settings of each trial are expected to score under a new seed.

A score is luck in part: of the seed, of the episodes of its evaluation, and of having been chosen
for it. So the best of many scores claims more than its settings are worth. The model that tells
the lucky from the good is in `posterior`; here is what it is given of a trial, and what is asked of
it. All numbers are functions of the trials as they are, however they came to be so.
"""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from sweep.history.objective import Objective
from sweep.history.order import Kept
from sweep.history.trial import Trial

if TYPE_CHECKING:  # to import numpy takes as long as many a command that asks for no pick
    from sweep.history.posterior.outlook import Outlook
    from sweep.history.posterior.shrinkage import Estimates, Scores, Whole

#: Trials with a score before there is a variance between settings to speak of.
FEWEST = 3
#: Trials that come to rest at a level, at least, and the least ratio of two levels.
CROWD, RATIO = 3, 1.2
#: Trials that have come far before there is an outlook, and the range by the error of the pick.
WHOLE, APART = 6, 2.0
#: Candidates to be the best, and points at which their chances are added up.
CANDIDATES, GRID = 200, 401
#: More seeds that are thought of, and how sure a difference has to be.
MOST_SEEDS, SURE = 20, 1.645
_TINY, _NARROW = 1e-300, 1e-9


@dataclass(frozen=True)
class Expected:
    """The expected score of a trial's settings under a new seed at the end of training."""

    value: float
    error: float | None
    """Its standard error; None: too few trials or seeds to say."""
    noise: float | None
    """The variance of one further seed's score."""
    seeds: int
    """The number of seeds behind it."""

    def seeds_to_tell_from(self, other: "Expected") -> int | None:
        """Return how many further seeds of both would probably show which is better.

        Returns 0 if that is clear now, None if `MOST_SEEDS` would not be enough or if nothing is
        known of their spread.
        """
        if None in (self.error, other.error, self.noise, other.noise):
            return None
        apart = abs(self.value - other.value)
        pairs = [(one.error or 0.0, one.noise or 0.0) for one in (self, other)]
        for more in range(MOST_SEEDS + 1):
            left = math.hypot(*(_left(error, noise, more) for error, noise in pairs))
            learnt = math.sqrt(max(0.0, math.hypot(pairs[0][0], pairs[1][0]) ** 2 - left**2))
            # Told apart with more than even odds: the difference then is normal about that of now.
            if _beyond(apart, learnt, SURE * left) >= 0.5:
                return more
        return None


def _left(error: float, noise: float, more: int) -> float:
    """Return the error after so many more seeds."""
    return error * math.sqrt(noise / (noise + more * error * error)) if more and error else error


def _beyond(mean: float, deviation: float, reach: float) -> float:
    """Return the probability that a normal number is further from 0 than `reach`."""
    if deviation == 0:
        return float(mean > reach)
    sides = ((reach - mean) / deviation, (reach + mean) / deviation)
    return sum(math.erfc(side / math.sqrt(2)) / 2 for side in sides)


@dataclass(frozen=True)
class Spreads:
    """The standard deviations of scores at the end of training, by where they come from."""

    settings: float
    seeds: float
    evaluations: float
    """Part of `seeds`: of the episodes of one evaluation."""


class _Seen(NamedTuple):
    """The part of a trial that decides its expectation; a greater score is better."""

    path: tuple[tuple[float, float, tuple[float, ...]], ...]
    """Level, score, and the scores of its seeds there; the levels ascend."""
    rests: bool
    """True if the trial ever reached a goal or its end; else the path holds its present level."""
    evaluations: float
    """Variance of a score through its evaluation."""
    steps: float
    top: float | None

    @property
    def seeds(self) -> tuple[float, ...]:
        """The scores of its seeds at the last level."""
        return self.path[-1][2]

    @property
    def exponent(self) -> int:
        """The power of two that none of its scores exceeds."""
        return math.frexp(max(abs(one) for _, score, its in self.path for one in (score, *its)))[1]


def _seen(trial: Trial) -> _Seen | None:
    if trial.score is None:
        return None
    sign = trial.objective.sign
    scored = [rest for rest in trial.rests if rest.score is not None] or [trial.rest(trial.k)]
    path = {
        rest.level: (
            rest.level,
            sign * (rest.score or 0.0),
            tuple(sign * score for score in rest.scores if score is not None),
        )
        for rest in scored
    }
    points = tuple(path[level] for level in sorted(path))
    if any(math.isnan(level) for level in path):
        return None
    if not all(math.isfinite(one) for _, score, its in points for one in (score, *its)):
        return None
    noises = [replica.noise for replica in trial.counted]
    known = [noise for noise in noises if noise is not None and math.isfinite(noise)]
    noise = math.fsum(known) / len(known) if known else 0.0
    return _Seen(points, bool(trial.rests), noise, trial.steps, trial.goal.top)


class Expectations(Kept):
    """The expectations of all trials, kept up with the history."""

    def __init__(self, objective: Objective) -> None:
        super().__init__()
        self._objective = objective
        self._of: dict[int, _Seen] = {}
        self._crowds: Counter[float] = Counter()
        """Level → the number of trials with a goal or an end there."""
        self._tops: Counter[float | None] = Counter()
        self._exponents: Counter[int] = Counter()
        """The power of two that no score of a trial exceeds → how many trials have it."""
        self._table: _Table | None = None
        self._stale: dict[int, None] = {}
        """The numbers of trials whose rows in the table are out of date."""
        self._fit: _Fit | None = None

    def bring_up(self, trials: Sequence[Trial], touched: Sequence[int]) -> None:
        """Update the expectations; `touched` are the numbers of the trials that have changed."""
        for number in self.changed(trials, touched):
            old, new = self._of.pop(number, None), _seen(trials[number])
            if new is not None:
                self._of[number] = new
            if old == new:
                continue
            for seen, sign in ((old, -1), (new, 1)):
                for level, *_ in seen.path if seen and seen.rests else ():
                    self._crowds[level] += sign
                if seen:
                    self._tops[seen.top] += sign
                    self._exponents[seen.exponent] += sign
            self._stale[number] = None
            self._fit = None

    def of(self, trial: Trial) -> Expected | None:
        """Return the expectation of a trial; None if it has no score yet."""
        seen = self._of.get(trial.number)
        if seen is None:
            return None
        fit, sign, seeds = self._fitted, self._objective.sign, len(seen.seeds)
        found = fit.estimates
        if found is None:
            middle = sign * math.fsum(score / seeds for score in seen.seeds)
            return Expected(middle, None, None, seeds)
        row = fit.rows[trial.number]
        value, error, noise = (float(one[row]) for one in (found.value, found.error, found.noise))
        return Expected(sign * value, error, noise, seeds)

    @property
    def order(self) -> Sequence[int]:
        """The numbers of the trials that have an expectation, the greatest first.

        Of equals the one with fewer steps is first, then the one with the lower number.
        """
        return self._fitted.order

    def place(self, number: int) -> float:
        """Return the index of a trial in the `order`; infinite if it is not in it."""
        return self._fitted.places.get(number, math.inf)

    @property
    def spreads(self) -> Spreads | None:
        """The standard deviations of scores by cause; None if there are too few trials."""
        found = self._fitted.estimates
        if found is None:
            return None
        parts = (1 - found.share, found.share, min(found.evaluations, found.share))
        return Spreads(*(math.sqrt(part) * found.deviation for part in parts))

    def chances(self) -> dict[int, float]:
        """Return the chance of each of the first trials to be the best; empty if not known."""
        import numpy as np
        from scipy import special

        fit = self._fitted
        if fit.estimates is None:
            return {}
        numbers = fit.order[:CANDIDATES]
        rows = [fit.rows[number] for number in numbers]
        value, error = fit.estimates.value[rows] / 16, fit.estimates.error[rows] / 16
        scale = max(float(np.abs(value).max()), float(error.max()), _TINY)
        value, error = value / scale, np.maximum(error / scale, _NARROW)
        low, high = float((value - 5 * error).min()), float((value + 5 * error).max())
        near = np.linspace(-5, 5, GRID)
        narrow = error < (high - low) / GRID * 10  # the common grid would pass over them
        parts = [v + e * near for v, e in zip(value[narrow], error[narrow], strict=True)]
        grid = np.unique(np.concatenate([np.linspace(low, high, GRID), *parts]))
        below = special.ndtr((grid[:, None] - value) / error)
        logs = np.log(np.maximum(below, _TINY))
        others = np.exp(logs.sum(axis=1, keepdims=True) - logs)
        found = (np.diff(below, axis=0) * (others[1:] + others[:-1])).sum(axis=0)
        return dict(zip(numbers, (found / found.sum()).tolist(), strict=True))

    def outlook(self, more: float = 1.0) -> "Outlook | None":
        """Return what `more` times as much training again is expected to bring.

        Returns None while it cannot be said: fewer than `WHOLE` trials have come to the end or to a
        level of more than half of the way, or the range is less than `APART` times the error of the
        pick, so that settings cannot be told apart.
        """
        import numpy as np

        from sweep.history.posterior.outlook import outlook

        fit, table = self._fitted, self._table
        if fit.estimates is None or table is None:
            return None
        far = np.array([self._unseen(level) < 0.5 for level in table.columns])
        if int(far[table.last[table.last >= 0]].sum()) < WHOLE:
            return None
        found, pick = outlook(fit.estimates.value, more), fit.rows[fit.order[0]]
        error = float(fit.estimates.error[pick])
        return found if found is not None and found.range > APART * error else None

    # ---- the table, row by row as trials change ----------------------------------------------

    @property
    def _fitted(self) -> "_Fit":
        if self._fit is None:
            self._fit = self._made()
        return self._fit

    def _made(self) -> "_Fit":
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
            table.put(number, self._of.get(number))
        self._stale = {}
        rows = np.flatnonzero(table.last[:size] >= 0)
        scores, numbers = table.of(rows), rows.tolist()
        if len(rows) < FEWEST:
            own = scores.at[np.arange(len(rows)), scores.last]
            order = rows[np.lexsort((rows, table.steps[rows], -own))]
            return _Fit(order.tolist())
        found = estimate(scores, self._unseen(columns[-1])).times(exponent)
        order = rows[np.lexsort((rows, table.steps[rows], -found.value))]
        of = {number: row for row, number in enumerate(numbers)}
        return _Fit(order.tolist(), of, found)

    def _columns(self) -> tuple[float, ...]:
        """The levels at which scores are compared, ascending."""
        crowded = sorted((n, c) for n, c in self._crowds.items() if c > 0)
        most = max((count for _, count in crowded), default=0)
        kept: list[float] = []
        for level, count in reversed(crowded):
            few = math.isfinite(level) and count < min(CROWD, most)
            near = kept and math.isfinite(kept[-1]) and level * RATIO > kept[-1]
            if not (few or near):
                kept.append(level)
        return tuple(reversed(kept)) or (0.0,)

    def _unseen(self, level: float) -> float:
        """The share of a training to its end that no trial has had."""
        tops = [top for top, count in self._tops.items() if top is not None and count > 0]
        top = max(tops, default=None)
        return 0.0 if top is None or level >= top else 1 - max(0.0, level) / top


@dataclass
class _Table:
    """One row for each trial; scores are divided by a power of two, so that no square overflows."""

    columns: tuple[float, ...]
    """The levels, ascending."""
    exponent: int
    rows: int

    def __post_init__(self) -> None:
        import numpy as np

        self.scores = np.full((self.rows, len(self.columns)), np.nan)
        """At each level; NaN below the first, and above the last."""
        self.alike = self.scores.copy()
        """The same of the seeds that the trial had at the level before."""
        self.last = np.full(self.rows, -1)
        """The column of the last score; -1: there is none."""
        self.seeds = np.ones((self.rows, len(self.columns)))
        self.squares = np.zeros(self.rows)
        """Of the seeds' distances from their mean."""
        self.evaluations = np.zeros(self.rows)
        self.steps = np.zeros(self.rows)

    def fits(self, columns: tuple[float, ...], exponent: int, rows: int) -> bool:
        """Return whether the table can hold these rows, at these levels and this exponent."""
        return (columns, exponent) == (self.columns, self.exponent) and rows <= self.rows

    def of(self, rows: "Whole") -> "Scores":
        """Return the rows of some trials."""
        from sweep.history.posterior.shrinkage import Scores

        at, alike, seeds = self.scores[rows], self.alike[rows], self.seeds[rows]
        last, squares, evaluations = self.last[rows], self.squares[rows], self.evaluations[rows]
        return Scores(at, alike, seeds, last, squares, evaluations)

    def put(self, row: int, seen: _Seen | None) -> None:
        """Write the row of a trial."""
        import numpy as np

        self.scores[row] = self.alike[row] = np.nan
        self.last[row] = -1
        if seen is None:
            return
        small, above = -self.exponent, 0
        for level, score, its in seen.path:
            here = self._column(level)
            first = min(above or here, here)
            before = int(self.seeds[row, first - 1]) if first and self.last[row] >= 0 else len(its)
            alike = score if before >= len(its) else math.fsum(x / before for x in its[:before])
            # What it passes without a rest it reaches, too: it may end well before its goal.
            self.scores[row, first : here + 1] = math.ldexp(score, small)
            self.alike[row, first : here + 1] = math.ldexp(score, small)
            self.alike[row, first] = math.ldexp(alike, small)
            self.seeds[row, first : here + 1] = len(its)
            self.last[row], above = here, here + 1
        seeds = [math.ldexp(score, small) for score in seen.seeds]
        middle = math.fsum(seeds) / len(seeds)
        self.squares[row] = math.fsum((score - middle) ** 2 for score in seeds)
        self.evaluations[row] = math.ldexp(seen.evaluations, 2 * small)
        self.steps[row] = seen.steps

    def _column(self, level: float) -> int:
        """Return the highest column that a level reaches, or the first."""
        return max(0, bisect_right(self.columns, level) - 1)


@dataclass(frozen=True)
class _Fit:
    """The estimates made of a table, and the order of the trials by them."""

    order: list[int]
    rows: dict[int, int] = field(default_factory=dict)
    """Trial → its row in the estimates."""
    estimates: "Estimates | None" = None
    """None: too few trials; the order is that of the scores."""

    @cached_property
    def places(self) -> dict[int, int]:
        """Trial → its place in the order."""
        return {number: place for place, number in enumerate(self.order)}
