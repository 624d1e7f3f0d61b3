"""A searcher that uses the prior as long as the prior's proposals do well."""

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
from sweep.searchers._shared.prior.sources import GamesPrior, SweepsPrior, look_up
from sweep.spec import SweepSpec
from sweep.spec.space import Settings, Space
from trainables.core import rng

ORIGIN = "prior"
"""Value of `Created.origin` for settings that the prior proposed."""
DRAWN = 64
"""Number of random settings of which the prior proposes the one with the best expectation."""
NEWEST = 60
"""Number of newest trials by which prior and searcher are compared."""
SUCCESS = 1 / 3
"""Share of these trials, the best ones, that count as successes."""
AT_FIRST = 2.0
"""Initial number of the prior's proposals for each one of the searcher."""
LEAST = 0.1
"""Minimum share of proposals of the prior, and of the searcher, whatever their success."""


class Mixture(searchers.Searcher):
    """Searcher that lets a prior or another searcher propose, each as often as it succeeds."""

    Options: ClassVar[type[SearcherOptions]] = PriorOptions
    supports: Supports  # type: ignore[misc]  # those of the searcher, so of the instance
    """Abilities of the other searcher."""

    def __init__(
        self,
        searcher: Searcher,
        shipped: Model | None,
        space: Space,
        config: Mapping[str, Any],
    ) -> None:
        """Mix proposals of `searcher` with those of the prior.

        Args:
            searcher: proposes when the prior does not.
            shipped: model of the package's games, or None without them.
            space: space of the sweep, in which earlier sweeps are read.
            config: nested settings that are not in the space.
        """
        super().__init__(searcher.options)
        self.supports = searcher.supports
        self._searcher = searcher
        self._games = None if shipped is None else GamesPrior(shipped, config)
        self._past = SweepsPrior((), space)

    def check(self, space: Space) -> None:
        """Raise BadSpace or BadConfig if the other searcher cannot search `space`."""
        self._searcher.check(space)

    def suggest(self, request: Request) -> Settings:
        """Return settings that the prior or the other searcher proposes.

        The stream of the request's seed draws which one, by their successes so far; without earlier
        results or searched parameters it is always the other searcher. The prior proposes the
        likeliest to succeed of `DRAWN` random settings and, at the first attempt, some of the best
        of earlier sweeps. Its settings have the origin `ORIGIN` and a reason.
        """
        if self._past.sweeps is not request.learnt:
            self._past = SweepsPrior(request.learnt, self._past.space)
        sources = self._sources
        stream = rng.generator(request.seed, "prior")
        share = prior_share(request.trials)
        if not request.space.domains or stream.random() >= share or not sources:
            return self._searcher.suggest(request)
        drawn = [request.space.sample(stream) for _ in range(DRAWN)]
        if request.attempt == 0:  # only at the first attempt: a duplicate would be rejected again
            drawn += self._past.sample_best(request.space, stream)
        expected = np.sum([source.expected(drawn) for source in sources], axis=0)
        best = drawn[int(expected.round(9).argmax())]
        why = "; ".join(source.describe(best) for source in sources)
        return Settings(best.searched, best.settings, ORIGIN, why)

    @property
    def _sources(self) -> list[GamesPrior | SweepsPrior]:
        """Parts of the prior: the package's games, and earlier sweeps, as far as there are any."""
        games_ = [] if self._games is None else [self._games]
        return [*games_, *([self._past] if self._past.sweeps else [])]


def blend(searcher: Searcher, spec: SweepSpec) -> Searcher:
    """Return a sweep's searcher, mixed with a prior if its option `prior` asks for one.

    Returns `searcher` itself with ``none``, without the option, and with ``auto`` unless the
    package has enough games of the trainable, and the sweep searches one of their settings and
    maximises a return. Raises BadConfig if the option names an unknown game, or games of several
    trainables.
    """
    options = searcher.options
    if not isinstance(options, PriorOptions) or options.prior == "none":
        return searcher
    trainable: str = spec.trainable
    played: tuple[Game, ...] = ()
    if options.prior == "auto":
        played = games.known(trainable) if _is_return(spec) else ()
        played = played if len(played) >= games.ENOUGH else ()
    elif options.prior != "root":
        trainable, played = _named(options.prior, spec)
    shipped = _shipped(trainable, played, spec)
    if shipped is None and options.prior == "auto":
        return searcher
    return Mixture(searcher, shipped, spec.space, spec.config)


