"""A proposal of a searcher in a sweep of so many trials: CPU milliseconds.

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
from sweep.space import Space
from sweep.spec.objective import Score

#: Proposals that are measured, after a first one that converts the history.
COUNTED = 20


def main() -> None:
    """Propose in a row, each time with one trial more."""
    parser = argparse.ArgumentParser()
    parser.add_argument("trials", type=int)
    parser.add_argument("window", nargs="?", type=json.loads, default=...)
    parser.add_argument("--searcher", default="tpe")
    given = parser.parse_args()
    trials = given.trials
    objective, space = Objective("score", "max", Score()), Space.parse(SPEC["space"])
    options: dict[str, Any] = {} if given.window is ... else {"window": given.window}
    cls = searchers.find(given.searcher)
    searcher, past, taken = cls(cls.Options(**options)), list[Trial](), list[float]()
    for number in range(trials + COUNTED):
        if number >= trials - 1:
            began = time.process_time()
            request = Request(space, objective, past, (), number, searched=number)
            searcher.suggest(request)
            taken.append(1e3 * (time.process_time() - began))
        past.append(_done(number, objective))
    clock.tell(statistics.median(taken[1:]))


def _done(number: int, objective: Objective) -> Trial:
    """A trial that is over."""
    x, y = (number * step % 1009 / 1009 for step in (331, 733))
    trial = Trial.new(number, {"x": x, "y": 1e-5 + 0.09 * y}, {}, objective)
    trial.seen, trial.k, trial.replicas[0].status = number, number + 1, Status.COMPLETED
    trial.replicas[0].curve = [Point(1, 1.0, x - y)]
    trial.milestones.append(Milestone(number + 1, Status.COMPLETED, x - y))
    return trial


if __name__ == "__main__":
    main()
