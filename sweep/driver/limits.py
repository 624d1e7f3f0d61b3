"""Limits of a sweep: its budget, its disk space, and the hard limits of slices that run."""

import contextlib
import heapq
import math
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from sweep.core import stats
from sweep.core.errors import BadConfig, LimitPassed, SweepError, UsageError, WorkerLost
from sweep.driver.context import DriverContext
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
from sweep.spec.sections import MOST_TRIALS, size_text
from sweep.views import progress

# -------------------------------------------------------------------------------------------------
# The budget of a sweep, judged from its history.
#
# Training time and steps come from the results, with each iteration counted once, so a sweep that
# was killed and resumed ends at the same point. Only ``time_s`` uses a clock: the seconds of
# earlier drivers are in the ledger, and those of this one are measured. Times are in seconds.


class BudgetTracker:
    """Compares a sweep's budget with its history, during one driver's term.

    `began` is the driver's start on the clock of events, in seconds. Except for the time, the
    budget is compared again only if the history has grown.
    """

    def __init__(self, spec: SweepSpec, began: float) -> None:
        self._spec = spec
        self._began = began
        self._k = -1
        self._why = ""
        self._min_delta = 0.0
        self._stagnation: list[tuple[float, int]] = []
        """Entry for each ended trial, by number: the best signed score so far, and the number of
        trials since."""

    def exhausted_part(self, history: History) -> str:
        """Return words for the first exhausted part of the budget; empty while all parts remain.

        Changes of the budget in the history count. Only the time is compared at each call, the
        other parts only if the history has grown.
        """
        budget = present_budget(self._spec, history)
        if not budget.is_set:
            return ""
        spent = history.spent_s + ledger.now() - self._began
        if budget.time_s is not None and spent >= budget.time_s:
            return f"budget.time_s: {budget.time_s:g} seconds are used up"
        if self._k != history.k:
            self._k = history.k
            self._why = next(self._exhausted_parts(history, budget), "")
        return self._why

    def _exhausted_parts(self, history: History, budget: Budget) -> Iterator[str]:
        """Yield words for each exhausted part of the budget except the time.

        They begin with the part's key, for example ``budget.timesteps: 1,000 of 1,000 steps …``.
        """
        if budget.cpu_hours is not None:
            hours = cpu_hours(history, self._spec)
            if hours >= budget.cpu_hours:
                yield f"budget.cpu_hours: {hours:.3g} of {budget.cpu_hours:g} hours are used up"
        if budget.timesteps is not None:
            steps = timesteps(history)
            if steps >= budget.timesteps:
                yield f"budget.timesteps: {steps:,.0f} of {budget.timesteps:,.0f} steps are used up"
        if budget.target is not None:
            yield from _check_target(history, budget.target)
        if budget.patience is not None:
            yield from self._check_patience(history, budget.patience, budget.min_delta)
        if budget.settled is not None:
            yield from _check_settled(history, budget.settled)

    def _check_patience(self, history: History, patience: int, min_delta: float) -> Iterator[str]:
        """Yield a text if the last `patience` ended trials did not improve the best score.

        Trials count in the order of their numbers; an improvement is more than `min_delta`. Nothing
        is yielded before a trial has a score. The computed states are kept for the next call.
        """
        if min_delta != self._min_delta:
            self._stagnation.clear()
        self._min_delta, ended, states = (
            min_delta,
            history.updated_order(_ended_key),
            self._stagnation,
        )
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
            yield f"budget.patience: {since} trials in a row were not better than {best:.6g}"


def cpu_hours(history: History, spec: SweepSpec) -> float:
    """Return the hours of training of all trials, multiplied by the cores that the spec gives one.

    The final evaluation's tests do not count.
    """
    return history.total(_trained_seconds) * spec.resources.cpu / 3600


def timesteps(history: History) -> float:
    """Return the number of environment steps of all trials, without tests of a final evaluation."""
    return history.total(_steps)


def _trained_seconds(trial: Trial) -> tuple[float, ...]:
    """Return the seconds for which each replica of a trial was trained."""
    return tuple(replica.seconds for replica in trial.replicas)


def _steps(trial: Trial) -> tuple[float, ...]:
    """Return the number of environment steps of each replica of a trial."""
    return tuple(replica.steps for replica in trial.replicas)


