"""From a searcher's word to the settings of a new trial: a point that exists and is no earlier one.

A proposal is turned down where it does not belong to the space, and where an earlier trial has the
same searched settings. The searcher is asked again, then chance, then, in a space that can be
enumerated, one of the points that are left. All of it follows from the request alone. Settings that
a person gave are taken as they are.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sweep.errors import BadSpace
from sweep.history import History, Trial
from sweep.searchers import Exhausted, Request, Searcher, _points
from sweep.space import Settings, Space, initial
from sweep.spec import SweepSpec
from trainables import rng

#: Proposals in a row that a searcher may be asked for.
ASKED = 4
#: Random points that are tried after them.
DRAWN = 100


@dataclass(frozen=True)
class Chooser:
    """Finds settings for the next trial of a sweep."""

    spec: SweepSpec
    searcher: Searcher
    history: History
    levels: tuple[float, ...]
    """The scheduler's rungs."""

    def __call__(self, trials: Sequence[Trial], given: Mapping[str, Any]) -> Settings:
        """Settings of the trial after `trials`; those `given` stand fast.

        Raises:
            Exhausted: there is no further point.
            BadSpace: no point that belongs to the space was found.
        """
        index = sum(trial.counts for trial in trials)
        space = initial.space_of(self.spec.space, self.spec.initial, index).pin(given)
        if not space.domains:
            return space.draw(0)  # everything is given: there is nothing to ask for
        told = bool(given) or index < len(self.spec.initial)
        any_will_do = self.searcher.options.duplicates or told
        for found in self._proposals(space, trials):
            if any_will_do or _is_new(found, trials):
                return found
        return self._left(space, trials)

    def _proposals(self, space: Space, trials: Sequence[Trial]) -> Iterator[Settings]:
        for attempt in range(ASKED):
            request = Request(
                space,
                self.history.objective,
                trials,
                self.levels,
                self._seed(len(trials), attempt),
                self.spec.seed,
                self.history.earlier,
                attempt,
            )
            try:
                yield self.searcher.suggest(request)
            except (BadSpace, Exhausted):
                continue
        for attempt in range(ASKED, ASKED + DRAWN):
            yield space.draw(self._seed(len(trials), attempt))

    def _seed(self, number: int, attempt: int) -> int:
        path = ("search", number, attempt) if attempt else ("search", number)
        return rng.integer(self.spec.seed, *path)

    def _left(self, space: Space, trials: Sequence[Trial]) -> Settings:
        """One of the points that no trial has."""
        points = _points.countable(space)
        if points is None:
            raise Exhausted(f"of {ASKED + DRAWN} proposals each has a trial already")
        left = list(_points.untried(points, trials, range(points.count)))
        if not left:
            raise Exhausted(f"each of the {points.count} points of the space has a trial")
        stream = rng.generator(self.spec.seed, "search", len(trials), "left")
        return left[int(stream.integers(len(left)))]


def _is_new(found: Settings, trials: Sequence[Trial]) -> bool:
    """Whether no searched trial has these settings; bred ones count as little as elsewhere."""
    return all(trial.searched != found.searched or trial.parent is not None for trial in trials)
