"""Results of settings on other games, as a file of the package.

The file has the games of each trainable. A column maps one setting, whatever its range in a space
is, to a coordinate; a game is a table of settings with their ranks. `python -m
benchmarks.search.prior` makes the file from tables of learning curves.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

FILE = "games.npz"
#: Minimum number of games for a prior by default: fewer do not show what holds on other games.
ENOUGH = 3


@dataclass(frozen=True)
class Column:
    """Setting of a trainable as a coordinate from 0 to 1 in tables of games."""

    key: str
    """Name of the setting, with dots between nested keys."""
    low: float
    """Value of the setting at coordinate 0; 1 minus the value if `scale` is distance."""
    high: float
    """Value of the setting at coordinate 1; 1 minus the value if `scale` is distance."""
    scale: str = "linear"
    """Scale between `low` and `high`: linear; log; or distance (the logarithm of 1 minus the value,
    for discount factors)."""
    longest: float = math.inf
    """Longest training, in environment steps, for which results on the games show the effect of the
    setting."""
    marked: tuple[Any, ...] = ()
    """Values that have coordinate 1, all others having 0, for a setting without an order; empty for
    a number."""

    def coordinate(self, value: Any) -> float:
        """Return the coordinate of a value; NaN if it is not a number.

        It is below 0 or above 1 if the value is outside the range of the games. Of a list of
        widths the first counts. For a setting without an order every value has a coordinate.
        """
        if self.marked:
            return float(value in self.marked)
        if isinstance(value, Sequence) and not isinstance(value, str) and value:
            value = value[0]  # the width of the first layer stands for the network
        if isinstance(value, bool) or not isinstance(value, int | float):
            return math.nan
        if self.scale == "linear":
            share = (value - self.low) / (self.high - self.low)
        else:
            length = 1.0 - value if self.scale == "distance" else float(value)
            share = math.log(max(length, 1e-12) / self.low) / math.log(self.high / self.low)
        return share


@dataclass(frozen=True)
class Game:
    """Results on one game (environment): settings and their ranks."""

    name: str
    """Id of the environment, such as ``CartPole-v1``."""
    points: Array
    """Coordinates of the settings, (settings, columns), each 0 to 1; NaN if unknown."""
    places: Array
    """Share of the game's settings that each setting beats, minus 0.5, (settings,)."""


#: Longest training, in environment steps, for which the games' best learning rates are any guide:
#: about ten times theirs. Longer trainings need lower ones.
LONGEST = 1e6

#: Columns of the games of each trainable.
COLUMNS: Mapping[str, tuple[Column, ...]] = {
    "ppo": (
        Column("lr", 1e-5, 0.03, "log", LONGEST),
        Column("gamma", 0.001, 0.1, "distance"),
        Column("lambda_", 0.005, 0.5, "distance"),
        Column("clip_param", 0.05, 0.5),
        Column("entropy_coeff", 1e-6, 0.1, "log"),
        Column("vf_loss_coeff", 0.1, 2.0, "log"),
        Column("grad_clip", 0.1, 10.0, "log"),
        Column("num_sgd_iter", 1, 16, "log"),
        Column("model.hidden", 16, 64, "log"),
        Column("model.activation", 0, 1, marked=("relu",)),
        Column("observation_filter", 0, 1, marked=("MeanStdFilter",)),
        Column("lr_schedule", 0, 1, marked=("linear",)),
        Column("model.log_std_init", -2.0, 0.5),
    ),
    # Without settings that scale with the length of training: replay size and exploration time.
    "dqn": (
        Column("lr", 1e-5, 1e-2, "log", LONGEST),
        Column("gamma", 0.001, 0.1, "distance"),
        Column("tau", 5e-4, 1e-1, "log"),
        Column("updates_per_step", 4, 64, "log"),
        Column("replay_batch_size", 32, 256, "log"),
        Column("n_step", 1, 8, "log"),
        Column("exploration_config.final_epsilon", 0.005, 0.3, "log"),
        Column("model.hidden", 16, 128, "log"),
    ),
}


def is_name(name: str) -> bool:
    """Return whether a name can only be that of a game, such as ``ppo/CartPole-v1``."""
    return "/" in name and name.split("/")[0] in COLUMNS


def by_name() -> dict[str, tuple[str, Game]]:
    """Return all games of the package: name in a spec → trainable's name and game."""
    return {
        f"{trainable}/{game.name}": (trainable, game)
        for trainable in COLUMNS
        for game in known(trainable)
    }


def describe_all() -> str:
    """Return a text with the names of all games, for messages."""
    return f"games of one trainable among {', '.join(by_name())}"


@cache
def known(trainable: str) -> tuple[Game, ...]:
    """Return the games of the package for a trainable, by name; empty if it has none.

    They are read from the package's file at the first call.
    """
    if trainable not in COLUMNS:
        return ()
    file = resources.files(__package__) / FILE
    with file.open("rb") as opened, np.load(opened, allow_pickle=False) as tables:
        keys = (key.split("/") for key in tables.files)
        names = sorted({game for of, game, _ in keys if of == trainable})
        return tuple(
            Game(
                name,
                tables[f"{trainable}/{name}/points"].astype(float),
                tables[f"{trainable}/{name}/places"].astype(float),
            )
            for name in names
        )
