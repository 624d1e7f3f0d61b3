"""The driver: history → plan → slices → history.

    resume replicas that were interrupted before their goals
    plan    = scheduler.plan(history, free slots)
    decide    one transaction: new trials with their settings, slices opened, reasons
    submit    only after that
    record    one transaction: results, checkpoints, status

The driver is the ledger's only writer, knows no plugin by name and has no state that is not in the
ledger: if it is killed at any instant, the next driver continues from the history alone.
"""

import contextlib
import functools
import math
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from queue import Empty, SimpleQueue

from sweep import schedulers
from sweep.core.errors import StorageError, SweepError
from sweep.driver import capacity, control, decisions, limits
from sweep.driver.context import DriverContext
from sweep.driver.control import RequestHandler, Response
from sweep.driver.limits import BudgetTracker, Guard
from sweep.driver.proposals import Proposer
from sweep.driver.tracking import sync
from sweep.history import order
from sweep.history.events import FINISHED, Closed, Event, Moved, Opened, Recorded, Status, TermEnded
from sweep.history.failing import failure_reason
from sweep.history.replica import Replica
from sweep.ledger import ledger
from sweep.ledger.folder import note_remark
from sweep.ledger.ledger import InTransaction
from sweep.ledger.requests import Requests, answer_writer
from sweep.schedulers import Plan
from sweep.slices import reports
from sweep.slices.messages import SliceOutcome
from sweep.slices.reports import Reports
from trainables.core import failpoints

#: Seconds between two checks of the clock and of users' requests.
TICK_S = 0.2
#: Seconds that slices have to save and end after a stop was requested.
GRACE_S = 30.0


