"""Measure the quality of settings that the prior chooses for games that it has not seen.

    python -m benchmarks.search.prior_check TABLE.npz [TABLE.npz …]

The program prints a line for each game of the tables. The prior chooses from `DRAWN` random
settings of the game the one with the best expected score. The line contains the mean share of the
game's settings that the choice beats (0.5 for random choices), and the rank correlation of expected
and true scores. The prior uses the package's games, without the same game under any name.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.search import game as tables
from benchmarks.search import prior
from benchmarks.search.game import Array, Game
from sweep.searchers._shared.prior import games
from sweep.searchers._shared.prior.model import Model
from sweep.spec.space.expressions import Expression

#: Number of random settings of which the prior chooses one, and number of such choices.
DRAWN, CHOICES = 24, 1000


class Check(NamedTuple):
    """Quality of the prior on one game."""

    game: str
    other_games: int
    """Number of other games."""
    beaten: float
    """Mean share of the game's settings that the prior's choice beats."""
    correlation: float
    """Rank correlation of expected and true scores."""


def check(game: Game) -> Check | None:
    """Return the quality of the prior on a game.

    Returns None if the package has no other game of the same trainable.
    """
    names = {name.split("/")[1] for name in prior.other_games(game.name, game.algorithm)}
    others = [one for one in games.known(game.algorithm) if one.name in names]
    if not others:
        return None
    rows = [_our_settings(row) for row in game.rows]
    has = {name for row in rows for name in row}
    expected = Model(games.COLUMNS[game.algorithm], others, sorted(has)).expected(rows)
    beaten, stream = _ranks(game.worth), np.random.default_rng(0)
    chosen = [
        beaten[drawn[expected[drawn].argmax()]]
        for drawn in (stream.choice(len(rows), min(DRAWN, len(rows))) for _ in range(CHOICES))
    ]
    correlation = float(np.corrcoef(_ranks(expected), beaten)[0, 1])
    return Check(game.name, len(others), float(np.mean(chosen)), correlation)


def _ranks(values: Array) -> Array:
    """Return the share of values that each value exceeds; equal values have the same rank."""
    least = np.searchsorted(np.sort(values), values, "left")
    most = np.searchsorted(np.sort(values), values, "right") - 1
    ranks: Array = (least + most) / 2 / (len(values) - 1)
    return ranks


def _our_settings(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table's settings together with their equivalents under our names."""
    present = {name: value for name, value in row.items() if value is not None}
    derived = prior.our_settings(present)
    return present | {name: Expression(text).evaluate(present) for name, text in derived.items()}


def lines(paths: list[Path]) -> Iterator[str]:
    """Yield the lines of the table, the header first, and a last one with the means."""
    yield f"{'game':<28} games  beaten  correlation"
    results = [result for path in paths for game in tables.load(path) if (result := check(game))]
    for one in results:
        yield f"{one.game:<28} {one.other_games:5}  {one.beaten:6.2f}  {one.correlation:+11.2f}"
    if results:
        beaten = float(np.mean([one.beaten for one in results]))
        correlation = float(np.mean([one.correlation for one in results]))
        yield f"{'mean':<28} {'':5}  {beaten:6.2f}  {correlation:+11.2f}"


def main() -> None:
    """Print the lines for the tables of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("tables", type=Path, nargs="+", help="files of learning curves")
    for line in lines(parser.parse_args().tables):
        sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main()
