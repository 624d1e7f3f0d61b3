"""A simulated pool, to see what a scheduler decides in milliseconds and without training.

    course = simulate({"metric": "loss", "mode": "min", "trials": 9, …}, curve, slots=2)
    course.history                  what a scheduler would see at the end
    course.decisions                what was decided, in order, with the reasons
    check_kills(spec, curve)        a driver killed after any event decides the same when resumed

Driver, ledger, scheduler and searcher are the real ones; only slices are played instead of run, on
a clock of their own. `docs/testing-schedulers.md` shows how to use it. Times are simulated seconds.
"""

from sweep.testing.course import Course, Decision
from sweep.testing.curves import Curve, Moment, Table
from sweep.testing.kills import check_kills
from sweep.testing.simulation import Simulation, simulate

__all__ = [
    "Course",
    "Curve",
    "Decision",
    "Moment",
    "Simulation",
    "Table",
    "check_kills",
    "simulate",
]
