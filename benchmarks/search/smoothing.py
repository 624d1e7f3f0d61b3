"""Measure whether picks by scores that are smoothed by their curves are better than by plain ones.

    python -m benchmarks.search.smoothing curves.npz landscapes.npz [--settings N] [--plays N]

Each play draws settings of a game and promotes the better third at results 1, 3, 9 and 27, with
three seeds at the last of these and six at the end, from the half of the seeds that a search sees.
The other half judges the pick of the model. Prints a line for each game, and their means: regret in
per cent of the game's range, the claim less the truth, and the shares of claims within one and two
standard errors.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.search import game as tables
from benchmarks.search import halving
from benchmarks.search.game import Game
from benchmarks.search.halving import Outcome, Search, Step
from sweep.history.posterior import smoothing

#: Seeds at the last rung and at the end.
LAST, TOP = 3, 6


def steps(game: Game) -> list[Step]:
    """Return the steps of the searches on a game."""
    *below, last, top = halving.rungs(game)
    return [*(Step(rung, 1) for rung in below), Step(last, LAST), Step(top, TOP)]


def pick(game: Game, ended: Search, weight: float) -> Outcome:
    """Return the outcome of the pick, with this weight of smoothing."""
    before, smoothing.WEIGHT = smoothing.WEIGHT, weight
    try:
        return halving.pick(game, ended)
    finally:
        smoothing.WEIGHT = before


def compare(game: Game, settings: int, plays: int) -> tuple[Outcome, Outcome]:
    """Return the mean outcomes of picks by plain scores, and by smoothed ones."""
    plain, smoothed = [], []
    for play in range(plays):
        ended = halving.search(game, settings, steps(game), np.random.default_rng(play))
        plain.append(pick(game, ended, 0.0))
        smoothed.append(pick(game, ended, smoothing.WEIGHT))
    return halving.mean(plain), halving.mean(smoothed)


def main(words: Sequence[str] | None = None) -> None:
    """Compare the picks on the games of all tables, and print a line for each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search.smoothing")
    parser.add_argument("tables", type=Path, nargs="+", metavar="TABLE")
    parser.add_argument("--settings", type=int, default=250, help="settings of a search")
    parser.add_argument("--plays", type=int, default=60, help="searches of each game")
    options = parser.parse_args(words)
    pairs = []
    for game in (game for path in options.tables for game in tables.load(path)):
        pairs.append(compare(game, options.settings, options.plays))
        sys.stdout.write(f"{game.name:28} {_line(pairs[-1])}\n")
        sys.stdout.flush()
    means = [halving.mean(outcomes) for outcomes in zip(*pairs, strict=True)]
    sys.stdout.write(f"{'mean':28} {_line(means)}\n")


def _line(pair: Sequence[Outcome]) -> str:
    """Return plain and smoothed outcomes as one text."""
    texts = [
        f"{one.regret:5.1f} {one.excess:+6.1f} {one.within_one:.2f} {one.within_two:.2f}"
        for one in pair
    ]
    return "plain {}   smoothed {}".format(*texts)


if __name__ == "__main__":
    main()
