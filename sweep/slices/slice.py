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
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from sweep import plugins
from sweep.history.events import End, Metrics, Row, Saved
from sweep.history.results import flatten, instead_of_number, number
from sweep.ledger.folder import PROGRESS
from sweep.slices import cache, checkpoints
from sweep.slices.checkpoints import DiskRefuses, Saving
from sweep.slices.messages import SliceOutcome, SliceSpec
from sweep.slices.stopping import FINAL, Bounds, ending, met
from sweep.slices.store import Store
from trainables.checkpoint import disk
from trainables.checkpoint.remote import RemoteError
from trainables.core import failpoints, strict_json
from trainables.errors import TrainableError, WorkerDied, shorten
from trainables.trainable import Trainable, TrialContext

#: Seconds between two progress notes of a slice.
PROGRESS_S = 0.3
#: Seconds between two looks for a file that asks the slice to end.
LOOK_S = 0.02
#: Is given the slice, and takes what is printed while it runs.
Output = Callable[[SliceSpec], contextlib.AbstractContextManager[object]]
_WRITE_ANEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


def run_slice(spec: SliceSpec, output: Output = contextlib.nullcontext) -> SliceOutcome:
    """Run one slice to its end; exceptions of the trainable are part of the outcome.

    `output` is entered while it runs, and takes what is printed; where the disk refuses that, it
    would take no checkpoint either.

    Raises:
        StaleProcess: an earlier trial left something running here; call it in another process.
        OSError: this process can open no further file.
    """
    with contextlib.ExitStack() as entered:
        try:
            entered.enter_context(output(spec))
        except OSError as error:
            if error.errno in checkpoints.SHORT_OF:
                raise
            refused = DiskRefuses(f"{error.strerror}: {error.filename}")
            return Stretch(spec, checkpoints.first_iteration(spec)).failed(refused)
        stands = spec.sources[0].digest if spec.sources else _unsaved(spec.iteration)
        cache.make_room(_key(spec, stands))
        this, trainable = _Slice(spec), cache.take()
        try:
            if trainable is None:
                trainable = this.restored()
            else:
                this.source = trainable.iteration
            this.look(trainable)
            end = this.train(trainable)
            this.look(trainable)
            this.saving.write()
        except (Exception, SystemExit) as error:  # noqa: BLE001 it costs this trial one slice
            with contextlib.suppress(Exception):  # the first error is the one to tell
                this.saving.write()
            if trainable is not None:
                cache.stop_quietly(trainable)
            return this.failed(error)
        this.keep(trainable, end)
        return this.outcome(end)


class Stretch:
    """What a slice, real or simulated, has done so far: its results and what it saved."""

    bounds: Bounds
    exactness = ""
    instead = ""
    remembered: Mapping[str, Any] = {}

    def __init__(self, spec: SliceSpec, source: int) -> None:
        self.spec = spec
        self.source = source
        self.rows: list[Row] = []
        self.saved: list[Saved] = []
        self.skipped: list[str] = []

    def outcome(self, end: End, **more: Any) -> SliceOutcome:
        """What came of it, if it ends like this."""
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
        """What ended its trial, in words."""
        if end is End.DONE and self.rows:
            return self.bounds.why or met(self.rows[-1].metrics, self.spec.stop)
        return self.bounds.why if end in FINAL else ""

    def failed(self, error: BaseException) -> SliceOutcome:
        """The outcome of a crash, of a process that died, or of a disk that took no checkpoint.

        Iterations after the last checkpoint will be run again.
        """
        done = self.rows[-1].iteration if self.rows else self.source
        upto = self.saved[-1].iteration if self.saved else self.source
        self.rows = [row for row in self.rows if row.iteration <= upto]
        if isinstance(error, DiskRefuses | RemoteError):
            return self.outcome(End.UNSAVED, error=str(error))
        text = "".join(traceback.format_exception(error))
        end = End.LOST if isinstance(error, WorkerDied) else End.CRASHED
        return replace(self.outcome(end, error=text, error_at=done + 1), why=first_line(error))


def first_line(error: BaseException) -> str:
    """The kind of an error and the first line of what it says, without causes and notes."""
    lines = "".join(traceback.format_exception_only(error)).splitlines()
    found = (line.rstrip() for line in lines if line and not line[0].isspace())
    return next(found, type(error).__name__)


class _Slice(Stretch):
    """One slice of a trainable."""

    def __init__(self, spec: SliceSpec) -> None:
        super().__init__(spec, checkpoints.first_iteration(spec))
        self.folder = Path(spec.folder)
        self.store = Store(self.folder, spec.store, spec.sources)
        self.saving = Saving(spec, self.saved, self.store)
        self.end_at = time.monotonic() + spec.slice_s
        self.noted_at = 0.0
        self.looked_at = -math.inf

    # ---- beginning --------------------------------------------------------------------------

    def restored(self) -> Trainable:
        """A new trainable, put where the newest checkpoint that can be used stands."""
        loaded = checkpoints.load(self.spec, self.store)
        self.source = loaded.iteration
        self.skipped += loaded.skipped
        cls = plugins.find_trainable(self.spec.trainable, self.spec.paths, self.spec.kept)
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

    def train(self, trainable: Trainable) -> End:
        self.bounds = self.spec.bounds(self.source)
        self._note_time({}, trains=True)
        best = max((self._signed(s.value) for s in self.spec.sources), default=float("-inf"))
        while True:
            result = trainable.train()
            metrics = flatten(result)
            reached = number(metrics.get(self.spec.metric))
            found = reached is not None
            self.instead = "" if found else instead_of_number(result, self.spec.metric)
            self.exactness = trainable.exactness  # it may have become a weaker one
            iteration = trainable.iteration
            self.rows.append(Row(iteration, metrics))
            failpoints.reach("stepping")
            self._note(metrics)
            value = self._signed(reached)
            end = self._end(trainable, metrics)
            if end is End.DIVERGED:
                return end  # a retry begins from a state that was good
            if not trainable.can_save() or not trainable.at_checkpoint:
                if end in FINAL or (end and not trainable.can_save()):
                    return end
                continue
            new_best = value > best and self.spec.policy.keep_best > 0
            if end or new_best or self.saving.is_due(iteration):
                if end:
                    self._note_time(metrics, trains=False)
                header = self._header(iteration)
                self.saving.save(trainable, header, reached, must=end is not None)
            best = max(best, value)
            if end:
                return end

    def _end(self, trainable: Trainable, metrics: Metrics) -> End | None:
        """How the slice ends here; None: it goes on."""
        spec = self.spec
        end = self.bounds.ending(metrics, trainable.iteration)
        end = end or ending(metrics, spec.goal, spec.time_attr, spec.stop)
        if end is not None:
            return end
        now, can_save = time.monotonic(), trainable.can_save()
        if now - self.looked_at >= LOOK_S:
            if self._asked(can_save):
                return End.ASKED  # asked again after the next iteration, if this one is not saved
            self.looked_at = now
        return End.TIME if can_save and now >= self.end_at else None

    def _asked(self, can_save: bool) -> bool:
        """Whether a file asks the slice to end: its trial's own, or the sweep's if it can save."""
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
