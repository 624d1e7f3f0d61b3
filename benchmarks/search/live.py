"""Run sweeps on environments, and train their recommended settings anew with fresh seeds.

    python -m benchmarks.search.live [--games GAME …] [--sweeps N] [--pool POOL] [--out FOLDER]
    python -m benchmarks.search.live --report-only

All sweeps of a game have the same budget of environment steps. Trials that run when the budget is
used up are trained to their end. The pick is then trained with seeds that the sweep did not use,
without stopping criteria on its score; its worth is the mean of the final returns. The claim is the
return that the sweep expected of the pick with a new seed. With ``--pool stack`` trials are lanes
of compiled programs, which is much faster for the games that can be lanes. Each finished sweep is a
line of ``live.jsonl`` and is not run again; an interrupted sweep is resumed.
"""

import argparse
import itertools
import json
import os
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.pages import replace_between
from benchmarks.search import log, prior

if TYPE_CHECKING:
    import sweep

#: Page with the table.
PAGE = Path(__file__).parents[2] / "docs" / "seeds.md"
LINES = Path(__file__).with_name("live.jsonl")
#: Lines of the page before and after the table.
BEGIN, END = "<!-- begin: benchmarks.search.live -->", "<!-- end: benchmarks.search.live -->"
#: Metric of the final training.
METRIC = "evaluation/episode_reward_mean"
#: Pools that trials can run in.
POOLS = ("loky", "stack")
#: Number of seeds with which a pick is trained anew.
FRESH = 10
#: Value of ``prior`` that is replaced by all games of the prior except the game that is played.
OTHERS = "{others}"


@dataclass(frozen=True)
class Game:
    """One game: a shipped search space and its budgets."""

    space: str
    """Name of the shipped search space."""
    budget: int
    """Environment steps of each sweep."""
    final: int
    """Environment steps of the pick's final training with each seed."""


GAMES: Mapping[str, Game] = {
    "CartPole, ppo": Game("cartpole_ppo", 850_000, 45_000),
    "Acrobot, ppo": Game("acrobot_ppo", 3_000_000, 300_000),
    "Pendulum, ppo": Game("pendulum_ppo", 2_000_000, 100_000),
    "LunarLander, ppo": Game("lunarlander_ppo", 3_000_000, 300_000),
    "CartPole, dqn": Game("cartpole_dqn", 600_000, 50_000),
}
#: Method → its ``seeds``, and options of its searcher ``tpe``.
METHODS: Mapping[str, tuple[int | str, Mapping[str, Any]]] = {
    "tpe, one seed": (1, {"prior": "none", "random_fraction": 0}),
    "default without prior": ("auto", {"prior": "none"}),
    "default": ("auto", {"prior": OTHERS}),
}


@dataclass(frozen=True)
class Match:
    """One sweep of the benchmark."""

    game: str
    method: str
    number: int
    """Number of the sweep, and its seed."""
    pool: str
    """Pool that runs the trials."""


def play(match: Match, game: Game, fresh: int, folder: Path, jobs: int) -> dict[str, Any]:
    """Run or resume a sweep, train its pick anew, and return the line of the log.

    Args:
        game: its game, perhaps with smaller budgets.
        fresh: number of seeds of the final training.
    """
    import sweep

    name = f"{match.game}-{match.method}-{match.pool}-{match.number}".replace(", ", "-").replace(
        ": ", "-"
    )
    name = name.replace(" ", "-").lower()
    seeds, searcher = METHODS[match.method]
    if searcher["prior"] == OTHERS:
        others = prior.other_games(*match.game.split(", ")[:2])
        searcher = {**searcher, "prior": others}
    result = sweep.run(
        space=game.space,
        name=name,
        root=folder,
        pool=match.pool,
        jobs=jobs,
        trials=1_000_000,  # more than the budget allows
        seed=match.number,
        seeds=seeds,
        searcher={"name": "tpe", **searcher},
        budget={"timesteps": game.budget},
        trackers=[],
        progress=False,
    )
    best = result.best()
    tested = sweep.run(
        result.spec.trainable,
        name=f"{name}-fresh",
        root=folder,
        pool=match.pool,
        jobs=jobs,
        config={**best.config},
        space={},
        metric=METRIC,
        mode="max",
        trials=1,
        seeds=fresh,
        seed=1_000_000 + match.number,
        stop={"timesteps_total": game.final},
        trackers=[],
        progress=False,
    )
    steps = int(result.results()["steps"].sum())
    return {
        "game": match.game,
        "method": match.method,
        "number": match.number,
        "pool": match.pool,
        "settings": best.settings,
        "score": best.score,
        "expected": best.expected,
        "error": best.expected_error,
        "steps": steps,
        "returns": final_returns(tested),
    }


