"""New trials: with settings proposed by the searcher, or started from an existing trial.

Each proposal uses the trials before it, including those of the same decision, and draws only from
the sweep's seed and its own number.
"""

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, overload

from sweep import searchers
from sweep.core.errors import BadConfig, BadSpace, SweepError, UnknownName, UsageError
from sweep.history.events import Created, Goal, ParentCheckpoint, SpaceExhausted, Suggested
from sweep.history.history import History
from sweep.history.trial import Trial
from sweep.schedulers import Exploit, NewTrial
from sweep.searchers import Exhausted, Request, Searcher
from sweep.searchers._shared import points as _points
from sweep.spec import SweepSpec
from sweep.spec.space import Domain, Settings, Space, canonical, initial
from trainables.core import rng
from trainables.errors import shorten

#: Maximum number of attempts of a searcher for one trial.
ASKED = 4
#: Number of random points tried after that.
DRAWN = 100


class _KnownTrials(Sequence[Trial]):
    """The trials of a history, without copying them, followed by those in `added`.

    The latter are new trials of the same decision, which are not in the history yet.
    """

    def __init__(self, trials: Sequence[Trial]) -> None:
        self._trials = trials
        self.added: list[Trial] = []

    def __len__(self) -> int:
        return len(self._trials) + len(self.added)

    def __iter__(self) -> Iterator[Trial]:
        return itertools.chain(self._trials, self.added)

    @overload
    def __getitem__(self, place: int) -> Trial: ...
    @overload
    def __getitem__(self, place: slice) -> list[Trial]: ...
    def __getitem__(self, place: int | slice) -> Trial | list[Trial]:
        if isinstance(place, slice):
            return [self[number] for number in range(*place.indices(len(self)))]
        number, first = range(len(self))[place], len(self._trials)
        return self._trials[number] if number < first else self.added[number - first]


