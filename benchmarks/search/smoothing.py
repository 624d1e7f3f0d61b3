"""Measure whether picks by scores that are smoothed by their curves are better than by plain ones.

    python -m benchmarks.search.smoothing curves.npz landscapes.npz [--settings N] [--plays N]

Each play draws settings of a game and promotes the better third at results 1, 3, 9 and 27, with
three seeds at the last of these and six at the end, from the half of the seeds that a search sees.
The other half judges the pick of the model. Prints a line for each game, and their means: regret in
per cent of the game's range, the claim less the truth, and the shares of claims within one and two
standard errors.
"""

import argparse
import math
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.search import game as tables
from benchmarks.search.game import Array, Game
from sweep.history.posterior import smoothing
from sweep.history.posterior.scores import Scores
from sweep.history.posterior.shrinkage import estimate

#: Results at which trials are compared, before the last one of a training.
RUNGS = (1, 3, 9, 27)
#: Seeds at the last rung and at the end.
LAST, TOP = 3, 6
ETA = 3


class Outcome(NamedTuple):
    """One pick; regret and excess in per cent of the game's range."""

    regret: float
    excess: float
    """Claim less truth."""
    within_one: float
    within_two: float


class Search(NamedTuple):
    """One search that has ended."""

    scores: Scores
    truth: Array
    """Mean final score of each setting on the seeds that judge, (settings,)."""
    truth_error: Array
    """Standard error of `truth`, (settings,)."""


def search(game: Game, settings: int, stream: np.random.Generator) -> Search:
    """Return a search on a game; scores are divided so that none is much above 1."""
    half, levels = game.seeds // 2, [*(rung for rung in RUNGS if rung < game.points), game.points]
    rows = stream.integers(len(game.rows), size=settings)
    orders = np.array([stream.permutation(game.seeds) for _ in rows])
    curves = game.evals[rows[:, None], orders[:, :half]] / (2 * np.abs(game.evals).max())
    weights = np.arange(1, game.points + 1.0)
    means = np.cumsum(curves * weights, axis=-1) / np.cumsum(weights)
    at, alike, curve, curve_alike = np.full((4, settings, len(levels)), np.nan)
    seeds, last = np.ones((settings, len(levels))), np.zeros(settings, int)
    sums, alive, before = np.zeros((3, settings)), np.arange(settings), 1
    for column, level in enumerate(levels):
        wanted = {len(levels) - 2: LAST, len(levels) - 1: TOP}.get(column, 1)
        count = min(wanted, half)
        scores, so_far = curves[alive, :count, level - 1], means[alive, :count, level - 1]
        at[alive, column], curve[alive, column] = scores.mean(1), so_far.mean(1)
        alike[alive, column] = scores[:, :before].mean(1)
        curve_alike[alive, column] = so_far[:, :before].mean(1)
        seeds[alive, column], last[alive], before = count, column, count
        up = scores - scores.mean(1, keepdims=True)
        along = so_far - so_far.mean(1, keepdims=True)
        sums[:, alive] = (up * up).sum(1), (up * along).sum(1), (along * along).sum(1)
        if column < len(levels) - 1:
            best = np.argsort(-at[alive, column], kind="stable")
            alive = alive[best[: max(1, len(alive) // ETA)]]
    judges = np.take_along_axis(game.final[rows], orders[:, half:], axis=1)
    error = (
        judges.std(axis=1, ddof=1) / math.sqrt(judges.shape[1]) if game.seeds > 3 else 0 * at[:, 0]
    )
    lengths = np.broadcast_to(np.array(levels, float), at.shape)
    squares, products, curve_squares = sums
    measured = Scores(
        at, alike, seeds, last, squares, np.zeros(settings), curve, curve_alike, products,
        curve_squares, lengths,
    )  # fmt: skip
    return Search(measured, judges.mean(1), error)


def pick(game: Game, ended: Search, weight: float) -> Outcome:
    """Return the outcome of the pick, with this weight of smoothing."""
    before, smoothing.WEIGHT = smoothing.WEIGHT, weight
    try:
        found = estimate(ended.scores, 0.0)
    finally:
        smoothing.WEIGHT = before
    size, best = 2 * float(np.abs(game.evals).max()), int(found.value.argmax())
    truth = float(ended.truth[best])
    excess = float(found.value[best]) * size - truth
    error = math.hypot(float(found.error[best]) * size, float(ended.truth_error[best]))
    regret = float(game.worth.max()) - truth
    percent = 100 / game.scale
    off = abs(excess) / max(error, 1e-12)
    return Outcome(regret * percent, excess * percent, float(off <= 1), float(off <= 2))


def compare(game: Game, settings: int, plays: int) -> tuple[Outcome, Outcome]:
    """Return the mean outcomes of picks by plain scores, and by smoothed ones."""
    plain, smoothed = [], []
    for play in range(plays):
        ended = search(game, settings, np.random.default_rng(play))
        plain.append(pick(game, ended, 0.0))
        smoothed.append(pick(game, ended, smoothing.WEIGHT))
    return _mean(plain), _mean(smoothed)


def _mean(outcomes: Sequence[Outcome]) -> Outcome:
    return Outcome(*(statistics.fmean(column) for column in zip(*outcomes, strict=True)))


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
    means = _mean([plain for plain, _ in pairs]), _mean([smoothed for _, smoothed in pairs])
    sys.stdout.write(f"{'mean':28} {_line(means)}\n")


def _line(pair: tuple[Outcome, Outcome]) -> str:
    """Return plain and smoothed outcomes as one text."""
    texts = [
        f"{one.regret:5.1f} {one.excess:+6.1f} {one.within_one:.2f} {one.within_two:.2f}"
        for one in pair
    ]
    return "plain {}   smoothed {}".format(*texts)


if __name__ == "__main__":
    main()
