"""Games: tables of learning curves that can be searched. The module needs only numpy.

A file contains games, each with settings x seeds x points, in arrays with these names:

    GAME/space       JSON: name → [kind, low, high] or [choice, values]; kinds: uniform, log, int,
                     logint, the last two including both ends
    GAME/hp/NAME     (settings,): the value of NAME; NaN where a condition excludes it; JSON if
                     it is text
    GAME/evals       (settings, seeds, points): the results of a trial
    GAME/final       (settings, seeds): the final score of a setting with a seed
    GAME/steps       environment steps of one training; by default 1 for each point
    GAME/algorithm   the trainable; by default ppo
    GAME/env         the environment, if the game has another name

Greater values are better. A value that diverged is NaN, and counts as the smallest value of the
table.

A *play* splits the seeds of every setting: the search sees one half, the other half judges its
recommendation. Settings between the rows of a table get the curves of the nearest row, the same for
every method: these are real curves with real noise, while a model of the table would favour
searchers that use the same model. As in real sweeps, each trial has a seed of its own, so a search
that proposes a row again sees another seed of it, as long as there is one.
"""

import json
import math
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Settings = Mapping[str, Any]
Array = NDArray[np.float64]
#: Squared distance of two different choices; that of the two ends of another parameter is 1.
CHOICE = 0.5
#: Squared distance of a value and an absent value: the mean for two random values.
ABSENT = 1 / 6


@dataclass(frozen=True)
class Parameter:
    """One parameter of the search space."""

    kind: str
    """``uniform``, ``log``, ``int``, ``logint`` or ``choice``."""
    words: tuple[Any, ...]
    """Lowest and highest value; for a choice all values."""

    @classmethod
    def parse(cls, raw: list[Any]) -> "Parameter":
        """Return the parameter from its form in a table: [kind, low, high] or [choice, values]."""
        kind, *words = raw
        return cls(kind, tuple(words[0] if kind == "choice" else words))

    def position_of(self, value: Any) -> float:
        """Return the position of a value: 0 to 1 on its scale, or the index of a choice."""
        if self.kind == "choice":
            return float(self.words.index(value))
        low, high = self.words
        if self.kind in ("log", "logint"):
            value, low, high = math.log(value), math.log(low), math.log(high)
        return float((value - low) / (high - low))

    def value_at(self, position: float) -> Any:
        """Return the value at a position from 0 to 1 on its scale."""
        if self.kind == "choice":
            return self.words[min(int(position * len(self.words)), len(self.words) - 1)]
        low, high = self.words
        if self.kind == "int":
            return min(low + int(position * (high + 1 - low)), high)
        if self.kind == "uniform":
            return float(low + position * (high - low))
        value = math.exp(math.log(low) + position * math.log(high / low))
        inside = min(max(value, low), high)
        return round(inside) if self.kind == "logint" else inside


@dataclass(frozen=True)
class Game:
    """One game of a table."""

    name: str
    space: Mapping[str, Parameter]
    rows: tuple[Settings, ...]
    """Settings of the table."""
    evals: Array
    """Results of trials, (settings, seeds, points)."""
    final: Array
    """Final scores, (settings, seeds)."""
    steps: int
    """Environment steps of one training."""
    algorithm: str
    """Name of the trainable."""

    @property
    def points(self) -> int:
        """Number of points of one full training."""
        return int(self.evals.shape[2])

    @property
    def seeds(self) -> int:
        """Number of seeds of each setting."""
        return int(self.evals.shape[1])

    @cached_property
    def worth(self) -> Array:
        """Final score of each setting, the mean over all its seeds, (settings,)."""
        means: Array = self.final.mean(1)
        return means

    @cached_property
    def scale(self) -> float:
        """Difference of the final scores of the best setting and the 10 % quantile, a poor one."""
        return float(self.worth.max() - np.quantile(self.worth, 0.1))

    @cached_property
    def _positions(self) -> Array:
        """Positions of the rows, (settings, parameters), NaN where a condition excludes a value."""
        positions = [
            [_position(p, row.get(name)) for name, p in self.space.items()] for row in self.rows
        ]
        return np.array(positions)

    @cached_property
    def _is_choice(self) -> NDArray[np.bool_]:
        return np.array([parameter.kind == "choice" for parameter in self.space.values()])

    def nearest(self, settings: Settings) -> int:
        """Return the index of the row nearest to these settings."""
        given = np.array([_position(p, settings.get(name)) for name, p in self.space.items()])
        differences = self._positions - given
        squares = np.where(self._is_choice, CHOICE * (differences != 0), differences**2)
        return int(np.where(np.isnan(differences), ABSENT, squares).sum(1).argmin())

    def draw(self, rng: np.random.Generator) -> dict[str, Any]:
        """Return random settings from the whole space."""
        return {name: parameter.value_at(rng.random()) for name, parameter in self.space.items()}


