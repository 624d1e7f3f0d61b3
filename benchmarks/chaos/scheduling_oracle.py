"""Conditions of a sweep's ledger and files after any failures of its driver and workers.

The oracle reads the ledger independently of the driver and keeps small tables of its own. It knows
the right curves (`Known`) and the outcomes that the driver received. A condition that does not hold
raises `Failed`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from benchmarks.chaos.scheduling_rungs import Point, Rungs, is_comparable
from benchmarks.chaos.scheduling_walk import Known
from benchmarks.chaos.scheduling_world import Place, require
from sweep.core.errors import WorkerLost
from sweep.driver.start.creation import resolving
from sweep.history.events import (
    FINISHED,
    UNSAVED,
    Closed,
    Created,
    Dropped,
    End,
    LimitsChanged,
    Moved,
    Opened,
    Recorded,
    Reported,
    Row,
    Saved,
    Status,
    TermBegan,
)
from sweep.history.history import History
from sweep.history.replica import Replica
from sweep.history.results import to_number
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.schedulers._shared import building
from sweep.slices.messages import SliceOutcome
from sweep.spec import SweepSpec
from sweep.views import reading
from trainables.checkpoint import file as checkpoint_file

#: Term, trial, replica, slice.
Handed = tuple[int, int, int, int]


@dataclass
class ReplicaRecord:
    """State of one replica by the ledger's events."""

    status: Status = Status.WAITING
    slice: int = -1
    reported: list[Row] = field(default_factory=list)
    """Results of the running slice."""
    attempted: int = 0
    """Last iteration that was reported."""
    saved_to: int | None = None
    """Last iteration that was not lost with its slice; None if none was lost."""
    counts_lost: bool = False
    """True if the replica ended with its lost results, which then count."""
    lost: int = 0
    crashes: list[int] = field(default_factory=list)
    kept: dict[str, Saved] = field(default_factory=dict)
    bred: bool = False
    diverged: bool = False
    """True if the newest result had diverged; its state is not saved."""
    steps: dict[int, float] = field(default_factory=dict)
    """Iteration → environment steps."""
    points: dict[int, Point] = field(default_factory=dict)
    """Iteration → ``time_attr`` and the metric."""

    @property
    def saved(self) -> int:
        """Last iteration that need not be repeated."""
        return self.attempted if self.saved_to is None else self.saved_to

    @property
    def iteration(self) -> int:
        """Last iteration that counts."""
        return self.attempted if self.counts_lost else self.saved

    @property
    def spent(self) -> float:
        """Environment steps that count."""
        return math.fsum(steps for at, steps in self.steps.items() if at <= self.iteration)


