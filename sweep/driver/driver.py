"""The driver: history → plan → slices → history.

    resume what was interrupted on its way to a goal
    plan    = scheduler.plan(history, free slots)
    decide    one transaction: new trials with their settings, slices opened, reasons
    submit    only after that
    record    one transaction: results, checkpoints, status

It is the ledger's only writer, knows no plugin by name and keeps nothing that the ledger does not
hold: killed at any instant, the next driver goes on from the history alone.
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
from sweep.driver import capacity, control, decisions, limits, sync
from sweep.driver.context import DriverContext
from sweep.driver.control import RequestHandler, Response
from sweep.driver.limits import BudgetTracker, Guard
from sweep.driver.proposals import Proposer
from sweep.errors import StorageError, SweepError
from sweep.history import order
from sweep.history.events import FINISHED, Closed, Event, Moved, Opened, Recorded, Status, TermEnded
from sweep.history.failing import failing
from sweep.history.replica import Replica
from sweep.ledger import ledger
from sweep.ledger.ledger import InTransaction
from sweep.ledger.requests import Requests, answering
from sweep.schedulers import Plan
from sweep.slices import reports
from sweep.slices.messages import SliceOutcome
from sweep.slices.reports import Reports
from trainables.core import failpoints

#: Seconds between two looks at the clock and at what a person asked.
TICK_S = 0.2
#: Seconds that slices have to save and end when they are asked to.
GRACE_S = 30.0


class Driver:
    """Runs a sweep to its end, or until it is asked to stop.

    `watch` is called with what was recorded, and at every tick with nothing.
    """

    def __init__(self, context: DriverContext, watch: Callable[[Sequence[Recorded]], None]) -> None:
        self.context = context
        self.history = context.history
        self._watch = watch
        self._proposer = Proposer(
            context.spec,
            context.searcher,
            context.scheduler.levels,
            context.complete,
            context.fixed,
        )
        self._running: dict[Future[SliceOutcome], Opened] = {}
        self._ended: SimpleQueue[Future[SliceOutcome]] = SimpleQueue()
        """Slices that have ended, of which nothing is recorded yet."""
        self._queue: deque[Opened] = deque()
        self._requests = Requests(context.ledger.path)
        self._failing_at = (0, "")
        """The number of an event, and whether trials all failed with one error up to it."""
        self._budget_tracker = BudgetTracker(context.spec, ledger.now())
        self._why = ""
        """The used-up part of the budget, in words; nothing new begins then."""
        self._unmeasured: SweepError | None = None
        """That no trial has the metric; nothing new begins then."""
        self._guard = Guard(context)
        self._reports = Reports(context.folder)
        self._asked_at: float | None = None
        """When it was first asked to stop, on the monotonic clock."""
        self._at_once = False
        """True if it shall wait for no slice."""
        self._refusal: SweepError | None = None
        """Why the sweep cannot go on for now."""

    def ask_to_stop(self) -> None:
        """Slices save and end; asked again it does no more. Safe in a signal handler."""
        if self._asked_at is None:
            self._asked_at = time.monotonic()
        with contextlib.suppress(OSError):  # on a disk that is full they end when they can
            self.context.folder.stop_file(self.history.term).touch()

    def end_at_once(self) -> None:
        """Wait for no slice any more. Safe in a signal handler."""
        self._at_once = True
        self.ask_to_stop()
        if self.context.pool.blocks:
            raise KeyboardInterrupt

    @property
    def _is_asked(self) -> bool:
        return self._asked_at is not None

    def run(self) -> str:
        """Returns how it ended: ``finished`` or ``stopped``.

        Raises:
            StorageError: the disk is full; everything is saved that could be.
            UnknownMetric: no trial has what they are compared by; everything is saved.
            SweepLocked: somebody else has taken the sweep; nothing was written since.
        """
        for _ in self.turns():
            pass
        return "stopped" if self._is_asked else "finished"

    def turns(self) -> Generator[None, None, None]:
        """`run` in steps, for who wants something to happen between two of them."""
        self._settle()
        with contextlib.closing(self._requests):
            while not self._advance():
                while self._queue and len(self._running) < self.context.pool.slots:
                    opened = self._queue.popleft()
                    future = self.context.pool.submit(self.context.slice(opened))
                    self._running[future] = opened
                    future.add_done_callback(self._ended.put)
                    failpoints.reach("submitted")
                self._collect()
                yield
        if self._refusal is None and not self._is_asked:
            self._refusal = self._missing_metric(at_end=not self._why)
        if self._refusal is not None:
            with contextlib.suppress(StorageError):
                self._record(self._ending("failed", str(self._refusal)))
            raise self._refusal
        how, why = ("stopped", "") if self._is_asked else ("finished", self._why)
        if how == "finished":
            with contextlib.suppress(OSError):  # a copy lacks its pictures, and nothing else
                sync.enter(
                    self.context.ledger, self.context.folder, self.context.spec, self.history
                )
        self._record(self._ending(how, why))

    # ---- one turn ---------------------------------------------------------------------------

    def _advance(self) -> bool:
        """Answer requests and queue what there is to do; returns whether the sweep is finished."""
        if not self._is_asked:
            self._handle_requests()
        if self._asked_at is not None:
            self._queue.clear()
            late = time.monotonic() > self._asked_at + GRACE_S
            return not self._running or self._at_once or late
        if self.history.suspended:
            return False
        if self._nothing_new():
            return not self._running
        self._decide()
        return not (self._running or self._queue)

    def _decide(self) -> None:
        """Resume what was interrupted, then ask the scheduler.

        With `deterministic`, those without the metric wait until the rest of the batch is done, as
        it is only looked at then whether the sweep goes on.
        """
        on_their_way = self._on_their_way()
        measured = [replica for replica in on_their_way if not replica.is_unmeasured]
        waits = self.context.spec.deterministic and (self._running or self._queue or measured)
        self._resume_interrupted(measured if waits else on_their_way)
        self._follow(self._plan())

    def _collect(self) -> None:
        """Wait for slices and record what came of them, in the order of their trials."""
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
                decisions.let_go(self.context, event)
            if refusal := decisions.disk_refused(closed, self.context.folder.path):
                self._give_up(refusal)
            self._save_disk()
            self._settle()
        if refusal := self.context.pool.failed():
            self._give_up(refusal)
        self._record(self._reports.news(self._running.values()))
        self._guard.look(self._running)
        self._watch(())

    def _newly_ended(self) -> list[Future[SliceOutcome]]:
        """The slices that have ended since the last turn; a tick is waited for the first one.

        They report themselves, so that a turn costs the same with any number of slots.
        """
        try:
            ended = [self._ended.get(timeout=TICK_S)]
        except Empty:
            return []
        with contextlib.suppress(Empty):
            while True:
                ended.append(self._ended.get_nowait())
        return ended

    def _settle(self) -> None:
        """End what waits of trials that go on no more."""
        patient = self.context.spec.deterministic is not None
        given_up = decisions.given_up(self.history, patient)
        self._record([*given_up, *control.settled(self.history)])

    def _save_disk(self) -> None:
        """Let go of checkpoints that are cheap to make again, if all together are too large."""
        most = self.history.max_disk or self.context.spec.checkpoint.max_disk
        dropped, refusal = limits.to_drop(self.history, most)
        self._record(dropped)
        for event in dropped:
            decisions.let_go(self.context, event)
        if refusal:
            self._give_up(refusal)

    def _give_up(self, why: str) -> None:
        """Let slices save what they can, then end with exit code 4."""
        self._refusal = self._refusal or StorageError(why)
        self.ask_to_stop()

    # ---- what people ask ----------------------------------------------------------------

    def _handle_requests(self) -> None:
        """Follow the requests of other processes, each in one transaction with its answer."""
        for request in self._requests.news(TICK_S):
            context = self.context
            resized = functools.partial(capacity.resized, context.spec, context.pool)
            handler = RequestHandler(self.history, self._proposer, context.saves, resized=resized)
            decision = handler.decide(request)
            failpoints.reach("asked")
            self._record(decision.events, answering({request.number: decision.answer}))
            failpoints.reach("answered")
            self._carry_out(decision)

    def _carry_out(self, decision: Response) -> None:
        folder, term = self.context.folder, self.history.term
        for number in decision.asked:
            folder.stop_file(term, number).touch()
        for number in decision.let_go:
            folder.stop_file(term, number).unlink(missing_ok=True)
        if decision.jobs is not None:
            self.context.pool.resize(decision.jobs)
        if decision.leave:
            self.ask_to_stop()
        self._hold_back()

    def _hold_back(self) -> None:
        """Let slices save and end while nothing may run, and take back what did not begin."""
        file = self.context.folder.stop_file(self.history.term)
        if self._is_asked or self.history.suspended or self._why or self._unmeasured:
            file.touch()
        else:
            file.unlink(missing_ok=True)
        self._withdraw()

    def _nothing_new(self) -> bool:
        """Return whether the budget is used up, or no trial has the metric.

        With `deterministic` that is only looked at after a batch.
        """
        before = bool(self._why or self._unmeasured)
        measured = (replica for replica in self._on_their_way() if not replica.is_unmeasured)
        busy = self._running or self._queue or any(measured)
        if not (self.context.spec.deterministic and busy):
            self._why = self._used_up()
            self._unmeasured = None if self._why else self._missing_metric()
        if before != bool(self._why or self._unmeasured):
            self._hold_back()
        return bool(self._why or self._unmeasured)

    def _used_up(self) -> str:
        return self._budget_tracker.used_up(self.history) or self._failing()

    def _failing(self) -> str:
        if self._failing_at[0] != self.history.k:
            most = self.context.spec.limits.fail_fast
            self._failing_at = (self.history.k, failing(self.history, most))
        return self._failing_at[1]

    def _missing_metric(self, at_end: bool = False) -> SweepError | None:
        scheduler, name = self.context.scheduler, self.context.folder.name
        compares = bool(scheduler.levels) or scheduler.pauses  # a pruner's looks may be too early
        rungs = scheduler.levels if compares else None
        return decisions.without_metric(self.history, name, rungs, at_end)

    def _on_their_way(self) -> list[Replica]:
        """The replicas that were interrupted before their goals."""
        trials = self.history.ordered(order.unfinished)
        return [replica for trial in trials for replica in trial.replicas if replica.unfinished]

    def _withdraw(self) -> None:
        """Take back slices that were opened and not submitted, of trials that shall not run."""
        why = self._why or ("no trial has the metric" if self._unmeasured else "")
        trials, all_of_them = self.history.trials, bool(self.history.suspended or why)
        why = why or "a person paused it"
        kept = [o for o in self._queue if not (all_of_them or trials[o.trial].held)]
        back = [opened for opened in self._queue if opened not in kept]
        self._queue = deque(kept)
        replicas = [self.history.replica(opened.trial, opened.replica) for opened in back]
        self._record([decisions.withdrawn(replica, why) for replica in replicas])
        self._record(control.settled(self.history))

    # ---- decisions --------------------------------------------------------------------------

    @property
    def _free(self) -> int:
        return self.context.pool.slots - len(self._running) - len(self._queue)

    def _resume_interrupted(self, interrupted: Sequence[Replica]) -> None:
        """Continue those on their way to a goal, who waited longest first: no new decision."""
        interrupted = sorted(interrupted, key=lambda replica: replica.since)
        free = len(interrupted) if self.context.spec.deterministic else self._free
        opened = [
            Opened(r.trial, r.index, r.slices, r.goal, f"goes on: {r.reason}")
            for r in interrupted[: max(0, free)]
        ]
        self._start(opened)

    def _start(self, decided: Sequence[Event]) -> None:
        self._record(decided)
        self._queue.extend(event for event in decided if isinstance(event, Opened))

    def _plan(self) -> Plan:
        """Return the scheduler's plan; with `deterministic` only when a whole batch is done."""
        if batch := self.context.spec.deterministic:
            free = 0 if self._running or self._queue else batch.batch
        else:
            free = math.ceil(self._free / self.context.spec.first_seeds)
        if free <= 0:
            return Plan()
        history, name = self.history.for_scheduler(), self.context.spec.scheduler.name
        with schedulers.KIND.calling(name, "plan"):
            plan = self.context.scheduler.plan(history, free)
        decisions.check_plan(plan, free, history.to_create, name)
        return plan

    def _follow(self, plan: Plan) -> None:
        if not plan:
            return
        decided, exhausted = decisions.follow(plan, self.history, self._proposer)
        self._start(decided)
        failpoints.reach("decided")
        if exhausted:
            self._follow(self._plan())

    # ---- the ledger -------------------------------------------------------------------------

    def _record(self, events: Sequence[Event], in_transaction: InTransaction | None = None) -> None:
        if not events and in_transaction is None:
            return
        summed = self.history.with_sums(events)
        recorded = self.context.ledger.append(self.history.term, summed, in_transaction)
        self.history.extend(recorded)
        failpoints.reach("recorded")
        for event in events:
            if isinstance(event, Moved) and event.status in FINISHED:  # nothing of it goes on
                self.context.pool.forget((self.context.ledger.sweep_id, event.trial, event.replica))
        self._watch(recorded)

    def _ending(self, how: str, why: str) -> list[Event]:
        """Trials that wait are pruned when the sweep is done; those that run are interrupted."""
        if how == "finished":
            paused = self.history.replicas(Status.PAUSED)
            waited = (_waited(r, self._why) for r in paused if not r.held)
            return [*waited, TermEnded(how, why)]
        running = self.history.replicas(Status.RUNNING)
        return [*self._stopped(running), TermEnded(how, why)]

    def _stopped(self, running: Sequence[Replica]) -> list[Closed]:
        """The ends of slices that did not end in time, by what is left of them."""
        context, why = self.context, "the driver was stopped"
        left = (reports.left(context.checkpoints, context.ledger, replica) for replica in running)
        return [decisions.interrupted(self.history, context.spec, one, why) for one in left]


def _waited(replica: Replica, spent: str) -> Moved:
    where = "" if replica.goal.at is None else f" at rung {replica.goal.at:g}"
    why = spent or f"the sweep ended while it waited{where}"
    return Moved(replica.trial, Status.PRUNED, why, replica.index, waited=True)