class Driver:
    """Runs a sweep to its end, or until a stop is requested.

    `watch` is called with each group of newly recorded events, and after each turn with none.
    """

    def __init__(self, context: DriverContext, watch: Callable[[Sequence[Recorded]], None]) -> None:
        self.context = context
        self.history = context.history
        self._watch = watch
        self._proposer = Proposer(
            context.spec,
            context.searcher,
            context.scheduler.levels,
            context.complete_settings,
            context.fixed_keys,
        )
        self._running: dict[Future[SliceOutcome], Opened] = {}
        self._ended: SimpleQueue[Future[SliceOutcome]] = SimpleQueue()
        """Futures of slices that have ended and whose outcome is not recorded yet."""
        self._queue: deque[Opened] = deque()
        self._requests = Requests(context.ledger.path)
        self._failing_at = (0, "")
        """Number of the newest event, and the result of `failure_reason` for the history up to
        it."""
        self._budget_tracker = BudgetTracker(context.spec, ledger.now())
        self._exhausted_budget = ""
        """Reason for which the search ends by its budget or `limits.fail_fast`; empty while it may
        continue."""
        self._metric_error: SweepError | None = None
        """Error that no trial reports the metric, or None; nothing new is started if it is set."""
        self._guard = Guard(context)
        self._reports = Reports(context.folder)
        self._remark = ""
        """Newest remark of the pool about its speed, which was written to the sweep's folder."""
        self._stop_asked_at: float | None = None
        """Time of the first request to stop, on the monotonic clock, in seconds; None before."""
        self._ends_at_once = False
        """True if the driver must not wait for running slices any more."""
        self._refusal: SweepError | None = None
        """Error that the driver raises at its end, since the sweep cannot continue now; None if it
        can."""

    def ask_to_stop(self) -> None:
        """Make running slices save and end, and then the driver.

        Creates a stop file in the sweep's folder and returns at once; slices have `GRACE_S` seconds
        from the first call on. May be called again, and in a signal handler.
        """
        if self._stop_asked_at is None:
            self._stop_asked_at = time.monotonic()
        with contextlib.suppress(OSError):  # if the disk is full, they end at their own ends
            self.context.folder.stop_file(self.history.term).touch()

    def end_at_once(self) -> None:
        """Ask to stop like `ask_to_stop`, and make the next turn the last, whatever still runs.

        In a pool that runs slices in this process it raises KeyboardInterrupt, which ends the
        slice. May be called in a signal handler.
        """
        self._ends_at_once = True
        self.ask_to_stop()
        if self.context.pool.blocks:
            raise KeyboardInterrupt

    @property
    def _is_stopping(self) -> bool:
        """True once a stop was requested."""
        return self._stop_asked_at is not None

    def run(self) -> str:
        """Run the driver and return how it ended: ``finished`` or ``stopped``; blocks until then.

        Raises:
            StorageError: the disk is full, or the pool can run no slices; everything that could be
                saved is saved.
            UnknownMetric: no trial has the metric; everything is saved.
            SweepLocked: another process has taken the sweep; nothing was written since.
            UsageError: a plan of the scheduler is not valid; nothing is saved or recorded for it.
        """
        for _ in self.turns():
            pass
        return "stopped" if self._is_stopping else "finished"

    def turns(self) -> Generator[None, None, None]:
        """Run the driver like `run`, but yield after each turn, so the caller can act in between.

        The end of the term is recorded only after the last turn; if the sweep has finished, the
        file that makes its models and report due for MLflow is written before. Raises as `run`.
        """
        self._end_abandoned()
        with contextlib.closing(self._requests):
            while not self._advance():
                while self._queue and len(self._running) < self.context.pool.slots:
                    opened = self._queue.popleft()
                    future = self.context.pool.submit(self.context.slice_spec(opened))
                    self._running[future] = opened
                    future.add_done_callback(self._ended.put)
                    failpoints.reach("submitted")
                self._collect()
                yield
        if self._refusal is None and not self._is_stopping:
            self._refusal = self._missing_metric(at_end=not self._exhausted_budget)
        if self._refusal is not None:
            with contextlib.suppress(StorageError):
                self._record(self._end_events("failed", str(self._refusal)))
            raise self._refusal
        end, why = ("stopped", "") if self._is_stopping else ("finished", self._exhausted_budget)
        if end == "finished":
            with contextlib.suppress(OSError):  # only MLflow's attachments would be missing
                sync.write_attachments_entry(
                    self.context.ledger, self.context.folder, self.context.spec, self.history
                )
        self._record(self._end_events(end, why))

    # ---- one turn ---------------------------------------------------------------------------

    def _advance(self) -> bool:
        """Answer users' requests, decide, and queue new slices.

        Returns whether the driver is done: no slice runs, and none was queued or the search is
        over. After a request to stop, queued slices are dropped, and it is done when no slice runs,
        after `GRACE_S` seconds, or at once after `end_at_once`. While the sweep is paused nothing
        new is queued, and the driver is not done.
        """
        if not self._is_stopping:
            self._handle_requests()
        if self._stop_asked_at is not None:
            self._queue.clear()
            late = time.monotonic() > self._stop_asked_at + GRACE_S
            return not self._running or self._ends_at_once or late
        if self.history.suspended:
            return False
        if self._is_search_over():
            return not self._running
        self._decide()
        return not (self._running or self._queue)

    def _decide(self) -> None:
        """Resume interrupted replicas, then follow the scheduler's plan; records both.

        With `deterministic`, replicas without the metric wait until the rest of the batch is done,
        since only then it is checked whether the sweep continues.
        """
        on_their_way = self._interrupted_replicas()
        measured = [replica for replica in on_their_way if not replica.is_unmeasured]
        waits = self.context.spec.deterministic and (self._running or self._queue or measured)
        self._resume_interrupted(measured if waits else on_their_way)
        self._apply_plan(self._plan())

    def _collect(self) -> None:
        """Wait up to `TICK_S` s for slices that end, and record their outcomes in order of trials.

        Also records new results of running slices, ends slices that exceed a limit, and deletes
        files that are no longer needed. The driver gives up if a disk refused a checkpoint or the
        pool has failed. Raises SweepLocked if another process has taken the sweep.
        """
        self.context.check_held()
        by_trial = sorted(
            self._newly_ended(), key=lambda f: (self._running[f].trial, self._running[f].replica)
        )
        closed = [
            decisions.outcome_event(self.context, self._running.pop(future), future)
            for future in by_trial
        ]
        if closed:
            self._record(closed)
            for event in closed:
                decisions.delete_unnamed_files(self.context, event)
            if refusal := decisions.disk_refused(closed, self.context.folder.path):
                self._give_up(refusal)
            self._free_disk()
            self._end_abandoned()
        if refusal := self.context.pool.failed():
            self._give_up(refusal)
        self._record(self._reports.new_results(self._running.values()))
        self._note_remark()
        self._guard.check_running(self._running)
        self._watch(())

    def _note_remark(self) -> None:
        """Write the pool's remark about its speed for other processes, if it has changed."""
        if (remark := self.context.pool.describe_speed()) != self._remark:
            self._remark = remark
            note_remark(self.context.folder, self.history.term, remark)

    def _newly_ended(self) -> list[Future[SliceOutcome]]:
        """Return the futures of slices that ended since the last call.

        Waits up to `TICK_S` s for one. Futures add themselves to a queue, so the cost of a turn
        does not depend on the number of slots.
        """
        try:
            ended = [self._ended.get(timeout=TICK_S)]
        except Empty:
            return []
        with contextlib.suppress(Empty):
            while True:
                ended.append(self._ended.get_nowait())
        return ended

    def _end_abandoned(self) -> None:
        """Record the end of waiting replicas whose trial has ended or was stopped by a user.

        With `deterministic`, the former waits until the whole batch is done.
        """
        patient = self.context.spec.deterministic is not None
        abandoned_moves = decisions.abandoned_moves(self.history, patient)
        self._record([*abandoned_moves, *control.user_stops(self.history)])

    def _free_disk(self) -> None:
        """Delete checkpoints and logs, the cheapest to recompute first, until they fit `max_disk`.

        The deletions are recorded first. If too many are needed to continue, the driver gives up.
        """
        most = self.history.max_disk or self.context.spec.checkpoint.max_disk
        dropped, refusal = limits.choose_deletions(self.history, most)
        self._record(dropped)
        for event in dropped:
            decisions.delete_unnamed_files(self.context, event)
        if refusal:
            self._give_up(refusal)

    def _give_up(self, reason: str) -> None:
        """Ask to stop; the driver raises a StorageError with the first such reason at its end."""
        self._refusal = self._refusal or StorageError(reason)
        self.ask_to_stop()

    # ---- users' requests ----------------------------------------------------------------

    def _handle_requests(self) -> None:
        """Decide on new requests of other processes; record each decision and carry it out.

        Looks for them at most every `TICK_S` seconds.
        """
        for request in self._requests.poll(TICK_S):
            context = self.context
            allowed_slots = functools.partial(capacity.allowed_slots, context.spec, context.pool)
            handler = RequestHandler(
                self.history,
                self._proposer,
                context.saves,
                space=context.spec.space,
                options=self._proposer.searcher.options,
                budget=limits.present_budget(context.spec, self.history),
                allowed_slots=allowed_slots,
            )
            decision = handler.decide(request)
            failpoints.reach("asked")
            self._record(decision.events, answer_writer({request.number: decision.answer}))
            failpoints.reach("answered")
            self._apply_response(decision)

    def _apply_response(self, decision: Response) -> None:
        """Do what a response requires besides its events.

        Creates and removes stop files, changes the pool's slots, or asks the driver to stop.
        """
        folder, term = self.context.folder, self.history.term
        for number in decision.stopping_trials:
            folder.stop_file(term, number).touch()
        for number in decision.released:
            folder.stop_file(term, number).unlink(missing_ok=True)
        if decision.jobs is not None:
            self.context.pool.resize(decision.jobs)
        if decision.ends_driver:
            self.ask_to_stop()
        self._update_stop_file()

    def _update_stop_file(self) -> None:
        """Create or remove the file that makes all running slices save and end.

        It exists while the driver stops, the sweep is paused, or the search is over. Also calls
        `_withdraw_queued`.
        """
        file = self.context.folder.stop_file(self.history.term)
        if (
            self._is_stopping
            or self.history.suspended
            or self._exhausted_budget
            or self._metric_error
        ):
            file.touch()
        else:
            file.unlink(missing_ok=True)
        self._withdraw_queued()

    def _is_search_over(self) -> bool:
        """Return whether no new slice may start: by budget or `fail_fast`, or without the metric.

        With `deterministic` this is found out only between batches. Stores the reason, and updates
        stop file and queued slices when the answer changes.
        """
        before = bool(self._exhausted_budget or self._metric_error)
        measured = (
            replica for replica in self._interrupted_replicas() if not replica.is_unmeasured
        )
        busy = self._running or self._queue or any(measured)
        if not (self.context.spec.deterministic and busy):
            self._exhausted_budget = self._find_exhausted()
            self._metric_error = None if self._exhausted_budget else self._missing_metric()
        if before != bool(self._exhausted_budget or self._metric_error):
            self._update_stop_file()
        return bool(self._exhausted_budget or self._metric_error)

    def _find_exhausted(self) -> str:
        """Return the reason for which the search ends by its budget or `limits.fail_fast`.

        It is empty while the search may continue.
        """
        return self._budget_tracker.exhausted_part(self.history) or self._fail_fast_reason()

    def _fail_fast_reason(self) -> str:
        """Return the reason for which the search ends by `limits.fail_fast`.

        It is empty if it continues.
        """
        if self._failing_at[0] != self.history.k:
            most = self.context.spec.limits.fail_fast
            self._failing_at = (self.history.k, failure_reason(self.history, most))
        return self._failing_at[1]

    def _missing_metric(self, at_end: bool = False) -> SweepError | None:
        """Return the error if no trial reports the metric although one should; otherwise None.

        `at_end` is True if nothing more will be trained.
        """
        rungs = decisions.compared_levels(self.context.scheduler)
        name = self.context.folder.in_commands
        return decisions.missing_metric_error(self.history, name, rungs, at_end)

    def _interrupted_replicas(self) -> list[Replica]:
        """Return the replicas that are PAUSED on their way and must continue.

        They are before their goals or have lost results, for example after a crash that is retried,
        the early end of a slice or the end of a driver. Replicas that a user holds are left out.
        Trials are in order of their numbers.
        """
        trials = self.history.ordered(order.interrupted)
        return [replica for trial in trials for replica in trial.replicas if replica.is_interrupted]

    def _withdraw_queued(self) -> None:
        """Interrupt queued slices of trials that users hold, before the pool gets them.

        If the sweep is paused or the search over, these are all queued slices. They are taken from
        the queue, and recorded as interrupted; trials that a user stopped are recorded as STOPPED.
        """
        why = self._exhausted_budget or ("no trial has the metric" if self._metric_error else "")
        trials, all_of_them = self.history.trials, bool(self.history.suspended or why)
        why = why or "a person paused it"
        kept = [o for o in self._queue if not (all_of_them or trials[o.trial].hold)]
        back = [opened for opened in self._queue if opened not in kept]
        self._queue = deque(kept)
        replicas = [self.history.replica(opened.trial, opened.replica) for opened in back]
        self._record([decisions.withdrawal_event(replica, why) for replica in replicas])
        self._record(control.user_stops(self.history))

    # ---- decisions --------------------------------------------------------------------------

    @property
    def _free_slots(self) -> int:
        """Number of slots without a running or queued slice; below 0 if slots were taken away."""
        return self.context.pool.slots - len(self._running) - len(self._queue)

    def _resume_interrupted(self, interrupted: Sequence[Replica]) -> None:
        """Record and queue slices for interrupted replicas, longest waiting first, to their goals.

        They are as many as slots are free; with `deterministic` all.
        """
        interrupted = sorted(interrupted, key=lambda replica: replica.queued_at)
        free = len(interrupted) if self.context.spec.deterministic else self._free_slots
        opened = [
            Opened(r.trial, r.index, r.slices, r.goal, f"continues: {r.reason}")
            for r in interrupted[: max(0, free)]
        ]
        self._start(opened)

    def _start(self, decided: Sequence[Event]) -> None:
        """Record events, and queue the slices that are opened by them for the pool."""
        self._record(decided)
        self._queue.extend(event for event in decided if isinstance(event, Opened))

    def _plan(self) -> Plan:
        """Return the scheduler's plan for the free slots; an empty one if none is free.

        If new trials start with several seeds, it is for free slots / seeds, rounded up. With
        `deterministic`, it is empty until the whole batch is done, and then fills the batch. Raises
        UsageError if a scheduler asks for more than it may.
        """
        if batch := self.context.spec.deterministic:
            free = 0 if self._running or self._queue else batch.batch
        else:
            free = math.ceil(self._free_slots / self.context.spec.first_seeds)
        if free <= 0:
            return Plan()
        history, name = self.history.for_scheduler(), self.context.spec.scheduler.name
        with schedulers.KIND.calling(name, "plan"):
            plan = self.context.scheduler.plan(history, free)
        decisions.check_plan(plan, free, history.uncreated_trials, name)
        decisions.check_decisions(plan, history, name)
        return plan

    def _apply_plan(self, plan: Plan) -> None:
        """Record a plan's decisions and queue its slices.

        If the space has run out of points, the scheduler plans again.
        """
        if not plan:
            return
        decided, exhausted = decisions.plan_events(plan, self.history, self._proposer)
        self._start(decided)
        failpoints.reach("decided")
        if exhausted:
            self._apply_plan(self._plan())

    # ---- the ledger -------------------------------------------------------------------------

    def _record(self, events: Sequence[Event], in_transaction: InTransaction | None = None) -> None:
        """Append events to ledger and history in one transaction, and pass them to `watch`.

        The pool frees what it keeps for replicas that moved to an end. `in_transaction` makes
        further changes in that transaction; None for none. Does nothing without both. Raises as
        `Ledger.append`.
        """
        if not events and in_transaction is None:
            return
        summed = self.history.with_sums(events)
        recorded = self.context.ledger.append(self.history.term, summed, in_transaction)
        self.history.extend(recorded)
        failpoints.reach("recorded")
        for event in events:
            if isinstance(event, Moved) and event.status in FINISHED:  # its trial does not continue
                self.context.pool.forget((self.context.ledger.sweep_id, event.trial, event.replica))
        self._watch(recorded)

    def _end_events(self, end: str, reason: str) -> list[Event]:
        """Return the events that end the driver's term, which are recorded last.

        `end` is ``finished``, ``stopped`` or ``failed``. Replicas that wait, also those of clones
        that have not begun, are pruned if the sweep has finished and no user holds them; otherwise
        slices that still run are interrupted. `reason` is a text for people.
        """
        if end == "finished":
            left = self.history.replicas(Status.WAITING, Status.PAUSED)
            waited = (_prune_waiting(r, self._exhausted_budget) for r in left if not r.hold)
            return [*waited, TermEnded(end, reason)]
        running = self.history.replicas(Status.RUNNING)
        return [*self._interrupted_events(running), TermEnded(end, reason)]

    def _interrupted_events(self, running: Sequence[Replica]) -> list[Closed]:
        """Return the events that interrupt slices which did not end in time.

        They have the results and checkpoints of the slices' journals.
        """
        context, why = self.context, "the driver was stopped"
        left = (
            reports.lost_outcome(context.checkpoints, context.ledger, replica)
            for replica in running
        )
        return [decisions.interruption_event(self.history, context.spec, one, why) for one in left]


def _prune_waiting(replica: Replica, spent: str) -> Moved:
    """Return the move to PRUNED of a replica that still waited at the sweep's end.

    `spent` is the exhausted part of the budget, empty if there is none.
    """
    where = "" if replica.goal.until is None else f" at rung {replica.goal.until:g}"
    why = spent or f"the sweep ended while it waited{where}"
    return Moved(replica.trial, Status.PRUNED, why, replica.index, was_waiting=True)
