"""Measure how often a score falls after a training has reached its target.

    python -m benchmarks.search.targets

The command reads the learning curves of PPO on CartPole (``tables/ppo-cartpole.npz``) and takes 500
as the target, which must be met in 1, 2, 3 and 5 consecutive evaluations. It updates the table in
docs/seeds.md: how many trainings meet the target, how many steps they have made by then, and their
scores at the end of the table's curves, as if the target had not ended them.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.pages import replace_between
from benchmarks.search import game as tables

TABLE = Path(__file__).with_name("tables") / "ppo-cartpole.npz"
PAGE = Path(__file__).parents[2] / "docs" / "seeds.md"
#: Lines of the page before and after the table.
BEGIN, END = "<!-- begin: benchmarks.search.targets -->", "<!-- end: benchmarks.search.targets -->"
TARGET = 500.0
#: Numbers of consecutive evaluations that are compared.
COUNTS = (1, 2, 3, 5)


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
    page = PAGE.read_text("utf-8")
    PAGE.write_text(replace_between(page, BEGIN, END, f"\n{lines}\n"), encoding="utf-8")
    sys.stdout.write(f"{lines}\n")


if __name__ == "__main__":
    main()
