"""Generations for NSGA-II and NSGA-III, replayed from the history.

A generation's parents are chosen once, when its first trial is proposed, from what was known then.
Optuna stores that choice in a study's attributes; here it is computed again.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

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
from sweep.space import Settings
from trainables.core import rng

# -------------------------------------------------------------------------------------------------
# The information available at each proposal (`Trial.seen`). A trial's generation and that
# generation's parents follow from the milestones before then: a replay finds the same in any
# process.


def seen_by(trials: Sequence[Trial], number: int) -> float:
    """Return the number of the last event before the proposal of trial `number`.

    Infinite if it is new.
    """
    return trials[number].seen if number < len(trials) else math.inf


def rest_of(trial: Trial, k: float) -> Milestone | None:
    """Return the trial's newest milestone at event `k`.

    None without a score there, or if it failed.
    """
    last = next((rest for rest in reversed(trial.milestones) if rest.k <= k), None)
    if last is None or last.status is Status.FAILED or not _is_scored(last):
        return None
    return last


def first_score(trial: Trial) -> float:
    """Return the number of the event from which the trial has a score; infinite without one."""
    return next((rest.k for rest in trial.milestones if _is_scored(rest)), math.inf)


class Arrivals:
    """Searched trials in the order of their first scores, without offspring."""

    def __init__(self, trials: Sequence[Trial]) -> None:
        self._waiting = sorted(
            ((first_score(t), t.number) for t in trials if t.parent is None), reverse=True
        )

    def arrived_by(self, k: float) -> Iterator[int]:
        """Yield the numbers of those that arrived by event `k`, each once over all calls."""
        while self._waiting and self._waiting[-1][0] <= k and self._waiting[-1][0] < math.inf:
            yield self._waiting.pop()[1]


def _is_scored(rest: Milestone) -> bool:
    """Return whether a milestone has a score in every objective."""
    return all(v is not None and not math.isnan(v) for v in (rest.score, *rest.other_scores))


class EvolutionOptions(SearcherOptions):
    """Settings of a population's evolution."""

    population_size: int = Field(20, ge=2, description="Number of trials in a generation.")
    mutation_prob: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Probability that a parameter is redrawn; default: 1 / number of parameters.",
    )
    crossover_prob: float = Field(
        0.9, ge=0, le=1, description="Probability that a trial has two parents instead of one."
    )
    swapping_prob: float = Field(
        0.5, ge=0, le=1, description="Probability that a parameter is taken from the second parent."
    )


def generations(trials: Sequence[Trial], population: int) -> list[int]:
    """Return the generation of each trial and of the one to be proposed.

    It is the newest generation that any scored trial belongs to, or the next one if that one has
    `population` such trials; Deb et al., 2002, made asynchronous as in Optuna.
    """
    found: list[int] = []
    newest, count = 0, 0
    arrivals = Arrivals(trials)
    for number in range(len(trials) + 1):
        for arrived in arrivals.arrived_by(seen_by(trials, number)):
            if found[arrived] > newest:
                newest, count = found[arrived], 0
            count += found[arrived] == newest
        found.append(newest if count < population else newest + 1)
    return found


class Evolving(searchers.Searcher):
    """Crosses and mutates the best settings of a generation."""

    Options: ClassVar[type[SearcherOptions]] = EvolutionOptions
    options: EvolutionOptions
    supports: ClassVar[Supports] = Supports(
        proposes="evolves a population in generations",
        conditions="crossed where both parents have them, else drawn at random",
        choices="crossed and mutated",
        unfinished="does not wait for them; they belong to their generation",
        objectives=True,
        constraints=True,
    )
    sampler: "ClassVar[type[Sampler]]"

    def __init__(self, options: SearcherOptions) -> None:
        super().__init__(options)
        self._chosen: dict[Any, tuple[int, ...]] = {}
        """Candidates → chosen parents, cached: the choice depends only on the candidates."""

    def suggest(self, request: Request) -> Settings:
        """Return settings of an offspring of the newest generation's parents.

        Random in the first one.
        """
        parents = self._parents(request)
        if len(parents) < 2:  # a crossover needs two
            parents = []
        return _study.suggest(request, self._sampler(parents, request.seed % 2**32), parents)

    def _sampler(self, parents: list[FrozenTrial], seed: int) -> "Sampler":
        """Return Optuna's sampler with these parents."""
        with _study.without_warnings():
            sampler = self.sampler(seed=seed, **self.options.model_dump(exclude={"duplicates"}))
        sampler.parents = parents
        return sampler

    def _parents(self, request: Request) -> list[FrozenTrial]:
        """Return the parents of the newest generation, replaying all earlier choices."""
        numbers = generations(request.trials, self.options.population_size)
        elite: list[Trial] = []
        k = 0.0
        for generation in range(1, numbers[-1] + 1):
            k = seen_by(request.trials, numbers.index(generation))
            members = [
                t
                for t in request.trials
                if numbers[t.number] == generation - 1 and t.parent is None
            ]
            pool = [t for t in (*members, *elite) if rest_of(t, k) is not None]
            elite = self._choose(request, pool, k, generation)
        domains = request.space.domains
        return [_study.freeze(t, domains, AsComplete(k)(t), n) for n, t in enumerate(elite)]

    def _choose(
        self, request: Request, pool: Sequence[Trial], k: float, generation: int
    ) -> list[Trial]:
        """Return the trials of `pool` that become parents of `generation`, as seen at event `k`."""
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
    """Mixin that replaces a genetic sampler's look-ups in the study's attributes by `parents`."""

    parents: list[FrozenTrial]

    def get_trial_generation(self, study: Study, trial: FrozenTrial) -> int:
        """Return 1 if there are parents, else 0."""
        return int(bool(self.parents))

    def get_parent_population(self, study: Study, generation: int) -> list[FrozenTrial]:
        """Return the chosen parents."""
        return self.parents


class Nsga2(_Replayed, NSGAIISampler):
    """Selects parents by dominance, then by distance from their neighbours."""


class Nsga3(_Replayed, NSGAIIISampler):
    """Selects parents by dominance, then by nearness to evenly spread directions."""


Sampler = Nsga2 | Nsga3