class Oracle:
    """Checks of one sweep's ledger and files."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.reader = Ledger(folder.ledger)
        self.spec: SweepSpec = reading.spec_of(self.reader)
        self.scheduler = building.build(self.spec)
        self.mirror = History(reading.objective_of(self.spec, self.scheduler.time_attr))
        self.records: list[Recorded] = []
        self.known = Known(self.spec.seed)
        self.handed: dict[Handed, SliceOutcome | WorkerLost] = {}
        """Outcomes of slices that the driver received and has not yet recorded."""
        self.damaged: set[str] = set()
        """Digests of checkpoints that were damaged on purpose."""
        self.has_unjust_failure = False
        """True if a trial became FAILED by failures of the test."""
        self.places: dict[Place, ReplicaRecord] = {}
        self._saves = resolving.resolve(self.spec, ()).trainable.can_save()
        self._timesteps = self.spec.budget.timesteps
        self._new: set[str] = set()
        """Digests of checkpoints that were not yet loaded."""
        self._rungs = Rungs(self.scheduler, self.mirror)
        self._compared: dict[int, int] = {}
        """Trial → its newest event at its last comparison."""

    def close(self) -> None:
        """Close the ledger."""
        self.reader.close()

    def look(self) -> None:
        """Check new events of the ledger, and the files that it names."""
        found = self.reader.read(self.mirror.k)
        for record in found:
            require(
                record.number == self.mirror.k + 1, f"event {record.number} follows {self.mirror.k}"
            )
            require(record.term >= self.mirror.term, f"event {record.number} is from an older term")
            self._check_event(record)
            self.mirror.extend([record])
            self.records.append(record)
            self._rungs.rank(self.mirror)
        if found:
            self._files()
            self._rungs.check(self.mirror)

    def compare(self, history: History, whole: bool = False) -> None:
        """Require that the driver's history equals that of the ledger.

        Args:
            whole: True to compare all trials, False for those with new events.
        """
        names = ("k", "term", "wanted", "ended", "exhausted", "suspended", "end_reason", "max_disk")
        for name in names:
            one, other = getattr(history, name), getattr(self.mirror, name)
            require(one == other, f"the driver's {name} is {one!r}, the ledger's is {other!r}")
        require(
            history.changed_budget == self.mirror.changed_budget, "the driver has another budget"
        )
        require(len(history.trials) == len(self.mirror.trials), "the driver has other trials")
        for own, other in zip(self.mirror.trials, history.trials, strict=True):
            if whole or own.newest_event > self._compared.get(own.number, 0):
                self._compared[own.number] = own.newest_event
                require(repr(own) == repr(other), f"the driver has\n{other}\nthe ledger\n{own}")

    # ---- events ---------------------------------------------------------------------------------

    def _check_event(self, record: Recorded) -> None:
        match record.event:
            case TermBegan():
                self.handed.clear()
            case Created() as event:
                self._create(event)
            case Opened() as event:
                self._open(record, event)
                self._rungs.check_joined(self.mirror, event)
                self._rungs.check_compared(self.mirror, event.evidence)
            case Reported() | Closed() as event:
                self._check_results(record, event)
            case Moved() as event:
                self._rungs.check_compared(self.mirror, event.evidence)
                self._move(self.places[event.trial, event.replica], event.status)
            case LimitsChanged() as event:
                self._timesteps = event.budget.get("timesteps", self._timesteps)
            case Dropped() as event:
                self._drop(event)

    def _create(self, event: Created) -> None:
        number = len(self.mirror.trials)
        require(event.trial == number, f"trial {event.trial} is created instead of {number}")
        counted = not event.births and event.clone_of is None
        full = self.mirror.searched_count >= self.mirror.wanted
        require(not (counted and full), f"trial {event.trial} exceeds --trials")
        for index in range(event.replicas):
            own = self.places[event.trial, index] = ReplicaRecord()
            if event.births:
                own.bred, own.attempted = True, event.births[index].saved.iteration

    def _open(self, record: Recorded, event: Opened) -> None:
        own = self.places.setdefault((event.trial, event.replica), ReplicaRecord())
        name = f"event {record.number}: trial {event.trial}, replica {event.replica}"
        require(event.slice == own.slice + 1, f"{name}: slice {event.slice} after {own.slice}")
        goal = event.goal.until
        if not own.bred:
            counted = [point for at, point in own.points.items() if at <= own.iteration]
            due = goal is None or not is_comparable(counted, goal)
            require(due, f"{name} is at {own.iteration} and sent to {goal}, which it has reached")
        if self._timesteps is not None and self.spec.deterministic is None:
            spent = math.fsum(one.spent for one in self.places.values())
            require(spent < self._timesteps, f"{name} begins after {spent} of {self._timesteps}")
        own.slice = event.slice
        own.reported.clear()
        self._move(own, Status.RUNNING)

    def _check_results(self, record: Recorded, event: Reported | Closed) -> None:
        if isinstance(event, Closed):
            self._close(record, event)
        else:
            self._report(record, event)

    def _report(self, record: Recorded, event: Reported) -> None:
        """Require that results of a running slice are consecutive."""
        own = self.places[event.trial, event.replica]
        name = f"event {record.number}: trial {event.trial}, replica {event.replica}"
        require(own.status is Status.RUNNING, f"{name} reports although it is {own.status}")
        require(event.slice == own.slice, f"{name}: slice {event.slice}, not {own.slice}")
        upto = own.reported[-1].iteration if own.reported else event.source
        require(event.source == upto, f"{name} reports after {event.source}, not {upto}")
        due = list(range(upto + 1, upto + 1 + len(event.rows)))
        require([row.iteration for row in event.rows] == due, f"{name}: rows are not {due}")
        own.reported += event.rows

    def _close(self, record: Recorded, event: Closed) -> None:
        own = self.places[event.trial, event.replica]
        name = f"event {record.number}: trial {event.trial}, replica {event.replica}"
        require(own.status is Status.RUNNING, f"{name} ends a slice although it is {own.status}")
        require(event.slice == own.slice, f"{name}: slice {event.slice}, not {own.slice}")
        answer = None
        if event.end is not End.INTERRUPTED:
            key = (record.term, event.trial, event.replica, event.slice)
            answer = self.handed.pop(key, None)
            require(answer is not None, f"{name}: {event.end} is recorded without an outcome")
        if isinstance(answer, SliceOutcome):
            require(answer.end is event.end, f"{name}: {answer.end} was recorded as {event.end}")
            first = [row for row in own.reported if row.iteration <= event.source]
            same = answer.rows == (*first, *map(_without_mark, event.rows))
            require(same or _has_nan(answer), f"{name}: other rows than in the outcome")
            require(answer.saved == event.saved, f"{name}: other checkpoints than in the outcome")
        elif answer is not None:
            require(event.end is End.LOST, f"{name}: its worker died, but {event.end} is recorded")
        self._curve(name, own, event)
        self._rest(name, own, event)
        self._failures(name, own, event)
        self._keep(name, own, event)
        own.diverged = event.end is End.DIVERGED or (own.diverged and not event.rows)
        self._move(own, event.status)

    def _curve(self, name: str, own: ReplicaRecord, event: Closed) -> None:
        """Require that rows are consecutive and have the known values."""
        first = [row for row in own.reported if row.iteration <= event.source]
        begin = own.reported[0].iteration - 1 if own.reported else event.source
        back = begin < own.iteration
        upto = first[-1].iteration if first else own.attempted
        require(event.source <= upto, f"{name} begins at {event.source}, after a gap")
        excused = event.skipped or not self._saves or own.diverged
        require(not back or bool(excused), f"{name} goes back to {event.source} for no reason")
        due = list(range(event.source + 1, event.source + 1 + len(event.rows)))
        require([row.iteration for row in event.rows] == due, f"{name}: rows are not {due}")
        replica = self.mirror.replica(event.trial, event.replica)
        for row in event.rows:
            expected = self.known.state_after(self.mirror, replica, row.iteration).metrics
            found = {key: row.metrics.get(key) for key in expected}
            require(repr(found) == repr(dict(expected)), f"{name}: {found}, not {expected}")
            is_lost = event.saved_to is not None and row.iteration > event.saved_to
            require(
                (UNSAVED in row.metrics) == is_lost, f"{name}: {row.iteration} is marked wrongly"
            )
        rows = [*first, *event.rows]
        own.steps = {at: steps for at, steps in own.steps.items() if at <= begin}
        own.steps |= {r.iteration: float(r.metrics["timesteps_this_iter"]) for r in rows}
        own.points = {at: point for at, point in own.points.items() if at <= begin}
        for row in rows:
            time = float(row.metrics[self.scheduler.time_attr])
            own.points[row.iteration] = time, to_number(row.metrics.get("score"))
        own.attempted = event.rows[-1].iteration if event.rows else event.source
        own.saved_to, own.counts_lost = event.saved_to, event.status in FINISHED

    def _rest(self, name: str, own: ReplicaRecord, event: Closed) -> None:
        """Require that the replica rests at its first comparable result at or after its goal."""
        goal = self.mirror.replica(event.trial, event.replica).goal.until
        if goal is None:
            return
        points = [*own.points.values()]
        there = is_comparable(points, goal)
        require(there or event.end is not End.GOAL, f"{name} rests at {goal} with {points}")
        before = points[:-1] if event.rows else []
        there = self._saves and not own.bred and is_comparable(before, goal)
        require(not there, f"{name} passed its goal {goal} with {points}")

    def _failures(self, name: str, own: ReplicaRecord, event: Closed) -> None:
        """Require that failures are counted and end the replica according to the limits."""
        most = self.spec.limits.max_failures
        own.lost = own.lost if event.end in (End.LOST, End.INTERRUPTED) else 0
        failed = event.status is Status.FAILED
        if event.end is End.LOST:
            own.lost += 1
            require(failed == (own.lost > most), f"{name}: {event.status} after {own.lost} lost")
        elif event.end is End.CRASHED:
            again = event.error_at in own.crashes or len(own.crashes) >= most
            require(failed == again, f"{name}: {event.status}, it crashed at {own.crashes}")
        elif event.end is not End.DIVERGED:
            require(not failed, f"{name}: FAILED after {event.end}")
        own.crashes = [at for at in own.crashes if at > own.iteration]
        if event.end is End.CRASHED:
            own.crashes.append(event.error_at)
        self.has_unjust_failure |= failed and event.end is not End.DIVERGED

    def _keep(self, name: str, own: ReplicaRecord, event: Closed) -> None:
        """Require that the ledger keeps the newest two usable checkpoints, and the best one."""
        begin = own.reported[0].iteration - 1 if own.reported else event.source
        usable = {d: saved for d, saved in own.kept.items() if saved.iteration <= begin}
        usable |= {saved.digest: saved for saved in event.saved}
        within = range(begin + 1, own.saved + 1)
        require(all(s.iteration in within for s in event.saved), f"{name}: saved outside its slice")
        own.kept |= {saved.digest: saved for saved in event.saved}
        for digest in event.dropped:
            own.kept.pop(digest, None)
        self._require_kept(name, usable, own.kept)
        self._new |= {saved.digest for saved in event.saved}
        if self._saves and event.end is not End.UNSAVED:
            upto = (s.iteration for s in own.kept.values() if s.iteration <= own.saved)
            newest = max(upto, default=0)
            place = own.saved if event.end not in (End.DIVERGED, End.LIMIT) else newest
            unsaved = own.bred or (own.diverged and not event.rows)
            require(unsaved or newest == place, f"{name}: at {place}, saved at {newest}")

    def _require_kept(
        self, name: str, usable: Mapping[str, Saved], kept: Mapping[str, Saved]
    ) -> None:
        by_age = sorted(usable.values(), key=lambda saved: saved.iteration)
        sign = 1.0 if self.spec.mode == "max" else -1.0
        valued = [saved for saved in by_age if saved.value is not None]
        best = sorted(valued, key=lambda saved: (sign * (saved.value or 0.0), saved.iteration))
        due = by_age[-2:] + (best[-1:] if self.spec.checkpoint.keep_best else [])
        gone = [saved.iteration for saved in due if saved.digest not in kept]
        require(not gone, f"{name}: deletes the checkpoints of iterations {gone}, which are needed")

    def _drop(self, event: Dropped) -> None:
        own = self.places[event.trial, event.replica]
        before = dict(own.kept)
        for digest in event.digests:
            require(
                own.kept.pop(digest, None) is not None, f"{event}: a checkpoint that was not named"
            )
        if own.status not in FINISHED:
            self._require_kept(f"trial {event.trial}, to save disk", before, own.kept)

    def _move(self, own: ReplicaRecord, status: Status) -> None:
        if own.status is Status.FAILED:
            own.lost, own.crashes = 0, []
        own.counts_lost &= status in FINISHED
        own.status = status

    # ---- files ----------------------------------------------------------------------------------

    def _load(self, replica: Replica, saved: Saved) -> None:
        """Require that a checkpoint loads and has the right state."""
        path = self.folder.trial(replica.trial, replica.index) / saved.file
        state = checkpoint_file.read(path, saved.digest).state["trainable"]["data"]["state"]
        due = self.known.state_after(self.mirror, replica, saved.iteration).state
        require(state == due, f"{path.name} of {replica.name} has the state {state}, not {due}")

    def _files(self) -> None:
        """Require that the files of all checkpoints in the ledger, and of births, exist."""
        for replica in self.mirror.replicas(*Status):
            folder = self.folder.trial(replica.trial, replica.index)
            for saved in replica.checkpoints.values():
                there = saved.digest in self.damaged or (folder / saved.file).exists()
                require(there, f"{replica.name}: {saved.file} is missing")
                if saved.digest in self._new - self.damaged:
                    self._load(replica, saved)
            birth = replica.birth
            if birth and replica.status not in FINISHED and len(replica.checkpoints) < 2:
                file = self.folder.trial(birth.trial, birth.replica) / birth.saved.file
                require(file.exists(), f"{replica.name} was bred from {file}, which is missing")
        self._new.clear()

    def load_all(self) -> None:
        """Require that every checkpoint in the ledger loads and has the right state."""
        for replica in self.mirror.replicas(*Status):
            for saved in replica.checkpoints.values():
                if saved.digest not in self.damaged:
                    self._load(replica, saved)


def _without_mark(row: Row) -> Row:
    metrics = {name: value for name, value in row.metrics.items() if name != UNSAVED}
    return Row(row.iteration, metrics)


def _has_nan(outcome: SliceOutcome) -> bool:
    return any(value != value for row in outcome.rows for value in row.metrics.values())
