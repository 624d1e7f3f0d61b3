"""A simulated pool, to see what a scheduler decides in milliseconds and without training.

    result = simulate({"metric": "loss", "mode": "min", "trials": 9, …}, curve, slots=2)
    result.history                  what a scheduler would see at the end
    result.decisions                what was decided, in order, with the reasons
    check_kills(spec, curve)        a driver killed after any event decides the same when resumed

Driver, ledger, scheduler and searcher are the real ones; only slices are simulated, with a clock.
`docs/testing-schedulers.md` shows how to use it. Times are simulated seconds.

simulation  a sweep on a simulated pool, and what came of it
pool        a pool with simulated slices and a simulated clock
curves      what simulated trials report
"""

from sweep.testing.curves import Curve, CurvePoint, Table
from sweep.testing.simulation import Decision, Simulation, SimulationResult, check_kills, simulate

__all__ = [
    "Curve",
    "CurvePoint",
    "Decision",
    "Simulation",
    "SimulationResult",
    "Table",
    "check_kills",
    "simulate",
]
