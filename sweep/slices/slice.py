"""One slice: a stretch of a trial's training, from a checkpoint to a goal.

    (settings, seed, source checkpoints, goal) → (results, checkpoints)

It is the only caller of `Trainable` and runs in any worker process. A slice ends at its goal, when
a stopping criterion is met, when its time is up, or when it is asked to; it saves a checkpoint at
its end and on its way.
"""

import contextlib
import json
import math
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from sweep import plugins
from sweep.history.events import End, Metrics, Row, Saved
from sweep.history.results import flatten, instead_of_number, number, numbers
from sweep.ledger.folder import PROGRESS
from sweep.slices import cache, checkpoints
from sweep.slices.checkpoints import DiskRefuses, Saving
from sweep.slices.journal import Journal
from sweep.slices.messages import SliceOutcome, SliceSpec
from sweep.slices.process_state import ProcessState
from sweep.slices.stopping import FINAL, Bounds, met
from sweep.slices.store import Store
from trainables.checkpoint import disk
from trainables.checkpoint.remote import RemoteError
from trainables.core import failpoints, strict_json
from trainables.core.processes.program import is_ctrl_c
from trainables.errors import TrainableError, WorkerDied, shorten
from trainables.trainable import Trainable, TrialContext

#: Seconds between two progress notes of a slice.
PROGRESS_S = 0.3
#: Names of results that a note holds, at most.
MOST_NAMES = 100
#: Seconds between two looks for a file that asks the slice to end.
LOOK_S = 0.02
#: Is given the slice, and takes what is printed while it runs.
Output = Callable[[SliceSpec], contextlib.AbstractContextManager[object]]
#: Runs a slice in another process; or returns None.
Elsewhere = Callable[[SliceSpec, Output], SliceOutcome | None]
_WRITE_ANEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


def run_slice(
    spec: SliceSpec,
    output: Output = contextlib.nullcontext,
    elsewhere: Elsewhere = lambda _spec, _output: None,
) -> SliceOutcome:
    """Run one slice to its end; exceptions of the trainable are part of the outcome.

    `output` is entered while it runs, and takes what is printed; where the disk refuses that, it
    would take no checkpoint either. `elsewhere` may run it in another process.

    Raises:
        StaleProcess: an earlier trial left something running here; call it in another process.
        WorkerLost: the other process died.
        OSError: this process can open no further file.
    """
    if came := elsewhere(spec, output):
        return came
    with contextlib.ExitStack() as entered:
        try:
            entered.enter_context(output(spec))
        except OSError as error:
            return _refused(spec, error)
        stands = spec.sources[0].digest if spec.sources else _unsaved(spec.iteration)
        cache.make_room(_key(spec, stands))
        this = RealSlice(spec)
        entered.callback(lambda: cache.leave(this.before))
        trainable = cache.take()
        try:
            if trainable is None:
                trainable = this.restored()
            else:
                this.source = trainable.iteration
            this.look(trainable)
            this.journal.begin(this.source, this.skipped)
            this.begin()
            while (end := this.iterate(trainable)) is None:
                pass
            this.look(trainable)
            this.saves = True
            this.saving.finish()
        except BaseException as error:  # it costs this trial one slice
            if is_ctrl_c(error):
                raise
            with contextlib.suppress(Exception):  # the first error is the one to tell
                this.saving.finish()
            if trainable is not None:
                cache.stop_quietly(trainable)
            return this.failed(error)
        finally:
            this.journal.close()
        this.keep(trainable, end)
        return this.outcome(end)


def _refused(spec: SliceSpec, error: OSError) -> SliceOutcome:
    """Return the outcome of a slice whose log the disk refuses; raise an error of the process."""
    if error.errno in checkpoints.SHORT_OF:
        raise error
    refused = DiskRefuses(f"{error.strerror}: {error.filename}")
    return Stretch(spec, checkpoints.first_iteration(spec)).failed(refused)


