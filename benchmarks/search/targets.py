"""Measure how often a score falls after a training has reached its target.

    python -m benchmarks.search.targets

The command reads the learning curves of PPO on CartPole (``tables/ppo-cartpole.npz``) and takes 500
as the target, which must be met in 1, 2, 3 and 5 consecutive evaluations. It updates the table in
docs/seeds.md: how many trainings meet the target, how many steps they have made by then, and their
scores at the end of the table's curves, as if the target had not ended them.

A second table compares two ways to choose among settings that met the target, by further seeds that
trained past it: by their last results, and by the means of their results in the last quarter of
training, as sweep does (`Replica.late_mean`).
"""

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.pages import replace_between
from benchmarks.search import game as tables
from sweep.history.replica import LATE

TABLE = Path(__file__).with_name("tables") / "ppo-cartpole.npz"
PAGE = Path(__file__).parents[2] / "docs" / "seeds.md"
#: Lines of the page before and after the table.
BEGIN, END = "<!-- begin: benchmarks.search.targets -->", "<!-- end: benchmarks.search.targets -->"
BEGIN_LATE = "<!-- begin: benchmarks.search.targets, late means -->"
END_LATE = "<!-- end: benchmarks.search.targets, late means -->"
TARGET = 500.0
#: Numbers of consecutive evaluations that are compared.
COUNTS = (1, 2, 3, 5)
#: Numbers of further seeds from which settings are chosen, number of settings to choose from, and
#: number of choices.
FURTHER, CANDIDATES, CHOICES = (2, 5), 6, 4000


class Row(NamedTuple):
    """Trainings that met the target in a number of consecutive evaluations."""

    consecutive: int
    """Number of consecutive evaluations."""
    reached: float
    """Share of all trainings that met the target."""
    steps: float
    """Mean number of environment steps by then."""
    score: float
    """Mean final score of these trainings."""
    fell: float
    """Share of these trainings with a final score below 90 % of the target."""


def first_met(evals: NDArray[np.float64], target: float, consecutive: int) -> NDArray[np.int64]:
    """Return the number of evaluations of each training when it meets the target, (…,); else 0.

    Args:
        evals: evaluations, (…, points).
        consecutive: number of consecutive evaluations that must be at least `target`.
    """
    meets = evals >= target
    windows = np.lib.stride_tricks.sliding_window_view(meets, consecutive, axis=-1).all(-1)
    found: NDArray[np.int64] = np.where(
        windows.any(-1), windows.argmax(-1) + consecutive, 0
    ).astype(np.int64)
    return found


def measure(game: tables.Game, target: float, consecutive: int) -> Row:
    """Return the row of a game for one number of consecutive evaluations."""
    ends = first_met(game.evals, target, consecutive)
    met = ends > 0
    final = game.final[met]
    return Row(
        consecutive,
        float(met.mean()),
        float(ends[met].mean() * game.steps / game.points),
        float(final.mean()),
        float((final < 0.9 * target).mean()),
    )


class Choice(NamedTuple):
    """Mean final scores of chosen settings under other seeds."""

    seeds: int
    """Number of further seeds by which settings were chosen."""
    last: float
    """Score of the settings chosen by the last results."""
    late: float
    """Score of the settings chosen by the means over the last quarter of training."""
    error: float
    """Standard error of the difference `late` - `last`."""


def choose(game: tables.Game, target: float, seeds: int, stream: np.random.Generator) -> Choice:
    """Choose among settings whose first seed met the target, again and again.

    Each choice is between `CANDIDATES` settings, by the results of `seeds` further seeds. The
    remaining seeds judge.

    Args:
        game: game with at least `seeds` + 2 seeds.
        target: result that the first seed of each candidate has met.
        seeds: number of further seeds.
        stream: source of the candidates and of the split of their seeds.
    """
    quarter = math.ceil(LATE * game.points)
    by_last, by_late = game.evals[..., -1], game.evals[..., -quarter:].mean(-1)
    met = first_met(game.evals, target, 1) > 0
    scores = np.zeros((CHOICES, 2))
    for row in scores:
        order = stream.permutation(game.seeds)
        able = np.flatnonzero(met[:, order[0]])
        drawn = stream.choice(able, min(CANDIDATES, len(able)), replace=False)
        further, judges = order[1 : 1 + seeds], order[1 + seeds :]
        worth = game.final[np.ix_(drawn, judges)].mean(1)
        row[:] = [worth[by[np.ix_(drawn, further)].mean(1).argmax()] for by in (by_last, by_late)]
    last, late = scores.mean(0)
    error = (scores[:, 1] - scores[:, 0]).std() / np.sqrt(CHOICES)
    return Choice(seeds, float(last), float(late), float(error))


def late_text(rows: list[Choice]) -> Iterator[str]:
    """Yield the lines of the table of choices."""
    yield "| further seeds | chosen by last results | chosen by late means | difference |"
    yield "| --- | --- | --- | --- |"
    for row in rows:
        yield (
            f"| {row.seeds} | {row.last:.1f} | {row.late:.1f} "
            f"| {row.late - row.last:+.1f} ± {row.error:.1f} |"
        )


def text(rows: list[Row]) -> Iterator[str]:
    """Yield the lines of the table."""
    yield (
        "| consecutive evaluations of 500 | trainings that reach it | steps by then "
        "| final score | final score below 450 |"
    )
    yield "| --- | --- | --- | --- | --- |"
    for row in rows:
        yield (
            f"| {row.consecutive} | {row.reached:.0%} | {row.steps:,.0f} | {row.score:.0f} "
            f"| {row.fell:.0%} |"
        )


def main() -> None:
    """Measure all rows, print them, and update the page."""
    (game,) = tables.load(TABLE)
    lines = "\n".join(text([measure(game, TARGET, count) for count in COUNTS]))
    stream = np.random.default_rng(0)
    late = "\n".join(late_text([choose(game, TARGET, seeds, stream) for seeds in FURTHER]))
    page = replace_between(PAGE.read_text("utf-8"), BEGIN, END, f"\n{lines}\n")
    page = replace_between(page, BEGIN_LATE, END_LATE, f"\n{late}\n")
    PAGE.write_text(page, encoding="utf-8")
    sys.stdout.write(f"{lines}\n\n{late}\n")


if __name__ == "__main__":
    main()
