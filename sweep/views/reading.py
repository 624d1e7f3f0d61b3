"""Read a sweep's spec, objective and history from its ledger, importing nothing that it names.

A ledger may come from anywhere, and an import runs code. A shipped scheduler is built from its
options; the properties of any other were stored in the ledger at the sweep's creation.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from sweep import schedulers
from sweep import spec as specs
from sweep.core.errors import DamagedLedger, UsageError
from sweep.history.events import MetricChanged, SpaceChanged, StopChanged
from sweep.history.history import History
from sweep.history.objective import Objective
from sweep.ledger.ledger import Ledger, iterate
from sweep.schedulers._shared import building
from sweep.spec import Override, SweepSpec
from sweep.spec.objective import read_constraints
from sweep.spec.space import Space


class UnloadedScheduler(NamedTuple):
    """A scheduler whose code is not imported: only what the ledger has recorded of it."""

    time_attr: str
    """Name of the result that the scheduler counts."""
    levels: tuple[float, ...]
    """Rungs, ascending, in units of `time_attr`; empty without rungs."""
    startup_trials: None = None
    ranks_by_fronts: bool = False

    def remaining_training(self, _history: History) -> None:
        """Return None, since only the scheduler's code could estimate it."""

    def promotion_count(self, _count: int) -> None:
        """Return None, since only the scheduler's code could compute it."""


def original_spec(ledger: Ledger) -> SweepSpec:
    """Return the spec with which the sweep was created, without later changes.

    Raises:
        DamagedLedger: the ledger has no valid spec; the message has its first mistake.
    """
    try:
        return specs.from_json(ledger.spec)
    except (UsageError, ValueError) as error:
        raise DamagedLedger(ledger.path, f"its spec: {str(error).splitlines()[0]}") from error


def scheduler_of(ledger: Ledger) -> schedulers.Scheduler | UnloadedScheduler:
    """Create a sweep's scheduler if it is a shipped one, else an `UnloadedScheduler`."""
    spec = spec_of(ledger)
    if schedulers.KIND.is_shipped(spec.scheduler.name):
        return building.build(spec)
    return UnloadedScheduler(ledger.provenance["time_attr"], ledger.provenance["levels"])


def spec_of(ledger: Ledger) -> SweepSpec:
    """Return a sweep's spec with its present space, metric and stopping criteria.

    Raises DamagedLedger if the ledger has no valid spec.
    """
    spec = original_spec(ledger)
    changed: dict[str, object] = {}
    replaced, measured = ledger.newest(SpaceChanged.kind), ledger.newest(MetricChanged.kind)
    if isinstance(replaced, SpaceChanged):
        changed["space"] = Space.parse(replaced.space, forbid=spec.forbid, replaces=True)
    if isinstance(measured, MetricChanged):
        changed["metric"] = measured.metric
    ends = ledger.newest(StopChanged.kind)
    if isinstance(ends, StopChanged):
        changed["stop"] = with_stop(ledger, ends.stop).stop
    return spec.model_copy(update=changed) if changed else spec


def with_stop(ledger: Ledger, stop: Mapping[str, Any]) -> SweepSpec:
    """Return the spec with which the sweep was created, with the stopping criteria `stop`.

    Raises:
        UsageError: these are not valid.
    """
    return specs.from_json(ledger.spec, [Override("stop", stop, "--stop")])


def objective_of(spec: SweepSpec, time_attr: str) -> Objective:
    """Return the objective by which trials of `spec` are compared.

    `time_attr` is the scheduler's.
    """
    return Objective(
        spec.metric,
        spec.mode,
        spec.score,
        time_attr,
        spec.aggregate,
        tuple(spec.objectives.items()),
        read_constraints(spec.constraints),
    )


def objective(ledger: Ledger) -> Objective:
    """Return the objective by which the trials of a sweep are compared at present."""
    return objective_of(spec_of(ledger), scheduler_of(ledger).time_attr)


def history(ledger: Ledger, compared: Objective | None = None) -> History:
    """Read the history of a sweep, with curves, in which results of running slices do not count.

    `compared` is the objective by which trials are compared, if the caller knows it; None to read
    it from the ledger.
    """
    past = History(compared or objective(ledger))
    for records in iterate(ledger):
        past.extend(records)
    return past