def _position(parameter: Parameter, value: Any) -> float:
    return math.nan if value is None else parameter.position_of(value)


class Play:
    """Game with split seeds: half for the search, half to judge its recommendation.

    Args:
        number: number of the play; it determines the split.
    """

    def __init__(self, game: Game, number: int) -> None:
        self.game = game
        self.number = number
        rng = np.random.default_rng([number, zlib.crc32(game.name.encode())])
        order = rng.permuted(np.tile(np.arange(game.seeds), (len(game.rows), 1)), axis=1)
        half = game.seeds // 2
        self._seen, self._judges = order[:, :half], order[:, half:]

    def value(self, row: int, trial: int, seed: int, point: int) -> float:
        """Return the value that a trial on this row reports at `point` (from 1) with `seed`."""
        first = zlib.crc32(f"{self.game.name} {self.number} {row} {trial}".encode())
        column = self._seen[row, (first + seed) % self._seen.shape[1]]
        return float(self.game.evals[row, column, point - 1])

    def truth(self, row: int) -> float:
        """Return the final score of a row on the seeds that the search never sees."""
        return float(self.game.final[row, self._judges[row]].mean())

    def standard_error(self, row: int) -> float:
        """Return the standard error of the `truth` of a row; 0 if one seed judges."""
        scores = self.game.final[row, self._judges[row]]
        return float(scores.std(ddof=1) / len(scores) ** 0.5) if len(scores) > 1 else 0.0

    def regret(self, row: int) -> float:
        """Return the difference of the best setting and a row, in per cent of the game's scale."""
        return 100 * (float(self.game.worth.max()) - self.truth(row)) / self.game.scale


def load(path: Path) -> Iterator[Game]:
    """Yield the games of a file, in the order of their names.

    Raises ValueError if the file is not a table of learning curves, for the reason in the message.
    """
    try:
        with np.load(path) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: not a table of learning curves ({error})") from error
    names = sorted({name.rpartition("/")[0] for name in arrays if name.endswith("/space")})
    if not names:
        raise ValueError(f"{path}: no game in it; expected arrays such as GAME/space, GAME/evals")
    for name in names:
        try:
            yield _game(name, arrays)
        except (KeyError, ValueError, IndexError) as error:
            raise ValueError(f"{path}: {name}: {type(error).__name__}: {error}") from error


def _game(name: str, arrays: Mapping[str, Any]) -> Game:
    space = {
        key: Parameter.parse(raw) for key, raw in json.loads(str(arrays[f"{name}/space"])).items()
    }
    columns = {key: _column(arrays[f"{name}/hp/{key}"], space[key]) for key in space}
    count = len(next(iter(columns.values())))
    rows = tuple(
        {key: column[row] for key, column in columns.items() if column[row] is not None}
        for row in range(count)
    )
    evals = _filled(arrays[f"{name}/evals"])
    final = _filled(arrays[f"{name}/final"])
    if evals.ndim != 3 or final.shape != evals.shape[:2] or evals.shape[0] != count:
        raise ValueError(f"{count} settings, evals {evals.shape} and final {final.shape}")
    if evals.shape[1] < 2:
        raise ValueError("one seed; expected two or more, because half of them judge")
    steps = int(arrays.get(f"{name}/steps", evals.shape[2]))
    algorithm = str(arrays.get(f"{name}/algorithm", "ppo"))
    game = Game(name, space, rows, evals, final, steps, algorithm)
    if not game.scale > 0:
        raise ValueError("all its settings have the same score")
    return game


def _column(values: Any, parameter: Parameter) -> list[Any]:
    """Return the values of a parameter in our spaces; None where it is absent."""
    if values.dtype.kind == "U":
        return [json.loads(str(value)) for value in values]
    return [None if np.isnan(value) else _value(float(value), parameter) for value in values]


def _value(value: float, parameter: Parameter) -> Any:
    """Return a number of the table within its range, as the table rounds to 32 bits."""
    if parameter.kind == "choice":
        return min(parameter.words, key=lambda word: abs(word - value))
    low, high = parameter.words
    inside = min(max(value, low), high)
    return round(inside) if parameter.kind in ("int", "logint") else inside


def _filled(values: Any) -> Array:
    """Return the values as float64, with the smallest value instead of values that diverged."""
    numbers = np.asarray(values, np.float64)
    bad = ~np.isfinite(numbers)
    return np.where(bad, numbers[~bad].min(), numbers)
