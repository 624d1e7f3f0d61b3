"""Run populations and the default on environments, and judge the models and settings they give.

    python -m benchmarks.search.populations [--games GAME …] [--sweeps N] [--out FOLDER]
    python -m benchmarks.search.populations --report-only

All sweeps of a game have the same number of environment steps, the same shipped search space and
the same searcher; only the scheduler differs, and the seeds for each setting, which are the
default's. A population of eight members is trained for as many steps as eight full trainings have.

A sweep is judged twice. Its *model* is the network that ``sweep export-model`` would write; it
plays fresh episodes, the same for all models of a game. Its *recipe* is the recommended settings,
or for a child of a population the settings of its ancestors, each for as long as it lasted, and its
own; the recipe trains new models under seeds that the sweep did not use (``pbt_replay``). A
population is meant to give a model rather than a recipe.

Each finished sweep is a line of ``populations.jsonl`` and is not run again; an interrupted sweep is
resumed. Trials of most games are lanes of compiled programs (``--pool stack``).
"""

import argparse
import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.pages import replace_between
from benchmarks.search import live, log, prior
from benchmarks.search.live import METRIC, Match
from sweep.core import stats

#: Page with the table.
PAGE = Path(__file__).parents[2] / "docs" / "schedulers.md"
LINES = Path(__file__).with_name("populations.jsonl")
#: Lines of the page before and after the table.
BEGIN = "<!-- begin: benchmarks.search.populations -->"
END = "<!-- end: benchmarks.search.populations -->"
#: Number of members of a population.
MEMBERS = 8
#: Number of fresh episodes that a sweep's model plays.
EPISODES = 100
#: Seed of these episodes.
EPISODES_SEED = 2_000_000
TIME = "timesteps_total"


@dataclass(frozen=True)
class Game:
    """One game: a shipped search space and its budgets."""

    space: str
    """Name of the shipped search space."""
    full: int
    """Environment steps of a full training; a sweep has `MEMBERS` times as many."""
    grace: int
    """Environment steps before the default's first comparison."""
    interval: int
    """Environment steps between two comparisons of a population, a whole number of evaluations."""
    pool: str = "stack"
    """Pool that runs the trials."""
    goal: Mapping[str, float] = field(default_factory=dict)
    """Criteria that end a trial of the default early. A member of a population is trained on, as
    nothing is bred from a trial that has ended."""


GAMES: Mapping[str, Game] = {
    "CartPole, ppo": Game("quickstart", 20_480, 2_560, 2_560, "loky", {METRIC: 500}),
    "CartPole wide, ppo": Game("cartpole_ppo", 100_000, 5_000, 5_120, goal={METRIC: 500}),
    "Pendulum, ppo": Game("pendulum_ppo", 100_000, 16_384, 8_192),
    "Acrobot, ppo": Game("acrobot_ppo", 300_000, 40_000, 16_384),
}
#: Method with which the others are compared.
DEFAULT = "default"
POPULATIONS = ("pbt", "pb2")
#: The third one trains every member of a population to its end, and replaces none.
METHODS = (DEFAULT, *POPULATIONS, "full trainings")


def play(match: Match, game: Game, fresh: int, folder: Path, jobs: int) -> dict[str, Any]:
    """Run or resume a sweep, judge its model and its recipe, and return the line of the log.

    Args:
        fresh: number of seeds with which the recipe is trained.
    """
    import sweep
    from sweep.ledger.folder import Folder
    from sweep.operations.models import networks, trained
    from sweep.views import explanation, lookup, overview

    name = f"{match.game}-{match.method}-{match.number}".replace(", ", "-").replace(" ", "-")
    result = sweep.run(
        space=game.space,
        name=name.lower(),
        root=folder,
        pool=match.pool,
        jobs=jobs,
        seed=match.number,
        trackers=[],
        progress=False,
        **_method_keys(match, game),
    )
    own = Folder(folder.absolute(), result.name)
    choice = trained.Choice("best", networks.COMPARED)
    with networks.restore_chosen(own, choice, networks.EPISODES) as (restored, _):
        episodes = restored.trainable.play(EPISODES, EPISODES_SEED)
    finished = lookup.read(own)
    recipe = explanation.schedule(finished, "best")["schedule"]
    replayed = sweep.run(
        space=game.space,
        name=f"{result.name}-fresh",
        root=folder,
        pool=match.pool,
        jobs=jobs,
        trials=1,
        seeds=fresh,
        seed=1_000_000 + match.number,
        scheduler={"name": "pbt_replay", "time_attr": TIME, "schedule": recipe},
        stop={TIME: game.full},
        trackers=[],
        progress=False,
    )
    return {
        "game": match.game,
        "method": match.method,
        "number": match.number,
        "recipe": recipe,
        "score": result.best().score,
        "expected": result.best().expected,
        "steps": round(overview.steps(finished.history) or 0),
        "model": round(statistics.fmean(one["episode_reward"] for one in episodes), 3),
        "returns": live.final_returns(replayed),
    }


def _method_keys(match: Match, game: Game) -> dict[str, Any]:
    """Return the keys of the spec that depend on the method, and the searcher of all methods.

    The prior of the searcher has no game of the same name, because its tables come from games that
    are played here.
    """
    others = prior.other_games(match.game.split(",")[0], match.game.split()[-1])
    searcher = {"name": "tpe", "multivariate": True, "prior": others}
    if match.method == DEFAULT:
        rungs = {"grace_period": game.grace, "reduction_factor": 3}
        return {
            "searcher": searcher,
            "scheduler": {"name": "asha", "time_attr": TIME, **rungs},
            "seeds": "auto",
            "trials": 1_000_000,  # more than the budget allows
            "stop": {TIME: game.full, **game.goal},
            "budget": {"timesteps": MEMBERS * game.full},
        }
    scheduler: dict[str, Any] = {"name": "fifo"}
    if match.method in POPULATIONS:
        scheduler = {"name": match.method, "time_attr": TIME}
        scheduler["perturbation_interval"] = game.interval
    return {
        "searcher": searcher,
        "scheduler": scheduler,
        "seeds": 1,
        "trials": MEMBERS,
        "stop": {TIME: game.full},
    }