def final_returns(trained: "sweep.Sweep") -> list[float]:
    """Return the last evaluation of each seed of a sweep with a single chain of trials."""
    scored = trained.curves().dropna(subset=[METRIC])
    returns = scored.sort_values("iteration").groupby("seed_index")[METRIC].last()
    return [round(float(one), 3) for one in returns]


def rows(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the table of finished sweeps, line by line, or one sentence if there are none."""
    if not lines:
        yield "Not measured yet."
        return
    yield (
        "| game | method | pool | sweeps | steps | worth of the picks | worst pick "
        "| claim minus worth |"
    )
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for game, pool, method in itertools.product(GAMES, POOLS, METHODS):
        kind = (game, method, pool)
        own = [line for line in lines if (line["game"], line["method"], line["pool"]) == kind]
        if own:
            worths = [statistics.fmean(line["returns"]) for line in own]
            claims = [line["expected"] - worth for line, worth in zip(own, worths, strict=True)]
            steps = statistics.fmean(line["steps"] for line in own)
            yield (
                f"| {game} | {method} | {pool} | {len(own)} | {steps:,.0f} | {mean_text(worths)} "
                f"| {min(worths):.1f} | {mean_text(claims)} |"
            )


def mean_text(values: Sequence[float]) -> str:
    """Return a mean as text, with its standard error if there are at least two values."""
    mean = f"{statistics.fmean(values):.1f}"
    if len(values) < 2:
        return mean
    return f"{mean} ± {statistics.stdev(values) / len(values) ** 0.5:.1f}"


def insert_table(page: str, lines: Sequence[Mapping[str, Any]]) -> str:
    """Return the page with the table of these lines between its marks."""
    return replace_between(page, BEGIN, END, "\n" + "\n".join(rows(lines)) + "\n")


def main(words: Sequence[str] | None = None) -> None:
    """Run the missing sweeps, and update the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search.live")
    parser.add_argument(
        "--games", nargs="+", choices=list(GAMES), default=list(GAMES), help="default: all"
    )
    parser.add_argument(
        "--methods", nargs="+", choices=list(METHODS), default=list(METHODS), help="default: all"
    )
    parser.add_argument("--sweeps", type=int, default=5, help="sweeps of each game and method")
    parser.add_argument(
        "--share", type=float, default=1.0, help="factor of all budgets, for trials of the command"
    )
    parser.add_argument("--fresh", type=int, default=FRESH, help="seeds that judge a pick")
    parser.add_argument("--pool", choices=POOLS, default=POOLS[0], help="where trials run")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="trials at the same time")
    parser.add_argument("--out", type=Path, default=Path("build/live"), help="folder of the sweeps")
    parser.add_argument("--report-only", action="store_true", help="run no sweep")
    options = parser.parse_args(words)
    path = LINES if options.share == 1 else options.out / LINES.name
    done = {
        Match(line["game"], line["method"], line["number"], line["pool"]) for line in log.read(path)
    }
    wanted = itertools.product(range(options.sweeps), options.games, options.methods)
    matches = [
        match
        for number, game, method in wanted
        if (match := Match(game, method, number, options.pool)) not in done
    ]
    for count, match in enumerate([] if options.report_only else matches, 1):
        sys.stderr.write(f"{count} of {len(matches)}: {match.game}, {match.method}\n")
        shipped = GAMES[match.game]
        game = Game(
            shipped.space,
            round(shipped.budget * options.share),
            round(shipped.final * options.share),
        )
        line = play(match, game, options.fresh, options.out, options.jobs)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
    lines = log.read(path)
    if options.share == 1:
        PAGE.write_text(insert_table(PAGE.read_text("utf-8"), lines), encoding="utf-8")
    sys.stdout.write("\n".join(rows(lines)) + "\n")


if __name__ == "__main__":
    main()
