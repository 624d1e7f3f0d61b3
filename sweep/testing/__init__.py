"""A simulated pool, which shows the decisions of a scheduler in milliseconds, without training.

    result = simulate({"metric": "loss", "mode": "min", "trials": 9, …}, curve, slots=2)
    result.history                  the history at the end, as a scheduler sees it
    result.decisions                the decisions in order, with their reasons
    check_kills(spec, curve)        checks that a driver decides the same if killed and resumed

Driver, ledger, scheduler and searcher are the real ones; only slices and the clock are simulated.
`docs/testing-schedulers.md` shows how to use it. Times are simulated seconds.

simulation  a sweep on a simulated pool, and its result
pool        a pool with simulated slices and a simulated clock
curves      results of simulated trials
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
