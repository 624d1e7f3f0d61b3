"""Evolution of a normal distribution: CMA-ES.

Hansen, The CMA Evolution Strategy: A Tutorial, arXiv:1604.00772, 2016. The strategy's state is not
stored: past generations are replayed, each with the scores known at the time. After a change of the
space they are replayed in the present one, without the trials outside it.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import cmaes
import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from sweep import searchers
from sweep.history.trial import Trial
from sweep.searchers import Request, SearcherOptions, Supports
from sweep.searchers._shared import evolution
from sweep.spec.space import Choice, Domain, Ordered, Settings, Space
from trainables.core import rng


class Options(SearcherOptions):
    """Options of CMA-ES: the generations and the first distribution."""

    population_size: int | None = Field(
        None,
        ge=4,  # of 3 only the best counts, so that no covariance is learnt: cmaes divides by 0
        description="Number of trials in a generation, at least 4; null: 4 + 3 ln(number of "
        "modelled parameters), rounded down. Choices and parameters with a condition are not "
        "modelled.",
    )
    sigma: float = Field(
        1 / 6,
        gt=0,
        le=1,
        description="Standard deviation of the first generation, as a fraction of each parameter's "
        "range.",
    )
    lr_adapt: bool = Field(
        False,
        description="Adapt the learning rate of CMA-ES to noise: the noisier the scores, "
        "the lower it is.",
    )


class Searcher(searchers.Searcher):
    """CMA-ES: moves and stretches a normal distribution towards the best of each generation."""

    options: Options
    Options: ClassVar[type[SearcherOptions]] = Options
    supports: ClassVar[Supports] = Supports(
        proposes="evolves a normal distribution in generations",
        conditions="drawn at random",
        choices="drawn at random",
        unfinished="does not wait for them, but counts them in their generation",
    )

    def __init__(self, options: SearcherOptions) -> None:
        super().__init__(options)
        self._replayed: _Replay | None = None

    def check(self, space: Space) -> None:
        """Raise BadSpace unless an ordered parameter with several values has no condition."""
        if not modelled(space):
            seen = ", ".join(space.domains) or "no searched parameter"
            problem = (
                "the searcher cmaes needs a searched number without a condition, but the space "
                f"has only {seen}"
            )
            hint = "search such a number, or use searcher: tpe, which models choices too"
            raise space.source.refuse((), seen, hint=hint, problem=problem)

    def suggest(self, request: Request) -> Settings:
        """Return a draw from the distribution after all complete generations.

        Choices and parameters with a condition are drawn at random, and so is every parameter if
        none is modelled. Raises BadSpace if the point is not in the space.
        """
        domains = modelled(request.space)
        if not domains:  # a user fixed every number: only choices are left
            return request.space.draw(request.seed)
        strategy = self._replay(request, domains)
        strategy.reseed_rng(request.seed % 2**32)
        proposed = dict(zip(domains, strategy.ask().tolist(), strict=True))

        def propose(name: str, domain: Domain) -> object:
            """Return CMA-ES's value of a parameter, or a random one if it proposed none."""
            if name in proposed:
                return domain.value_at(proposed[name])
            return domain.value_at(float(rng.generator(request.seed, name).random()))

        return request.space.resolve(propose)

    def _replay(self, request: Request, domains: dict[str, Ordered]) -> cmaes.CMA:
        """Return the distribution after the generations that were complete in time.

        A generation counts for a trial if it was complete when that was proposed. `domains` are the
        modelled parameters. The replay is kept for the next request.
        """
        kept = self._replayed
        if kept is None or kept.domains != domains or not kept.fits(request):
            kept = self._replayed = _Replay(domains=domains, strategy=self._begin(len(domains)))
        return kept.advance(request).strategy

    def _begin(self, count: int) -> cmaes.CMA:
        """Return a new strategy of `count` dimensions, in the middle of the unit cube."""
        return cmaes.CMA(
            mean=np.full(count, 0.5),
            sigma=self.options.sigma,
            bounds=np.tile([0.0, 1.0], (count, 1)),
            n_max_resampling=10 * count,
            seed=0,
            population_size=self.options.population_size,
            lr_adapt=self.options.lr_adapt,
        )


@dataclass(kw_only=True)
class _Replay(evolution.Replay):
    """Replay of CMA-ES: the distribution after the proposals so far."""

    domains: dict[str, Ordered]
    """Name → domain of each parameter that the distribution models."""
    strategy: cmaes.CMA
    """Strategy of the package `cmaes`, with the distribution after these proposals."""
    generations: list[int] = field(default_factory=list)
    """Number of the generation of each trial, by number of the trial."""
    ready: list[int] = field(default_factory=list)
    """Numbers of the trials of the present generation that have scores."""

    def copy(self) -> "_Replay":
        """Return a copy on which proposals of trials that are not in the ledger can be replayed."""
        return replace(
            self,
            waiting=[*self.waiting],
            strategy=copy.deepcopy(self.strategy),
            generations=[*self.generations],
            ready=[*self.ready],
        )

    def step(self, trials: Sequence[Trial], number: int) -> None:
        """Assign trial `number` to the present generation.

        The distribution moves first if the scores known when the trial was proposed complete a
        generation.
        """
        k, strategy = evolution.seen_by(trials, number), self.strategy
        arrived = self.take_arrived(k, trials)
        self.ready += [n for n in arrived if self.generations[n] == strategy.generation]
        if len(self.ready) >= strategy.population_size:
            first = sorted(self.ready)[: strategy.population_size]
            strategy.tell([_solution(trials[n], k, self.domains) for n in first])
            self.ready.clear()
        self.generations.append(strategy.generation)


def _solution(
    trial: Trial, k: float, domains: dict[str, Ordered]
) -> tuple[NDArray[np.float64], float]:
    """Return a trial's point (d,), one quantile per domain, and its cost at event number `k`.

    The cost is the score then known, negated if the metric is maximised. It is infinite if the
    trial had failed by then, or has no score.
    """
    milestone = evolution.scored_milestone(trial, k)
    score = -np.inf if milestone is None else trial.objective.sign * (milestone.score or 0.0)
    values = [d.quantile(trial.searched[name]) for name, d in domains.items()]
    return np.array(values), -score


def modelled(space: Space) -> dict[str, Ordered]:
    """Return name → domain of the parameters with an order, several values, and no condition."""
    return {
        name: domain
        for name, domain in space.domains.items()
        if not isinstance(domain, Choice)
        and not space.parameters[name].needs
        and domain.size() != 1
    }