def _ended_key(trial: Trial) -> Entry | None:
    """Return (number, signed score, number) of a trial that has ended; None for others.

    The entry sorts trials by number. A missing score counts as the worst.
    """
    if trial.status not in FINISHED:
        return None
    score = trial.score
    value = -math.inf if score is None or math.isnan(score) else trial.objective.sign * score
    return (trial.number, value, trial.number)


def _check_target(history: History, target: float) -> Iterator[str]:
    """Yield a text if the best measured score within the constraints has reached `target`."""
    best, sign = history.highest, history.objective.sign
    score = best.score if best else None
    if best and score is not None and sign * (score - target) >= 0:
        yield (
            f"budget.target: trial {best.number} has reached {score:.6g}; the target is {target:g}"
        )


def check_total(history: History, trials: int) -> None:
    """Raise UsageError if a sweep cannot have `trials` as its new total number of trials.

    It is at least the number of searched trials that exist, and at most `MOST_TRIALS`.
    """
    if trials < history.searched_count:
        raise UsageError(
            f"--trials: {trials} is less than the {history.searched_count} trials that exist "
            f"already; give a total of at least {history.searched_count}"
        )
    if trials > MOST_TRIALS:
        raise UsageError(f"--trials: {trials} is not allowed; expected at most {MOST_TRIALS}")


def present_budget(spec: SweepSpec, history: History) -> Budget:
    """Return the budget of a sweep's spec with the changes in its history."""
    changed = history.changed_budget
    return spec.budget.with_changes(changed) if changed else spec.budget


def check_changed_budget(
    history: History, present: Budget, changes: Mapping[str, float | None]
) -> None:
    """Raise BadConfig for a change of the budget that the sweep cannot have.

    It is a ``settled`` if trials are not ranked by expected scores, as it could then never be
    reached; a ``min_delta`` without ``patience``, which would have no effect; or a whole number of
    more than 64 bits, which the ledger does not hold. `present` is the budget before the changes,
    which map keys of it to new limits.
    """
    wanted: Mapping[str, object] = changes
    for key, value in wanted.items():
        if isinstance(value, int) and value >= 2**63:
            raise BadConfig(f"--budget {key}", value, "a number below 2**63")
    if changes.get("min_delta") and present.with_changes(changes).patience is None:
        raise BadConfig(
            "--budget min_delta",
            wanted["min_delta"],
            hint="set patience too, for example --budget patience=10",
            problem="has no effect without patience, which this sweep does not have",
        )
    settled = changes.get("settled")
    if settled is not None and not is_by_expectation(history.objective):
        problem = (
            "cannot be used in this sweep, whose spec has objectives, constraints or an "
            "aggregate in addition to the expected score"
        )
        raise BadConfig("--budget settled", settled, hint="leave settled out", problem=problem)


def _check_settled(history: History, share: float) -> Iterator[str]:
    """Yield a text if as much training again should improve the best trial by less than `share`.

    The share is of the range of the expected scores. Nothing is yielded if that cannot be estimated
    yet, or if trials are not ranked by expected scores.
    """
    found = history.expectations.outlook() if is_by_expectation(history.objective) else None
    if found is not None and found.relative_gain < share:
        yield (
            "budget.settled: as much training again is expected to improve the best expected "
            f"score by only {found.gain:.3g}, which is {found.relative_gain:.2%} of the range of "
            f"scores ({found.range:.3g}) and less than {share:.2%}"
        )


# -------------------------------------------------------------------------------------------------
# The choice of checkpoints to delete if all together are too large: a function of the history.
#
# The following are kept. Of a replica that may continue: its newest two and its best, and those
# that its offspring would fall back to. Of the best trial: its best. Of an ended test: none. The
# rest is deleted in the order of the training time needed to compute it again, least first. Sizes
# are in bytes; a file shared by two checkpoints counts twice.


#: Sort key of a checkpoint: seconds to compute it again, trial, replica, iteration.
CostKey = tuple[float, int, int, int]


