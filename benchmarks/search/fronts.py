"""Fronts that searches with several objectives find, beside a known front, at equal steps.

    python -m benchmarks.search.fronts [--plays 20] [--trainings 32] [--jobs 2] [--write]

A setting has a direction from one objective to the other, waste that keeps it away from the front,
and a speed. With each step of training it comes closer to where it ends. After endless training
without waste the costs (f, g) are a front in closed form, f^p + g^p = 1: bent inwards, straight or
bent outwards, like the problems of Zitzler, Deb and Thiele, Comparison of Multiobjective
Evolutionary Algorithms: Empirical Results, 2000. All searches spend the same steps. What one found
is the hypervolume of the newest results of all its trials, in per cent of that of the known front.
`--write` writes the table into docs/schedulers.md.
"""

import argparse
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.pages import replace_between
from sweep.core import stats
from sweep.history import fronts
from sweep.history.events import Closed, Recorded
from sweep.history.results import to_number
from sweep.testing import CurvePoint, simulate

#: Steps of a full training, and the lowest rung.
STEPS, GRACE = 81, 3
#: Distance to the front, in lengths of its axes: of the greatest waste, and before the first step.
WASTE, FAR = 0.2, 3.0
#: Steps in which the latter is halved, for the quickest setting and for the slowest.
QUICKEST, SLOWEST = 3.0, 15.0
#: Costs up to which the hypervolume is measured.
REFERENCE = (1.2, 1.2)
PAGE = Path(__file__).parents[2] / "docs" / "schedulers.md"
BEGIN, END = "<!-- begin: benchmarks.search.fronts -->", "<!-- end: benchmarks.search.fronts -->"

#: Shape of the front → its exponent p.
PROBLEMS: Mapping[str, float] = {"bent inwards": 0.5, "straight": 1.0, "bent outwards": 2.0}
BOTH: Mapping[str, Any] = {"metric": "first", "objectives": {"second": "min"}}
ASHA: Mapping[str, Any] = {"name": "asha", "grace_period": GRACE, "finish_best": 0}
HYPERBAND: Mapping[str, Any] = {"name": "hyperband", "grace_period": GRACE}
#: Method → keys of a spec.
METHODS: Mapping[str, Mapping[str, Any]] = {
    "random, no pruning": {**BOTH, "searcher": "random", "scheduler": "fifo"},
    "random, `asha` by the sum": {"metric": "sum", "searcher": "random", "scheduler": ASHA},
    "random, `asha` by a sum of 9 : 1": {"metric": "nine", "searcher": "random", "scheduler": ASHA},
    "random, `hyperband` by fronts": {**BOTH, "searcher": "random", "scheduler": HYPERBAND},
    "random, `asha` by fronts": {**BOTH, "searcher": "random", "scheduler": ASHA},
    "`nsga2`, no pruning": {**BOTH, "searcher": "nsga2", "scheduler": "fifo"},
    "`nsga2`, `asha` by fronts": {**BOTH, "searcher": "nsga2", "scheduler": ASHA},
}


class Play(NamedTuple):
    """One search."""

    problem: str
    method: str
    number: int
    """Seed of the sweep."""
    trainings: int
    """Steps that it may spend, in full trainings."""


def curve(exponent: float) -> Callable[[CurvePoint], Mapping[str, float]]:
    """Return the results of the trials of a problem."""

    def result(at: CurvePoint) -> Mapping[str, float]:
        angle = at.config["direction"] * math.pi / 2
        halved = QUICKEST * (SLOWEST / QUICKEST) ** at.config["slowness"]
        far = FAR * 2 ** (-at.iteration / halved)
        scale = 1 + WASTE * (at.config["waste"] + at.config["more_waste"]) / 2 + far
        first = scale * math.cos(angle) ** (2 / exponent)
        second = scale * math.sin(angle) ** (2 / exponent)
        return {
            "first": first,
            "second": second,
            "sum": first + second,
            "nine": 9 * first + second,
            "timesteps_this_iter": 1,
        }

    return result


def known_volume(exponent: float) -> float:
    """Return the hypervolume of the known front."""
    below = math.gamma(1 + 1 / exponent) ** 2 / math.gamma(1 + 2 / exponent)
    return math.prod(REFERENCE) - below


def play(asked: Play) -> float:
    """Return the hypervolume that a search found, in per cent of that of the known front."""
    exponent, most = PROBLEMS[asked.problem], asked.trainings * STEPS
    names = ("direction", "waste", "more_waste", "slowness")
    spec = {
        "mode": "min",
        "space": {name: {"uniform": [0.0, 1.0]} for name in names},
        "stop": {"training_iteration": STEPS},
        "trials": most,  # more than it can begin: the budget ends it
        "budget": {"timesteps": float(most)},
        "seed": asked.number,
        **METHODS[asked.method],
    }
    found = newest(simulate(spec, curve(exponent)).records, most)
    return 100 * fronts.hypervolume(found, REFERENCE) / known_volume(exponent)


def newest(records: Iterable[Recorded], steps: int) -> list[fronts.Costs]:
    """Return both costs of each trial in its newest result among the first `steps` results."""
    found: dict[int, fronts.Costs] = {}
    for event in (record.event for record in records):
        if not isinstance(event, Closed):
            continue
        for row in event.rows[:steps]:
            costs = (to_number(row.metrics["first"]), to_number(row.metrics["second"]))
            found[event.trial] = tuple(cost for cost in costs if cost is not None)
            steps -= 1
    return [*found.values()]


def rows(found: Mapping[tuple[str, str], Sequence[float]]) -> Iterator[str]:
    """Yield the lines of the table: mean hypervolumes, with their intervals."""
    yield f"| search | {' | '.join(PROBLEMS)} |"
    yield f"| --- |{' --- |' * len(PROBLEMS)}"
    for method in METHODS:
        cells = []
        for problem in PROBLEMS:
            values = found[problem, method]
            error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
            cells.append(f"{stats.mean(values):.1f} ± {1.96 * error:.1f}")
        yield f"| {method} | {' | '.join(cells)} |"


def main(words: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search.fronts")
    parser.add_argument("--plays", type=int, default=20, help="searches of each kind")
    parser.add_argument("--trainings", type=int, default=32, help="the budget of a search")
    parser.add_argument("--jobs", type=int, default=2, help="searches at once")
    parser.add_argument("--write", action="store_true", help="write the table into its page")
    asked = parser.parse_args(words)
    plays = [
        Play(problem, method, number, asked.trainings)
        for problem in PROBLEMS
        for method in METHODS
        for number in range(asked.plays)
    ]
    with ProcessPoolExecutor(asked.jobs) as pool:
        values = [*pool.map(play, plays)]
    found: dict[tuple[str, str], list[float]] = {}
    for its, value in zip(plays, values, strict=True):
        found.setdefault((its.problem, its.method), []).append(value)
    table = "\n".join(rows(found))
    print(table)  # noqa: T201 a command
    if asked.write:
        PAGE.write_text(replace_between(PAGE.read_text(), BEGIN, END, f"\n{table}\n"))


if __name__ == "__main__":
    main()
