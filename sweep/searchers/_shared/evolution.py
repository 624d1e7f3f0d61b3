"""Generations for NSGA-II and NSGA-III, replayed from the history.

A generation's parents are chosen once, when the first of its trials is proposed, from what was
known then. Optuna keeps that choice in a study's attributes; here it is computed again.
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
# What was known when each trial was proposed (`Trial.seen`). Its generation, and that generation's
# parents, follow from the milestones before then: a replay finds the same in any process.


def seen_by(trials: Sequence[Trial], number: int) -> float:
    """The last event that the proposal of trial `number` was made after."""
    return trials[number].seen if number < len(trials) else math.inf


def rest_of(trial: Trial, k: float) -> Milestone | None:
    """The trial's newest milestone at event `k`, or None if it has no score there, or failed."""
    last = next((rest for rest in reversed(trial.rests) if rest.k <= k), None)
    if last is None or last.status is Status.FAILED or not _is_scored(last):
        return None
    return last


def first_score(trial: Trial) -> float:
    """The event from which the trial has a score; infinite if it has none."""
    return next((rest.k for rest in trial.rests if _is_scored(rest)), math.inf)


class Arrivals:
    """Searched trials in the order in which they first had a score, without bred ones."""

    def __init__(self, trials: Sequence[Trial]) -> None:
        self._waiting = sorted(
            ((first_score(t), t.number) for t in trials if t.parent is None), reverse=True
        )

    def upto(self, k: float) -> Iterator[int]:
        """The numbers of those that arrived by event `k`, each once."""
        while self._waiting and self._waiting[-1][0] <= k and self._waiting[-1][0] < math.inf:
            yield self._waiting.pop()[1]


def _is_scored(rest: Milestone) -> bool:
    """Return whether there was a score in every objective."""
    return all(v is not None and not math.isnan(v) for v in (rest.score, *rest.others))


class EvolutionOptions(SearcherOptions):
    """Settings of a population's evolution."""

    population_size: int = Field(20, ge=2, description="Trials of a generation.")
    mutation_prob: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Probability that a parameter is drawn anew; default: one over their number.",
    )
    crossover_prob: float = Field(
        0.9, ge=0, le=1, description="Probability that a trial has two parents, not one."
    )
    swapping_prob: float = Field(
        0.5, ge=0, le=1, description="Probability that a parameter comes from the other parent."
    )


def generations(trials: Sequence[Trial], population: int) -> list[int]:
    """The generation of each trial and of the one that is to be proposed.

    It is the newest one that any trial with a score belongs to, or the next once that one has
    `population` such trials; Deb et al., 2002, made asynchronous as in Optuna.
    """
    found: list[int] = []
    newest, count = 0, 0
    arrivals = Arrivals(trials)
    for number in range(len(trials) + 1):
        for arrived in arrivals.upto(seen_by(trials, number)):
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
        """Candidates → chosen parents, cached: the choice depends on the candidates alone."""

    def suggest(self, request: Request) -> Settings:
        """Settings of a child of the newest generation's parents; of the first, drawn at random."""
        parents = self._parents(request)
        if len(parents) < 2:  # a crossover needs two
            parents = []
        return _study.suggest(request, self._sampler(parents, request.seed % 2**32), parents)

    def _sampler(self, parents: list[FrozenTrial], seed: int) -> "Sampler":
        with _study.quiet():
            sampler = self.sampler(seed=seed, **self.options.model_dump(exclude={"duplicates"}))
        sampler.parents = parents
        return sampler

    def _parents(self, request: Request) -> list[FrozenTrial]:
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
    """Answers from `parents` what a genetic sampler looks up in the study's attributes."""

    parents: list[FrozenTrial]

    def get_trial_generation(self, study: Study, trial: FrozenTrial) -> int:
        """1 if there are parents, else 0."""
        return int(bool(self.parents))

    def get_parent_population(self, study: Study, generation: int) -> list[FrozenTrial]:
        """The parents that were chosen."""
        return self.parents


class Nsga2(_Replayed, NSGAIISampler):
    """Parents by dominance, then by distance from their neighbours."""


class Nsga3(_Replayed, NSGAIIISampler):
    """Parents by dominance, then by nearness to evenly spread directions."""


Sampler = Nsga2 | Nsga3
