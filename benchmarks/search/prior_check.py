"""Measure how good the settings are that the prior chooses on games that it has not seen.

    python -m benchmarks.search.prior_check TABLE.npz [TABLE.npz …]

Prints a line for each game of the tables: of `DRAWN` random settings of the game, the prior chooses
the one that it expects to be the best; the line has the mean share of the game's settings that its
choice beats (0.5 is chance), and the rank correlation of expectation and truth. The prior learns
from the package's games, without those that are the same game under any name.
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
from sweep.space.expressions import Expression

#: Number of random settings of which the prior chooses one, and number of such choices.
DRAWN, CHOICES = 24, 1000


class Checked(NamedTuple):
    """The prior on one game."""

    game: str
    learnt_from: int
    """Number of other games."""
    beaten: float
    """Mean share of the game's settings that the prior's choice beats."""
    correlation: float
    """Rank correlation of expected and true scores."""


def check(game: Game) -> Checked | None:
    """Return how the prior does on a game, or None if it knows no other game of its trainable."""
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
    return Checked(game.name, len(others), float(np.mean(chosen)), correlation)


def _ranks(values: Array) -> Array:
    """Return the share of values that each of them exceeds; equal ones have the same rank."""
    least = np.searchsorted(np.sort(values), values, "left")
    most = np.searchsorted(np.sort(values), values, "right") - 1
    ranks: Array = (least + most) / 2 / (len(values) - 1)
    return ranks


def _our_settings(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table's settings together with those of ours that say the same."""
    present = {name: value for name, value in row.items() if value is not None}
    derived = prior.our_settings(present)
    return present | {name: Expression(text).evaluate(present) for name, text in derived.items()}


def lines(paths: list[Path]) -> Iterator[str]:
    """Yield the lines of the table, the header first, and a last one with the means."""
    yield f"{'game':<28} games  beaten  correlation"
    found = [checked for path in paths for game in tables.load(path) if (checked := check(game))]
    for one in found:
        yield f"{one.game:<28} {one.learnt_from:5}  {one.beaten:6.2f}  {one.correlation:+11.2f}"
    if found:
        beaten = float(np.mean([one.beaten for one in found]))
        correlation = float(np.mean([one.correlation for one in found]))
        yield f"{'mean':<28} {'':5}  {beaten:6.2f}  {correlation:+11.2f}"


def main() -> None:
    """Print the lines for the tables of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("tables", type=Path, nargs="+", help="files of learning curves")
    for line in lines(parser.parse_args().tables):
        sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main()
