"""CPU milliseconds of a searcher's proposal in a sweep of many trials.

python -m benchmarks.speed.measures.proposal TRIALS [WINDOW | null] [--searcher NAME]
"""

import argparse
import json
import statistics
from typing import Any

from benchmarks.engine.large import SPEC
from benchmarks.searchers import measure
from benchmarks.speed.measures import clock
from sweep import searchers
from sweep.spec.space import Space

#: Number of measured proposals.
COUNTED = 20


def main() -> None:
    """Print the median of successive proposals, each with one more trial in the history."""
    parser = argparse.ArgumentParser()
    parser.add_argument("trials", type=int)
    parser.add_argument("window", nargs="?", type=json.loads, default=...)
    parser.add_argument("--searcher", default="tpe")
    given = parser.parse_args()
    options: dict[str, Any] = {} if given.window is ... else {"window": given.window}
    found = searchers.find(given.searcher)
    space = Space.parse(SPEC["space"])
    spent = measure(found(found.Options(**options)), space, given.trials, COUNTED)
    clock.print_figure(statistics.median(spent))


if __name__ == "__main__":
    main()