def choose_deletions(history: History, limit: int | None) -> tuple[list[Dropped], str]:
    """Return events that delete the cheapest checkpoints, so that at most `limit` bytes are left.

    Cheap is what takes little training to compute again. If that is not enough, logs of ended
    trials are deleted, too. Checkpoints that the sweep needs to continue are kept: the text says so
    if `limit` is exceeded then, and is empty otherwise. Without a limit nothing is deleted.
    """
    if limit is None:
        return [], ""
    excess = int(history.total(_sizes)) - limit
    if excess <= 0:
        return [], ""
    gone: dict[tuple[int, int], list[str]] = defaultdict(list)
    spare = _cheapest_first(history)
    while excess > 0 and (cheapest := next(spare, None)) is not None:
        saved = cheapest.drop()
        gone[cheapest.replica.trial, cheapest.replica.index].append(saved.digest)
        excess -= saved.size
    logs: set[tuple[int, int]] = set()
    for replica in _with_spare_logs(history) if excess > 0 else ():
        if excess > 0:
            logs.add((replica.trial, replica.index))
            excess -= replica.log
    dropped = [
        Dropped(*which, tuple(gone.get(which, ())), which in logs)
        for which in sorted({*gone, *logs})
    ]
    if excess <= 0:
        return dropped, ""
    return dropped, (
        f"checkpoint.max_disk: the sweep needs {size_text(excess + limit)} for checkpoints and "
        f"logs to continue, but only {size_text(limit)} are allowed; give more with `sweep "
        "resume --max-disk`"
    )


def _with_spare_logs(history: History) -> Iterator[Replica]:
    """Yield the replicas whose logs may be deleted: they have ended, and did not fail.

    Replicas without a log, of a failed trial, or pruned only because the sweep ended are left out.
    """
    ended = FINISHED - {Status.FAILED}
    for replica in (*history.replicas(*ended), *history.test_replicas(*ended)):
        failed = history.trials[replica.trial].status is Status.FAILED
        if replica.log and not (replica.was_waiting or failed):
            yield replica


def _cheapest_first(history: History) -> Iterator["_Deletable"]:
    """Yield, again and again, the replica whose deletable checkpoint is cheapest to recompute.

    The caller drops that checkpoint before it requests the next one.
    """
    best, heap = history.best, list[tuple[CostKey, _Deletable]]()
    for *least, number in (*history.order(_cheapest_key), (math.inf, 0)):
        while heap and heap[0][0] < tuple(least):
            _, cheapest = heapq.heappop(heap)
            yield cheapest
            if cheapest.left:
                heapq.heappush(heap, (cheapest.cost_key, cheapest))
        if least != [math.inf]:
            trial = history.trials[number]
            for replica in (*trial.replicas, *trial.test_replicas):
                if (one := _Deletable(replica, _needed(history, replica, best))).left:
                    heapq.heappush(heap, (one.cost_key, one))


def _cheapest_key(trial: Trial) -> Entry | None:
    """Return the `CostKey` of the cheapest checkpoint that a trial does not need to continue.

    The trial's number follows it as the last element. Returns None without such a checkpoint.
    """
    replicas = (*trial.replicas, *trial.test_replicas)
    spare = [_Deletable(replica, _needed_to_continue(trial, replica)) for replica in replicas]
    least = min((one.cost_key for one in spare if one.left), default=None)
    return None if least is None else (*least, trial.number)


def _sizes(trial: Trial) -> tuple[int, ...]:
    """Return the size of each checkpoint and log of a trial, in bytes."""
    replicas = (*trial.replicas, *trial.test_replicas)
    sizes = [saved.size for replica in replicas for saved in replica.checkpoints.values()]
    return (*sizes, *(replica.log for replica in replicas))


class _Deletable:
    """Checkpoints of one replica that may be deleted, all except those in `needed` (digests)."""

    def __init__(self, replica: Replica, needed: set[str]) -> None:
        self.replica = replica
        self._kept = dict(replica.checkpoints)
        self._needed = needed
        self.left: list[tuple[float, int, str]] = []
        """Seconds to compute it again, iteration and digest of each deletable checkpoint; cheapest
        first."""
        self._update_costs()

    @property
    def cost_key(self) -> CostKey:
        """Sort key of the checkpoint that is cheapest to recompute; `left` must not be empty."""
        seconds, iteration, _ = self.left[0]
        return seconds, self.replica.trial, self.replica.index, iteration

    def drop(self) -> Saved:
        """Remove and return the checkpoint that is cheapest to recompute; updates `left`."""
        saved = self._kept.pop(self.left[0][-1])
        self._update_costs()
        return saved

    def _update_costs(self) -> None:
        """Compute the costs again: they grow when an earlier checkpoint is dropped."""
        kept = [*self._kept.values()]
        self.left = sorted(
            (_seconds(self.replica, saved, kept), saved.iteration, saved.digest)
            for saved in kept
            if saved.digest not in self._needed
        )


