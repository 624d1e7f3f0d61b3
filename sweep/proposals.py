"""New trials: with settings that the searcher proposes, or bred from a trial that exists.

Each proposal sees the trials before it, those of the same decision included, and draws from the
sweep's seed and its own number alone.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sweep.distinct import Chooser
from sweep.errors import BadConfig, SweepError, UnknownName, UsageError
from sweep.events import Birth, Created, Goal, SpaceExhausted
from sweep.history import History, Trial
from sweep.schedulers import Breed, Fresh
from sweep.searchers import Exhausted, Searcher
from sweep.space import Domain, Settings
from sweep.spec import SweepSpec


@dataclass(frozen=True)
class Proposer:
    """Makes the events of new trials; records nothing."""

    spec: SweepSpec
    searcher: Searcher
    levels: tuple[float, ...]
    """The scheduler's rungs."""
    complete: Callable[[Mapping[str, Any]], dict[str, Any]]
    """Adds the settings that follow from the stopping criteria."""
    fixed: Collection[str] = ()
    """Settings that a trial has as its parent had them, where it begins from its checkpoint."""

    def search(
        self, history: History, wanted: Sequence[Fresh]
    ) -> tuple[list[Created], list[SpaceExhausted]]:
        """Trials with proposed settings, each seeing those before it; fewer at the space's end."""
        choose = Chooser(self.spec, self.searcher, history, self.levels)
        known = list(history.trials)
        created: list[Created] = []
        for fresh in wanted:
            try:
                proposed = choose(known, fresh.given)
            except Exhausted as error:
                return created, [SpaceExhausted(str(error))]
            config = self._config(proposed.settings)
            created.append(
                Created(
                    len(known), proposed.searched, config, history.k, self.spec.replicas_at_first
                )
            )
            trial = Trial.new(len(known), dict(proposed.searched), config, history.objective)
            trial.seen = history.k
            known.append(trial)
        return created, []

    def breed(self, history: History, wanted: Sequence[Breed], first: int) -> list[Created]:
        """Trials that begin from their parents' newest checkpoints, numbered from `first`."""
        return [
            self._bred(history.trials[breed.parent], breed, number, history.k)
            for number, breed in enumerate(wanted, start=first)
        ]

    def clone(
        self, history: History, parent: Trial, changes: Mapping[str, Any], from_checkpoint: bool
    ) -> Created:
        """A trial with the settings of `parent` but for `changes`, as a person wants it.

        Raises:
            UsageError: a change is not one that the space allows, or there is no checkpoint.
        """
        domains, number = self.spec.space.domains, len(history.trials)
        for name, value in changes.items():
            if name not in domains:
                raise UnknownName("searched setting", name, domains)
            if not domains[name].contains(value):
                raise BadConfig(f"--set {name}", value, domains[name].describe())
            if from_checkpoint and name in self.fixed and value != parent.searched.get(name):
                was = f"{parent.searched.get(name)}, as trial {parent.number} has it"
                hint = f"its checkpoint holds {name}; without --from-checkpoint it may be changed"
                raise BadConfig(f"--set {name}", value, was, hint)
        searched = {**parent.searched, **changes}
        if from_checkpoint:
            if any(replica.newest is None for replica in parent.replicas):
                raise UsageError(f"trial {parent.number}: has no checkpoint to begin from")
            wish = Breed(parent.number, searched, Goal(), "")
            return replace(self._bred(parent, wish, number, history.k), clone_of=parent.number)
        found = self._point(searched)
        config, seeds = self._config(found.settings), self.spec.replicas
        return Created(number, found.searched, config, history.k, seeds, clone_of=parent.number)

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