def _shipped(trainable: str, shipped: Sequence[Game], spec: SweepSpec) -> Model | None:
    """Return the model of the games `shipped` with the package, for a sweep of `trainable`.

    It has the settings that the sweep searches or fixes, without those of which the games show no
    effect for so long a training. Returns None without games, or if none of their settings is
    searched.
    """
    columns, length = games.COLUMNS.get(trainable, ()), spec.stop.get("timesteps_total", 0.0)
    described = [column.key for column in columns if length <= column.longest]
    searched = [key for key in described if key in spec.space.parameters]
    if not shipped or not searched:
        return None
    fixed = [key for key in described if look_up(spec.config, key) is not None]
    return Model(columns, shipped, [*searched, *fixed])


def _named(names: Sequence[str], spec: SweepSpec) -> tuple[str, tuple[Game, ...]]:
    """Return the name of the trainable of the games among `names`, and these games.

    Both may be empty. Raises BadConfig if a game is unknown or they belong to several trainables.
    """
    known = games.by_name()
    asked = [name for name in dict.fromkeys(names) if games.is_name(name)]
    trainables = {name.split("/")[0] for name in asked}
    if len(trainables) > 1 or not known.keys() >= set(asked):
        allowed = f"auto, none, root, sweeps, or {games.describe_all()}"
        given, unknown = ", ".join(asked), ", ".join(one for one in asked if one not in known)
        problem = f"there are no stored training results of {unknown}"
        problem = problem if unknown else f"the games {given} belong to several trainables"
        raise spec.source.refuse(("searcher", "prior"), given, allowed, problem=problem)
    return "".join(trainables), tuple(known[name][1] for name in asked)


def prior_share(trials: Sequence[Trial]) -> float:
    """Return the probability that the prior proposes the next settings, given all trials so far.

    It is the prior's rate of successes over the sum of both rates, within `LEAST` to 1 - `LEAST`.
    Initially each rate is as if the prior had succeeded twice and the searcher once in three
    trials. Of the newest `NEWEST` trials, those count that have paused or ended with a score, or
    failed; offspring and clones do not. The best `SUCCESS` of them, by rungs and then by score, are
    successes.
    """
    scored = ((trial, trial.score) for trial in trials[-NEWEST:] if _is_settled(trial))
    ranked = sorted(
        (-_rungs(trial), rank_key(trial, score), trial)
        for trial, score in scored
        if score is not None or trial.status is Status.FAILED
    )
    known = [trial for *_, trial in ranked]  # ranks differ, so no two trials are compared
    successes = {trial.number for trial in known[: round(SUCCESS * len(known))]}
    rates = []
    for is_prior, begin in ((True, AT_FIRST), (False, 1.0)):
        own = [trial.number for trial in known if (trial.origin == ORIGIN) == is_prior]
        rates.append((begin + len(successes.intersection(own))) / (3.0 + len(own)))
    share = rates[0] / sum(rates)
    return min(max(share, LEAST), 1.0 - LEAST)


def _is_settled(trial: Trial) -> bool:
    """Return whether a trial has begun, does not run now, and is neither offspring nor clone."""
    return trial.status not in (Status.WAITING, Status.RUNNING) and trial.has_searched_settings


def _rungs(trial: Trial) -> int:
    """Return the number of pauses and ends of a trial; 0 if it failed."""
    return 0 if trial.status is Status.FAILED else len(trial.milestones)


def _is_return(spec: SweepSpec) -> bool:
    """Return whether mode is max and the metric's name ends with ``episode_reward_mean``."""
    return spec.mode == "max" and spec.metric.endswith("episode_reward_mean")
