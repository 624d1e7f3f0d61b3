"""What a sweep may use: its budget, its disk space, and the hard limits of slices that run."""

import contextlib
import heapq
import math
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from sweep import stats
from sweep.driver.context import DriverContext
from sweep.errors import LimitPassed, SweepError, UsageError, WorkerLost
from sweep.history import results
from sweep.history.events import FINISHED, Dropped, Opened, Saved, Status
from sweep.history.history import History
from sweep.history.order import Entry
from sweep.history.replica import Replica
from sweep.history.seeds import is_test
from sweep.history.trial import Trial
from sweep.ledger import ledger
from sweep.ledger.folder import PROGRESS
from sweep.slices.messages import SliceOutcome
from sweep.slices.retention import ALWAYS_KEPT, needed_by_children
from sweep.spec import Budget, SweepSpec
from sweep.spec.sections import in_words
from sweep.views import progress

# -------------------------------------------------------------------------------------------------
# Whether a sweep has used up what it may cost: a function of its history.
#
# Training time and steps are what the results say, each iteration once, so that a sweep that was
# killed and resumed ends where the other would have. Only ``time_s`` looks at a clock: seconds of
# earlier drivers stand in the ledger, those of this one are counted by it. Times are seconds.


class BudgetTracker:
    """The budget of a sweep as its driver, which `began` then by the clock of events, sees it.

    It is judged anew when the history has grown.
    """

    def __init__(self, spec: SweepSpec, began: float) -> None:
        self._spec = spec
        self._began = began
        self._k = -1
        self._why = ""
        self._min_delta = 0.0
        self._stagnation: list[tuple[float, int]] = []
        """After each trial that ended, by number: the best so far, and how many since it."""

    def used_up(self, history: History) -> str:
        """What is used up, in words; empty: nothing is."""
        budget, changed = self._spec.budget, history.changed
        budget = budget.changed(changed) if changed else budget
        if not budget.is_set:
            return ""
        spent = history.spent_s + ledger.now() - self._began
        if budget.time_s is not None and spent >= budget.time_s:
            return f"budget.time_s: {budget.time_s:g} seconds are over"
        if self._k != history.k:
            self._k = history.k
            self._why = next(self._used_up(history, budget), "")
        return self._why

    def _used_up(self, history: History, budget: Budget) -> Iterator[str]:
        if budget.cpu_hours is not None:
            hours = history.total(_trained_seconds) * self._spec.resources.cpu / 3600
            if hours >= budget.cpu_hours:
                yield f"budget.cpu_hours: {hours:.3g} of {budget.cpu_hours:g} hours are used up"
        if budget.timesteps is not None:
            steps = history.total(_steps)
            if steps >= budget.timesteps:
                yield f"budget.timesteps: {steps:,.0f} of {budget.timesteps:,.0f} steps are used up"
        if budget.target is not None:
            yield from _on_target(history, budget.target)
        if budget.patience is not None:
            yield from self._stagnant(history, budget.patience, budget.min_delta)

    def _stagnant(self, history: History, patience: int, min_delta: float) -> Iterator[str]:
        """Trials that ended, in the order of their numbers, since the last that was better."""
        if min_delta != self._min_delta:
            self._stagnation.clear()
        self._min_delta, ended, states = min_delta, history.kept(_ended), self._stagnation
        del states[ended.changed_from :]
        best, since = states[-1] if states else (-math.inf, 0)
        for _, value, _ in ended.entries[len(states) :]:
            if value > best + (min_delta if math.isfinite(best) else 0.0):
                best, since = value, 0
            else:
                since += 1
            states.append((best, since))
        ended.changed_from = len(states)
        if since >= patience and math.isfinite(best):
            best *= history.objective.sign
            yield f"budget.patience: {since} trials in a row were no better than {best:.6g}"


def _trained_seconds(trial: Trial) -> tuple[float, ...]:
    return tuple(replica.seconds for replica in trial.replicas)


def _steps(trial: Trial) -> tuple[float, ...]:
    return tuple(replica.steps for replica in trial.replicas)


def _ended(trial: Trial) -> Entry | None:
    """Trials that ended, by number, with what is compared."""
    if trial.status not in FINISHED:
        return None
    score = trial.score
    value = -math.inf if score is None or math.isnan(score) else trial.objective.sign * score
    return (trial.number, value, trial.number)


def _on_target(history: History, target: float) -> Iterator[str]:
    best, sign = history.best, history.objective.sign
    score = best.score if best else None
    if best and best.feasible and score is not None and sign * (score - target) >= 0:
        yield f"budget.target: trial {best.number} has {score:.6g}, {target:g} was wanted"


