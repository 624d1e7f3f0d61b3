"""The page that says how searches compare: docs/search.md, from the figures of ``results.jsonl``.

Intervals are 95 % bootstrap intervals of the median over seeds (percentiles of 10,000 resamples).
"""

import importlib.metadata
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.search import games
from benchmarks.search.game import ITERATIONS
from benchmarks.search.tabulated import Tabulated

PAGE = Path(__file__).parents[2] / "docs" / "search.md"
RESAMPLES = 10_000
Rows = Sequence[Mapping[str, Any]]
#: What of ours is held against every peer, by kind.
OURS = {"schedulers": "asha", "searchers": "tpe, asha", "populations": "pbt"}
KINDS = {
    "schedulers": "Schedulers, given the same settings in the same order",
    "searchers": "Searchers, each with the scheduler that is named",
    "populations": "Populations",
}


def write(rows: Rows) -> None:
    """Make the page anew."""
    PAGE.write_text(page(rows), encoding="utf-8")


def page(rows: Rows) -> str:
    """The whole page; ours stand first in every table, peers in the order of their names."""
    ordered = sorted(rows, key=lambda row: (row["who"] != "sweep", row["who"], row["seed"]))
    return "\n".join(_page(ordered)) + "\n"


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Median, and its 95 % interval."""
    array = np.array(values, float)
    picks = np.random.default_rng(0).integers(len(array), size=(RESAMPLES, len(array)))
    medians = np.median(array[picks], axis=1)
    low, high = np.percentile(medians, [2.5, 97.5])
    return float(np.median(array)), float(low), float(high)


def _page(rows: Rows) -> Iterator[str]:
    yield from _OPENING.format(
        optuna=importlib.metadata.version("optuna"),
        iterations=ITERATIONS,
        table=_table_of_curves(),
    ).splitlines()
    yield from _verdicts(rows)
    for kind, title in KINDS.items():
        found = [row for row in rows if row["kind"] == kind]
        if not found:
            continue
        yield from ("", f"## {title}", "")
        for name in dict.fromkeys(row["game"] for row in found):
            yield from _table(name, [row for row in found if row["game"] == name])


def _verdicts(rows: Rows) -> Iterator[str]:
    """Ours beside the best peer of each game, and promotion beside stopping."""
    yield from ("", "## What it comes to", "", *_VERDICTS.splitlines(), "")
    yield "| | game | seeds | to the target | beside | regret at the end | beside |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for kind, mine in OURS.items():
        for game in dict.fromkeys(row["game"] for row in rows if row["kind"] == kind):
            played = [row for row in rows if (row["kind"], row["game"]) == (kind, game)]
            ours = [row for row in played if (row["who"], row["method"]) == ("sweep", mine)]
            others = [row for row in played if row["who"] != "sweep"]
            yield f"| **{mine}** | {game} | {_pair(ours, others)} |"
    for game in dict.fromkeys(row["game"] for row in rows if row["kind"] == "schedulers"):
        given = [row for row in rows if (row["kind"], row["game"]) == ("schedulers", game)]
        promoting = [row for row in given if (row["who"], row["method"]) == ("sweep", "asha")]
        stopping = [row for row in given if row["method"] == "asha, stopping"]
        yield f"| **asha**, promoting | {game} | {_pair(promoting, stopping)} |"


def _pair(ours: Rows, others: Rows) -> str:
    """How many seeds were played, then the differences in time and in regret."""
    by_method: dict[tuple[str, str], set[int]] = {}
    for row in others:
        by_method.setdefault((row["who"], row["method"]), set()).add(row["seed"])
    seeds = {row["seed"] for row in ours}.intersection(*by_method.values())
    if not by_method or not seeds:
        return "0 | not played yet | | | "
    ours, others = ([row for row in rows if row["seed"] in seeds] for rows in (ours, others))
    time, regret = (_beside(ours, others, of) for of in (_time, _last_regret))
    return f"{len(seeds)} | {time} | {regret}"


def _beside(ours: Rows, others: Rows, of: Callable[[Mapping[str, Any]], float]) -> str:
    """Ours less the best other's, seed by seed, and who that is; all have played all seeds."""
    by_method: dict[tuple[str, str], dict[int, float]] = {}
    for row in others:
        by_method.setdefault((row["who"], row["method"]), {})[row["seed"]] = of(row)
    (who, method), best = min(
        by_method.items(), key=lambda item: (np.median([*item[1].values()]), item[0])
    )
    median, low, high = interval([of(row) - best[row["seed"]] for row in ours])
    verdict = ", **worse**" if low > 0 else ", **better**" if high < 0 else ""
    return f"{median:+.3g} ({low:+.3g} to {high:+.3g}){verdict} | {_bold(who, method)}"


