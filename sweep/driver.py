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
from sweep.errors import BadSpace
from sweep.events import (
    Closed,
    Created,
    EpochEnded,
    Event,
    Goal,
    Moved,
    Opened,
    Recorded,
    Status,
)
from sweep.folder import Folder
from sweep.history import History, Trial
from sweep.ledger import Ledger
from sweep.pools import Pool
from sweep.schedulers import Plan, Scheduler
from sweep.searchers import Request, Searcher
from sweep.slice import SliceOutcome, SliceSpec
from sweep.space import Settings
from sweep.spec import SweepSpec
from sweep.warm import StaleProcess
from trainables import failpoints, rng

#: Seconds between two looks at the clock and at what a person asked.
TICK_S = 0.2
#: Proposals in a row at which an expression may have no value.
ATTEMPTS = 100
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
        for future in sorted(done, key=lambda future: self._running[future].trial):
            closed.append(self._judge(self._running.pop(future), future))
        if closed:
            self._record(closed)
            for event in closed:
                self._let_go(event)
        self._watch(())

    def _judge(self, opened: Opened, future: Future[SliceOutcome]) -> Closed:
        trial = self.history.trials[opened.trial]
        error = future.exception()
        if isinstance(error, StaleProcess):
            return verdicts.interrupted(trial, "its worker had to be replaced")
        if error is not None:
            return verdicts.lost(trial, opened, error, self.parts.spec.limits.max_failures)
        outcome = future.result()
        dropped = self._no_longer_needed(trial, outcome)
        return verdicts.judge(trial, outcome, dropped, self.parts.spec.limits.max_failures)

    def _no_longer_needed(self, trial: Trial, outcome: SliceOutcome) -> tuple[str, ...]:
        """Digests of checkpoints that the policy spares, or from which the trial fell back."""
        known = list(trial.checkpoints.values())
        left = [saved for saved in known if saved.iteration > outcome.source]
        kept = [saved for saved in known if saved not in left]
        sign = self.history.objective.sign
        spare = checkpoints.expendable([*kept, *outcome.saved], self.parts.spec.checkpoint, sign)
        return tuple(saved.digest for saved in (*left, *spare))

    def _let_go(self, event: Closed) -> None:
        folder = self.parts.folder.trial(event.trial)
        named = {saved.file for saved in self.history.trials[event.trial].checkpoints.values()}
        checkpoints.sweep_up(folder, named)

    # ---- decisions --------------------------------------------------------------------------

    @property
    def _free(self) -> int:
        return self.parts.pool.slots - len(self._running) - len(self._queue)

    def _resume_interrupted(self) -> None:
        """Continue trials on their way to a goal that was decided earlier: no new decision."""
        batch = self.parts.spec.deterministic
        interrupted = [trial for trial in self.history.of(Status.PAUSED) if trial.unfinished]
        free = len(interrupted) if batch else self._free
        going_on = interrupted[: max(0, free)]
        self._open([(t, t.goal, f"goes on: {t.reason}") for t in going_on])

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
        trials = self.history.trials
        created = self._create(len(plan.fresh))
        moves = [Moved(stop.trial, stop.status, stop.why) for stop in plan.stop]
        opened = [self._opened(trials[r.trial], r.goal, r.why) for r in plan.resume]
        opened += [
            Opened(event.trial, 0, 0, fresh.goal, fresh.why)
            for event, fresh in zip(created, plan.fresh, strict=True)
        ]
        self._record([*moves, *created, *opened])
        self._queue.extend(opened)
        failpoints.reach("decided")

    def _create(self, count: int) -> list[Created]:
        """New trials with proposed settings, each seeing those before it."""
        spec = self.parts.spec
        known = list(self.history.trials)
        created = []
        for number in range(len(known), len(known) + count):
            proposed = self._suggest(known, number)
            config = self.parts.complete(spec.space.nest(proposed.settings, spec.config))
            created.append(Created(number, proposed.searched, config, self.history.k))
            known.append(Trial(number, dict(proposed.searched), config, self.history.objective))
        return created

    def _suggest(self, known: Sequence[Trial], number: int) -> Settings:
        """The searcher's proposal; another one where an expression has no value at it."""
        spec, levels = self.parts.spec, self.parts.scheduler.levels
        for attempt in range(ATTEMPTS):
            path = ("search", number, attempt) if attempt else ("search", number)
            seed = rng.integer(spec.seed, *path)
            try:
                return self.parts.searcher.suggest(
                    Request(spec.space, self.history.objective, known, levels, seed)
                )
            except BadSpace as error:
                refusal = error
        raise refusal

    def _opened(self, trial: Trial, goal: Goal, why: str) -> Opened:
        return Opened(trial.number, 0, trial.slices, goal, why)

    def _open(self, wanted: Sequence[tuple[Trial, Goal, str]]) -> None:
        opened = [self._opened(trial, goal, why) for trial, goal, why in wanted]
        if opened:
            self._record(opened)
            self._queue.extend(opened)

    def _submit(self) -> None:
        while self._queue and len(self._running) < self.parts.pool.slots:
            opened = self._queue.popleft()
            self._running[self.parts.pool.submit(self._slice(opened))] = opened
            failpoints.reach("submitted")

    def _slice(self, opened: Opened) -> SliceSpec:
        spec, trial = self.parts.spec, self.history.trials[opened.trial]
        kept = sorted(trial.checkpoints.values(), key=lambda saved: -saved.iteration)
        return SliceSpec(
            sweep_id=self.parts.ledger.sweep_id,
            epoch=self.history.epoch,
            trial=trial.number,
            replica=opened.replica,
            number=opened.slice,
            trainable=spec.trainable,
            paths=self.parts.paths,
            config=trial.config,
            seed=rng.integer(spec.seed, "trial", trial.number, opened.replica),
            sources=tuple(kept),
            goal=opened.goal,
            time_attr=self.history.objective.time_attr,
            stop=spec.stop,
            metric=spec.metric,
            sign=self.history.objective.sign,
            policy=spec.checkpoint,
            slice_s=spec.limits.slice_s,
            folder=str(self.parts.folder.make_trial(trial.number)),
            stop_file=str(self.parts.folder.stop_file(self.history.epoch)),
        )

    # ---- the ledger -------------------------------------------------------------------------

    def _record(self, events: Sequence[Event]) -> None:
        recorded = self.parts.ledger.append(self.history.epoch, events)
        self.history.extend(recorded)
        failpoints.reach("recorded")
        self._watch(recorded)

    def _last_moves(self, how: str) -> list[Event]:
        """Trials that wait are pruned when the sweep is done; those that run are interrupted."""
        if how == "finished":
            paused = self.history.of(Status.PAUSED)
            return [Moved(t.number, Status.PRUNED, _pruned_because(t)) for t in paused]
        running = self.history.of(Status.RUNNING)
        return [verdicts.interrupted(trial, "the driver was stopped") for trial in running]


def _pruned_because(trial: Trial) -> str:
    where = "" if trial.goal.at is None else f" at rung {trial.goal.at:g}"
    return f"the sweep ended while it waited{where}"