def rows(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the table of finished sweeps and its summary, or one sentence if there are none."""
    if not lines:
        yield "Not measured yet."
        return
    told = "".join(f" {product} | less the default's |" for product in PRODUCTS)
    yield f"| game | scheduler | sweeps | steps |{told}"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    verdicts: dict[str, list[str]] = {"better": [], "worse": []}
    for game, method in itertools.product(GAMES, METHODS):
        own = _select_sweeps(lines, game, method)
        if not own:
            continue
        steps = statistics.fmean(line["steps"] for line in own.values())
        cells = [game, f"`{method}`" if method in POPULATIONS else method]
        cells += [str(len(own)), f"{steps:,.0f}"]
        for product, worth in PRODUCTS.items():
            worths = [worth(line) for line in own.values()]
            found = difference(lines, game, method, worth)
            cells += [f"{live.mean_text(worths)}, worst {min(worths):.1f}", _interval_text(found)]
            if found and (found.low > 0 or found.high < 0):
                side = "better" if found.low > 0 else "worse"
                verdicts[side].append(f"the {product}s of {cells[1]} on {game}")
        yield "| " + " | ".join(cells) + " |"
    yield ""
    for side, which in verdicts.items():
        yield (
            f"- {side.capitalize()} than the default's by more than the noise: "
            + ("; ".join(which) or "none")
            + "."
        )


def difference(
    lines: Sequence[Mapping[str, Any]],
    game: str,
    method: str,
    worth: Callable[[Mapping[str, Any]], float],
) -> stats.Interval | None:
    """Return how much more a method's sweeps are worth than the default's with the same numbers.

    Returns None for the default itself, or if there are fewer than two pairs.
    """
    own, default = (_select_sweeps(lines, game, one) for one in (method, DEFAULT))
    pairs = [worth(own[number]) - worth(default[number]) for number in own if number in default]
    return None if method == DEFAULT or len(pairs) < 2 else stats.mean_interval(pairs)


def _interval_text(found: stats.Interval | None) -> str:
    """Return a difference with its interval as text; empty if there is none."""
    return "" if found is None else f"{found.value:.1f} ({found.low:.1f} to {found.high:.1f})"


def _select_sweeps(
    lines: Sequence[Mapping[str, Any]], game: str, method: str
) -> dict[int, Mapping[str, Any]]:
    """Return number of a sweep → its line."""
    found = [line for line in lines if (line["game"], line["method"]) == (game, method)]
    return {line["number"]: line for line in found}


def model_worth(line: Mapping[str, Any]) -> float:
    """Return the mean return of a sweep's model in fresh episodes."""
    return float(line["model"])


def recipe_worth(line: Mapping[str, Any]) -> float:
    """Return the mean final return of a sweep's recipe under fresh seeds."""
    return statistics.fmean(line["returns"])


#: Result of a sweep → its worth.
PRODUCTS: Mapping[str, Callable[[Mapping[str, Any]], float]] = {
    "model": model_worth,
    "recipe": recipe_worth,
}


def insert_table(page: str, lines: Sequence[Mapping[str, Any]]) -> str:
    """Return the page with the table of these lines between its marks."""
    return replace_between(page, BEGIN, END, "\n" + "\n".join(rows(lines)) + "\n")


def main(words: Sequence[str] | None = None) -> None:
    """Run the missing sweeps, and update the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search.populations")
    parser.add_argument(
        "--games", nargs="+", choices=list(GAMES), default=list(GAMES), help="default: all"
    )
    parser.add_argument(
        "--methods", nargs="+", choices=METHODS, default=list(METHODS), help="default: all"
    )
    parser.add_argument("--sweeps", type=int, default=5, help="sweeps of each game and method")
    parser.add_argument("--fresh", type=int, default=live.FRESH, help="seeds that judge a recipe")
    parser.add_argument("--jobs", type=int, default=MEMBERS, help="trials at the same time")
    parser.add_argument(
        "--out", type=Path, default=Path("build/populations"), help="folder of the sweeps"
    )
    parser.add_argument("--report-only", action="store_true", help="run no sweep")
    options = parser.parse_args(words)
    done = {(line["game"], line["method"], line["number"]) for line in log.read(LINES)}
    matches = [
        Match(game, method, number, GAMES[game].pool)
        for number in range(options.sweeps)
        for game in options.games
        for method in options.methods
        if (game, method, number) not in done
    ]
    began = time.monotonic()
    for count, match in enumerate([] if options.report_only else matches, 1):
        minutes = (time.monotonic() - began) / 60
        sys.stderr.write(
            f"{count} of {len(matches)}, {minutes:.0f} min: {match.game}, {match.method}, "
            f"sweep {match.number}\n"
        )
        line = play(match, GAMES[match.game], options.fresh, options.out, options.jobs)
        with LINES.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
    lines = log.read(LINES)
    PAGE.write_text(insert_table(PAGE.read_text("utf-8"), lines), encoding="utf-8")
    sys.stdout.write("\n".join(rows(lines)) + "\n")


if __name__ == "__main__":
    main()