class Stretch:
    """Results and checkpoints of a slice, real or simulated, so far."""

    bounds: Bounds
    exactness = ""
    instead = ""
    remembered: Mapping[str, Any] = {}
    saves = False
    """True while a checkpoint of the last iteration is being made."""

    def __init__(self, spec: SliceSpec, source: int) -> None:
        self.spec = spec
        self.source = source
        self.rows: list[Row] = []
        self.saved: list[Saved] = []
        self.skipped: list[str] = []

    def outcome(self, end: End, **more: Any) -> SliceOutcome:
        """Return the outcome of the slice if it ends like this."""
        spec = self.spec
        return SliceOutcome(
            spec.trial,
            spec.replica,
            spec.number,
            end,
            self.source,
            tuple(self.rows),
            tuple(self.saved),
            skipped=tuple(self.skipped),
            exactness=self.exactness,
            why=self.why(end),
            remembered=self.remembered,
            instead=self.instead,
            **more,
        )

    def why(self, end: End) -> str:
        """Return the cause of the trial's end, in words."""
        if end is End.DONE and self.rows:
            return self.bounds.why or met(self.rows[-1].metrics, self.spec.stop)
        return self.bounds.why if end in FINAL else ""

    def failed(self, error: BaseException) -> SliceOutcome:
        """The outcome of a crash, of a process that died, or of a disk that took no checkpoint.

        Iterations after the last checkpoint will be run again.
        """
        done = self.rows[-1].iteration if self.rows else self.source
        if isinstance(error, DiskRefuses | RemoteError):
            return self.outcome(End.UNSAVED, error=str(error))
        text = "".join(traceback.format_exception(error))
        end = End.LOST if isinstance(error, WorkerDied) else End.CRASHED
        came = self.outcome(end, error=text, error_at=done + 1, while_saving=self.saves)
        return replace(came, why=first_line(error))


def first_line(error: BaseException) -> str:
    """The kind of an error and the first line of what it says, without causes and notes."""
    if type(error).__name__ == "BdbQuit" and not _has_terminal():
        return (
            "bdb.BdbQuit: a debugger found no terminal; run the sweep with --pool inline (in "
            "Python: pool='inline'), where breakpoint() asks you"
        )
    lines = "".join(traceback.format_exception_only(error)).splitlines()
    found = (line.rstrip() for line in lines if line and not line[0].isspace())
    return next(found, type(error).__name__)


def _has_terminal() -> bool:
    """Return whether the process reads its input from a terminal."""
    try:
        return sys.stdin.isatty()
    except (AttributeError, ValueError):  # there is none, or it is closed
        return False


