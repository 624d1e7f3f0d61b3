"""Histories made by hand, for tests of schedulers and searchers."""

from collections.abc import Mapping, Sequence

from sweep.history.curve import Point
from sweep.history.events import Status
from sweep.history.history import History
from sweep.history.objective import Objective
from sweep.history.trial import Trial
from sweep.spec.objective import Mode, Score


def objective(mode: Mode = "max", time_attr: str = "training_iteration") -> Objective:
    return Objective("score", mode, Score(), time_attr)


def trial(
    number: int,
    status: Status,
    values: Sequence[float | None] = (),
    searched: Mapping[str, object] | None = None,
    mode: Mode = "max",
) -> Trial:
    """A trial whose curve has one point per value, at iterations 1, 2, 3 …"""
    made = Trial.new(number, dict(searched or {}), {}, objective(mode))
    replica = made.replicas[0]
    replica.status = status
    replica.curve = [Point(i, float(i), value) for i, value in enumerate(values, start=1)]
    return made


def history(trials: Sequence[Trial], wanted: int, mode: Mode = "max") -> History:
    made = History(objective(mode))
    made.trials = list(trials)
    made.wanted = wanted
    return made