@dataclass(frozen=True)
class Proposer:
    """Creates the events of new trials: their settings and their start. Records nothing."""

    spec: SweepSpec
    """Spec of the sweep."""
    searcher: Searcher
    """Searcher that proposes settings."""
    levels: tuple[float, ...]
    """Rungs of the scheduler, ascending, which searchers may use."""
    complete_settings: Callable[[Mapping[str, Any]], dict[str, Any]]
    """Function from ``config`` with a trial's settings, nested, to all that its trainable gets:
    with those that follow from the stopping criteria, and with values in place of ``auto``."""
    fixed_keys: Collection[str] = ()
    """Settings in which a trial that starts from a checkpoint must agree with its parent, as in
    `Trainable.fixed_keys`."""

    def search(
        self, history: History, requests: Sequence[NewTrial]
    ) -> tuple[list[Created], list[SpaceExhausted]]:
        """Return events of new trials with the searcher's settings.

        Each proposal sees those before it. Settings that a request gives are fixed; otherwise a
        trial takes a user's suggestion if one waits and may be used. If the space has too few
        points, there are fewer trials and one SpaceExhausted. Raises BadSpace if no valid point is
        found, and passes on errors of the searcher.
        """
        known = _KnownTrials(history.trials)
        created: list[Created] = []
        suggested, tried = iter(history.open_suggestions.items()), history.tried_suggestions
        for fresh in requests:
            # What a scheduler gives, it gives for a reason of its own: a suggestion waits.
            count = history.searched_count + len(created) + 1
            may = not fresh.given and tried < self.searcher.options.most_suggested(count)
            asked, suggestion = next(suggested, (None, None)) if may else (None, None)
            tried += suggestion is not None
            try:
                proposed = self._choose(history, known, fresh.given, suggestion)
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
                    reason=proposed.why,
                    suggestion=asked,
                )
            )
            trial = Trial.new(len(known), dict(proposed.searched), config, history.objective)
            trial.proposed_after, trial.origin = history.k, proposed.origin
            trial.suggestion = suggestion
            known.added.append(trial)
        return created, []

    def breed(self, history: History, requests: Sequence[Exploit], first: int) -> list[Created]:
        """Return events of offspring, which start from their parents' newest checkpoints.

        The trials are numbered from `first`. Raises SweepError if a replica of a parent has no
        checkpoint, and BadSpace if a request lacks the value of an active parameter.
        """
        return [
            self._make_offspring(history.trials[breed.parent], breed, number, history.k)
            for number, breed in enumerate(requests, start=first)
        ]

    def clone(
        self, history: History, parent: Trial, changes: Mapping[str, Any], from_checkpoint: bool
    ) -> Created:
        """Return the event of a user's clone of `parent` with some settings changed.

        `changes` maps searched settings to new values. With `from_checkpoint`, it starts from the
        parent's newest checkpoints, else from the beginning.

        Raises:
            UsageError: a change is not allowed by the space, or is of a parameter that would be
                inactive, or there is no checkpoint to start from.
        """
        space, number = self.spec.space, len(history.trials)
        held = space.determining(self.fixed_keys) if from_checkpoint else ()
        for name, value in changes.items():
            if name not in space.searched:
                raise UnknownName("searched setting", name, space.searched)
            if not (domain := space.domain_of(name)).contains(value):
                raise BadConfig(f"--set {name}", value, domain.describe())
            if name in held and value != parent.searched.get(name):
                was = shorten(parent.searched.get(name))
                problem = (
                    f"the clone continues from a checkpoint of trial {parent.number}, which "
                    f"fixes {name} at {was}"
                )
                hint = (
                    f"leave {name} out, or leave --from-checkpoint out to train from the beginning"
                )
                raise BadConfig(f"--set {name}", value, hint=hint, problem=problem)
        own = {name: canonical(space.domain_of(name), value) for name, value in changes.items()}
        searched = {**parent.searched, **own}
        _check_inside(space, searched, parent)
        found = self._resolve_point(searched)
        for name in changes.keys() - found.searched.keys():
            when = " and ".join(one.describe() for one in space.parameters[name].when)
            raise BadConfig(
                f"--set {name}", changes[name], f"a value for {name} only when {when}", "remove it"
            )
        if from_checkpoint:
            if any(replica.newest_checkpoint is None for replica in parent.replicas):
                raise UsageError(
                    f"trial {parent.number} has no checkpoint to start from; leave "
                    "--from-checkpoint out"
                )
            wish = Exploit(parent.number, searched, Goal(), "")
            return replace(
                self._make_offspring(parent, wish, number, history.k), clone_of=parent.number
            )
        config, seeds = self._config(found.settings), self.spec.first_seeds
        return Created(number, found.searched, config, history.k, seeds, clone_of=parent.number)

    def _make_offspring(
        self, parent: Trial, breed: Exploit, number: int, last_event: int
    ) -> Created:
        """Return the event of trial `number`, which starts from the newest checkpoints of `parent`.

        `last_event` is the number of the newest event on which the decision is based. Raises
        SweepError if a replica of the parent has no checkpoint.
        """
        births = []
        for replica in parent.replicas:
            saved = replica.newest_checkpoint
            if saved is None:
                raise SweepError(
                    f"trial {parent.number} has no checkpoint from which a child could start"
                )
            point = replica.value_at(saved.iteration)
            time = replica.time if point is None else point.time
            births.append(ParentCheckpoint(parent.number, replica.index, time, saved))
        found = self._resolve_point(breed.searched)
        config = self._config(found.settings)
        return Created(number, found.searched, config, last_event, len(births), tuple(births))

    def _resolve_point(self, searched: Mapping[str, Any]) -> Settings:
        """Return the point of the space with these values, without those of inactive parameters.

        Raises BadSpace if an active parameter has no value in `searched`.
        """
        space = self.spec.space

        def given(name: str, _domain: Domain) -> Any:
            """Return a parameter's proposed value; raise BadSpace if it has none."""
            if name not in searched:
                problem = "it has no value, although its condition is met"
                raise space.source.refuse((name,), None, hint="give it a value", problem=problem)
            return searched[name]

        return space.resolve(given)

    def _config(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return all settings that the trainable gets at a point, nested, with those of ``config``.

        `settings` maps the dotted names of the point's settings to their values.
        """
        return self.complete_settings(self.spec.space.nest(settings, self.spec.config))

    # ---- a valid point that is not a duplicate -----------------------------------------------
    #
    # A proposal is rejected if it is not in the space, or if an earlier trial has the same searched
    # settings. Then the searcher is asked again, then random points are tried, and finally, in a
    # countable space, one of the remaining points. All of this is determined by the request.
    # Settings given by a user are accepted as they are.

    def _choose(
        self,
        history: History,
        trials: _KnownTrials,
        suggested: Mapping[str, Any],
        suggestion: Suggested | None,
    ) -> Settings:
        """Return the settings of the next trial after `trials`, which has none of their points.

        The settings that a scheduler gives (`suggested`) or a user (`suggestion`) are fixed. A
        point that a trial has is allowed for these, for the spec's initial points, and if the
        searcher allows duplicates.

        Raises:
            Exhausted: there is no further point.
            BadSpace: no valid point was found.
        """
        index = history.searched_count - history.tried_suggestions
        index += sum(trial.suggestion is None for trial in trials.added)
        if suggestion is not None:
            return self._choose_suggested(history, trials, suggestion.settings, index)
        chosen = bool(suggested) or index < len(self.spec.initial)
        any_will_do = self.searcher.options.duplicates or chosen
        for space in initial.spaces_of(self.spec.space, self.spec.initial, index):
            try:
                return self._find_point(space.pin(suggested), history, trials, any_will_do)
            except Exhausted as error:
                full = str(error)
        crossed = ", ".join(self.spec.space.crossed_domains)
        raise Exhausted(f"{full}, with any value of {crossed}" if crossed else full)

    def _choose_suggested(
        self, history: History, trials: _KnownTrials, suggested: Mapping[str, Any], index: int
    ) -> Settings:
        """Return a point of the space that has a user's `suggested` settings.

        A duplicate is allowed. `index` is the number of searched trials before it that took no
        suggestion. Raises BadSpace if no point of the space has them.
        """
        refused: BadSpace | None = None
        for space in initial.spaces_of_suggestion(
            self.spec.space, self.spec.initial, index, suggested
        ):
            try:
                return self._find_point(space, history, trials, any_will_do=True)
            except BadSpace as error:
                refused = error
        assert refused is not None  # noqa: S101 there is one space at least
        raise refused

    def _find_point(
        self, space: Space, history: History, trials: _KnownTrials, any_will_do: bool
    ) -> Settings:
        """Return a point of `space` that no trial has; any point if `any_will_do`.

        Asks the searcher unless all settings are fixed. Raises Exhausted if there is none.
        """
        # If all settings are given, there is only one point to check.
        found = self._proposals(history, space, trials) if space.domains else [space.draw(0)]
        for settings in found:
            again = any(trial.searched == settings.searched for trial in trials.added)
            if any_will_do or not (again or history.has_settings(settings.searched)):
                return settings
        if not space.domains:
            raise _points.exhausted(1)
        return self._draw_untried(space, trials)

    def _proposals(
        self, history: History, space: Space, trials: _KnownTrials
    ) -> Iterator[Settings]:
        """Yield up to `ASKED` valid proposals of the searcher, then `DRAWN` random points.

        Proposals outside the space are skipped, and so are attempts at which the searcher finds no
        point. Raises UsageError if an answer is not Settings.
        """
        for attempt in range(ASKED):
            request = Request(
                space,
                history.objective,
                trials,
                self.levels,
                self._seed(len(trials), attempt),
                self.spec.seed,
                history.earlier_sweeps,
                attempt,
                history.searched_count + len(trials.added),
                history.touched,
            )
            try:
                with searchers.KIND.calling(self.spec.searcher.name, "suggest"):
                    found = self.searcher.suggest(request)
                point = self._check_proposal(space, found)
            except (BadSpace, Exhausted):
                continue
            yield point
        for attempt in range(ASKED, ASKED + DRAWN):
            yield space.draw(self._seed(len(trials), attempt))

    def _check_proposal(self, space: Space, proposal: object) -> Settings:
        """Return the searcher's answer as a point of the space.

        That of a built-in searcher is trusted; any other is resolved in the space, without values
        of inactive parameters.

        Raises:
            BadSpace: the answer is not in the space.
            UsageError: it is not Settings, or lacks a value.
        """
        if not isinstance(proposal, Settings):
            allowed = "settings from request.space.resolve or request.space.draw"
            raise self._refusal(proposal, allowed)
        if self._is_shipped:
            return proposal
        searched = proposal.searched

        def given(name: str, _domain: Domain) -> Any:
            """Return a parameter's proposed value; raise the refusal if it has none."""
            if name not in searched:
                raise self._refusal(
                    proposal, f"a value for {name}, which is active with these settings"
                )
            return searched[name]

        return space.resolve(given)

    def _refusal(self, proposal: object, allowed: str) -> UsageError:
        """Return the error that the searcher answered `proposal`, which is not `allowed`."""
        who = f"searcher: suggest() of '{self.spec.searcher.name}'"
        return UsageError(f"{who} returned {shorten(proposal)}; expected {allowed}")

    @cached_property
    def _is_shipped(self) -> bool:
        """True if the searcher is shipped with sweep."""
        return searchers.KIND.is_shipped(self.spec.searcher.name)

    def _seed(self, number: int, attempt: int) -> int:
        """Return the seed for the given attempt to propose the settings of trial `number`."""
        path = ("search", number, attempt) if attempt else ("search", number)
        return rng.integer(self.spec.seed, *path)

    def _draw_untried(self, space: Space, trials: Sequence[Trial]) -> Settings:
        """Draw one of the points that no trial in `trials` has; the same for the same trials.

        Raises Exhausted if there is none, or the space has too many points to list.
        """
        points = _points.countable(space)
        if points is None:
            raise Exhausted(
                f"{ASKED + DRAWN} proposals in a row repeated settings that already have a trial; "
                "widen the space or use smaller steps"
            )
        left = list(_points.untried_points(points, trials, range(points.count)))
        if not left:
            raise _points.exhausted(points.count)
        stream = rng.generator(self.spec.seed, "search", len(trials), "left")
        return left[int(stream.integers(len(left)))]


def _check_inside(space: Space, searched: Mapping[str, Any], parent: Trial) -> None:
    """Raise BadConfig if a clone of `parent` would have a value outside the present space.

    `searched` are its settings after the user's changes.
    """
    for name in space.searched:
        if name in searched and not (domain := space.domain_of(name)).contains(searched[name]):
            value = searched[name]
            problem = (
                f"trial {parent.number} has the value {shorten(value)}, which is outside the "
                "present space"
            )
            hint = f"give the clone another {name} too"
            raise BadConfig(f"--set {name}", value, domain.describe(), hint, problem=problem)