# -------------------------------------------------------------------------------------------------
# Which checkpoints go when all of a sweep's together are too large: a function of its history.
#
# Kept is what somebody needs: of a replica that may go on its newest two and its best, what
# trials bred from it would fall back to, and the best of the best trial; of a test that has ended
# nothing. Of the others the one goes first that takes the fewest seconds of training to make
# again. Sizes are bytes; a file that two checkpoints share counts for both.


#: Seconds to make a checkpoint again, trial, replica, iteration.
First = tuple[float, int, int, int]


def to_drop(history: History, most: int | None) -> tuple[list[Dropped], str]:
    """What goes so that the rest is at most `most`; and in words why that is not enough, or ""."""
    if most is None:
        return [], ""
    over = int(history.total(_sizes)) - most
    if over <= 0:
        return [], ""
    gone: dict[tuple[int, int], list[str]] = defaultdict(list)
    spare = _cheapest_first(history)
    while over > 0 and (cheapest := next(spare, None)) is not None:
        saved = cheapest.drop()
        gone[cheapest.replica.trial, cheapest.replica.index].append(saved.digest)
        over -= saved.size
    dropped = [Dropped(*replica, tuple(digests)) for replica, digests in sorted(gone.items())]
    if over <= 0:
        return dropped, ""
    return dropped, (
        f"checkpoint.max_disk: {in_words(over + most)} of checkpoints are needed to go on, "
        f"{in_words(most)} are allowed; `sweep resume` with --max-disk goes on with more"
    )


def _cheapest_first(history: History) -> Iterator["_Spare"]:
    """Whose first is to go next, each time; it is dropped before the next is asked for."""
    best, heap = history.best, list[tuple[First, _Spare]]()
    for *least, number in (*history.order(_spare), (math.inf, 0)):
        while heap and heap[0][0] < tuple(least):
            _, cheapest = heapq.heappop(heap)
            yield cheapest
            if cheapest.left:
                heapq.heappush(heap, (cheapest.first, cheapest))
        if least != [math.inf]:
            trial = history.trials[number]
            for replica in (*trial.replicas, *trial.tests):
                if (one := _Spare(replica, _needed(history, replica, best))).left:
                    heapq.heappush(heap, (one.first, one))


def _spare(trial: Trial) -> Entry | None:
    """Trials with a checkpoint that they do not need themselves, the first to go first."""
    replicas = (*trial.replicas, *trial.tests)
    spare = [_Spare(replica, _needed_to_go_on(trial, replica)) for replica in replicas]
    least = min((one.first for one in spare if one.left), default=None)
    return None if least is None else (*least, trial.number)


def _sizes(trial: Trial) -> tuple[int, ...]:
    replicas = (*trial.replicas, *trial.tests)
    return tuple(saved.size for replica in replicas for saved in replica.checkpoints.values())


class _Spare:
    """What may go of one replica's checkpoints, of which some are `needed`."""

    def __init__(self, replica: Replica, needed: set[str]) -> None:
        self.replica = replica
        self._kept = dict(replica.checkpoints)
        self._needed = needed
        self.left: list[tuple[float, int, str]] = []
        """Seconds to make it again, iteration and digest of each, the first to go first."""
        self._look()

    @property
    def first(self) -> First:
        """The first to go, as it is compared with those of others."""
        seconds, iteration, _ = self.left[0]
        return seconds, self.replica.trial, self.replica.index, iteration

    def drop(self) -> Saved:
        """Let the first go."""
        saved = self._kept.pop(self.left[0][-1])
        self._look()
        return saved

    def _look(self) -> None:
        kept = [*self._kept.values()]
        self.left = sorted(
            (_seconds(self.replica, saved, kept), saved.iteration, saved.digest)
            for saved in kept
            if saved.digest not in self._needed
        )


def _seconds(replica: Replica, saved: Saved, kept: Sequence[Saved]) -> float:
    """Training from the checkpoint before, or from the beginning, to this one."""
    before = max((s.iteration for s in kept if s.iteration < saved.iteration), default=0)
    span = range(before + 1, saved.iteration + 1)
    return stats.total(p.seconds for p in replica.curve if p.iteration in span)


def _needed(history: History, replica: Replica, best: Trial | None) -> set[str]:
    """Digests that stay; `best` is the best trial."""
    trial = history.trials[replica.trial]
    needed = _needed_to_go_on(trial, replica)
    if is_test(replica.index) and replica.status in FINISHED:
        return needed
    if trial is best and replica.best_checkpoint is not None:
        needed.add(replica.best_checkpoint.digest)
    return needed | needed_by_children(history, replica)


