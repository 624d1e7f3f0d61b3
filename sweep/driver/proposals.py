"""New trials: with settings that the searcher proposes, or bred from a trial that exists.

Each proposal sees the trials before it, those of the same decision included, and draws from the
sweep's seed and its own number alone.
"""

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, overload

from sweep import searchers
from sweep.errors import BadConfig, BadSpace, SweepError, UnknownName, UsageError
from sweep.history.events import Created, Goal, ParentCheckpoint, SpaceExhausted
from sweep.history.history import History
from sweep.history.trial import Trial
from sweep.schedulers import Exploit, NewTrial
from sweep.searchers import Exhausted, Request, Searcher
from sweep.searchers._shared import points as _points
from sweep.space import Domain, Settings, Space, canonical, initial
from sweep.spec import SweepSpec
from trainables.core import rng
from trainables.errors import shorten

#: Proposals in a row that a searcher may be asked for.
ASKED = 4
#: Random points that are tried after them.
DRAWN = 100


class _Known(Sequence[Trial]):
    """The trials of a history, of which no copy is made, and those `beside` them.

    Those are of the same decision, and were searched.
    """

    def __init__(self, trials: Sequence[Trial]) -> None:
        self._trials = trials
        self.beside: list[Trial] = []

    def __len__(self) -> int:
        return len(self._trials) + len(self.beside)

    def __iter__(self) -> Iterator[Trial]:
        return itertools.chain(self._trials, self.beside)

    @overload
    def __getitem__(self, place: int) -> Trial: ...
    @overload
    def __getitem__(self, place: slice) -> list[Trial]: ...
    def __getitem__(self, place: int | slice) -> Trial | list[Trial]:
        if isinstance(place, slice):
            return [self[number] for number in range(*place.indices(len(self)))]
        number, first = range(len(self))[place], len(self._trials)
        return self._trials[number] if number < first else self.beside[number - first]


