"""Where a slice ends by what its results say: at a stopping criterion or at its goal."""

from collections.abc import Mapping

from sweep.events import End, Goal, Metrics
from sweep.metrics import number
from trainables.errors import TrainableError


def ending(metrics: Metrics, goal: Goal, time_attr: str, stop: Mapping[str, float]) -> End | None:
    """How the slice ends at this result; None: it need not.

    Raises:
        TrainableError: the result has no ``time_attr``, in which the goal is counted.
    """
    if metrics.get("done") is True:
        return End.DONE
    if any(_reached(metrics, key, at) for key, at in stop.items()):
        return End.DONE
    if goal.at is None:
        return None
    time = number(metrics.get(time_attr))
    if time is None:
        raise TrainableError(
            f"scheduler.time_attr: the results have no '{time_attr}'; "
            f"they have {', '.join(sorted(metrics))}"
        )
    if time < goal.at:
        return None
    return End.DONE if goal.top is not None and time >= goal.top else End.GOAL


def _reached(metrics: Metrics, key: str, at: float) -> bool:
    value = number(metrics.get(key))
    return value is not None and value >= at
