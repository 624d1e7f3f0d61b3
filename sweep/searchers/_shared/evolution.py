"""Generations for NSGA-II and NSGA-III, replayed from the history.

A generation's parents are chosen once, when its first trial is proposed, from what was known then.
Optuna stores that choice in a study's attributes; here it is computed again. If the space was
changed, all generations are replayed in the present one: trials outside it are in no generation, as
they could not be crossed.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

from optuna.distributions import BaseDistribution
from optuna.samplers import NSGAIIISampler, NSGAIISampler
from optuna.study import Study
from optuna.trial import FrozenTrial
from pydantic import Field

from sweep import searchers
from sweep.history.events import Status
from sweep.history.trial import Milestone, Trial
from sweep.searchers import Request, SearcherOptions, Supports
from sweep.searchers._shared import study as _study
from sweep.searchers._shared.study import AsComplete
from sweep.spec.space import Settings, Space
from sweep.spec.space.parameters import Parameter
from trainables.core import rng

# -------------------------------------------------------------------------------------------------
# The information available at each proposal (`Trial.proposed_after`). A trial's generation and that
# generation's parents follow from the milestones before then: a replay finds the same in any
# process.


def seen_by(trials: Sequence[Trial], number: int) -> float:
    """Return the number of the newest event that was known when trial `number` was proposed.

    It is infinite for the new trial, which is not in `trials`.
    """
    return trials[number].proposed_after if number < len(trials) else math.inf


def scored_milestone(trial: Trial, k: float) -> Milestone | None:
    """Return the newest pause or end of a trial up to event number `k`, with its scores.

    Returns None if there is none, if a score is missing there, or if it failed.
    """
    last = trial.milestone_at(k)
    if last is None or last.status is Status.FAILED or not _is_scored(last):
        return None
    return last


def first_score(trial: Trial) -> float:
    """Return the number of the event since which the trial has scores; infinite without one."""
    scored = (milestone.event for milestone in trial.milestones if _is_scored(milestone))
    return next(scored, math.inf)


@dataclass
class Replay:
    """State of an evolution, computed by repeating all proposals so far, in order.

    It is kept for the next request, but only with proposals of trials in the ledger, since the
    history that these saw never changes.
    """

    replayed: int = 0
    """Number of first trials whose proposals are included in the state."""
    touched: Sequence[int] | None = None
    """`Request.touched` of the history that was replayed; None if its changes were unknown."""
    parameters: Mapping[str, Parameter] | None = None
    """Parameters of the space in which the history was replayed, by name; None before the first
    trial."""
    waiting: list[int] = field(default_factory=list)
    """Numbers of the replayed trials that had no score at the last proposal; offspring and trials
    outside the space are left out."""

    def fits(self, request: Request) -> bool:
        """Return whether the replay can continue with a request.

        History and space must be the same, and the trials no fewer.
        """
        same = request.touched is not None and request.touched is self.touched
        same = same and self.parameters is request.space.parameters
        return same and self.replayed <= request.number

    def take_arrived(self, k: float, trials: Sequence[Trial]) -> list[int]:
        """Return the waiting trials that have scores by event number `k`, ordered by these events.

        They are removed from `waiting`.
        """
        scored = ((first_score(trials[number]), number) for number in self.waiting)
        arrived = [number for at, number in sorted(scored) if at <= k and at < math.inf]
        self.waiting = [number for number in self.waiting if number not in arrived]
        return arrived

    def advance(self, request: Request) -> Self:
        """Return the state at the proposal of a request's new trial, replaying what is missing.

        Steps of trials in the ledger change this object; later ones change a copy, which is then
        the result.
        """
        state, trials = self, request.trials
        self.touched, self.parameters = request.touched, request.space.parameters
        for number in range(self.replayed, request.number + 1):
            if state is self and not is_recorded(request, number):
                state = self.copy()
            state.step(trials, number)
            if number < request.number and is_member(request.space, trials[number]):
                state.waiting.append(number)
            if state is self:
                self.replayed += 1
        return state

    def copy(self) -> Self:
        """Return a copy on which proposals of trials that are not in the ledger can be replayed."""
        raise NotImplementedError

    def step(self, trials: Sequence[Trial], number: int) -> None:
        """Replay the proposal of trial `number`, which may be the new one; subclasses define it."""
        raise NotImplementedError


def is_member(space: Space, trial: Trial) -> bool:
    """Return whether a trial belongs to a generation.

    It does unless it is an offspring or its settings are outside the space.
    """
    return trial.parent is None and space.has(trial.searched)


def is_recorded(request: Request, number: int) -> bool:
    """Return whether trial `number` is in the ledger, and not the new one or just proposed."""
    return number < request.number and request.trials[number].newest_event > 0


def _is_scored(milestone: Milestone) -> bool:
    """Return whether a pause or end of a trial has a score in every objective."""
    return all(
        v is not None and not math.isnan(v) for v in (milestone.score, *milestone.other_scores)
    )


class EvolutionOptions(SearcherOptions):
    """Options of searchers that evolve a population by crossing and mutation."""

    population_size: int = Field(20, ge=2, description="Number of trials in a generation.")
    mutation_prob: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Probability that a parameter is redrawn; null: 1 / number of parameters.",
    )
    crossover_prob: float = Field(
        0.9, ge=0, le=1, description="Probability that a trial has two parents instead of one."
    )
    swapping_prob: float = Field(
        0.5,
        ge=0,
        le=1,
        description="With two parents: probability that a parameter is taken from the second one.",
    )


@dataclass
class Generations(Replay):
    """Replay that assigns each trial to a generation and remembers the parents of each.

    A trial belongs to the newest generation that any scored trial belongs to, or to the next one if
    that one has `population` scored trials; Deb et al., 2002, made asynchronous as in Optuna.
    """

    population: int = 20
    """Number of parents of a generation, and of scored trials that complete one."""
    generations: list[int] = field(default_factory=list)
    """Index of the generation of each trial, by number of the trial; ascending."""
    firsts: list[int] = field(default_factory=list)
    """Number of the first trial of each generation."""
    newest: int = 0
    """Index, from 0, of the newest generation of which a trial has scores; 0 before any has."""
    count: int = 0
    """Number of trials of the generation `newest` that have scores."""
    parents: list[list[int]] = field(default_factory=list)
    """Numbers of the trials that are parents of each generation; the first list is of generation 1.
    Only generations whose first trial is in the ledger have one."""

    def copy(self) -> "Generations":
        """Return a copy on which proposals of trials that are not in the ledger can be replayed."""
        return replace(
            self, waiting=[*self.waiting], generations=[*self.generations], firsts=[*self.firsts]
        )

    def step(self, trials: Sequence[Trial], number: int) -> None:
        """Assign trial `number` to a generation, by the scores known when it was proposed.

        Trials with such scores leave `waiting`, and `newest` and `count` are updated. Then appends
        to `generations`, and to `firsts` if the trial is the first of its generation. To be called
        for each number in turn, from 0.
        """
        for arrived in self.take_arrived(seen_by(trials, number), trials):
            if self.generations[arrived] > self.newest:
                self.newest, self.count = self.generations[arrived], 0
            self.count += self.generations[arrived] == self.newest
        generation = self.newest if self.count < self.population else self.newest + 1
        if generation == len(self.firsts):
            self.firsts.append(number)
        self.generations.append(generation)


class Evolving(searchers.Searcher):
    """Base of NSGA-II and NSGA-III: crosses and mutates the best settings of a generation."""

    Options: ClassVar[type[SearcherOptions]] = EvolutionOptions
    options: EvolutionOptions
    supports: ClassVar[Supports] = Supports(
        proposes="evolves a population in generations",
        conditions="crossed if both parents have them, else drawn at random",
        choices="crossed and mutated",
        unfinished="does not wait for them, but counts them in their generation",
        objectives=True,
        constraints=True,
    )
    sampler: "ClassVar[type[Sampler]]"
    """Class of the sampler of Optuna that proposes."""

    def __init__(self, options: SearcherOptions) -> None:
        super().__init__(options)
        self._chosen: dict[Any, tuple[int, ...]] = {}
        """Generation, seed and candidates → numbers of the trials chosen as parents; a cache."""
        self._replayed = self._begin()
        self._frozen: tuple[Any, list[FrozenTrial]] = (None, [])

    def suggest(self, request: Request) -> Settings:
        """Return settings crossed from parents of the newest generation, and mutated.

        They come from one parent if no crossover is drawn (`crossover_prob`). They are drawn at
        random as long as there are fewer than two parents. Raises BadSpace if the proposal is not a
        point of the space.
        """
        parents = self._parents(request)
        if len(parents) < 2:  # a crossover needs two
            parents = []
        return _study.suggest(request, self._sampler(parents, request.seed % 2**32), parents)

    def _sampler(self, parents: list[FrozenTrial], seed: int) -> "Sampler":
        """Return a new sampler of Optuna with the searcher's options, these parents and seed."""
        with _study.without_warnings():
            own = self.options.model_dump(exclude=set(SearcherOptions.model_fields))
            sampler = self.sampler(seed=seed, **own)
        sampler.parents = parents
        return sampler

    def _parents(self, request: Request) -> list[FrozenTrial]:
        """Return the parents of the newest generation as Optuna's trials; none in the first one.

        All earlier choices of parents are replayed first, and kept if they follow from trials in
        the ledger.
        """
        if not self._replayed.fits(request):
            self._replayed = self._begin()
        state = self._replayed.advance(request)
        firsts, trials = state.firsts, request.trials
        elite, k = [trials[n] for n in state.parents[-1]] if state.parents else [], 0.0
        for generation in range(len(state.parents) + 1, len(firsts)):
            first = firsts[generation]
            candidates = trials[firsts[generation - 1] : first]
            members = [t for t in candidates if is_member(request.space, t)]
            k = seen_by(trials, first)
            pool = [t for t in (*members, *elite) if scored_milestone(t, k) is not None]
            elite = self._choose(request, pool, k, generation)
            if is_recorded(request, first) and len(self._replayed.parents) == generation - 1:
                self._replayed.parents.append([t.number for t in elite])
        if elite:
            k = seen_by(trials, firsts[-1])
        return self._freeze(request.space, elite, k)

    def _begin(self) -> Generations:
        """Return a replay without any trial."""
        return Generations(population=self.options.population_size)

    def _freeze(self, space: Space, elite: Sequence[Trial], k: float) -> list[FrozenTrial]:
        """Return the parents `elite` as Optuna's trials, with the scores known at event number `k`.

        The last result for a past event is kept.
        """
        key = (space.parameters, space.pinned, [trial.number for trial in elite], k)
        if k == math.inf or key != self._frozen[0]:
            found = [
                _study.freeze(t, space.domains, AsComplete(k)(t), n) for n, t in enumerate(elite)
            ]
            self._frozen = (key, found)
        return self._frozen[1]

    def _choose(
        self, request: Request, pool: Sequence[Trial], k: float, generation: int
    ) -> list[Trial]:
        """Return those of `pool` that become parents of `generation`, by the scores at event `k`.

        Optuna's sampler chooses at most `population_size`; the result is kept.
        """
        scores = {trial.number: AsComplete(k)(trial) for trial in pool}
        key = (generation, request.sweep_seed, *scores.items())
        if key not in self._chosen:
            seed = rng.integer(request.sweep_seed, "generation", generation) % 2**32
            known = [
                _study.freeze(trial, {}, scores[trial.number], place)
                for place, trial in enumerate(pool)
            ]
            sampler = self._sampler([], seed)
            study = _study.study_of(request, [], sampler)
            elite = sampler._elite_population_selection_strategy(study, known)
            self._chosen[key] = tuple(pool[t.number].number for t in elite)
        return [request.trials[number] for number in self._chosen[key]]


class _Replayed:
    """Mixin for Optuna's genetic samplers that makes them use given `parents`.

    They are otherwise read from a study's records of generations.
    """

    parents: list[FrozenTrial]
    """Parents to cross, as Optuna's trials; set before each proposal."""

    def get_trial_generation(self, study: Study, trial: FrozenTrial) -> int:
        """Return 1 if there are parents, else 0, so that Optuna crosses only then."""
        return int(bool(self.parents))

    def get_parent_population(self, study: Study, generation: int) -> list[FrozenTrial]:
        """Return the given parents, whatever the study contains."""
        return self.parents

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Return the distributions of the parameters that all parents have.

        Parameters with a single value are left out.
        """
        return _study.shared_distributions(self.parents)


class Nsga2(_Replayed, NSGAIISampler):
    """Optuna's NSGA-II: selects parents by dominance, then by distance from their neighbours."""


class Nsga3(_Replayed, NSGAIIISampler):
    """Optuna's NSGA-III: selects parents by dominance, then by nearness to spread directions."""


Sampler = Nsga2 | Nsga3