class RealSlice(Stretch):
    """One slice of a trainable."""

    def __init__(self, spec: SliceSpec) -> None:
        super().__init__(spec, checkpoints.first_iteration(spec))
        self.folder = Path(spec.folder)
        self.store = Store(self.folder, spec.store, spec.sources)
        self.before = ProcessState.capture()
        """The state of the process before its trainable was made."""
        self.journal = Journal(self.folder, spec.number)
        self.saving = Saving(spec, self.saved, self.store, self.journal)
        self.end_at = time.monotonic() + spec.slice_s
        self.noted_at = 0.0
        self.looked_at = -math.inf
        self.best = -math.inf
        """The best value that a checkpoint has, times the sign of the metric."""

    # ---- beginning --------------------------------------------------------------------------

    def restored(self) -> Trainable:
        """A new trainable, put where the newest checkpoint that can be used stands."""
        loaded = checkpoints.load(self.spec, self.store)
        self.source = loaded.iteration
        self.skipped += loaded.skipped
        cls = plugins.find_trainable(self.spec.trainable, self.spec.paths, self.spec.kept)
        self.before = ProcessState.capture()  # what is imported is imported once
        trainable = cls(self.spec.config, self._context(loaded.state or {}))
        if loaded.state is not None:
            trainable.continue_from(loaded.state, f"the checkpoint of iteration {self.source}")
        return trainable

    def _header(self, iteration: int) -> dict[str, Any]:
        spec = self.spec
        return {
            "sweep": spec.sweep_id,
            "trial": spec.trial,
            "replica": spec.replica,
            "step": iteration,
            "epoch": spec.term,
            # Of one slice alone: one that goes on after it was lost never names another's files.
            "slice": spec.number,
            "exactness": self.exactness,
        }

    def _context(self, state: Mapping[str, Any]) -> TrialContext:
        spec = self.spec
        name = f"{spec.trial:05d}_{spec.replica}"
        return TrialContext(
            spec.seed,
            name,
            name,
            self.folder,
            remembered={**spec.remembered, **state.get("remembered", {})},
            shared=Path(spec.shared_folder) if spec.shared_folder else None,
            settled=True,
            metric=spec.metric,
            other_kernel=spec.other_kernel,
        )

    def look(self, trainable: Trainable) -> None:
        """Note how exact the trainable is, and what it remembers that was not known before.

        Raises:
            TrainableError: the ledger cannot hold what it remembers.
        """
        self.exactness = trainable.exactness
        found: object = trainable.remembers()
        try:
            data = _as_json(found)
        except (TypeError, ValueError, RecursionError) as error:
            raise TrainableError(
                f"{type(trainable).__name__}.remembers() returned {shorten(found)}; expected a "
                f"dict of names and plain data that JSON can hold ({error})"
            ) from error
        known = self.spec.remembered
        self.remembered = {name: it for name, it in data.items() if name not in known}

    # ---- the way ----------------------------------------------------------------------------

    def begin(self) -> None:
        """Take note that training begins."""
        self.bounds = self.spec.bounds(self.source)
        self._note_time({}, trains=True)
        self.best = max((self._signed(s.value) for s in self.spec.sources), default=-math.inf)

    def iterate(self, trainable: Trainable) -> End | None:
        """Train one iteration and save what is due; returns how the slice ends with it, if so."""
        result = trainable.train()
        metrics = flatten(result)
        if trainable.has_ended:
            return self._ended(trainable, metrics)
        reached = self._take(trainable, result, metrics)
        end = self._end(trainable, metrics)
        if end is End.DIVERGED:
            return end  # a retry begins from a state that was good
        if trainable.can_save() and trainable.at_checkpoint:
            self._save(trainable, metrics, reached, end)
            return end
        return end if end in FINAL or not trainable.can_save() else None

    def _save(
        self, trainable: Trainable, metrics: Metrics, reached: float | None, end: End | None
    ) -> None:
        """Take a checkpoint where the slice ends, at a new best, and when one is due.

        Where states are handed over, the newest of the others is taken within a second, too.
        """
        value, iteration = self._signed(reached), trainable.iteration
        new_best = value > self.best and self.spec.policy.keep_best > 0
        self.best = max(self.best, value)
        if end or new_best or self.saving.is_due(iteration):
            self._note_time(metrics, trains=False)
            self.saves = True
            header, must = self._header(iteration), end is not None
            self.saving.save(trainable, header, reached, must, is_last=end in FINAL)
            self.saves = False
            if not end:
                self._note_time(metrics, trains=True)
        elif trainable.hands_over and self.spec.policy.every is None:
            self.saving.offer(trainable, self._header(iteration), reached)

    def _take(
        self, trainable: Trainable, result: Mapping[str, Any], metrics: Metrics
    ) -> float | None:
        """Add a result to the rows; returns the metric in it, None if it has none."""
        reached = number(metrics.get(self.spec.metric))
        found = reached is not None
        self.instead = "" if found else instead_of_number(result, self.spec.metric)
        self.exactness = trainable.exactness  # it may have become a weaker one
        self.rows.append(Row(trainable.iteration, metrics))
        self.journal.result(self.rows[-1])
        failpoints.reach("stepping")
        self._note(metrics)
        return reached

    def _ended(self, trainable: Trainable, metrics: Metrics) -> End:
        """End a trial whose training was over at its last result, with a checkpoint of that."""
        iteration, can_save = trainable.iteration, trainable.can_save()
        new = iteration > self.source and not self.saving.has(iteration)
        if new and can_save and trainable.at_checkpoint:
            self._save(trainable, metrics, number(metrics.get(self.spec.metric)), End.DONE)
        return End.DONE

    def _end(self, trainable: Trainable, metrics: Metrics) -> End | None:
        """Return the end of the slice at this result; None if it continues."""
        end = self.bounds.ending(metrics, trainable.iteration)
        if end is not None:
            return end
        now, can_save = time.monotonic(), trainable.can_save()
        if now - self.looked_at >= LOOK_S:
            if self._asked(can_save):
                return End.ASKED  # asked again after the next iteration, if this one is not saved
            self.looked_at = now
        return End.TIME if can_save and now >= self.end_at else None

    def _asked(self, can_save: bool) -> bool:
        """Return whether a file asks the slice to end: its trial's own, or that of the sweep."""
        spec = self.spec
        files = (spec.own_stop_file, spec.stop_file if can_save else "")
        return any(file and os.access(file, os.F_OK) for file in files)

    def _signed(self, value: float | None) -> float:
        return float("-inf") if value is None or value != value else self.spec.sign * value

    def _note(self, metrics: Metrics) -> None:
        """Write down where the trial is, for the live table; lost notes do no harm."""
        now = time.monotonic()
        if now - self.noted_at >= PROGRESS_S:
            self.noted_at = now
            self._write_note(metrics, trains=True)

    def _note_time(self, metrics: Metrics, trains: bool) -> None:
        """Say that training begins, or is over, where its time is limited from outside."""
        if self.spec.trial_s is not None:
            self._write_note(metrics, trains)

    def _write_note(self, metrics: Metrics, trains: bool) -> None:
        note: dict[str, Any] = {
            key: metrics.get(key)
            for key in ("training_iteration", self.spec.time_attr, self.spec.metric)
        }
        if metrics and (lacks := [n for n in self.spec.looked_for if n not in metrics]):
            note["lacks"], note["has"] = lacks, sorted(numbers([metrics]))[:MOST_NAMES]
        if self.spec.trial_s is not None:
            note["slice"] = self.spec.number
            note["trained_s"] = self.bounds.seconds if trains else None
        if self.spec.worker:
            note["worker"] = self.spec.worker
        path = self.folder / PROGRESS
        try:
            with disk.closing(disk.open_file(path, _WRITE_ANEW)) as file:
                os.write(file, json.dumps(note).encode())
        except (OSError, disk.NotRegular):  # what lies there is not ours to write
            return

    # ---- the end ----------------------------------------------------------------------------

    def keep(self, trainable: Trainable, end: End) -> None:
        """Keep the trainable for the trial's next slice, if there is one and it can go on."""
        saved = self.saved
        at_checkpoint = bool(saved) and saved[-1].iteration == trainable.iteration
        if end in FINAL or not (at_checkpoint or not trainable.can_save()):
            cache.stop_quietly(trainable)
            return
        stands = saved[-1].digest if at_checkpoint else _unsaved(trainable.iteration)
        cache.keep(_key(self.spec, stands), trainable)


def _key(spec: SliceSpec, stands: str) -> cache.Key:
    return (spec.sweep_id, spec.trial, spec.replica, stands)


def _as_json(found: object) -> Mapping[str, Any]:
    """The dict that `found` is in JSON; TypeError, ValueError or RecursionError if it is none."""
    data = strict_json.parse(json.dumps(found, allow_nan=False).encode())
    if not isinstance(data, dict):
        raise TypeError(f"it is a {type(found).__name__}")
    return data


def _unsaved(iteration: int) -> str:
    """Stands for a digest where nothing is saved."""
    return f"unsaved at {iteration}"
