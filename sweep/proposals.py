"""New trials: with settings that the searcher proposes, or bred from a trial that exists.

Each proposal sees the trials before it, those of the same decision included, and draws from the
sweep's seed and its own number alone.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sweep.errors import BadSpace, SweepError
from sweep.events import Birth, Created
from sweep.history import History, Trial
from sweep.schedulers import Breed, Fresh
from sweep.searchers import Request, Searcher
from sweep.space import Domain, Settings, initial
from sweep.spec import SweepSpec
from trainables import rng

#: Proposals in a row that may be no points of the space, before one is drawn by chance.
ATTEMPTS = 20


@dataclass(frozen=True)
class Proposer:
    """Makes the events of new trials; records nothing."""

    spec: SweepSpec
    searcher: Searcher
    levels: tuple[float, ...]
    """The scheduler's rungs."""
    complete: Callable[[Mapping[str, Any]], dict[str, Any]]
    """Adds the settings that follow from the stopping criteria."""

    def search(self, history: History, wanted: Sequence[Fresh]) -> list[Created]:
        """Trials with proposed settings, each seeing those before it."""
        known = list(history.trials)
        created = []
        for fresh in wanted:
            proposed = self._suggest(history, known, fresh.given)
            config = self._config(proposed.settings)
            created.append(
                Created(len(known), proposed.searched, config, history.k, self.spec.replicas)
            )
            known.append(Trial.new(len(known), dict(proposed.searched), config, history.objective))
        return created

    def breed(self, history: History, wanted: Sequence[Breed], first: int) -> list[Created]:
        """Trials that begin from their parents' newest checkpoints, numbered from `first`."""
        return [
            self._bred(history.trials[breed.parent], breed, number, history.k)
            for number, breed in enumerate(wanted, start=first)
        ]

    def _bred(self, parent: Trial, breed: Breed, number: int, seen: int) -> Created:
        births = []
        for replica in parent.replicas:
            saved = replica.newest
            if saved is None:
                raise SweepError(f"trial {parent.number}: has no checkpoint to breed from")
            point = replica.value_at(saved.iteration)
            time = replica.time if point is None else point.time
            births.append(Birth(parent.number, replica.index, time, saved))
        found = self._point(breed.searched)
        config = self._config(found.settings)
        return Created(number, found.searched, config, seen, len(births), tuple(births))

    def _point(self, searched: Mapping[str, Any]) -> Settings:
        """The point of the space with these values; those that they make inactive are left out."""
        space = self.spec.space

        def given(name: str, _domain: Domain) -> Any:
            if name not in searched:
                raise space.where.refuse((name,), None, "a value, since it is active here")
            return searched[name]

        return space.resolve(given)

    def _config(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        return self.complete(self.spec.space.nest(settings, self.spec.config))

    def _suggest(
        self, history: History, known: Sequence[Trial], given: Mapping[str, Any]
    ) -> Settings:
        """The searcher's proposal; another one where that point is forbidden or has no value."""
        number = len(known)
        index = sum(trial.parent is None for trial in known)
        space = initial.space_of(self.spec.space, self.spec.initial, index).pin(given)
        for attempt in range(ATTEMPTS):
            path = ("search", number, attempt) if attempt else ("search", number)
            request = Request(
                space,
                history.objective,
                known,
                self.levels,
                rng.integer(self.spec.seed, *path),
                self.spec.seed,
                history.earlier,
            )
            try:
                return self.searcher.suggest(request)
            except BadSpace:
                continue
        return space.draw(rng.integer(self.spec.seed, "search", number, "left"))
