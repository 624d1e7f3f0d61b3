"""The parts of a driver, and the messages that it sends to workers."""

import itertools
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sweep.core.pickled import PickledTrainable
from sweep.history.events import Goal, Opened
from sweep.history.history import History
from sweep.history.replica import Replica
from sweep.history.results import to_number
from sweep.history.seeds import seed_of
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.pools import Pool
from sweep.schedulers import Scheduler
from sweep.searchers import Searcher
from sweep.slices.messages import SliceSpec
from sweep.slices.retention import Retention
from sweep.slices.stopping import Criteria
from sweep.slices.store import SweepStore
from sweep.spec import Stop, SweepSpec
from sweep.spec.stopping import COUNTERS
from trainables.checkpoint import signing

#: Maximum number of earlier trials whose `Trainable.remembers` is sent with a slice.
MOST_REMEMBERED = 100


@dataclass(frozen=True)
class DriverContext:
    """Everything that a driver works with: spec, ledger, history, plugins and settings."""

    spec: SweepSpec
    """Spec of the sweep, with its current space and metric."""
    folder: Folder
    """Folder of the sweep."""
    ledger: Ledger
    """Ledger of the sweep; only this driver appends events to it."""
    history: History
    """History so far; the driver adds each event that it records."""
    scheduler: Scheduler
    """Scheduler of the sweep."""
    searcher: Searcher
    """Searcher of the sweep."""
    pool: Pool
    """Pool that runs the slices."""
    complete_settings: Callable[[Mapping[str, Any]], dict[str, Any]]
    """Function from ``config`` with a trial's settings, nested, to all that its trainable gets:
    with those that follow from the stopping criteria, and with values in place of ``auto``."""
    paths: tuple[str, ...]
    """Folders in which workers search the trainable's module."""
    saves: bool = True
    """True if the trainable can save, so that its trials can be paused."""
    check_held: Callable[[], None] = lambda: None
    """Function that raises SweepLocked if another process has taken the sweep, and DamagedLedger if
    its lease is not valid any more; by default it does nothing."""
    fixed_keys: Collection[str] = ()
    """Settings in which offspring must agree with their parents, as in `Trainable.fixed_keys`."""
    script_file: PickledTrainable | None = None
    """File of the pickled trainable of a script; None if the trainable is imported."""
    store: SweepStore | None = None
    """Store of the checkpoints; None if they are in the sweep's folder only."""
    unsure_names: Mapping[str, str] = field(default_factory=dict)
    """Name of a result that the trainable may not report → the key of the spec that uses it."""

    @property
    def checkpoints(self) -> SweepStore:
        """Store of the checkpoints, which is the sweep's folder if `store` is None."""
        return self.store or SweepStore(self.folder)

    def slice_spec(self, opened: Opened) -> SliceSpec:
        """Return the message that tells a worker all about the slice that `opened` begins.

        The replica's folder is created. Results are read from the ledger if the past of another
        result than the metric decides about the replica's end.
        """
        spec, folder = self.spec, self.folder
        trial = self.history.trials[opened.trial]
        replica = self.history.replica(opened.trial, opened.replica)
        kept = sorted(replica.checkpoints.values(), key=lambda saved: -saved.iteration)
        birth, limits, trust = replica.birth, spec.limits, signing.user_trust_if_possible()
        timed = [] if limits.trial_s is None else replica.curve
        script, stop = self.script_file, criteria_of(replica, spec.stop)
        return SliceSpec(
            sweep_id=self.ledger.sweep_id,
            term=self.history.term,
            trial=trial.number,
            replica=replica.index,
            number=opened.slice,
            trainable=spec.trainable,
            paths=self.paths,
            config=trial.config,
            seed=seed_of(spec.seed, trial.number, replica.index),
            sources=tuple(kept),
            birth=birth,
            iteration=replica.iteration,
            goal=opened.goal,
            time_attr=self.history.objective.time_attr,
            stop=stop,
            metric=spec.metric,
            doubtful_names=tuple(self.unsure_names),
            objectives=tuple(self.spec.objectives),
            sign=self.history.objective.sign,
            policy=Retention.from_spec(spec.checkpoint),
            slice_s=limits.slice_s,
            folder=_absolute(folder.make_trial(trial.number, replica.index)),
            store=self.checkpoints.url,
            birth_folder=_absolute(folder.trial(birth.trial, birth.replica)) if birth else "",
            stop_file=_absolute(folder.stop_file(self.history.term)),
            ends_if_not_finite=limits.not_finite != "continue",
            trial_s=limits.trial_s,
            log_bytes=limits.trial_log,
            spent=tuple((point.iteration, point.seconds) for point in timed),
            watched=past_values(stop, replica, spec.metric, self.ledger),
            metric_deadline=self._stop_without_metric_at(replica, opened.goal),
            diverging=tuple(
                replica.divergence_at([replica.iteration, *(saved.iteration for saved in kept)])
            ),
            remembered=dict(itertools.islice(self.history.remembered.items(), MOST_REMEMBERED)),
            shared_folder=_absolute(folder.shared),
            trust=trust,
            own_stop_file=_absolute(folder.stop_file(self.history.term, trial.number)),
            allows_other_kernel=self.history.other_kernel,
            isolate=spec.isolate,
            script_file=script and replace(script, file=_absolute(Path(script.file)), trust=trust),
        )

    def _stop_without_metric_at(self, replica: Replica, goal: Goal) -> float | None:
        """Return the rung at which a replica stops if it has not reported the metric until then.

        It is the goal or the first rung after it that the replica has not reached yet, in units of
        `time_attr`. Returns None if the metric was reported, or there is no such rung or no goal.
        """
        if replica.reported or goal.until is None:
            return None
        levels = (goal.until, *self.scheduler.levels)
        return min((at for at in levels if at >= goal.until and at > replica.time), default=None)


def criteria_of(replica: Replica, stop: Stop) -> Criteria:
    """Return the stopping criteria of a replica, given those of the spec.

    A seed that was added later tests its trial, so it trains past a target of an objective: a
    target ends a training at its luckiest moment. Criteria on counters and `time_attr`, where
    training ends, are no targets.
    """
    criteria = Criteria.from_spec(stop)
    if replica.joined_at is None:
        return criteria
    objective = replica.objective
    modes: dict[str, str] = {objective.metric: objective.mode, **dict(objective.objectives)}
    ends = (*COUNTERS, objective.time_attr)
    return criteria.without_targets({key: mode for key, mode in modes.items() if key not in ends})


def past_values(
    stop: Criteria, replica: Replica, metric: str, ledger: Ledger
) -> dict[str, tuple[tuple[int, float | None], ...]]:
    """Return the values so far of the results whose past decides about a replica's end.

    Those of the sweep's metric come from the history, others from the ledger.

    Args:
        stop: stopping criteria of the spec.
        replica: replica that may end.
        metric: metric of the sweep.

    Returns:
        Name of a result → pairs of iteration and value (None if it was not reported), oldest first.
    """
    names = stop.watched
    rows = ledger.results(replica.trial, replica.index) if names - {metric} else ()
    past = {
        name: tuple((row.iteration, to_number(row.metrics.get(name))) for row in rows)
        for name in names - {metric}
    }
    if metric in names:
        past[metric] = tuple((point.iteration, point.value) for point in replica.curve)
    return past


def _absolute(path: Path) -> str:
    """Return a path's absolute form as text, valid after a trial changes its working folder."""
    return str(path.absolute())
