"""CPU milliseconds of a searcher's proposal in a sweep of many trials.

python -m benchmarks.speed.measures.proposal TRIALS [WINDOW | null] [--searcher NAME]
"""

import argparse
import json
import statistics
import time
from typing import Any

from benchmarks.engine.large import SPEC
from benchmarks.speed.measures import clock
from sweep import searchers
from sweep.history.curve import Point
from sweep.history.events import Status
from sweep.history.objective import Objective
from sweep.history.trial import Milestone, Trial
from sweep.searchers import Request
from sweep.spec.objective import Score
from sweep.spec.space import Space

#: Number of measured proposals, after one that converts the history and is not counted.
COUNTED = 20


def main() -> None:
    """Measure successive proposals, each with one more trial in the history."""
    parser = argparse.ArgumentParser()
    parser.add_argument("trials", type=int)
    parser.add_argument("window", nargs="?", type=json.loads, default=...)
    parser.add_argument("--searcher", default="tpe")
    given = parser.parse_args()
    trials = given.trials
    objective, space = Objective("score", "max", Score()), Space.parse(SPEC["space"])
    options: dict[str, Any] = {} if given.window is ... else {"window": given.window}
    searcher_class = searchers.find(given.searcher)
    searcher, history, times = (
        searcher_class(searcher_class.Options(**options)),
        list[Trial](),
        list[float](),
    )
    touched = list[int]()  # the trials end before the next one is proposed
    for number in range(trials + COUNTED):
        if number >= trials - 1:
            began = time.process_time()
            request = Request(
                space, objective, history, (), number, searched=number, touched=touched
            )
            searcher.suggest(request)
            times.append(1e3 * (time.process_time() - began))
        history.append(_completed(number, objective))
    clock.print_figure(statistics.median(times[1:]))


def _completed(number: int, objective: Objective) -> Trial:
    """Return a completed trial."""
    x, y = (number * step % 1009 / 1009 for step in (331, 733))
    trial = Trial.new(number, {"x": x, "y": 1e-5 + 0.09 * y}, {}, objective)
    trial.seen, trial.k, trial.replicas[0].status = number, number + 1, Status.COMPLETED
    trial.replicas[0].curve = [Point(1, 1.0, x - y)]
    trial.milestones.append(Milestone(number + 1, Status.COMPLETED, x - y))
    return trial


if __name__ == "__main__":
    main()
