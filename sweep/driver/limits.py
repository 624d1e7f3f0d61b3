"""Limits of a sweep: its budget, its disk space, and the hard limits of slices that run."""

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
from sweep.errors import BadConfig, LimitPassed, SweepError, UsageError, WorkerLost
from sweep.history import results
from sweep.history.events import FINISHED, Dropped, Opened, Saved, Status
from sweep.history.history import History
from sweep.history.order import Entry
from sweep.history.ranking import is_by_expectation
from sweep.history.replica import Replica
from sweep.history.seeds import is_test
from sweep.history.trial import Trial
from sweep.ledger import ledger
from sweep.ledger.folder import PROGRESS
from sweep.pools import LOOK_S
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
        """Return the used-up part of the budget, in words; empty if nothing is."""
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
        if budget.settled is not None:
            yield from _settled(history, budget.settled)

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
    best, sign = history.highest, history.objective.sign
    score = best.score if best else None
    if best and score is not None and sign * (score - target) >= 0:
        yield f"budget.target: trial {best.number} has {score:.6g}, {target:g} was wanted"


def check_changed(history: History, budget: Mapping[str, float | None]) -> None:
    """Raise BadConfig for a budget that a sweep is given later and that can never be used up."""
    settled = budget.get("settled")
    if settled is not None and not is_by_expectation(history.objective):
        hint = (
            "it has objectives, constraints or an aggregate beside what a score is expected to be"
        )
        raise BadConfig("--budget settled", settled, "no value in this sweep", hint)


def _settled(history: History, share: float) -> Iterator[str]:
    """The expected improvement of the pick by as much training again; see `posterior.outlook`."""
    found = history.expectations.outlook() if is_by_expectation(history.objective) else None
    if found is not None and found.share < share:
        yield (
            f"budget.settled: as much training again is expected to improve the pick by "
            f"{found.gain:.3g}, {found.share:.2%} of the range of {found.range:.3g}; less than "
            f"{share:.2%} is settled"
        )


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
    """Return checkpoints to delete until `most` bytes are left; and why that fails, or ""."""
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
    logs: set[tuple[int, int]] = set()
    for replica in _with_spare_logs(history) if over > 0 else ():
        if over > 0:
            logs.add((replica.trial, replica.index))
            over -= replica.log
    dropped = [
        Dropped(*which, tuple(gone.get(which, ())), which in logs)
        for which in sorted({*gone, *logs})
    ]
    if over <= 0:
        return dropped, ""
    return dropped, (
        f"checkpoint.max_disk: {in_words(over + most)} of checkpoints and logs are needed to go "
        f"on, {in_words(most)} are allowed; `sweep resume` with --max-disk goes on with more"
    )


def _with_spare_logs(history: History) -> Iterator[Replica]:
    """Replicas whose logs nobody will look into for a failure: they have ended, and well."""
    ended = FINISHED - {Status.FAILED}
    for replica in (*history.replicas(*ended), *history.tests(*ended)):
        failed = history.trials[replica.trial].status is Status.FAILED
        if replica.log and not (replica.waited or failed):
            yield replica


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
    sizes = [saved.size for replica in replicas for saved in replica.checkpoints.values()]
    return (*sizes, *(replica.log for replica in replicas))


class _Spare:
    """The deletable checkpoints of one replica, of which some are `needed`."""

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
# that slice is ended, with its children, and only its trial is charged. Times are seconds of
# `_Patience`, memory is bytes.

#: Seconds between two measurements of memory.
MEASURE_S = 1.0
#: Share of its trial's time for which an iteration may go on after it; and its bounds in seconds.
GRACE, LEAST_GRACE_S, MOST_GRACE_S = 0.1, 5.0, 30.0


#: Seconds between two looks that count at most: in a longer pause the driver stood still itself.
PAUSE_S = 10.0


class _Patience:
    """A clock that goes on while the driver looks: where it stands still, nobody else is late."""

    def __init__(self) -> None:
        self._seen = time.monotonic()
        self._now = 0.0

    def now(self) -> float:
        """Seconds since it was made, but for those in which the driver was stopped."""
        seen = time.monotonic()
        self._now += min(seen - self._seen, PAUSE_S)
        self._seen = seen
        return self._now


@dataclass
class _Seen:
    """The observations of a slice that a process has begun; a waiting slice has no limits."""

    moved: float
    """When its note of progress was seen to change, or the process was, or that it is silent."""
    note: int = 0
    """When that was last written, on the file system's clock."""
    trained_s: float | None = None
    """Seconds that it had trained then; None if it does not train yet, or no longer."""


class Guard:
    """Ends slices that pass a hard limit."""

    def __init__(self, context: DriverContext) -> None:
        self._context = context
        self._limits = context.spec.limits
        self._seen: dict[Future[SliceOutcome], _Seen] = {}
        self._patience = _Patience()
        self._measured_at = self._listened_at = float("-inf")

    def look(self, running: Mapping[Future[SliceOutcome], Opened]) -> None:
        """Look at all slices; their futures fail with the reason where a limit was passed."""
        limits, pool, now = self._limits, self._context.pool, self._patience.now()
        watched = {limits.trial_s, limits.trial_memory, limits.no_progress_s} != {None}
        if not watched and (limits.no_answer_s is None or now - self._listened_at < LOOK_S):
            return
        self._listened_at = now
        measures = limits.trial_memory is not None and now - self._measured_at >= MEASURE_S
        if measures:
            self._measured_at = now
        self._seen = {future: seen for future, seen in self._seen.items() if future in running}
        for future, opened in running.items():
            if future.done():
                continue
            silent_s = 0.0 if limits.no_answer_s is None else pool.silence(future)
            pid = pool.pid(future) if watched or silent_s else None
            if pid is None and not silent_s:
                self._seen.pop(future, None)
                continue
            seen = self._seen.setdefault(future, _Seen(now))
            used = pool.memory(future) if measures else 0
            self._read_note(seen, opened, now)
            replica = self._context.history.replica(opened.trial, opened.replica)
            found = next(self._passed(seen, replica, now, pid, used), None)
            found = found or self._silent(seen, now, pid, silent_s)
            if found is not None:
                pool.end(future, found)

    def _silent(
        self, seen: _Seen, now: float, pid: int | None, silent_s: float
    ) -> WorkerLost | None:
        """Return the error of a slice without progress whose worker does not answer, or None."""
        most = self._limits.no_answer_s
        if most is None or min(silent_s, now - seen.moved) < most:
            return None
        return WorkerLost(None, pid, f"its worker has stood still for {most:g} s")

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
        self, seen: _Seen, replica: Replica, now: float, pid: int | None, used: int
    ) -> Iterator[SweepError]:
        limits = self._limits
        if limits.trial_s is not None and seen.trained_s is not None:
            left = limits.trial_s - _kept_seconds(replica) - seen.trained_s
            grace_s = min(max(GRACE * limits.trial_s, LEAST_GRACE_S), MOST_GRACE_S)
            if now - seen.moved > max(0.0, left) + grace_s:
                yield LimitPassed(
                    f"limits.trial_s: the trial has trained for {limits.trial_s:g} s, and its "
                    f"iteration did not end within another {grace_s:g} s"
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
