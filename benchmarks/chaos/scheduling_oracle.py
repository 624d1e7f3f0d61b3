"""Conditions of a sweep's ledger and files, whatever happens to its driver and workers.

The oracle reads the ledger beside the driver and follows each new event with little tables of its
own: it knows the curves beforehand (`Known`), and what was handed to the driver. A claim that is
false raises `Failed`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from benchmarks.chaos.scheduling_rungs import Point, Rungs, is_comparable
from benchmarks.chaos.scheduling_walk import Known
from benchmarks.chaos.scheduling_world import Place, claim
from sweep.driver.creation import resolving
from sweep.errors import WorkerLost
from sweep.history.events import (
    FINISHED,
    UNSAVED,
    Changed,
    Closed,
    Created,
    Dropped,
    End,
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
from sweep.history.results import number
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.schedulers._shared import building
from sweep.slices.messages import SliceOutcome
from sweep.spec import SweepSpec
from sweep.views import reading
from trainables.checkpoint import file as checkpoint_file

#: Epoch, trial, replica, slice.
Handed = tuple[int, int, int, int]


@dataclass
class Seen:
    """The state of one replica."""

    status: Status = Status.WAITING
    slice: int = -1
    reported: list[Row] = field(default_factory=list)
    """Results of the slice that runs."""
    attempted: int = 0
    """The last iteration that was reported."""
    saved_to: int | None = None
    """The last iteration that was not lost with its slice; None if none was lost."""
    counts_lost: bool = False
    """True if its lost results count, as the replica ended with them."""
    lost: int = 0
    crashes: list[int] = field(default_factory=list)
    kept: dict[str, Saved] = field(default_factory=dict)
    bred: bool = False
    diverged: bool = False
    """True if the newest result was one; its state is not saved."""
    steps: dict[int, float] = field(default_factory=dict)
    """Iteration → environment steps."""
    points: dict[int, Point] = field(default_factory=dict)
    """Iteration → ``time_attr`` and the metric."""

    @property
    def saved(self) -> int:
        """The last iteration that need not be trained again."""
        return self.attempted if self.saved_to is None else self.saved_to

    @property
    def iteration(self) -> int:
        """The last iteration that counts."""
        return self.attempted if self.counts_lost else self.saved

    @property
    def spent(self) -> float:
        """The environment steps that count."""
        return math.fsum(steps for at, steps in self.steps.items() if at <= self.iteration)


class Oracle:
    """Follows one sweep's ledger."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.reader = Ledger(folder.ledger)
        self.spec: SweepSpec = reading.spec_of(self.reader)
        self.scheduler = building.build(self.spec)
        self.mirror = History(reading.objective_of(self.spec, self.scheduler.time_attr))
        self.records: list[Recorded] = []
        self.known = Known(self.spec.seed)
        self.handed: dict[Handed, SliceOutcome | WorkerLost] = {}
        """Answers of slices that the driver has not recorded yet."""
        self.damaged: set[str] = set()
        """Digests of checkpoints that were damaged on purpose."""
        self.blamed = False
        """True if a trial failed without a fault of its own."""
        self.places: dict[Place, Seen] = {}
        self._saves = resolving.resolve(self.spec, ()).trainable.can_save()
        self._timesteps = self.spec.budget.timesteps
        self._new: set[str] = set()
        """Digests of checkpoints that have not been loaded yet."""
        self._rungs = Rungs(self.scheduler)
        self._compared: dict[int, int] = {}
        """Trial → its newest event when it was compared."""

    def close(self) -> None:
        """Let go of the ledger."""
        self.reader.close()

    def look(self) -> None:
        """Follow what is new in the ledger, and look whether files are there that it names."""
        found = self.reader.read(self.mirror.k)
        for record in found:
            claim(record.k == self.mirror.k + 1, f"event {record.k} follows {self.mirror.k}")
            claim(record.term >= self.mirror.term, f"event {record.k} is of an older term")
            self._follow(record)
            self.mirror.extend([record])
            self.records.append(record)
            self._rungs.rank(self.mirror)
        if found:
            self._files()
            self._rungs.check(self.mirror)

    def compare(self, history: History, whole: bool = False) -> None:
        """The driver's own history is the one that the ledger holds."""
        for name in ("k", "term", "wanted", "ended", "exhausted", "suspended", "why", "max_disk"):
            one, other = getattr(history, name), getattr(self.mirror, name)
            claim(one == other, f"the driver's {name} is {one!r}, the ledger says {other!r}")
        claim(history.changed == self.mirror.changed, "the driver's budget is another one")
        claim(len(history.trials) == len(self.mirror.trials), "the driver has other trials")
        for mine, its in zip(self.mirror.trials, history.trials, strict=True):
            if whole or mine.k > self._compared.get(mine.number, 0):
                self._compared[mine.number] = mine.k
                claim(repr(mine) == repr(its), f"the driver has\n{its}\nthe ledger\n{mine}")

    # ---- events ---------------------------------------------------------------------------------

    def _follow(self, record: Recorded) -> None:
        match record.event:
            case TermBegan():
                self.handed.clear()
            case Created() as event:
                self._create(event)
            case Opened() as event:
                self._open(record, event)
                self._rungs.joined(self.mirror, event)
                self._rungs.compared(self.mirror, event.evidence)
            case Reported() | Closed() as event:
                self._told(record, event)
            case Moved() as event:
                self._rungs.compared(self.mirror, event.evidence)
                self._move(self.places[event.trial, event.replica], event.status)
            case Changed() as event:
                self._timesteps = event.budget.get("timesteps", self._timesteps)
            case Dropped() as event:
                self._drop(event)

    def _create(self, event: Created) -> None:
        number = len(self.mirror.trials)
        claim(event.trial == number, f"trial {event.trial} is made where {number} is due")
        counted = not event.births and event.clone_of is None
        full = self.mirror.searched_count >= self.mirror.wanted
        claim(not (counted and full), f"trial {event.trial} is one more than --trials")
        for index in range(event.replicas):
            seen = self.places[event.trial, index] = Seen()
            if event.births:
                seen.bred, seen.attempted = True, event.births[index].saved.iteration

    def _open(self, record: Recorded, event: Opened) -> None:
        seen = self.places.setdefault((event.trial, event.replica), Seen())
        name = f"event {record.k}: trial {event.trial}, replica {event.replica}"
        claim(event.slice == seen.slice + 1, f"{name}: slice {event.slice} after {seen.slice}")
        goal = event.goal.at
        if not seen.bred:
            counted = [point for at, point in seen.points.items() if at <= seen.iteration]
            due = goal is None or not is_comparable(counted, goal)
            claim(due, f"{name} is at {seen.iteration} and sent to {goal}, where it has been")
        if self._timesteps is not None and self.spec.deterministic is None:
            spent = math.fsum(one.spent for one in self.places.values())
            claim(spent < self._timesteps, f"{name} begins after {spent} of {self._timesteps}")
        seen.slice = event.slice
        seen.reported.clear()
        self._move(seen, Status.RUNNING)

    def _told(self, record: Recorded, event: Reported | Closed) -> None:
        if isinstance(event, Closed):
            self._close(record, event)
        else:
            self._report(record, event)

    def _report(self, record: Recorded, event: Reported) -> None:
        """Results of a slice that runs follow each other, and change nothing that is decided."""
        seen = self.places[event.trial, event.replica]
        name = f"event {record.k}: trial {event.trial}, replica {event.replica}"
        claim(seen.status is Status.RUNNING, f"{name} is {seen.status} and reports")
        claim(event.slice == seen.slice, f"{name}: slice {event.slice}, not {seen.slice}")
        upto = seen.reported[-1].iteration if seen.reported else event.source
        claim(event.source == upto, f"{name} reports after {event.source}, not {upto}")
        due = list(range(upto + 1, upto + 1 + len(event.rows)))
        claim([row.iteration for row in event.rows] == due, f"{name}: rows are not {due}")
        seen.reported += event.rows

    def _close(self, record: Recorded, event: Closed) -> None:
        seen = self.places[event.trial, event.replica]
        name = f"event {record.k}: trial {event.trial}, replica {event.replica}"
        claim(seen.status is Status.RUNNING, f"{name} is {seen.status} and comes back")
        claim(event.slice == seen.slice, f"{name}: slice {event.slice}, not {seen.slice}")
        answer = None
        if event.end is not End.INTERRUPTED:
            key = (record.term, event.trial, event.replica, event.slice)
            answer = self.handed.pop(key, None)
            claim(answer is not None, f"{name}: {event.end} is recorded, and nothing came back")
        if isinstance(answer, SliceOutcome):
            claim(answer.end is event.end, f"{name}: {answer.end} became {event.end}")
            first = [row for row in seen.reported if row.iteration <= event.source]
            same = answer.rows == (*first, *map(_unmarked, event.rows))
            claim(same or _nan(answer), f"{name}: other rows than came back")
            claim(answer.saved == event.saved, f"{name}: other checkpoints than were saved")
        elif answer is not None:
            claim(event.end is End.LOST, f"{name}: its worker died, and it is {event.end}")
        self._curve(name, seen, event)
        self._rest(name, seen, event)
        self._charge(name, seen, event)
        self._keep(name, seen, event)
        seen.diverged = event.end is End.DIVERGED or (seen.diverged and not event.rows)
        self._move(seen, event.status)

    def _curve(self, name: str, seen: Seen, event: Closed) -> None:
        """Rows follow each other, without a gap, and say what was known beforehand."""
        first = [row for row in seen.reported if row.iteration <= event.source]
        begin = seen.reported[0].iteration - 1 if seen.reported else event.source
        back = begin < seen.iteration
        upto = first[-1].iteration if first else seen.attempted
        claim(event.source <= upto, f"{name} begins at {event.source}, after a gap")
        excused = event.skipped or not self._saves or seen.diverged
        claim(not back or bool(excused), f"{name} goes back to {event.source} for no reason")
        due = list(range(event.source + 1, event.source + 1 + len(event.rows)))
        claim([row.iteration for row in event.rows] == due, f"{name}: rows are not {due}")
        replica = self.mirror.replica(event.trial, event.replica)
        for row in event.rows:
            stand = self.known.stand(self.mirror, replica, row.iteration)
            said = {key: row.metrics.get(key) for key in stand.told}
            claim(repr(said) == repr(dict(stand.told)), f"{name}: {said}, not {stand.told}")
            is_lost = event.saved_to is not None and row.iteration > event.saved_to
            claim((UNSAVED in row.metrics) == is_lost, f"{name}: {row.iteration} is marked wrongly")
        rows = [*first, *event.rows]
        seen.steps = {at: steps for at, steps in seen.steps.items() if at <= begin}
        seen.steps |= {r.iteration: float(r.metrics["timesteps_this_iter"]) for r in rows}
        seen.points = {at: point for at, point in seen.points.items() if at <= begin}
        for row in rows:
            time = float(row.metrics[self.scheduler.time_attr])
            seen.points[row.iteration] = time, number(row.metrics.get("score"))
        seen.attempted = event.rows[-1].iteration if event.rows else event.source
        seen.saved_to, seen.counts_lost = event.saved_to, event.status in FINISHED

    def _rest(self, name: str, seen: Seen, event: Closed) -> None:
        """It rests at the first result at or past its goal at which it can be compared."""
        goal = self.mirror.replica(event.trial, event.replica).goal.at
        if goal is None:
            return
        points = [*seen.points.values()]
        there = is_comparable(points, goal)
        claim(there or event.end is not End.GOAL, f"{name} rests at {goal} with {points}")
        before = points[:-1] if event.rows else []
        there = self._saves and not seen.bred and is_comparable(before, goal)
        claim(not there, f"{name} went past its goal {goal} with {points}")

    def _charge(self, name: str, seen: Seen, event: Closed) -> None:
        most = self.spec.limits.max_failures
        seen.lost = seen.lost if event.end in (End.LOST, End.INTERRUPTED) else 0
        failed = event.status is Status.FAILED
        if event.end is End.LOST:
            seen.lost += 1
            claim(failed == (seen.lost > most), f"{name}: {event.status} after {seen.lost} lost")
        elif event.end is End.CRASHED:
            again = event.error_at in seen.crashes or len(seen.crashes) >= most
            claim(failed == again, f"{name}: {event.status}, it crashed at {seen.crashes}")
        elif event.end is not End.DIVERGED:
            claim(not failed, f"{name}: FAILED after {event.end}")
        seen.crashes = [at for at in seen.crashes if at > seen.iteration]
        if event.end is End.CRASHED:
            seen.crashes.append(event.error_at)
        self.blamed |= failed and event.end is not End.DIVERGED

    def _keep(self, name: str, seen: Seen, event: Closed) -> None:
        """Keep the checkpoints that an outcome names, and two of those before it."""
        begin = seen.reported[0].iteration - 1 if seen.reported else event.source
        usable = {d: saved for d, saved in seen.kept.items() if saved.iteration <= begin}
        usable |= {saved.digest: saved for saved in event.saved}
        within = range(begin + 1, seen.saved + 1)
        claim(all(s.iteration in within for s in event.saved), f"{name}: saved outside its slice")
        seen.kept |= {saved.digest: saved for saved in event.saved}
        for digest in event.dropped:
            seen.kept.pop(digest, None)
        self._enough(name, usable, seen.kept)
        self._new |= {saved.digest for saved in event.saved}
        if self._saves and event.end is not End.UNSAVED:
            upto = (s.iteration for s in seen.kept.values() if s.iteration <= seen.saved)
            newest = max(upto, default=0)
            stands = seen.saved if event.end not in (End.DIVERGED, End.LIMIT) else newest
            unsaved = seen.bred or (seen.diverged and not event.rows)
            claim(unsaved or newest == stands, f"{name}: at {stands}, saved at {newest}")

    def _enough(self, name: str, usable: Mapping[str, Saved], kept: Mapping[str, Saved]) -> None:
        by_age = sorted(usable.values(), key=lambda saved: saved.iteration)
        sign = 1.0 if self.spec.mode == "max" else -1.0
        valued = [saved for saved in by_age if saved.value is not None]
        best = sorted(valued, key=lambda saved: (sign * (saved.value or 0.0), saved.iteration))
        due = by_age[-2:] + (best[-1:] if self.spec.checkpoint.keep_best else [])
        gone = [saved.iteration for saved in due if saved.digest not in kept]
        claim(not gone, f"{name}: lets go of iterations {gone}, which it needs")

    def _drop(self, event: Dropped) -> None:
        seen = self.places[event.trial, event.replica]
        before = dict(seen.kept)
        for digest in event.digests:
            claim(seen.kept.pop(digest, None) is not None, f"{event}: was not named")
        if seen.status not in FINISHED:
            self._enough(f"trial {event.trial}, to save disk", before, seen.kept)

    def _move(self, seen: Seen, status: Status) -> None:
        if seen.status is Status.FAILED:
            seen.lost, seen.crashes = 0, []
        seen.counts_lost &= status in FINISHED
        seen.status = status

    # ---- files ----------------------------------------------------------------------------------

    def _load(self, replica: Replica, saved: Saved) -> None:
        """A checkpoint loads, and is the state that was due."""
        path = self.folder.trial(replica.trial, replica.index) / saved.file
        state = checkpoint_file.read(path, saved.digest).state["trainable"]["data"]["state"]
        due = self.known.stand(self.mirror, replica, saved.iteration).state
        claim(state == due, f"{path.name} of {replica.name} holds {state}, not {due}")

    def _files(self) -> None:
        """Claim that the files of all checkpoints in the ledger, and of births, exist."""
        for replica in self.mirror.replicas(*Status):
            folder = self.folder.trial(replica.trial, replica.index)
            for saved in replica.checkpoints.values():
                there = saved.digest in self.damaged or (folder / saved.file).exists()
                claim(there, f"{replica.name}: {saved.file} is gone")
                if saved.digest in self._new - self.damaged:
                    self._load(replica, saved)
            birth = replica.birth
            if birth and replica.status not in FINISHED and len(replica.checkpoints) < 2:
                file = self.folder.trial(birth.trial, birth.replica) / birth.saved.file
                claim(file.exists(), f"{replica.name} was bred from {file}, which is gone")
        self._new.clear()

    def load_all(self) -> None:
        """Every checkpoint that the ledger names loads and holds what is due."""
        for replica in self.mirror.replicas(*Status):
            for saved in replica.checkpoints.values():
                if saved.digest not in self.damaged:
                    self._load(replica, saved)


def _unmarked(row: Row) -> Row:
    metrics = {name: value for name, value in row.metrics.items() if name != UNSAVED}
    return Row(row.iteration, metrics)


def _nan(outcome: SliceOutcome) -> bool:
    return any(value != value for row in outcome.rows for value in row.metrics.values())
