"""The page that says how searches compare: docs/search.md, from the figures of ``results.jsonl``.

Intervals are 95 % bootstrap intervals of the median over seeds (percentiles of 10,000 resamples).
"""

import importlib.metadata
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.search import games

PAGE = Path(__file__).parents[2] / "docs" / "search.md"
RESAMPLES = 10_000
Rows = Sequence[Mapping[str, Any]]
KINDS = {
    "schedulers": "Schedulers, given the same settings in the same order",
    "searchers": "Searchers, each with the scheduler that is named",
    "populations": "Populations",
}


def write(rows: Rows) -> None:
    """Make the page anew."""
    PAGE.write_text("\n".join(_page(rows)) + "\n", encoding="utf-8")


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
        iterations=games.ITERATIONS,
        table=_table_of_curves(),
    ).splitlines()
    for kind, title in KINDS.items():
        found = [row for row in rows if row["kind"] == kind]
        if not found:
            continue
        yield from ("", f"## {title}", "")
        for name in dict.fromkeys(row["game"] for row in found):
            yield from _table(name, [row for row in found if row["game"] == name])


def _table_of_curves() -> str:
    """What is said of the table of trained curves; it is not there before it was made."""
    if not games.TABLE.exists():
        return _NO_TABLE
    settings, seeds, iterations = games.Tabulated("CartPole-v1", 0).shape
    return (
        "`CartPole-v1` and\n`Acrobot-v1` are curves of our own PPO, trained once (`python -m "
        f"benchmarks.search.curves`) and kept as a\ntable: {settings} settings, each under {seeds} "
        f"seeds, {iterations} iterations long."
    )


def _table(name: str, rows: Rows) -> Iterator[str]:
    budget = rows[0]["budget"]
    game = games.load(name, 0)
    unit = "environment steps" if game.steps > 1 else "iterations"
    seeds = len({row["seed"] for row in rows})
    yield from (f"**{name}**: target {game.target:.4g}, {seeds} seeds", "")
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


_NO_TABLE = """Curves of our own PPO join them
once `python -m benchmarks.search.curves` has trained them."""
_OPENING = """# Searches beside their peers

What a search finds for how much training, beside Optuna {optuna}, Ray Tune 2.60.0 and Syne Tune
0.16.0 on the same games. Names in bold are ours. Made by

    python -m benchmarks.search --peers PYTHON

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