def _time(row: Mapping[str, Any]) -> float:
    """Iterations to the target; all of the budget where it was not reached."""
    return float(row["budget"] if row["target"] is None else row["target"])


def _last_regret(row: Mapping[str, Any]) -> float:
    return float(row["regret"][str(row["budget"])])


def _table_of_curves() -> str:
    """What is said of the table of trained curves."""
    settings, seeds, iterations = Tabulated("CartPole-v1", 0).shape
    return (
        "`CartPole-v1` and\n`Acrobot-v1` are curves of our own PPO, trained once (`python -m "
        f"benchmarks.search.curves`) and kept as a\ntable: {settings} settings, each under {seeds} "
        f"seeds, {iterations} iterations long."
    )


def _table(name: str, rows: Rows) -> Iterator[str]:
    budget = rows[0]["budget"]
    game = games.load(name, 0)
    unit = "environment steps" if game.steps > 1 else "iterations"
    yield from (f"**{name}**: target {game.target:.4g}", "")
    parts = f"regret at {budget // 4} | at {budget // 2} | at {budget} iterations"
    yield f"| | {unit} to the target | reached | {parts} |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for who, method in dict.fromkeys((row["who"], row["method"]) for row in rows):
        mine = [row for row in rows if (row["who"], row["method"]) == (who, method)]
        yield f"| {_bold(who, method)} | {_to_target(mine, game.steps)} | {_regrets(mine)} |"
    yield ""


def _bold(who: str, method: str) -> str:
    return f"**{method}**" if who == "sweep" else f"{who} {method}"


def _to_target(rows: Rows, steps: int) -> str:
    """The median over the seeds; a seed that did not come there counts as more than the budget."""
    reached = [row["target"] for row in rows if row["target"] is not None]
    times = [row["target"] if row["target"] is not None else np.inf for row in rows]
    median = float(np.median(times))
    shown = "more than all" if np.isinf(median) else f"{median * steps:,.0f}"
    finite = [min(time, rows[0]["budget"]) * steps for time in times]
    _, low, high = interval(finite)
    return f"{shown} ({low:,.0f} to {high:,.0f}) | {len(reached)} of {len(rows)}"


def _regrets(rows: Rows) -> str:
    cells = []
    for at in rows[0]["regret"]:
        median, low, high = interval([row["regret"][at] for row in rows])
        cells.append(f"{median:.3g} ({low:.3g} to {high:.3g})")
    return " | ".join(cells)


_VERDICTS = """Ours less the best peer's in that game, seed by seed: the median of the
differences, with its interval. Less is better; where nothing is said, the interval holds zero. The
best peer is the one with the least median, chosen after all had played. Times are iterations."""
_OPENING = """# Searches beside their peers

What a search finds for how much training, beside Optuna {optuna}, Ray Tune 2.60.0 and Syne Tune
0.16.0 on the same games. Names in bold are ours. Made by

    python -m benchmarks.search --peers PYTHON
    python -m benchmarks.search --seeds 30 --methods asha "asha, stopping"

where PYTHON is an interpreter of an environment of its own with `ray[tune]==2.60.0
syne-tune==0.16.0`. Medians over seeds, with their 95 % bootstrap intervals.

**Games.** `branin` and `hartmann` are test functions as the ends of learning curves that fall
towards them at different speeds. `quadratic` is the toy problem of the paper on population-based
training, in which no fixed setting is good to the end. {table}

**Cost** is what is trained: iterations, or environment steps. *To the target*: until a trial first
reported a value that few settings reach; where a seed never came there, it counts as more than all
of the budget. *Regret*: how much less than the best settings of the game the recommended ones are
worth without noise, after a part of the budget; recommended is the trial with the highest value at
the highest iteration that any has come to. For populations it is the value itself.

One worker plays at a time, so that all see their results in the same order. The highest rung is
{iterations}, the lowest is 1, and of three trials one goes on."""
