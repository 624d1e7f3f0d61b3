"""What `replicas`, `aggregate` and `racing` must be beside each other."""

from sweep.source import Source
from sweep.spec.aggregate import Aggregate

#: Seeds that one trial may have.
MOST = 1000


def check(replicas: int, aggregate: Aggregate, racing: bool, alone: bool, source: Source) -> None:
    """Raises BadConfig where they cannot work together; `alone`: the metric alone decides."""
    if aggregate.kind == "lower_bound" and replicas < 2:
        problem = "a bound needs the spread of at least two seeds"
        raise source.refuse(
            ("aggregate",), aggregate.written(), "mean", "or set replicas: 3", problem
        )
    if racing:
        _check_race(replicas, aggregate, alone, source)


def _check_race(replicas: int, aggregate: Aggregate, alone: bool, source: Source) -> None:
    if not alone:
        problem = "racing compares the metric alone, and also or constraints are set"
        raise source.refuse(("racing",), True, "false", "or remove them", problem)
    if replicas < 2:
        problem = "with replicas: 1 there are no seeds to add"
        raise source.refuse(("racing",), True, "false", "or set replicas: 3", problem)
    if not aggregate.fair:
        problem = (
            f"'{aggregate.kind}' changes with the number of seeds, and racing compares few with "
            f"many"
        )
        allowed = "mean, iqm or median beside racing"
        raise source.refuse(("aggregate",), aggregate.written(), allowed, problem=problem)
