"""A searcher whose proposals come from the prior as long as the prior earns it."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from sweep import searchers
from sweep.history.events import Status
from sweep.history.trial import Trial, rank_key
from sweep.searchers import Request, Searcher, SearcherOptions, Supports
from sweep.searchers._shared.prior import PriorOptions, games
from sweep.searchers._shared.prior.games import Game
from sweep.searchers._shared.prior.model import Model
from sweep.searchers._shared.prior.sources import OfGames, OfSweeps, look_up
from sweep.space import Settings, Space
from sweep.spec import SweepSpec
from trainables.core import rng

ORIGIN = "prior"
"""Origin of settings that the prior proposed."""
DRAWN = 64
"""Random settings of which the prior proposes the one that it expects most of."""
NEWEST = 60
"""Trials by which the prior and the searcher are compared, the newest ones."""
SUCCESS = 1 / 3
"""Share of these trials, the best ones, that count as successes."""
AT_FIRST = 2.0
"""Proposals of the prior for each one of the searcher's model while nothing is known."""
LEAST = 0.1
"""Share of the proposals that the prior and the model each keep, whatever they have done so far."""


class Mixture(searchers.Searcher):
    """Proposes by the prior or by the searcher, in shares that follow from their successes."""

    Options: ClassVar[type[SearcherOptions]] = PriorOptions
    supports: Supports  # type: ignore[misc]  # those of the searcher, so of the instance

    def __init__(
        self,
        searcher: Searcher,
        shipped: Model | None,
        space: Space,
        config: Mapping[str, Any],
    ) -> None:
        """Mix `searcher` with the prior.

        Args:
            searcher: proposes where the prior does not.
            shipped: the model of the package's games; None: the sweep asks for none of them.
            space: that of the sweep, in which earlier sweeps are read.
            config: settings that the space does not hold, nested.
        """
        super().__init__(searcher.options)
        self.supports = searcher.supports
        self._searcher = searcher
        self._games = None if shipped is None else OfGames(shipped, config)
        self._past = OfSweeps((), space)

    def check(self, space: Space) -> None:
        """Refuse the spaces that the searcher cannot search."""
        self._searcher.check(space)

    def suggest(self, request: Request) -> Settings:
        """Return settings of the prior or of the searcher."""
        if self._past.sweeps is not request.learnt:
            self._past = OfSweeps(request.learnt, self._past.space)
        sources = self._sources
        stream = rng.generator(request.seed, "prior")
        share = prior_share(request.trials)
        if not request.space.domains or stream.random() >= share or not sources:
            return self._searcher.suggest(request)
        drawn = [request.space.draw(int(seed)) for seed in stream.integers(2**62, size=DRAWN)]
        if request.attempt == 0:  # a point that was tried already is not offered again
            drawn += self._past.again(request.space, stream)
        expected = np.sum([source.expected(drawn) for source in sources], axis=0)
        best = drawn[int(expected.round(9).argmax())]
        why = "; ".join(source.describe(best) for source in sources)
        return Settings(best.searched, best.settings, ORIGIN, why)

    @property
    def _sources(self) -> list[OfGames | OfSweeps]:
        games_ = [] if self._games is None else [self._games]
        return [*games_, *([self._past] if self._past.sweeps else [])]


def blend(searcher: Searcher, spec: SweepSpec) -> Searcher:
    """Return the searcher of a sweep, mixed with a prior if its options and the sweep admit one.

    Raises:
        BadConfig: the options name a game that the package does not know, or games of several
            trainables.
    """
    options = searcher.options
    if not isinstance(options, PriorOptions) or options.prior == "none":
        return searcher
    trainable: str = spec.trainable
    found: tuple[Game, ...] = ()
    if options.prior == "auto":
        found = games.known(trainable) if _is_return(spec) else ()
        found = found if len(found) >= games.ENOUGH else ()
    elif options.prior != "root":
        trainable, found = _named(options.prior, spec)
    shipped = _shipped(trainable, found, spec)
    if shipped is None and options.prior == "auto":
        return searcher
    return Mixture(searcher, shipped, spec.space, spec.config)


def _shipped(trainable: str, found: Sequence[Game], spec: SweepSpec) -> Model | None:
    """Return the model of games. Returns None if they share no setting with the space."""
    columns = games.COLUMNS.get(trainable, ())
    has = [name for name in spec.space.parameters if not name.startswith("_")]
    if not found or not any(column.key in has for column in columns):
        return None
    fixed = [c.key for c in columns if look_up(spec.config, c.key) is not None]
    return Model(columns, found, [*has, *fixed])


def _named(names: Sequence[str], spec: SweepSpec) -> tuple[str, tuple[Game, ...]]:
    """Return the trainable of the games that a spec names, and these games."""
    known = games.by_name()
    asked = [name for name in dict.fromkeys(names) if games.is_name(name)]
    trainables = {name.split("/")[0] for name in asked}
    if len(trainables) > 1 or not known.keys() >= set(asked):
        allowed = f"auto, none, root, sweeps, or {games.described()}"
        raise spec.source.refuse(("searcher", "prior"), ", ".join(asked), allowed)
    return "".join(trainables), tuple(known[name][1] for name in asked)


def prior_share(trials: Sequence[Trial]) -> float:
    """Return the probability that the prior proposes next, given all trials so far.

    It is the prior's rate of successes over the sum of both rates; each rate begins as if the prior
    had succeeded twice and the searcher once in three trials.
    """
    known = [trial for trial in trials[-NEWEST:] if _is_known(trial)]
    known.sort(key=lambda trial: (-_rungs(trial), rank_key(trial, trial.score)))
    successes = {trial.number for trial in known[: round(SUCCESS * len(known))]}
    rates = []
    for is_prior, begin in ((True, AT_FIRST), (False, 1.0)):
        own = [trial.number for trial in known if (trial.origin == ORIGIN) == is_prior]
        rates.append((begin + len(successes.intersection(own))) / (3.0 + len(own)))
    share = rates[0] / sum(rates)
    return min(max(share, LEAST), 1.0 - LEAST)


def _is_known(trial: Trial) -> bool:
    """Return whether a trial says something about its settings alone."""
    settled = trial.status not in (Status.WAITING, Status.RUNNING)
    return settled and trial.counts and (trial.score is not None or trial.status is Status.FAILED)


def _rungs(trial: Trial) -> int:
    """Return how often a trial came to rest and was promoted; failed trials count as none."""
    return 0 if trial.status is Status.FAILED else len(trial.rests)


def _is_return(spec: SweepSpec) -> bool:
    return spec.mode == "max" and spec.metric.endswith("episode_reward_mean")
