"""Population-based bandits.

Parker-Holder et al., Provably Efficient Online Hyperparameter Optimization with Population-Based
Bandits, 2020. A population as in ``pbt``; the numbers of an offspring maximise the upper confidence
bound of a Gaussian process among those that the space allows. The process is fitted to how much
each setting improved the score in each interval so far. Offspring that have not trained yet count
as observed, so that no two get the same settings. Choices and normal numbers are perturbed as in
``pbt``. Until two intervals are known, numbers are sampled.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from pydantic import BaseModel

from sweep.core.errors import BadSpace
from sweep.history.history import History
from sweep.history.trial import Trial
from sweep.schedulers import SchedulerContext
from sweep.schedulers._shared.bandit import Array, Bandit
from sweep.schedulers._shared.mutation import ATTEMPTS, explore, is_in
from sweep.schedulers._shared.population import Population, PopulationOptions, born_at
from sweep.spec.space import Float, Int
from trainables.core import rng

Settings = Mapping[str, Any]


class Scheduler(Population):
    """Population-based training: a Gaussian process chooses the numeric settings of offspring."""

    Options: ClassVar[type[BaseModel]] = PopulationOptions

    def __init__(self, options: PopulationOptions, context: SchedulerContext) -> None:
        super().__init__(options, context)
        domains = context.space.domains
        self._numbers: dict[str, Float | Int] = {
            name: domain
            for name in self.mutated
            if isinstance(domain := domains[name], Float | Int) and domain.low < domain.high
        }
        self._others = [name for name in self.mutated if name not in self._numbers]

    def explore(
        self, history: History, parent: Trial, number: int, siblings: Sequence[Settings]
    ) -> dict[str, Any]:
        """Return the parent's settings with the numbers that the model prefers.

        Only parameters in `mutated` change. Choices and normal numbers among them are perturbed or
        resampled. If the space allows no choice with these numbers, all of `mutated` are, as in
        ``pbt``. The random stream belongs to the offspring's `number`.
        """
        stream = rng.generator(self.context.seed, "explore", number)
        bred = [trial for trial in history.trials if trial.parent is not None]
        untrained = [trial.searched for trial in bred if trial.time <= born_at(trial)]
        point = self._choose(history, parent, [*untrained, *siblings], stream)
        try:
            return explore(
                self.context.space, self._with_numbers(point, parent), self._others, stream
            )
        except BadSpace:  # no choice is allowed with these numbers
            return explore(self.context.space, dict(parent.searched), self.mutated, stream)

    def _choose(
        self,
        history: History,
        parent: Trial,
        pending: Sequence[Settings],
        stream: np.random.Generator,
    ) -> Array:
        """Return the numbers of an offspring as a point (d,) of the unit cube, one axis per number.

        `pending` are settings of offspring that have not trained yet. Without two observations, the
        point is drawn at random from `stream`. It is one that the space does not allow only if all
        attempts were such.
        """

        def is_allowed(point: Array) -> bool:
            """Return whether a point (D,), completed by the parent's settings, is in the space."""
            return is_in(self.context.space, self._with_numbers(point, parent))

        x, t, y = self._observations(history)
        if len(y) < 2 or not self._numbers:
            for _ in range(ATTEMPTS):
                point = stream.random(len(self._numbers))
                if is_allowed(point):
                    break
            return point
        following = self._next_level(parent.time) / self.options.perturbation_interval
        model = Bandit.learn(x, t, y, self._points(pending), following)
        return model.choose(len(self._numbers), stream, is_allowed)

    def _with_numbers(self, point: Array, parent: Trial) -> dict[str, Any]:
        """Return the parent's settings with the numbers that a point (d,) stands for.

        The point is in the unit cube. Numbers that the parent lacks are left out.
        """
        places = zip(self._numbers.items(), point.tolist(), strict=True)
        chosen = {name: domain.value_at(place) for (name, domain), place in places}
        return {**parent.searched, **{n: v for n, v in chosen.items() if n in parent.searched}}

    def _observations(self, history: History) -> tuple[Array, Array, Array]:
        """Return points (n, d), times in intervals (n,) and improvements (n,), oldest first.

        There is one for each interval that a trial has trained, if it had a score at both ends. An
        offspring's first interval begins with its parent's score.
        """
        interval, sign = self.options.perturbation_interval, history.objective.sign
        observations: list[tuple[float, float, Settings]] = []
        for trial in history.trials:
            level, parent = born_at(trial), trial.parent
            before = None if parent is None else history.trials[parent].score_at(level)
            while trial.reached(following := self._next_level(level)):
                after = trial.score_at(following)
                if before is not None and after is not None:
                    observations.append(
                        (following / interval, sign * (after - before), trial.searched)
                    )
                level, before = following, after
        observations.sort(key=lambda one: one[0])
        points = self._points([settings for _, _, settings in observations])
        columns = np.array([(t, y) for t, y, _ in observations], dtype=np.float64).reshape(-1, 2)
        return points, columns[:, 0], columns[:, 1]

    def _points(self, settings: Sequence[Settings]) -> Array:
        """Return the numbers of some settings as points (n, d) of the unit cube.

        A missing number becomes 0.5.
        """
        rows = [[_unit(d, s.get(n)) for n, d in self._numbers.items()] for s in settings]
        return np.array(rows, dtype=np.float64).reshape(len(rows), len(self._numbers))


def _unit(domain: Float | Int, value: float | None) -> float:
    """Return the position of a value in its domain, 0 to 1, on its scale; 0.5 for None.

    It is below 0 or above 1 if the value is outside a changed space.
    """
    if value is None:
        return 0.5
    low, high = float(domain.low), float(domain.high)
    if domain.log:
        value = value if value > 0 else low
        low, high, value = math.log(low), math.log(high), math.log(value)
    return (value - low) / (high - low)