def _needed_to_go_on(trial: Trial, replica: Replica) -> set[str]:
    """Digests that the trial itself needs; all of a replica that runs, whose slice may rely on any.

    Of a test that has ended, none.
    """
    if replica.status is Status.RUNNING:
        return set(replica.checkpoints)
    over = is_test(replica.index) and replica.status in FINISHED
    if over or not trial.may_go_on(replica):
        return set()
    by_age = sorted(replica.checkpoints.values(), key=lambda saved: saved.iteration)
    kept = [*by_age[-ALWAYS_KEPT:], replica.best_checkpoint]
    return {saved.digest for saved in kept if saved is not None}


# -------------------------------------------------------------------------------------------------
# Hard limits of slices that run: memory, time and standstill, watched from outside.
#
# A slice ends itself at `limits.trial_s` after the iteration in which it passes it; one whose
# iteration does not end is ended here: its note says how long it had trained when it was written.
# To make the trainable, to restore it and to save it at the end is no training. Only the process of
# that slice is ended, with its children, and only its trial is charged. Times are seconds on the
# monotonic clock, memory is bytes.

#: Seconds between two measurements of memory.
MEASURE_S = 1.0
#: Seconds that an iteration may go on after its trial's time is over.
GRACE_S = 30.0


@dataclass
class _Seen:
    """What is known of a slice that a process has begun; what waits for a worker has no limits."""

    moved: float
    """When its note of progress was seen to change, or the process was."""
    note: int = 0
    """When that was last written, on the file system's clock."""
    trained_s: float | None = None
    """How long it had trained then; None: it does not yet, or no longer."""


class Guard:
    """Ends slices that pass a hard limit."""

    def __init__(self, context: DriverContext) -> None:
        self._context = context
        self._limits = context.spec.limits
        self._seen: dict[Future[SliceOutcome], _Seen] = {}
        self._measured_at = float("-inf")

    def look(self, running: Mapping[Future[SliceOutcome], Opened]) -> None:
        """Look at all slices; their futures fail with the reason where a limit was passed."""
        limits = self._limits
        if limits.trial_s is None and limits.trial_memory is None and limits.no_progress_s is None:
            return
        now = time.monotonic()
        pids = {f: None if f.done() else self._context.pool.pid(f) for f in running}
        at_work = [(future, pid) for future, pid in pids.items() if pid is not None]
        self._seen = {f: self._seen.get(f, _Seen(now)) for f, _ in at_work}
        measures = limits.trial_memory is not None and now - self._measured_at >= MEASURE_S
        if measures:
            self._measured_at = now
        for future, pid in at_work:
            opened = running[future]
            replica = self._context.history.replica(opened.trial, opened.replica)
            used = self._context.pool.memory(future) if measures else 0
            self._read_note(self._seen[future], opened, now)
            found = next(self._passed(self._seen[future], replica, now, pid, used), None)
            if found is not None:
                self._context.pool.end(future, found)

    def _read_note(self, seen: _Seen, opened: Opened, now: float) -> None:
        """Take what is new in a slice's note; a torn one is read again at the next look."""
        folder = self._context.folder
        path = folder.trial(opened.trial, opened.replica) / PROGRESS
        with contextlib.suppress(OSError, UsageError, ValueError, AttributeError, TypeError):
            if seen.note == (written := path.stat().st_mtime_ns):
                return
            if self._limits.trial_s is not None:
                note = progress.raw_note(folder, opened.trial, opened.replica)
                its_own = note.get("slice") == opened.slice
                seen.trained_s = results.number(note.get("trained_s")) if its_own else None
            seen.note, seen.moved = written, now

    def _passed(
        self, seen: _Seen, replica: Replica, now: float, pid: int, used: int
    ) -> Iterator[SweepError]:
        limits = self._limits
        if limits.trial_s is not None and seen.trained_s is not None:
            left = limits.trial_s - _kept_seconds(replica) - seen.trained_s
            if now - seen.moved > max(0.0, left) + GRACE_S:
                yield LimitPassed(
                    f"limits.trial_s: {limits.trial_s:g} s of training are over, and its "
                    f"iteration did not end within {GRACE_S:g} s"
                )
        if limits.no_progress_s is not None and now - seen.moved > limits.no_progress_s:
            yield WorkerLost(None, pid, f"no progress for {limits.no_progress_s:g} s")
        if limits.trial_memory is not None and used > limits.trial_memory:
            allowed = in_words(limits.trial_memory)
            why = f"limits.trial_memory: {in_words(used)} used, {allowed} allowed"
            yield WorkerLost(None, pid, why)


def _kept_seconds(replica: Replica) -> float:
    """Training up to the newest checkpoint; what came after it may be done again."""
    saved = replica.newest.iteration if replica.newest else 0
    return stats.total(p.seconds for p in replica.curve if p.iteration <= saved)