@dataclass(frozen=True)
class Proposer:
    """Makes the events of new trials; records nothing."""

    spec: SweepSpec
    searcher: Searcher
    levels: tuple[float, ...]
    """The scheduler's rungs."""
    complete: Callable[[Mapping[str, Any]], dict[str, Any]]
    """Adds the settings that follow from the stopping criteria, and what ``auto`` means."""
    fixed: Collection[str] = ()
    """Settings that a trial has as its parent had them, where it begins from its checkpoint."""

    def search(
        self, history: History, wanted: Sequence[NewTrial]
    ) -> tuple[list[Created], list[SpaceExhausted]]:
        """Trials with proposed settings, each seeing those before it; fewer at the space's end."""
        known = _Known(history.trials)
        created: list[Created] = []
        for fresh in wanted:
            try:
                proposed = self._choose(history, known, fresh.given)
            except Exhausted as error:
                return created, [SpaceExhausted(str(error))]
            config = self._config(proposed.settings)
            created.append(
                Created(
                    len(known),
                    proposed.searched,
                    config,
                    history.k,
                    self.spec.first_seeds,
                    origin=proposed.origin,
                    why=proposed.why,
                )
            )
            trial = Trial.new(len(known), dict(proposed.searched), config, history.objective)
            trial.seen, trial.origin = history.k, proposed.origin
            known.beside.append(trial)
        return created, []

    def breed(self, history: History, wanted: Sequence[Exploit], first: int) -> list[Created]:
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
        space, number = self.spec.space, len(history.trials)
        for name, value in changes.items():
            if name not in space.searched:
                raise UnknownName("searched setting", name, space.searched)
            if not (domain := space.role(name)).contains(value):
                raise BadConfig(f"--set {name}", value, domain.describe())
            if from_checkpoint and name in self.fixed and value != parent.searched.get(name):
                was = f"{parent.searched.get(name)}, as trial {parent.number} has it"
                hint = f"its checkpoint holds {name}; without --from-checkpoint it may be changed"
                raise BadConfig(f"--set {name}", value, was, hint)
        own = {name: canonical(space.role(name), value) for name, value in changes.items()}
        searched = {**parent.searched, **own}
        if from_checkpoint:
            if any(replica.newest is None for replica in parent.replicas):
                raise UsageError(f"trial {parent.number} has no checkpoint to start from")
            wish = Exploit(parent.number, searched, Goal(), "")
            return replace(self._bred(parent, wish, number, history.k), clone_of=parent.number)
        found = self._point(searched)
        config, seeds = self._config(found.settings), self.spec.first_seeds
        return Created(number, found.searched, config, history.k, seeds, clone_of=parent.number)

    def _bred(self, parent: Trial, breed: Exploit, number: int, seen: int) -> Created:
        births = []
        for replica in parent.replicas:
            saved = replica.newest
            if saved is None:
                raise SweepError(
                    f"trial {parent.number} has no checkpoint from which a child could start"
                )
            point = replica.value_at(saved.iteration)
            time = replica.time if point is None else point.time
            births.append(ParentCheckpoint(parent.number, replica.index, time, saved))
        found = self._point(breed.searched)
        config = self._config(found.settings)
        return Created(number, found.searched, config, seen, len(births), tuple(births))

    def _point(self, searched: Mapping[str, Any]) -> Settings:
        """The point of the space with these values; those that they make inactive are left out."""
        space = self.spec.space

        def given(name: str, _domain: Domain) -> Any:
            if name not in searched:
                raise space.where.refuse((name,), None, "a value, because its condition holds here")
            return searched[name]

        return space.resolve(given)

    def _config(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        return self.complete(self.spec.space.nest(settings, self.spec.config))

    # ---- a point that exists and is no earlier one ------------------------------------------
    #
    # A proposal is turned down where it does not belong to the space, and where an earlier trial
    # has the same searched settings. The searcher is asked again, then chance, then, in a space
    # that can be enumerated, one of the points that are left. All of it follows from the request
    # alone. Settings that a person gave are taken as they are.

    def _choose(self, history: History, trials: _Known, given: Mapping[str, Any]) -> Settings:
        """Settings of the trial after `trials`; those `given` stand fast.

        Raises:
            Exhausted: there is no further point.
            BadSpace: no point that belongs to the space was found.
        """
        index = history.searched + len(trials.beside)
        chosen = bool(given) or index < len(self.spec.initial)
        any_will_do = self.searcher.options.duplicates or chosen
        for space in initial.spaces_of(self.spec.space, self.spec.initial, index):
            try:
                return self._point_of(space.pin(given), history, trials, any_will_do)
            except Exhausted as error:
                full = str(error)
        crossed = ", ".join(self.spec.space.crossed)
        raise Exhausted(f"{full}, whatever {crossed} may be" if crossed else full)

    def _point_of(
        self, space: Space, history: History, trials: _Known, any_will_do: bool
    ) -> Settings:
        """A point that no trial has, or any one; Exhausted where there is none."""
        # Where everything is given, there is nothing to ask for, and one look is enough.
        found = self._proposals(history, space, trials) if space.domains else [space.draw(0)]
        for settings in found:
            again = any(trial.searched == settings.searched for trial in trials.beside)
            if any_will_do or not (again or history.has(settings.searched)):
                return settings
        if not space.domains:
            raise Exhausted("the only point of the space has a trial")
        return self._left(space, trials)

    def _proposals(self, history: History, space: Space, trials: _Known) -> Iterator[Settings]:
        for attempt in range(ASKED):
            request = Request(
                space,
                history.objective,
                trials,
                self.levels,
                self._seed(len(trials), attempt),
                self.spec.seed,
                history.learnt,
                attempt,
                history.searched + len(trials.beside),
            )
            try:
                with searchers.KIND.calling(self.spec.searcher.name, "suggest"):
                    found = self.searcher.suggest(request)
                point = self._checked(space, found)
            except (BadSpace, Exhausted):
                continue
            yield point
        for attempt in range(ASKED, ASKED + DRAWN):
            yield space.draw(self._seed(len(trials), attempt))

    def _checked(self, space: Space, found: object) -> Settings:
        """Return the searcher's answer as settings, worked out anew where it is none of ours.

        Raises:
            BadSpace: it does not belong to the space.
            UsageError: it is no point, or lacks a value.
        """
        if not isinstance(found, Settings):
            allowed = "a sweep.space.Settings, as request.space.resolve and request.space.draw give"
            raise self._refused(found, allowed)
        if self._is_ours:
            return found
        searched = found.searched

        def given(name: str, _domain: Domain) -> Any:
            if name not in searched:
                raise self._refused(found, f"a value for {name}, since it is active here")
            return searched[name]

        return space.resolve(given)

    def _refused(self, found: object, allowed: str) -> UsageError:
        who = f"searcher: suggest() of '{self.spec.searcher.name}'"
        return UsageError(f"{who} returned {shorten(found)}; expected {allowed}")

    @cached_property
    def _is_ours(self) -> bool:
        return searchers.KIND.is_shipped(self.spec.searcher.name)

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
