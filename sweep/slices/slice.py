"""One slice: a stretch of a trial's training, from a checkpoint to a goal.

    (settings, seed, source checkpoints, goal) → (results, checkpoints)

This module is the only caller of `Trainable` and runs in any worker process. A slice ends at its
goal, when a stopping criterion is met, when its time is up, or when a stop file appears. It saves
checkpoints at its end and before.
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

from sweep.core import plugins
from sweep.history.events import End, Metrics, Row, Saved
from sweep.history.results import flatten, instead_of_number, numeric_names, to_number
from sweep.ledger.folder import PROGRESS
from sweep.slices import cache, checkpoints
from sweep.slices.checkpoints import DiskRefuses, Saving
from sweep.slices.journal import Journal
from sweep.slices.messages import SliceOutcome, SliceSpec
from sweep.slices.process_state import ProcessState
from sweep.slices.stopping import FINAL, Bounds
from sweep.slices.store import Store
from trainables.checkpoint import disk
from trainables.checkpoint.remote import RemoteError
from trainables.core import failpoints, strict_json
from trainables.core.processes.program import is_ctrl_c
from trainables.errors import NoResult, TrainableError, WorkerDied, shorten, type_of
from trainables.trainable import Trainable, TrialContext

#: Seconds between two updates of the progress file.
PROGRESS_S = 0.3
#: Maximum number of result names in the progress file.
MOST_NAMES = 100
#: Seconds between two checks for a stop file.
LOOK_S = 0.02
#: Returns a context manager that captures the output while the slice runs.
Output = Callable[[SliceSpec], contextlib.AbstractContextManager[object]]
#: Runs a slice in another process and returns its outcome, or returns None to run it here.
Elsewhere = Callable[[SliceSpec, Output], SliceOutcome | None]
#: Flags that open a progress file for writing, emptied if it exists.
_NOTE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


def run_slice(
    spec: SliceSpec,
    output: Output = contextlib.nullcontext,
    run_elsewhere: Elsewhere = lambda _spec, _output: None,
) -> SliceOutcome:
    """Run one slice to its end and return its outcome.

    Exceptions of the trainable are part of the outcome; only Ctrl-C is raised. The slice writes
    checkpoints, journal and progress file. If its trial may continue, the trainable stays in this
    process's memory for the next slice.

    Args:
        output: context manager that captures the slice's output; if it fails because of the disk,
            the slice ends as one whose checkpoint was refused.
        run_elsewhere: runs the slice in another process, or returns None to decline.

    Raises:
        StaleProcess: an earlier trial left something running here; use another process.
        WorkerLost: the other process died.
        OSError: this process can open no further file.
    """
    if remote_outcome := run_elsewhere(spec, output):
        return remote_outcome
    with contextlib.ExitStack() as entered:
        try:
            entered.enter_context(output(spec))
        except OSError as error:
            return _refused_outcome(spec, error)
        stands = spec.sources[0].digest if spec.sources else _unsaved_key(spec.iteration)
        cache.make_room(_cache_key(spec, stands))
        running = RealSlice(spec)
        entered.callback(lambda: cache.restore_process(running.before))
        trainable = cache.take()
        try:
            if trainable is None:
                trainable = running.restored()
            else:
                running.source = trainable.iteration
            running.note_exactness(trainable)
            running.journal.begin(running.source, running.skipped)
            running.begin()
            while (end := running.iterate(trainable)) is None:
                pass
            running.note_exactness(trainable)
            running.saves = True
            running.saving.finish()
        except BaseException as error:  # a failure costs this trial one slice
            if is_ctrl_c(error):
                raise
            with contextlib.suppress(Exception):  # the first error is reported
                running.saving.finish()
            if trainable is not None:
                cache.stop_quietly(trainable)
            return running.failed(error)
        finally:
            running.journal.close()
        running.keep(trainable, end)
        return running.outcome(end)


def _refused_outcome(spec: SliceSpec, error: OSError) -> SliceOutcome:
    """Return the outcome of a slice whose log could not be opened, as unsaved.

    Raises `error` if the process is short of files or memory.
    """
    if error.errno in checkpoints.SHORT_OF:
        raise error
    refused = DiskRefuses(f"{error.strerror}: {error.filename}")
    return Stretch(spec, checkpoints.first_iteration(spec)).failed(refused)


class Stretch:
    """Results and checkpoints of a slice so far; base of real and simulated slices.

    The slice starts after iteration `source`.
    """

    bounds: Bounds
    """Conditions that end the slice; set when training begins."""
    #: Text that says how exactly the checkpoints can be resumed; empty if it is unknown.
    exactness = ""
    #: Description of the metric's value if it is no number; empty if it is one.
    instead = ""
    is_random: bool | None = None
    """Value of `Trainable.is_random`, as last read; None if unknown."""
    remembered: Mapping[str, Any] = {}
    """New findings of the trainable for later trials: name → plain data."""
    saves = False
    """True while a checkpoint of the last iteration is being made."""

    def __init__(self, spec: SliceSpec, source: int) -> None:
        self.spec = spec
        self.source = source
        self.rows: list[Row] = []
        self.saved: list[Saved] = []
        self.skipped: list[str] = []

    def outcome(self, end: End, **more: Any) -> SliceOutcome:
        """Return the outcome of the slice with the end `end`; `more` sets further fields."""
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
            reason=self.end_reason(end),
            remembered=self.remembered,
            value_found=self.instead,
            is_random=self.is_random,
            **more,
        )

    def end_reason(self, end: End) -> str:
        """Return the cause of the trial's end as a text.

        It is empty if the trial continues, or only the trainable itself said that it is done.
        """
        return self.bounds.end_reason if end in FINAL and self.rows else ""

    def failed(self, error: BaseException) -> SliceOutcome:
        """Return the outcome of a slice that raised `error`: crashed, lost or unsaved.

        It is unsaved if disk or storage refused, and lost if a process of the trainable died.
        Iterations after the last checkpoint will be run again.
        """
        done = self.rows[-1].iteration if self.rows else self.source
        if isinstance(error, DiskRefuses | RemoteError):
            return self.outcome(End.UNSAVED, error=str(error))
        text = "".join(traceback.format_exception(error))
        end = End.LOST if isinstance(error, WorkerDied) else End.CRASHED
        came = self.outcome(end, error=text, error_at=done + 1, while_saving=self.saves)
        recurs = isinstance(error, NoResult)
        return replace(came, reason=first_line(error), would_recur=recurs)


def first_line(error: BaseException) -> str:
    """Return the type of an exception and the first line of its message.

    If the exception is of a debugger without a terminal, the text says what to do.
    """
    if type(error).__name__ == "BdbQuit" and not _has_terminal():
        return (
            "bdb.BdbQuit: a debugger found no terminal; to use breakpoint(), run the sweep "
            "in a terminal with --pool inline (in Python: pool='inline')"
        )
    lines = "".join(traceback.format_exception_only(error)).splitlines()
    found = (line.rstrip() for line in lines if line and not line[0].isspace())
    return next(found, type(error).__name__)


def _has_terminal() -> bool:
    """Return whether standard input is a terminal, in which a debugger can ask."""
    try:
        return sys.stdin.isatty()
    except (AttributeError, ValueError):  # stdin is missing or closed
        return False


class RealSlice(Stretch):
    """Slice of a trainable: trains it, saves its checkpoints, and decides where it ends."""

    def __init__(self, spec: SliceSpec) -> None:
        super().__init__(spec, checkpoints.first_iteration(spec))
        self.folder = Path(spec.folder)
        self.store = Store(self.folder, spec.store, spec.sources)
        self.before = ProcessState.capture()
        """Process-wide state before the trainable was created."""
        self.journal = Journal(self.folder, spec.number)
        self.saving = Saving(spec, self.saved, self.store, self.journal)
        self.end_at = time.monotonic() + spec.slice_s
        self.noted_at = 0.0
        self.looked_at = -math.inf
        self.best = -math.inf
        """Best value of the metric at any iteration that could be saved, and of checkpoints from
        before the slice, times the metric's sign; -inf before one."""

    # ---- start ------------------------------------------------------------------------------

    def restored(self) -> Trainable:
        """Return a new trainable, restored from the newest checkpoint that is not lost.

        Without one it starts from scratch. Sets `source` to the checkpoint's iteration, adds
        messages about lost checkpoints to `skipped`, and captures `before` again, after the imports
        of the trainable.

        Raises:
            CheckpointError: a checkpoint cannot be used but is not lost, or that of a parent trial
                cannot be used.
            DiskRefuses: the disk failed.
            RemoteError: the object storage failed.
        """
        loaded = checkpoints.load(self.spec, self.store)
        self.source = loaded.iteration
        self.skipped += loaded.skipped
        cls = plugins.find_trainable(self.spec.trainable, self.spec.paths, self.spec.script_file)
        self.before = ProcessState.capture()  # imports are not undone
        trainable = cls(self.spec.config, self._context(loaded.state or {}))
        if loaded.state is not None:
            trainable.continue_from(loaded.state, f"the checkpoint of iteration {self.source}")
        return trainable

    def _header(self, iteration: int) -> dict[str, Any]:
        """Return the header that identifies a checkpoint of this iteration.

        The keys are ``sweep``, ``trial``, ``replica``, ``step`` (the iteration), ``epoch`` (the
        driver's term), ``slice`` and ``exactness``.
        """
        spec = self.spec
        return {
            "sweep": spec.sweep_id,
            "trial": spec.trial,
            "replica": spec.replica,
            "step": iteration,
            "epoch": spec.term,
            # The number makes names unique: a slice that replaces a lost one never overwrites its
            # files.
            "slice": spec.number,
            "exactness": self.exactness,
        }

    def _context(self, state: Mapping[str, Any]) -> TrialContext:
        """Return the context in which the trainable runs.

        `state` is that of its checkpoint, or empty; findings in it (``remembered``) come before
        those of the sweep.
        """
        spec = self.spec
        name = f"{spec.trial:05d}_{spec.replica}"
        return TrialContext(
            spec.seed,
            name,
            name,
            self.folder,
            remembered={**spec.remembered, **state.get("remembered", {})},
            shared=Path(spec.shared_folder) if spec.shared_folder else None,
            has_settled_config=True,
            metric=spec.metric,
            allows_other_kernel=spec.allows_other_kernel,
            number=spec.trial,
            seed_index=spec.replica,
            objectives=spec.objectives,
        )

    def note_exactness(self, trainable: Trainable) -> None:
        """Read from the trainable its exactness, randomness, and findings new to the sweep.

        Sets `exactness`, `is_random` and `remembered`. Raises TrainableError if the findings are
        not a JSON object.
        """
        self.exactness, self.is_random = trainable.exactness, trainable.is_random
        found: object = trainable.remembers()
        try:
            data = _to_json(found)
        except (TypeError, ValueError, RecursionError) as error:
            raise TrainableError(
                f"{type(trainable).__name__}.remembers() returned {shorten(found)}; expected "
                f"a dict of names and values that JSON can represent ({error})"
            ) from error
        known = self.spec.remembered
        self.remembered = {name: it for name, it in data.items() if name not in known}

    # ---- iterations -------------------------------------------------------------------------

    def begin(self) -> None:
        """Set up the conditions that end the slice, just before training begins.

        Also sets the best value so far, and notes in the progress file that training begins if its
        time is limited.
        """
        self.bounds = self.spec.bounds(self.source)
        self._note_time({}, trains=True)
        self.best = max((self._signed(s.value) for s in self.spec.sources), default=-math.inf)

    def iterate(self, trainable: Trainable) -> End | None:
        """Train one iteration, record its result, and save what is due.

        Returns the end of the slice, or None if it continues. A trainable that can save, but not at
        this iteration, continues unless its trial is over; a diverged one is not saved.
        """
        result = trainable.train()
        metrics = flatten(result)
        if trainable.has_ended:
            return self._finish_trial(trainable, metrics)
        reached = self._record_result(trainable, result, metrics)
        end = self._find_end(trainable, metrics)
        if end is End.DIVERGED:
            return end  # a retry must start from a good state
        if trainable.can_save(trainable.config) and trainable.at_checkpoint:
            self._save(trainable, metrics, reached, end)
            return end
        return end if end in FINAL or not trainable.can_save(trainable.config) else None

    def _save(
        self, trainable: Trainable, metrics: Metrics, reached: float | None, end: End | None
    ) -> None:
        """Save a checkpoint at the slice's end, at a new best, and when one is due.

        At all other iterations, if checkpoints are due by time, the state of a trainable that hands
        its states over is offered for saving. `reached` is the metric, None if missing; `end` is
        None if the slice continues.
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

    def _record_result(
        self, trainable: Trainable, result: Mapping[str, Any], metrics: Metrics
    ) -> float | None:
        """Append a result to the rows and the journal, and write it to the progress file if due.

        Returns the metric; None if that is no number. `metrics` is the result as one level of
        scalars. Sets `exactness`, and `instead` to a description of a metric that is no number.
        """
        reached = to_number(metrics.get(self.spec.metric))
        found = reached is not None
        self.instead = "" if found else instead_of_number(result, self.spec.metric)
        self.exactness = trainable.exactness  # it may have become weaker
        self.rows.append(Row(trainable.iteration, metrics))
        self.journal.result(self.rows[-1])
        failpoints.reach("stepping")
        self._note(metrics)
        return reached

    def _finish_trial(self, trainable: Trainable, metrics: Metrics) -> End:
        """Save a trial whose training was over at its last result, and return the end DONE.

        Nothing is saved if the trainable cannot save now, has not trained in this slice, or has a
        checkpoint of its last iteration.
        """
        iteration, can_save = trainable.iteration, trainable.can_save(trainable.config)
        new = iteration > self.source and not self.saving.has(iteration)
        if new and can_save and trainable.at_checkpoint:
            self._save(trainable, metrics, to_number(metrics.get(self.spec.metric)), End.DONE)
        return End.DONE

    def _find_end(self, trainable: Trainable, metrics: Metrics) -> End | None:
        """Return the end of the slice at this result, which is counted, or None to continue.

        Looks at results, at stop files (at most every `LOOK_S` seconds) and, if the trainable can
        save, at the time.
        """
        end = self.bounds.find_end(metrics, trainable.iteration)
        if end is not None:
            return end
        now, can_save = time.monotonic(), trainable.can_save(trainable.config)
        if now - self.looked_at >= LOOK_S:
            if self._is_asked_to_stop(can_save):
                return End.ASKED  # checked again after the next iteration if this one is not saved
            self.looked_at = now
        return End.TIME if can_save and now >= self.end_at else None

    def _is_asked_to_stop(self, can_save: bool) -> bool:
        """Return whether a stop file exists: the trial's, or the sweep's if the trial can save."""
        spec = self.spec
        files = (spec.own_stop_file, spec.stop_file if can_save else "")
        return any(file and os.access(file, os.F_OK) for file in files)

    def _signed(self, value: float | None) -> float:
        """Return a value of the metric times its sign, so that greater is better.

        None and NaN become -inf.
        """
        return float("-inf") if value is None or value != value else self.spec.sign * value

    def _note(self, metrics: Metrics) -> None:
        """Write the progress file, at most every `PROGRESS_S` seconds; errors are ignored."""
        now = time.monotonic()
        if now - self.noted_at >= PROGRESS_S:
            self.noted_at = now
            self._write_note(metrics, trains=True)

    def _note_time(self, metrics: Metrics, trains: bool) -> None:
        """Note in the progress file that training begins or pauses, if its time is limited."""
        if self.spec.trial_s is not None:
            self._write_note(metrics, trains)

    def _write_note(self, metrics: Metrics, trains: bool) -> None:
        """Write the newest result to the progress file, for live tables and limits.

        It is a JSON mapping with the iteration, `time_attr` and the metric; with ``lacks`` and
        ``has``, names of results, if doubtful ones are missing; with ``slice`` and ``trained_s`` if
        training time is limited; and with ``worker`` on a cluster. Errors are ignored. `trains` is
        False while a checkpoint is written, which is no training time: ``trained_s`` is then None.
        """
        note: dict[str, Any] = {
            key: metrics.get(key)
            for key in ("training_iteration", self.spec.time_attr, self.spec.metric)
        }
        if metrics and (lacks := [n for n in self.spec.doubtful_names if n not in metrics]):
            note["lacks"], note["has"] = lacks, sorted(numeric_names([metrics]))[:MOST_NAMES]
        if self.spec.trial_s is not None:
            note["slice"] = self.spec.number
            note["trained_s"] = self.bounds.seconds if trains else None
        if self.spec.worker:
            note["worker"] = self.spec.worker
        path = self.folder / PROGRESS
        try:
            with disk.closing(disk.open_file(path, _NOTE_FLAGS)) as file:
                os.write(file, json.dumps(note).encode())
        except (OSError, disk.NotRegular):  # something else has that name
            return

    # ---- end --------------------------------------------------------------------------------

    def keep(self, trainable: Trainable, end: End) -> None:
        """Keep the trainable in this process for the trial's next slice, or stop it.

        It is stopped if the trial has ended, or has a newer state than its newest checkpoint. A
        trainable that cannot save is kept at the iteration at which it is.
        """
        saved = self.saved
        at_checkpoint = bool(saved) and saved[-1].iteration == trainable.iteration
        if end in FINAL or not (at_checkpoint or not trainable.can_save(trainable.config)):
            cache.stop_quietly(trainable)
            return
        stands = saved[-1].digest if at_checkpoint else _unsaved_key(trainable.iteration)
        cache.keep(_cache_key(self.spec, stands), trainable)


def _cache_key(spec: SliceSpec, digest: str) -> cache.Key:
    """Return the key of a kept trainable: sweep ID, trial, replica, digest of its checkpoint."""
    return (spec.sweep_id, spec.trial, spec.replica, digest)


def _to_json(value: object) -> Mapping[str, Any]:
    """Return a mapping as it would be read back from JSON.

    Raises:
        TypeError, ValueError, RecursionError: `value` is not a JSON object.
    """
    data = strict_json.parse(json.dumps(value, allow_nan=False).encode())
    if not isinstance(data, dict):
        raise TypeError(f"it is {type_of(value)}")
    return data


def _unsaved_key(iteration: int) -> str:
    """Return ``unsaved at ITERATION``, for a digest in the key of a trainable that cannot save."""
    return f"unsaved at {iteration}"