def _seconds(replica: Replica, saved: Saved, checkpoints: Sequence[Saved]) -> float:
    """Return the seconds of training to compute `saved` again from the checkpoint before it.

    `checkpoints` are all that are kept; without an earlier one, the training begins at the start.
    """
    before = max((s.iteration for s in checkpoints if s.iteration < saved.iteration), default=0)
    span = range(before + 1, saved.iteration + 1)
    return stats.total(p.seconds for p in replica.curve if p.iteration in span)


def _needed(history: History, replica: Replica, best: Trial | None) -> set[str]:
    """Return the digests of a replica's checkpoints that must not be deleted.

    They are those that it or its offspring need to continue, and the best one if its trial is
    `best`, the best trial; of a test that has ended, none.
    """
    trial = history.trials[replica.trial]
    needed = _needed_to_continue(trial, replica)
    if is_test(replica.index) and replica.status in FINISHED:
        return needed
    if trial is best and replica.best_checkpoint is not None:
        needed.add(replica.best_checkpoint.digest)
    return needed | needed_by_children(history, replica)


def _needed_to_continue(trial: Trial, replica: Replica) -> set[str]:
    """Return the digests of the checkpoints that a replica itself needs to continue.

    It needs its newest `ALWAYS_KEPT` and its best. A running one needs all, since its slice may use
    any; one that cannot continue, such as a test that has ended, needs none.
    """
    if replica.status is Status.RUNNING:
        return set(replica.checkpoints)
    over = is_test(replica.index) and replica.status in FINISHED
    if over or not trial.may_continue(replica):
        return set()
    by_age = sorted(replica.checkpoints.values(), key=lambda saved: saved.iteration)
    kept = [*by_age[-ALWAYS_KEPT:], replica.best_checkpoint]
    return {saved.digest for saved in kept if saved is not None}


# -------------------------------------------------------------------------------------------------
# Hard limits of running slices: memory, time and lack of progress, enforced by the driver.
#
# A slice ends itself after the iteration in which it exceeds `limits.trial_s`. If that iteration
# does not end, the slice is ended here: its progress file says how long it had trained when
# written. Creating, restoring and finally saving the trainable do not count as training. Only the
# process of that slice is ended, with its children, and only its trial is affected. Times are in
# seconds of `_DriverClock`, memory is in bytes.

#: Seconds between two measurements of memory.
MEASURE_S = 1.0
#: Extra time for the last iteration: share of the trial's time limit, and bounds in seconds.
GRACE, LEAST_GRACE_S, MOST_GRACE_S = 0.1, 5.0, 30.0


#: Maximum seconds counted between two checks: in a longer pause the driver itself was suspended.
PAUSE_S = 10.0


class _DriverClock:
    """A clock that stops while the driver is suspended, so that slices are not ended for it."""

    def __init__(self) -> None:
        self._seen = time.monotonic()
        self._now = 0.0

    def now(self) -> float:
        """Return the seconds since the clock was created, without suspensions of the driver.

        Of the time between two calls, at most `PAUSE_S` seconds count.
        """
        seen = time.monotonic()
        self._now += min(seen - self._seen, PAUSE_S)
        self._seen = seen
        return self._now


@dataclass
class _Observation:
    """The progress of a slice that has started, as its progress file shows it."""

    progressed_at: float
    """Time on the `_DriverClock` at which the progress file last changed, or was first looked
    at."""
    modified_ns: int = 0
    """Modification time of the progress file in ns, on the file system's clock; 0 before it was
    read."""
    trained_s: float | None = None
    """Seconds for which the slice had trained when it wrote the file; None before it trains and
    after it."""


