"""Compare plans of seeds at equal numbers of results: at which rungs do further seeds pay?

    python -m benchmarks.search.seed_plans curves.npz landscapes.npz [--plays N] [--share S]

Each play draws as many settings of a game as the budget is enough for, promotes the better third at
each step of a plan, and judges the pick of the model on seeds that the search does not see. Prints
a line for each plan: regret after 8, 16, 32 and 64 full trainings in per cent of the game's range,
the mean over all games and its standard error over plays, and the share of claims within two
standard errors of the truth.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.search import game as tables
from benchmarks.search import halving
from benchmarks.search.game import Game
from benchmarks.search.halving import Step, Steps

BUDGETS = (8, 16, 32, 64)
"""Budgets of a search, in full trainings."""
Plan = Callable[[Sequence[int]], Steps]
"""Function from the rungs of a game to the steps of a plan."""


def _one_seed(rungs: Sequence[int], *further: Step) -> Steps:
    """Return steps of one seed at all rungs, and then further ones."""
    return [*(Step(rung, 1) for rung in rungs), *further]


#: Plan with which the best trial at the last rung is tested under further seeds.
AUTO = "auto"
#: Text of `seeds` → plan. The last two rungs of a game with 32 results are 27 and 32.
PLANS: Mapping[str, Plan] = {
    "1": _one_seed,
    AUTO: _one_seed,
    "{top: 3, then 6}": lambda rungs: _one_seed(rungs, Step(rungs[-1], 3), Step(rungs[-1], 6)),
    "{top: 3}": lambda rungs: _one_seed(rungs, Step(rungs[-1], 3)),
    "{last: 2, top: 4}": lambda rungs: _one_seed(
        rungs[:-1], Step(rungs[-2], 2), Step(rungs[-1], 2), Step(rungs[-1], 4)
    ),
    "{last: 3, top: 6}": lambda rungs: _one_seed(
        rungs[:-1], Step(rungs[-2], 3), Step(rungs[-1], 3), Step(rungs[-1], 6)
    ),
}


def outcomes(game: Game, plan: str, budget: float, plays: int, share: float) -> list[list[float]]:
    """Return regret and 1 if the claim is within two standard errors, else 0, of each play.

    `plan` is the text of one of `PLANS`.
    """
    steps, tests_best = PLANS[plan](halving.rungs(game)), plan == AUTO
    settings = halving.affordable(game, budget, steps, tests_best)
    found = []
    for play in range(plays):
        stream = np.random.default_rng(play)
        ended = halving.search(game, settings, steps, stream, share, tests_best)
        outcome = halving.pick(game, ended)
        found.append([outcome.regret, outcome.within_two])
    return found


def main(words: Sequence[str] | None = None) -> None:
    """Compare the plans on the games of all tables, and print a line for each plan."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search.seed_plans")
    parser.add_argument("tables", type=Path, nargs="+", metavar="TABLE")
    parser.add_argument("--plays", type=int, default=60, help="searches of each game")
    parser.add_argument(
        "--share", type=float, default=0.5, help="share of the settings that a prior leaves"
    )
    options = parser.parse_args(words)
    games = [game for path in options.tables for game in tables.load(path)]
    sys.stdout.write(f"{'seeds':20}" + "".join(f"{budget:>20}" for budget in BUDGETS) + "\n")
    for name in PLANS:
        sys.stdout.write(f"{name:20}")
        for budget in BUDGETS:
            plays = np.array(
                [outcomes(game, name, budget, options.plays, options.share) for game in games]
            )  # (games, plays, 2)
            regrets = plays[:, :, 0].mean(0)
            error = regrets.std(ddof=1) / np.sqrt(len(regrets)) if len(regrets) > 1 else np.nan
            within = plays[:, :, 1].mean()
            sys.stdout.write(f"{regrets.mean():10.1f} ±{error:4.1f} {within:.2f}")
            sys.stdout.flush()
        sys.stdout.write("\n")


if __name__ == "__main__":
    main()
