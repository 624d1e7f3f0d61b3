"""A proposal of searcher tpe in a sweep of so many trials: CPU milliseconds.

python -m benchmarks.speed.measures.proposal TRIALS [WINDOW | null]
"""

import json
import statistics
import sys
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
    trials, window = int(sys.argv[1]), sys.argv[2:]
    objective, space = Objective("score", "max", Score()), Space.parse(SPEC["space"])
    options: dict[str, Any] = {"window": json.loads(window[0])} if window else {}
    cls = searchers.find("tpe")
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
    trial.k, trial.replicas[0].status = number + 1, Status.COMPLETED
    trial.replicas[0].curve = [Point(1, 1.0, x - y)]
    trial.milestones.append(Milestone(number + 1, Status.COMPLETED, x - y))
    return trial


if __name__ == "__main__":
    main()
