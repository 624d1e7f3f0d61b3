"""Sources of a prior: games of the package, and earlier sweeps."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from sweep.core.errors import BadSpace
from sweep.history.events import EarlierSweep, RankedSettings
from sweep.searchers._shared.prior.games import Array, Game
from sweep.searchers._shared.prior.model import Model
from sweep.spec.space import Choice, Domain, Settings, Space, canonical, choice_key

#: Coordinate of a selected choice: two choices are as far apart as the ends of a range.
CHOSEN = math.sqrt(0.5)
#: Share of an earlier sweep's trials, the best ones, whose settings may be proposed again.
BEST = 1 / 3
#: Number of them added to the random points of one proposal.
AGAIN = 8
#: Maximum number of earlier sweeps named in an explanation.
NAMED = 4


@dataclass(frozen=True)
class GamesPrior:
    """Prior from results on the games of the package."""

    model: Model
    """Model fitted to the games."""
    config: Mapping[str, Any]
    """Nested settings of the sweep that are not in its space."""

    def expected(self, proposals: Sequence[Settings]) -> Array:
        """Return by how much each proposal is likelier than random settings to succeed, (n,)."""
        return self.model.expected([self._read(one) for one in proposals])

    def describe(self, proposal: Settings) -> str:
        """Return a text on what share of each game's settings such settings beat."""
        shares = self.model.place_in_games(self._read(proposal))
        pairs = zip(self.model.games, shares, strict=True)
        names = ", ".join(f"{game.name} {100 * share:.0f} %" for game, share in pairs)
        return (
            f"on other games, settings like these beat this share of all that were tried: {names}"
        )

    def _read(self, proposal: Settings) -> dict[str, Any]:
        """Return dotted name → value of the proposal's settings, and of columns in ``config``."""
        return {**self._fixed, **proposal.settings}

    @cached_property
    def _fixed(self) -> dict[str, Any]:
        """Key of each column → its value outside the space; None for one without a value."""
        return {column.key: look_up(self.config, column.key) for column in self.model.columns}


@dataclass(frozen=True)
class SpaceColumn:
    """Searched parameter, or one of its choices, as a coordinate from 0 to 1."""

    key: str
    """Name of the parameter."""
    domain: Domain
    """Domain of the parameter in the space."""
    choice: str | None = None
    """Canonical JSON of the choice that this column stands for; None for an ordered parameter."""

    def coordinate(self, value: Any) -> float:
        """Return the coordinate of a value, from 0 to 1; NaN if it has none.

        It is the value's quantile, limited to 0 to 1. For a choice it is `CHOSEN` if the value is
        this choice, else 0.
        """
        try:
            if isinstance(self.domain, Choice):
                return CHOSEN * (choice_key(value) == self.choice)
            place = float(self.domain.quantile(value))
        except (LookupError, TypeError, ValueError, ArithmeticError):
            return math.nan
        return place if math.isnan(place) else min(max(place, 0.0), 1.0)


@dataclass(frozen=True)
class SweepsPrior:
    """Prior from earlier sweeps, each of which is a game over this sweep's parameters."""

    sweeps: tuple[EarlierSweep, ...]
    """Earlier sweeps with their best settings and ranks."""
    space: Space
    """Search space of the new sweep."""

    def expected(self, proposals: Sequence[Settings]) -> Array:
        """Return by how much each proposal is likelier than random settings to succeed, (n,)."""
        return self._model.expected([one.searched for one in proposals])

    def describe(self, proposal: Settings) -> str:
        """Return a text on what share of each earlier sweep's settings such settings beat.

        The most similar sweeps come first; at most `NAMED` are named, with their most similar
        trial.
        """
        at = np.array(self._read(proposal.searched))
        shares = self._model.place_in_games(proposal.searched)
        parts = []
        for sweep, game, share in zip(self.sweeps, self._games, shares, strict=True):
            apart = np.nansum((game.points - at) ** 2, axis=1)
            index = int(apart.argmin())
            trial, distance = sweep.trials[index], float(apart[index])
            which = "the settings" if distance == 0.0 else "most like those"
            rank = f"{which} of trial {trial.trial}, rank {trial.rank} of {sweep.ranked}"
            parts.append((distance, f"{sweep.name} {100 * share:.0f} % ({rank})"))
        parts.sort(key=lambda one: one[0])
        more = f", and {len(parts) - NAMED} more" if len(parts) > NAMED else ""
        names = ", ".join(text for _, text in parts[:NAMED])
        said_first = "in earlier sweeps, settings like these beat this share of all that were tried"
        return f"{said_first}: {names}{more}"

    def sample_best(self, space: Space, stream: np.random.Generator) -> list[Settings]:
        """Return some of the earlier sweeps' best settings, as points of a space, at most `AGAIN`.

        They are drawn from `stream` and may repeat. Those that are not valid in the space are left
        out, so the list may be empty.
        """
        if not self._best:
            return []
        chosen = (self._best[int(n)] for n in stream.integers(len(self._best), size=AGAIN))
        return [point for trial in chosen if (point := _point(space, trial)) is not None]

    @cached_property
    def _columns(self) -> list[SpaceColumn]:
        """Coordinates of the parameters of which at least one earlier trial has a value.

        A parameter of choices has one coordinate for each choice.
        """
        known = {name for sweep in self.sweeps for trial in sweep.trials for name in trial.settings}
        columns: list[SpaceColumn] = []
        for name in self.space.searched:
            if name in known:
                domain = self.space.domain_of(name)
                choices = domain.values_by_key if isinstance(domain, Choice) else [None]
                columns += [SpaceColumn(name, domain, choice) for choice in choices]
        return columns

    @cached_property
    def _games(self) -> list[Game]:
        """Each earlier sweep as a game: its trials' coordinates, and the shares that they beat."""
        return [
            Game(
                sweep.name,
                np.array([self._read(trial.settings) for trial in sweep.trials]),
                np.array([0.5 - (trial.rank - 0.5) / sweep.ranked for trial in sweep.trials]),
            )
            for sweep in self.sweeps
        ]

    @cached_property
    def _model(self) -> Model:
        """Model fitted to the earlier sweeps as games, at the first use."""
        return Model(self._columns, self._games, [column.key for column in self._columns])

    @cached_property
    def _best(self) -> list[RankedSettings]:
        """Best third of each earlier sweep's ranked settings."""
        return [
            trial
            for sweep in self.sweeps
            for trial in sweep.trials
            if trial.rank <= math.ceil(BEST * sweep.ranked)
        ]

    def _read(self, settings: Mapping[str, Any]) -> list[float]:
        """Return the coordinates of some settings, one for each column; NaN for missing ones."""
        return [one.coordinate(settings.get(one.key, math.nan)) for one in self._columns]


def look_up(config: Mapping[str, Any], key: str) -> Any:
    """Return the value of a nested setting by its dotted name; None if there is none."""
    found: Any = config
    for part in key.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _point(space: Space, trial: RankedSettings) -> Settings | None:
    """Return an earlier trial's settings as a point of `space`.

    Returns None if they are not valid there.
    """

    def given(name: str, domain: Domain) -> Any:
        """Return the value that the trial had; raise BadSpace if the domain lacks it."""
        value = trial.settings.get(name)
        if not domain.contains(value):
            raise BadSpace(name, value, domain.describe())
        return canonical(domain, value)

    try:
        return space.resolve(given)
    except BadSpace:
        return None
