"""The driver: history → plan → slices → history.

    resume what was interrupted on its way to a goal
    plan    = scheduler.plan(history, free slots)
    decide    one transaction: new trials with their settings, slices opened, reasons
    submit    only after that
    record    one transaction: results, checkpoints, status

It is the ledger's only writer, knows no plugin by name and keeps nothing that the ledger does not
hold: killed at any instant, the next driver goes on from the history alone.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from typing import Any

from sweep import checkpoints, verdicts
from sweep.events import (
    FINISHED,
    Closed,
    EpochEnded,
    Event,
    Moved,
    Opened,
    Recorded,
    Status,
)
from sweep.folder import Folder
from sweep.history import History, Replica, Trial
from sweep.ledger import Ledger
from sweep.pools import Pool
from sweep.proposals import Proposer
from sweep.schedulers import Breed, Fresh, Plan, Resume, Scheduler, Stop
from sweep.searchers import Searcher
from sweep.slice import SliceOutcome, SliceSpec
from sweep.spec import SweepSpec
from sweep.warm import StaleProcess
from trainables import failpoints, rng, signing

#: Seconds between two looks at the clock and at what a person asked.
TICK_S = 0.2
#: Seconds that slices have to save and end when they are asked to.
GRACE_S = 30.0


@dataclass(frozen=True)
class Parts:
    """What a driver is made of."""

    spec: SweepSpec
    folder: Folder
    ledger: Ledger
    history: History
    scheduler: Scheduler
    searcher: Searcher
    pool: Pool
    complete: Callable[[Mapping[str, Any]], dict[str, Any]]
    """Adds the settings that follow from the stopping criteria."""
    paths: tuple[str, ...]
    """Folders in which workers find the trainable's module."""


