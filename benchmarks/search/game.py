"""A table of learning curves as something to search; numpy alone, so that every peer plays it.

A file holds games: for each, settings x seeds x points, in arrays named as in

    GAME/space       JSON: name → [kind, low, high] or [choice, values]; kinds: uniform, log, int,
                     logint, the last two with both ends
    GAME/hp/NAME     (settings,): the value of NAME; NaN where a condition leaves it out; text is
                     JSON
    GAME/evals       (settings, seeds, points): what a trial reports
    GAME/final       (settings, seeds): what a setting is worth under that seed
    GAME/steps       environment steps of one training; 1 for each point where that is not said
    GAME/algorithm   the trainable; ppo where that is not said
    GAME/env         the environment, if the game has another name

More is better. What diverged is NaN there, and counts as the least value of the table.

A *play* splits the seeds of every setting anew: one half is what the search sees, the other half
judges what it recommends. Settings that lie between those of the table are answered by the nearest
row: real curves with real noise, the same for every method, where a model in between would favour
searchers that think as it does. A trial begins under a seed of its own, as in life, so whoever
proposes a row again sees another seed of it, as long as there are any.
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
#: How much two different choices add to the squared distance of two settings; a parameter from its
#: one end to the other adds 1.
CHOICE = 0.5
#: What a parameter adds that one of the two leaves out: the mean over two drawn at random.
ABSENT = 1 / 6


@dataclass(frozen=True)
class Parameter:
    """One thing that is searched."""

    kind: str
    words: tuple[Any, ...]
    """Lowest and highest; of a choice its values."""

    @classmethod
    def parse(cls, raw: list[Any]) -> "Parameter":
        """As a table writes it."""
        kind, *words = raw
        return cls(kind, tuple(words[0] if kind == "choice" else words))

    def place(self, value: Any) -> float:
        """Return the position of a value: 0 to 1 on its scale, or the number of a choice."""
        if self.kind == "choice":
            return float(self.words.index(value))
        low, high = self.words
        if self.kind in ("log", "logint"):
            value, low, high = math.log(value), math.log(low), math.log(high)
        return float((value - low) / (high - low))

    def at(self, place: float) -> Any:
        """The value at a place from 0 to 1, evenly on its scale."""
        if self.kind == "choice":
            return self.words[min(int(place * len(self.words)), len(self.words) - 1)]
        low, high = self.words
        if self.kind == "int":
            return min(low + int(place * (high + 1 - low)), high)
        if self.kind == "uniform":
            return float(low + place * (high - low))
        value = math.exp(math.log(low) + place * math.log(high / low))
        held = min(max(value, low), high)
        return round(held) if self.kind == "logint" else held


@dataclass(frozen=True)
class Game:
    """One game of a table."""

    name: str
    space: Mapping[str, Parameter]
    rows: tuple[Settings, ...]
    """The settings of the table."""
    evals: Array
    final: Array
    steps: int
    algorithm: str
    """The trainable of the table."""

    @property
    def points(self) -> int:
        """Points of one full training, which is the unit of all budgets."""
        return int(self.evals.shape[2])

    @property
    def seeds(self) -> int:
        """Seeds of each setting."""
        return int(self.evals.shape[1])

    @cached_property
    def worth(self) -> Array:
        """The final score of each setting, as the mean over all its seeds, (settings,)."""
        means: Array = self.final.mean(1)
        return means

    @cached_property
    def scale(self) -> float:
        """From a poor setting (of ten, one is worse) to the best one."""
        return float(self.worth.max() - np.quantile(self.worth, 0.1))

    @cached_property
    def _places(self) -> Array:
        """(settings, parameters), NaN where a condition leaves one out."""
        places = [[_place(p, row.get(name)) for name, p in self.space.items()] for row in self.rows]
        return np.array(places)

    @cached_property
    def _is_choice(self) -> NDArray[np.bool_]:
        return np.array([parameter.kind == "choice" for parameter in self.space.values()])

    def nearest(self, settings: Settings) -> int:
        """The row of the table that answers for these settings."""
        given = np.array([_place(p, settings.get(name)) for name, p in self.space.items()])
        apart = self._places - given
        squares = np.where(self._is_choice, CHOICE * (apart != 0), apart**2)
        return int(np.where(np.isnan(apart), ABSENT, squares).sum(1).argmin())

    def draw(self, rng: np.random.Generator) -> dict[str, Any]:
        """Settings at random, from the whole space."""
        return {name: parameter.at(rng.random()) for name, parameter in self.space.items()}


def _place(parameter: Parameter, value: Any) -> float:
    return math.nan if value is None else parameter.place(value)


class Play:
    """A game with its seeds split: half for the search, half to judge it."""

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
        its = self._seen[row, (first + seed) % self._seen.shape[1]]
        return float(self.game.evals[row, its, point - 1])

    def truth(self, row: int) -> float:
        """Return the final score of a row on the seeds that the search never sees."""
        return float(self.game.final[row, self._judges[row]].mean())

    def doubt(self, row: int) -> float:
        """Return the standard error of the `truth` of a row; 0 with one seed to judge by."""
        found = self.game.final[row, self._judges[row]]
        return float(found.std(ddof=1) / len(found) ** 0.5) if len(found) > 1 else 0.0

    def regret(self, row: int) -> float:
        """Return how far a row is below the best setting, in per cent of the game's scale."""
        return 100 * (float(self.game.worth.max()) - self.truth(row)) / self.game.scale


def load(path: Path) -> Iterator[Game]:
    """The games of a file, in the order of their names.

    Raises:
        ValueError: it is no such file; says why.
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
    evals = _whole(arrays[f"{name}/evals"])
    final = _whole(arrays[f"{name}/final"])
    if evals.ndim != 3 or final.shape != evals.shape[:2] or evals.shape[0] != count:
        raise ValueError(f"{count} settings, evals {evals.shape} and final {final.shape}")
    if evals.shape[1] < 2:
        raise ValueError("one seed; expected two or more, half of them to judge by")
    steps = int(arrays.get(f"{name}/steps", evals.shape[2]))
    algorithm = str(arrays.get(f"{name}/algorithm", "ppo"))
    game = Game(name, space, rows, evals, final, steps, algorithm)
    if not game.scale > 0:
        raise ValueError("its settings are all worth the same")
    return game


def _column(values: Any, parameter: Parameter) -> list[Any]:
    """The values of a parameter as a space gives them; None where it is left out."""
    if values.dtype.kind == "U":
        return [json.loads(str(value)) for value in values]
    return [None if np.isnan(value) else _value(float(value), parameter) for value in values]


def _value(value: float, parameter: Parameter) -> Any:
    """A number of the table: it was rounded to 32 bits there, and must not leave its range."""
    if parameter.kind == "choice":
        return min(parameter.words, key=lambda word: abs(word - value))
    low, high = parameter.words
    held = min(max(value, low), high)
    return round(held) if parameter.kind in ("int", "logint") else held


def _whole(values: Any) -> Array:
    """As float64, with the least value where something diverged."""
    held = np.asarray(values, np.float64)
    bad = ~np.isfinite(held)
    return np.where(bad, held[~bad].min(), held)
