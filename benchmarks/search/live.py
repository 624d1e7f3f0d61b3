"""Sweeps on environments: the settings that they recommend, trained anew under fresh seeds.

    python -m benchmarks.search.live [--games GAME …] [--sweeps N] [--out FOLDER]
    python -m benchmarks.search.live --report-only

Each sweep of a game has the same budget of environment steps, whatever its method; what runs when
the budget is spent is trained to its end. The pick is then trained under seeds that the sweep never
saw, without stopping criteria on its score, and its worth is their mean at the end. The claim is
the return that the sweep expected of the pick under a new seed. Each finished sweep is a line of
``live.jsonl`` and is not run again; one that was stopped is resumed.
"""

import argparse
import json
import os
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.search import log, prior

#: The page that shows the table, and the lines around it.
PAGE = Path(__file__).parents[2] / "docs" / "seeds.md"
LINES = Path(__file__).with_name("live.jsonl")
BEGIN, END = "<!-- begin: benchmarks.search.live -->", "<!-- end: benchmarks.search.live -->"
METRIC = "evaluation/episode_reward_mean"
#: Seeds under which a pick is trained anew.
FRESH = 10
#: Stands for all games of the prior but the one that is played.
OTHERS = "{others}"


@dataclass(frozen=True)
class Game:
    """One game: a shipped search space, and the budgets."""

    space: str
    """Name of the shipped search space."""
    budget: int
    """Environment steps of each sweep."""
    final: int
    """Environment steps for which the pick is trained anew, under each seed."""


GAMES: Mapping[str, Game] = {
    "CartPole, ppo": Game("cartpole_ppo", 850_000, 45_000),
    "Acrobot, ppo": Game("acrobot_ppo", 3_000_000, 300_000),
    "Pendulum, ppo": Game("pendulum_ppo", 2_000_000, 100_000),
    "LunarLander, ppo": Game("lunarlander_ppo", 3_000_000, 300_000),
    "CartPole, dqn": Game("cartpole_dqn", 600_000, 50_000),
}
#: Method → its seeds, and options of its searcher, which is tpe.
METHODS: Mapping[str, tuple[int | str, Mapping[str, Any]]] = {
    "tpe, one seed": (1, {"prior": "none", "random_fraction": 0}),
    "default without prior": ("auto", {"prior": "none"}),
    "default": ("auto", {"prior": OTHERS}),
}


@dataclass(frozen=True)
class Match:
    """One sweep."""

    game: str
    method: str
    number: int
    """Number of the sweep, which is its seed."""


def play(match: Match, game: Game, fresh: int, folder: Path, jobs: int) -> dict[str, Any]:
    """Run a sweep, train its pick anew, and return what both showed as a line of the log."""
    import sweep

    name = f"{match.game}-{match.method}-{match.number}".replace(", ", "-").replace(": ", "-")
    name = name.replace(" ", "-").lower()
    seeds, searcher = METHODS[match.method]
    if searcher["prior"] == OTHERS:
        others = prior.other_games(match.game.split(",")[0], match.game.split()[-1])
        searcher = {**searcher, "prior": others}
    found = sweep.run(
        space=game.space,
        name=name,
        root=folder,
        jobs=jobs,
        trials=1_000_000,  # more than it can begin: the budget ends it
        seed=match.number,
        seeds=seeds,
        searcher={"name": "tpe", **searcher},
        budget={"timesteps": game.budget},
        trackers=[],
        progress=False,
    )
    best = found.best()
    tested = sweep.run(
        found.spec.trainable,
        name=f"{name}-fresh",
        root=folder,
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
    scored = tested.curves().dropna(subset=[METRIC])
    returns = scored.sort_values("iteration").groupby("seed_index")[METRIC].last()
    steps = int(found.results()["steps"].sum())
    return {
        "game": match.game,
        "method": match.method,
        "number": match.number,
        "settings": best.settings,
        "score": best.score,
        "expected": best.expected,
        "error": best.expected_error,
        "steps": steps,
        "returns": [round(float(one), 3) for one in returns],
    }


def rows(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the table of what was played, line by line, or one sentence if nothing was."""
    if not lines:
        yield "Not measured yet."
        return
    yield "| game | method | sweeps | steps | worth of the picks | worst pick | claim less worth |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for game in GAMES:
        for method in METHODS:
            mine = [line for line in lines if (line["game"], line["method"]) == (game, method)]
            if not mine:
                continue
            worths = [statistics.fmean(line["returns"]) for line in mine]
            claims = [line["expected"] - worth for line, worth in zip(mine, worths, strict=True)]
            steps = statistics.fmean(line["steps"] for line in mine)
            yield (
                f"| {game} | {method} | {len(mine)} | {steps:,.0f} | {_mean(worths)} "
                f"| {min(worths):.1f} | {_mean(claims)} |"
            )


def _mean(values: Sequence[float]) -> str:
    """Write a mean with its standard error, which two values or more have."""
    mean = f"{statistics.fmean(values):.1f}"
    if len(values) < 2:
        return mean
    return f"{mean} ± {statistics.stdev(values) / len(values) ** 0.5:.1f}"


def renewed(page: str, lines: Sequence[Mapping[str, Any]]) -> str:
    """Return the page with the table of these lines."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return before + BEGIN + "\n" + "\n".join(rows(lines)) + "\n" + END + after


def main(words: Sequence[str] | None = None) -> None:
    """Play the sweeps that are missing, and renew the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search.live")
    parser.add_argument("--games", nargs="+", choices=list(GAMES), default=list(GAMES))
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--sweeps", type=int, default=5, help="sweeps of each game and method")
    parser.add_argument("--share", type=float, default=1.0, help="of all budgets, to try it")
    parser.add_argument("--fresh", type=int, default=FRESH, help="seeds that judge a pick")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="trials at once")
    parser.add_argument("--out", type=Path, default=Path("build/live"), help="folder of the sweeps")
    parser.add_argument("--report-only", action="store_true")
    asked = parser.parse_args(words)
    path = LINES if asked.share == 1 else asked.out / LINES.name
    done = {(line["game"], line["method"], line["number"]) for line in log.read(path)}
    matches = [
        Match(game, method, number)
        for number in range(asked.sweeps)
        for game in asked.games
        for method in asked.methods
        if (game, method, number) not in done
    ]
    for count, match in enumerate([] if asked.report_only else matches, 1):
        sys.stderr.write(f"{count} of {len(matches)}: {match.game}, {match.method}\n")
        full = GAMES[match.game]
        game = Game(full.space, round(full.budget * asked.share), round(full.final * asked.share))
        line = play(match, game, asked.fresh, asked.out, asked.jobs)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
    lines = log.read(path)
    if asked.share == 1:
        PAGE.write_text(renewed(PAGE.read_text("utf-8"), lines), encoding="utf-8")
    sys.stdout.write("\n".join(rows(lines)) + "\n")


if __name__ == "__main__":
    main()