class Driver:
    """Runs a sweep to its end, or until it is asked to stop.

    Args:
        parts: what it is made of.
        watch: called with what was recorded, and at every tick with nothing.
    """

    def __init__(self, parts: Parts, watch: Callable[[Sequence[Recorded]], None]) -> None:
        self.parts = parts
        self.history = parts.history
        self._watch = watch
        self._proposer = Proposer(
            parts.spec, parts.searcher, parts.scheduler.levels, parts.complete
        )
        self._running: dict[Future[SliceOutcome], Opened] = {}
        self._queue: deque[Opened] = deque()
        self._asked = 0
        self._asked_at = 0.0

    def ask_to_stop(self) -> None:
        """First call: slices save and end. Second: end at once. Safe in a signal handler."""
        self._asked += 1
        self._asked_at = self._asked_at or time.monotonic()
        self.parts.folder.stop_file(self.history.epoch).touch()
        if self._asked > 1 and self.parts.pool.blocks:
            raise KeyboardInterrupt

    def run(self) -> str:
        """Returns how it ended: ``finished`` or ``stopped``."""
        while not self._finished():
            self._collect()
        how = "stopped" if self._asked else "finished"
        self._record([*self._last_moves(how), EpochEnded(how)])
        return how

    # ---- one turn ---------------------------------------------------------------------------

    def _finished(self) -> bool:
        """Whether nothing runs and nothing is left to do; starts what there is to do."""
        if self._asked:
            self._queue.clear()
            late = time.monotonic() > self._asked_at + GRACE_S
            return not self._running or self._asked > 1 or late
        self._resume_interrupted()
        self._follow(self._plan())
        self._submit()
        return not self._running

    def _collect(self) -> None:
        """Wait for slices and record what came of them, in the order of their trials."""
        done, _ = wait(self._running, timeout=TICK_S, return_when=FIRST_COMPLETED)
        closed = []
        for future in sorted(done, key=lambda future: _place(self._running[future])):
            closed.append(self._judge(self._running.pop(future), future))
        if closed:
            self._record(closed)
            for event in closed:
                self._let_go(event)
            self._record(verdicts.given_up(self.history))
            verdicts.check_disk(closed, self.parts.folder.path)
        self._watch(())

    def _judge(self, opened: Opened, future: Future[SliceOutcome]) -> Closed:
        replica = self.history.trials[opened.trial].replicas[opened.replica]
        error = future.exception()
        if isinstance(error, StaleProcess):
            return verdicts.interrupted(replica, "its worker had to be replaced")
        if error is not None:
            return verdicts.lost(replica, opened, error, self.parts.spec.limits.max_failures)
        outcome = future.result()
        dropped = self._no_longer_needed(replica, outcome)
        return verdicts.judge(replica, outcome, dropped, self.parts.spec.limits.max_failures)

    def _no_longer_needed(self, replica: Replica, outcome: SliceOutcome) -> tuple[str, ...]:
        """Digests of checkpoints that the policy spares, or from which the replica fell back."""
        known = list(replica.checkpoints.values())
        left = [saved for saved in known if saved.iteration > outcome.source]
        kept = [saved for saved in known if saved not in left]
        sign = self.history.objective.sign
        spare = checkpoints.expendable([*kept, *outcome.saved], self.parts.spec.checkpoint, sign)
        needed = checkpoints.needed_by_children(self.history, replica)
        return tuple(saved.digest for saved in (*left, *spare) if saved.digest not in needed)

    def _let_go(self, event: Closed) -> None:
        folder = self.parts.folder.trial(event.trial, event.replica)
        replica = self.history.trials[event.trial].replicas[event.replica]
        checkpoints.sweep_up(folder, {saved.file for saved in replica.checkpoints.values()})

    # ---- decisions --------------------------------------------------------------------------

    @property
    def _free(self) -> int:
        return self.parts.pool.slots - len(self._running) - len(self._queue)

    def _resume_interrupted(self) -> None:
        """Continue trials on their way to a goal that was decided earlier: no new decision."""
        batch = self.parts.spec.deterministic
        interrupted = [r for r in self.history.replicas(Status.PAUSED) if r.unfinished]
        free = len(interrupted) if batch else self._free
        opened = [
            Opened(r.trial, r.index, r.slices, r.goal, f"goes on: {r.reason}")
            for r in interrupted[: max(0, free)]
        ]
        if opened:
            self._record(opened)
            self._queue.extend(opened)

    def _plan(self) -> Plan:
        """What the scheduler wants; with `deterministic` only when a whole batch is done."""
        batch = self.parts.spec.deterministic
        if batch:
            busy = self._running or self._queue
            return Plan() if busy else self.parts.scheduler.plan(self.history, batch.batch)
        free = self._free
        return self.parts.scheduler.plan(self.history, free) if free > 0 else Plan()

    def _follow(self, plan: Plan) -> None:
        if not plan:
            return
        trials, proposer = self.history.trials, self._proposer
        searched, exhausted = proposer.search(self.history, plan.fresh)
        bred = proposer.breed(self.history, plan.breed, len(trials) + len(searched))
        moves = [moved for stop in plan.stop for moved in _stopped(trials[stop.trial], stop)]
        opened = [
            _opened(replica, resume)
            for resume in plan.resume
            for replica in trials[resume.trial].replicas
            if replica.status not in FINISHED
        ]
        new: list[Fresh | Breed] = [*plan.fresh[: len(searched)], *plan.breed]
        opened += [
            Opened(event.trial, index, 0, decision.goal, decision.why, decision.evidence)
            for event, decision in zip([*searched, *bred], new, strict=True)
            for index in range(event.replicas)
        ]
        self._record([*moves, *searched, *bred, *opened, *exhausted])
        self._queue.extend(opened)
        failpoints.reach("decided")
        if exhausted:
            self._follow(self._plan())

    def _submit(self) -> None:
        while self._queue and len(self._running) < self.parts.pool.slots:
            opened = self._queue.popleft()
            self._running[self.parts.pool.submit(self._slice(opened))] = opened
            failpoints.reach("submitted")

    def _slice(self, opened: Opened) -> SliceSpec:
        spec, trial = self.parts.spec, self.history.trials[opened.trial]
        replica = trial.replicas[opened.replica]
        kept = sorted(replica.checkpoints.values(), key=lambda saved: -saved.iteration)
        birth = replica.birth
        return SliceSpec(
            sweep_id=self.parts.ledger.sweep_id,
            epoch=self.history.epoch,
            trial=trial.number,
            replica=replica.index,
            number=opened.slice,
            trainable=spec.trainable,
            paths=self.parts.paths,
            config=trial.config,
            seed=rng.integer(spec.seed, "trial", trial.number, replica.index),
            sources=tuple(kept),
            birth=birth,
            iteration=replica.iteration,
            goal=opened.goal,
            time_attr=self.history.objective.time_attr,
            stop=spec.stop,
            metric=spec.metric,
            sign=self.history.objective.sign,
            policy=spec.checkpoint,
            slice_s=spec.limits.slice_s,
            folder=str(self.parts.folder.make_trial(trial.number, replica.index)),
            birth_folder=str(self.parts.folder.trial(birth.trial, birth.replica)) if birth else "",
            stop_file=str(self.parts.folder.stop_file(self.history.epoch)),
            trust=signing.local_if_possible(),
        )

    # ---- the ledger -------------------------------------------------------------------------

    def _record(self, events: Sequence[Event]) -> None:
        if not events:
            return
        recorded = self.parts.ledger.append(self.history.epoch, events)
        self.history.extend(recorded)
        failpoints.reach("recorded")
        self._watch(recorded)

    def _last_moves(self, how: str) -> list[Event]:
        """Trials that wait are pruned when the sweep is done; those that run are interrupted."""
        if how == "finished":
            paused = self.history.replicas(Status.PAUSED)
            return [_waited(replica) for replica in paused]
        running = self.history.replicas(Status.RUNNING)
        return [verdicts.interrupted(replica, "the driver was stopped") for replica in running]


def _place(opened: Opened) -> tuple[int, int]:
    return opened.trial, opened.replica


def _opened(replica: Replica, decision: Resume) -> Opened:
    goal, why, evidence = decision.goal, decision.why, decision.evidence
    return Opened(replica.trial, replica.index, replica.slices, goal, why, evidence)


def _stopped(trial: Trial, stop: Stop) -> list[Moved]:
    return [
        Moved(trial.number, stop.status, stop.why, replica.index, evidence=stop.evidence)
        for replica in trial.replicas
        if replica.status not in FINISHED
    ]


def _waited(replica: Replica) -> Moved:
    where = "" if replica.goal.at is None else f" at rung {replica.goal.at:g}"
    why = f"the sweep ended while it waited{where}"
    return Moved(replica.trial, Status.PRUNED, why, replica.index, waited=True)