class Guard:
    """Ends running slices that exceed a hard limit of time, memory or silence."""

    def __init__(self, context: DriverContext) -> None:
        self._context = context
        self._limits = context.spec.limits
        self._seen: dict[Future[SliceOutcome], _Observation] = {}
        self._clock = _DriverClock()
        self._measured_at = self._listened_at = float("-inf")

    def check_running(self, running: Mapping[Future[SliceOutcome], Opened]) -> None:
        """Look at all running slices, and end those that exceed a limit.

        Their futures then fail with LimitPassed for `limits.trial_s`, else with WorkerLost. Memory
        is measured at most every `MEASURE_S` seconds. Does nothing for slices that have ended.
        """
        limits, pool, now = self._limits, self._context.pool, self._clock.now()
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
            seen = self._seen.setdefault(future, _Observation(now))
            used = pool.memory(future) if measures else 0
            self._read_note(seen, opened, now)
            replica = self._context.history.replica(opened.trial, opened.replica)
            found = next(self._check_limits(seen, replica, now, pid, used), None)
            found = found or self._check_silence(seen, now, pid, silent_s)
            if found is not None:
                pool.end(future, found)

    def _check_silence(
        self, observation: _Observation, now: float, pid: int | None, silent_s: float
    ) -> WorkerLost | None:
        """Return the error for a slice without progress whose worker does not answer, or None.

        Both must have lasted for `limits.no_answer_s`. `now` is the time on the `_DriverClock`, and
        `silent_s` the time for which the worker has been silent, both in seconds. `pid` is that of
        its process, or None.
        """
        most = self._limits.no_answer_s
        if most is None or min(silent_s, now - observation.progressed_at) < most:
            return None
        return WorkerLost(
            None,
            pid,
            f"neither the worker nor the trial has made progress for {most:g} s "
            "(limits.no_answer_s)",
        )

    def _read_note(self, observation: _Observation, opened: Opened, now: float) -> None:
        """Read a slice's progress file into `observation` if it has changed.

        Its contents are read only if `limits.trial_s` is set. A half-written one is read again next
        time; without a file, nothing changes. `now` is the time on the `_DriverClock`, in
        seconds.
        """
        folder = self._context.folder
        path = folder.trial(opened.trial, opened.replica) / PROGRESS
        with contextlib.suppress(OSError, UsageError, ValueError, AttributeError, TypeError):
            if observation.modified_ns == (written := path.stat().st_mtime_ns):
                return
            if self._limits.trial_s is not None:
                note = progress.raw_note(folder, opened.trial, opened.replica)
                its_own = note.get("slice") == opened.slice
                observation.trained_s = (
                    results.to_number(note.get("trained_s")) if its_own else None
                )
            observation.modified_ns, observation.progressed_at = written, now

    def _check_limits(
        self, observation: _Observation, replica: Replica, now: float, pid: int | None, used: int
    ) -> Iterator[SweepError]:
        """Yield the error for each limit that a slice exceeds.

        It is LimitPassed for `limits.trial_s`, exceeded only if the iteration does not end within
        the `GRACE` either, and WorkerLost for `no_progress_s` and `trial_memory`. `pid` is None
        before the slice's process has started; `used` is the memory of that process in bytes, 0 if
        it was not measured. `now` is the time on the `_DriverClock`, in seconds.
        """
        limits = self._limits
        if limits.trial_s is not None and observation.trained_s is not None:
            left = limits.trial_s - _kept_seconds(replica) - observation.trained_s
            grace_s = min(max(GRACE * limits.trial_s, LEAST_GRACE_S), MOST_GRACE_S)
            if now - observation.progressed_at > max(0.0, left) + grace_s:
                yield LimitPassed(
                    f"limits.trial_s: the trial has trained for {limits.trial_s:g} s, and "
                    f"its iteration did not end within another {grace_s:g} s"
                )
        if (
            limits.no_progress_s is not None
            and now - observation.progressed_at > limits.no_progress_s
        ):
            yield WorkerLost(
                None,
                pid,
                "limits.no_progress_s: the trial has made no progress for "
                f"{limits.no_progress_s:g} s",
            )
        if limits.trial_memory is not None and used > limits.trial_memory:
            allowed = size_text(limits.trial_memory)
            why = (
                f"limits.trial_memory: the trial uses {size_text(used)} of memory, but only "
                f"{allowed} are allowed"
            )
            yield WorkerLost(None, pid, why)


def _kept_seconds(replica: Replica) -> float:
    """Return the seconds for which a replica had trained up to its newest checkpoint."""
    saved = replica.newest_checkpoint.iteration if replica.newest_checkpoint else 0
    return stats.total(p.seconds for p in replica.curve if p.iteration <= saved)
