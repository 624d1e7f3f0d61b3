"""CPU time of a proposal, by searcher and number of earlier trials; renews the table of the docs.

python -m benchmarks.searchers [NAME …]

Each searcher is measured in a process of its own with one thread of numpy and torch. All trials are
completed; the first ones were drawn at random, the last `COUNTED` ones were proposed. Without names
every searcher is measured, and the table in docs/searchers.md is written anew.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sweep import searchers
from sweep.history.curve import Point
from sweep.history.events import Status
from sweep.history.objective import Objective
from sweep.history.trial import Milestone, Trial
from sweep.searchers import Request, gp
from sweep.spec.objective import Score
from sweep.spec.space import Settings, Space
from trainables.core import rng

SPACE: Mapping[str, Any] = {
    "lr": {"loguniform": [1e-5, 1e-2]},
    "gamma": {"choice": [0.9, 0.95, 0.99, 0.995]},
    "clip_param": {"uniform": [0.1, 0.4]},
    "entropy_coeff": {"loguniform": [1e-6, 1e-2]},
    "num_sgd_iter": {"randint": [1, 16]},
    "vf_loss_coeff": {"uniform": [0.1, 2.0]},
}
TRIALS = (100, 500, 1_000, 2_000)
NAMES = ("random", "qmc", "cmaes", "nsga2", "nsga3", "bohb", "tpe", "gp")
#: Number of measured proposals: two generations of nsga2. One before them is not counted.
COUNTED = 40
PAGE = Path("docs/searchers.md")
MARKS = ("<!-- speed -->\n", "<!-- end of speed -->\n")


def measure(
    searcher: searchers.Searcher, space: Space, trials: int, counted: int = COUNTED
) -> list[float]:
    """Return the CPU milliseconds of each of some successive proposals.

    Args:
        trials: number of earlier trials at the first measured proposal.
        counted: number of measured proposals.
    """
    objective, history, touched = Objective("score", "max", Score()), list[Trial](), list[int]()
    spent = list[float]()
    for number in range(trials + counted):
        point = space.draw(number)
        if number >= trials - 1:
            seed = rng.integer(3, "search", number)
            request = Request(
                space, objective, history, (), seed, 3, searched=number, touched=touched
            )
            began = time.process_time()
            point = searcher.suggest(request)
            spent.append(1e3 * (time.process_time() - began))
        history.append(_completed(number, point, space, objective))
    return spent[1:]


def _completed(number: int, point: Settings, space: Space, objective: Objective) -> Trial:
    """Return a completed trial; its score falls with the distance from a point of the space."""
    trial = Trial.new(number, dict(point.searched), dict(point.settings), objective)
    places = (
        domain.quantile(point.searched[name])
        for name, domain in space.domains.items()
        if isinstance(point.searched[name], int | float) and hasattr(domain, "quantile")
    )
    score = -sum((place - 0.3) ** 2 for place in places)
    trial.proposed_after, trial.newest_event, trial.replicas[0].status = (
        number,
        number + 1,
        Status.COMPLETED,
    )
    trial.replicas[0].curve = [Point(1, 1.0, score)]
    trial.milestones.append(Milestone(number + 1, Status.COMPLETED, score))
    return trial


class _WorkerSlot:
    """Process of gp in this one, so that its CPU time is counted."""

    def __init__(self) -> None:
        self._fitting = gp._Fitting()

    def ask(self, *question: Any) -> Settings | str:
        """Return the answer."""
        return self._fitting.suggest(*question)


def _print_one(name: str, trials: int) -> None:
    """Print the mean CPU milliseconds of a searcher as JSON."""
    here = _WorkerSlot() if name == "gp" else None
    if here is not None:
        gp._helper = lambda: here  # type: ignore[assignment]
    found = searchers.find(name)
    counted = 5 if name == "gp" else COUNTED
    spent = measure(found(found.Options()), Space.parse(SPACE), trials, counted)
    print(json.dumps(statistics.fmean(spent)))  # noqa: T201


def _table(names: Sequence[str]) -> list[str]:
    """Return the lines of the table."""
    lines = [
        f"| searcher | {TRIALS[0]} trials | " + " | ".join(map(str, TRIALS[1:])) + " |",
        "| --- |" + " --- |" * len(TRIALS),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    for name in names:
        figures = []
        for trials in TRIALS:
            command = [sys.executable, "-m", "benchmarks.searchers", name, "--one", str(trials)]
            ran = subprocess.run(  # noqa: S603 ours
                command, check=True, capture_output=True, text=True, env=environment
            )
            figures.append(float(ran.stdout))
        cells = (f"{figure:.1f}" if figure < 20 else f"{figure:.0f}" for figure in figures)
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
        sys.stderr.write(lines[-1] + "\n")
    return lines


def _write(lines: Sequence[str]) -> None:
    """Replace the table of the page."""
    versions = ", ".join(f"{name} {version(name)}" for name in ("optuna", "numpy", "torch"))
    machine = f"{platform.machine()}, Python {platform.python_version()}, {versions}"
    text = PAGE.read_text("utf-8")
    before, after = text.split(MARKS[0])[0], text.split(MARKS[1])[1]
    table = "\n".join([f"One core; {machine}.", "", *lines])
    PAGE.write_text(f"{before}{MARKS[0]}{table}\n{MARKS[1]}{after}", "utf-8")


def main() -> None:
    """Measure some searchers, or all and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.searchers")
    parser.add_argument("names", nargs="*", metavar="NAME", help="searchers; by default all")
    parser.add_argument("--one", type=int, metavar="TRIALS", help="measure in this process")
    given = parser.parse_args()
    if given.one is not None:
        _print_one(given.names[0], given.one)
        return
    lines = _table(given.names or NAMES)
    if not given.names:
        _write(lines)


if __name__ == "__main__":
    main()
