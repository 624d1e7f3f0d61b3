"""MLflow: one experiment per sweep name, one run for the sweep, and below it one run per trial.

If trials have several seeds, a trial's run has their aggregate as its curve and its score at every
event, and each seed has a run below it; so has each test of a final evaluation.

`sweep.trackers._shared.mlflow_content` computes the rows; this module writes them, in batches, to
the store (`sweep.trackers._shared.mlflow_store`). A run is identified by its tags ``sweep.id``,
``sweep.trial`` and ``sweep.run``, so a run that was created just before a crash is found
again. Runs deleted by a user stay deleted. User and commit are those at the run's creation.

If iterations are run again after a crash, their rows in a file get the new values; on a server,
where rows cannot be changed, the first ones stay: an exact trainable gives the same ones. If a
trial continues after it had ended (a resumed or retried one), its run is RUNNING again, without an
end time if the store is a file. When a driver ends, paused trials are SCHEDULED until they
continue. A store without a run of the sweep, as after its file was removed, its experiment renamed
or its folder moved to another root, gets all earlier events with the next ones. If the sweep's
metric changes, everything is sent again; a run with rows of the old one is deleted and created
again.
"""

import getpass
import math
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from sweep import trackers
from sweep.core.errors import StorageError
from sweep.history.events import Closed, MetricChanged, Recorded, Reported, Status, TermEnded
from sweep.history.replica import Replica
from sweep.history.seeds import is_test
from sweep.history.trial import Trial
from sweep.ledger import tables
from sweep.trackers import TrackerContext
from sweep.trackers._shared import mlflow_view
from sweep.trackers._shared.mlflow_check import Check
from sweep.trackers._shared.mlflow_content import (
    COMPLETE,
    MEDIA,
    SWEEP_STATUS,
    WHOLE,
    Content,
    Value,
    keys_of_events,
    milliseconds,
    parameters,
    run_name,
    title,
)
from sweep.trackers._shared.mlflow_store import PARENT, StoredRun, connect


class Tracker(trackers.Tracker):
    """Copies a sweep's history to MLflow: a run for the sweep, and one for each trial."""

    def __init__(self, context: TrackerContext) -> None:
        self._context = context
        self._copy: _Copy | None = None

    def publish(self, records: Sequence[Recorded]) -> None:
        """Write to MLflow what these events change; after a failure its state is read again.

        All earlier events are sent first if MLflow lacks them, or if the metric was changed.
        """
        copy, self._copy = self._copy, None
        first = records[0].number
        if copy is not None and copy.k != first - 1:
            copy.close()
            copy = None
        if first > 1 and any(isinstance(record.event, MetricChanged) for record in records):
            if copy is not None:
                copy.close()
            with closing(Check(self._context, only_read=False)) as check:
                check.set_aside()  # the present rows are of an earlier metric
            copy = self._resend_copy(first - 1)
        elif copy is None:
            copy = _Copy(self._context, first - 1)
            if first > 1 and copy.lacks_earlier_events:
                copy.close()
                copy = self._resend_copy(first - 1)
        try:
            copy.publish(records)
        except BaseException:
            copy.close()
            raise
        self._copy = copy

    def _resend_copy(self, k: int) -> "_Copy":
        """Send all events up to number `k` to MLflow again, and return the open copy that did so.

        Existing rows stay. If sending fails, the copy is closed and the error raised.
        """
        copy = _Copy(self._context, 0)
        copy.is_complete = False
        try:
            for records in self._context.earlier_events(k):
                copy.publish(records)
        except BaseException:
            copy.close()
            raise
        copy.is_complete = True
        return copy

    def close(self) -> None:
        """Close MLflow's database; the next `publish` opens it again."""
        copy, self._copy = self._copy, None
        if copy is not None:
            copy.close()

    def unreadable(self) -> str:
        """Return a text on why the database file of all sweeps is missing or damaged.

        It is empty if the file is intact, and if the copy is on a server. Raises StorageError if
        the file cannot be accessed now.
        """
        if self._context.tracking_uri is not None:
            return ""
        return tables.find_damage(self._context.folder.mlflow)

    def differences(self) -> list[str]:
        """Return a text for each difference between the copy and the whole ledger.

        Raises:
            StorageError: another person named the server, which would get this user's credentials.
        """
        context = self._context
        if not context.uri_is_own:
            raise StorageError(
                "another user chose the MLflow server (in the file tracking-uri); accept it "
                "with `sweep sync`"
            )
        if context.tracking_uri is None and not tables.has(context.folder.mlflow, "experiments"):
            return [f"has no experiment {context.name}"]
        with closing(Check(context)) as check:
            return [text for text, _ in check.differences()]

    def set_aside(self) -> None:
        """Delete the runs that sending all events again would not repair.

        Does nothing if the file of all sweeps does not exist.

        Raises:
            StorageError: the file of all sweeps is damaged.
        """
        file = self._context.folder.mlflow
        problem = self.unreadable()
        if problem and file.exists():
            raise StorageError(
                f"{problem}; this file contains the copies of all sweeps in {file.parent}: "
                "move it away, then run `sweep verify --repair` for each sweep"
            )
        if not problem:
            with closing(Check(self._context, only_read=False)) as check:
                check.set_aside()


@dataclass
class _Run:
    """Run of the copy, and up to which iteration MLflow may have its rows already."""

    stored: StoredRun
    """Run as it is in MLflow."""
    iteration: float = 0
    """Number of the iteration up to which rows are looked up before they are sent; infinite for
    all."""
    scored: bool = False
    """True if the run's scores in MLflow are known, so that rows of later events are new there."""


class _Copy:
    """Copy of a sweep in MLflow: all its runs, kept up to date from event to event.

    It begins with the state after event number `k`, which MLflow should have already.
    """

    def __init__(self, context: TrackerContext, k: int) -> None:
        self._context = context
        self._content = Content(context)
        for records in context.earlier_events(k):
            self._content.extend(records)
        self.is_complete = True
        """True if MLflow has all earlier events, which the sweep's run then says."""
        self._store = connect(context)
        self._origin: dict[str, str] = {}
        self._shown: int | None = None
        """Number of trials when the view of MLflow's page was written; None before that."""
        self._pick: int | None = None
        """Number of the trial that the page shows first; None before one."""
        self._runs: dict[str, _Run] = {}
        """Name of a run (`run_name`; empty for the sweep's own) → the run."""
        for run in sorted(self._store.runs(), key=lambda run: -len(run.metrics)):
            if run.name not in self._runs:
                self._runs[run.name] = _known(run)
            elif not run.deleted:  # a duplicate, made by a request that timed out
                self._store.delete(run)

    def close(self) -> None:
        """Close MLflow's database."""
        self._store.close()

    @property
    def k(self) -> int:
        """Number of the newest event in the copy."""
        return self._content.history.k

    @property
    def lacks_earlier_events(self) -> bool:
        """True if MLflow has no run of the sweep, or sending all events was interrupted."""
        parent = self._runs.get("")
        return parent is None or COMPLETE not in parent.stored.tags

    def publish(self, records: Sequence[Recorded]) -> None:
        """Write to MLflow what these events change: of each run the rows first, then the status.

        Media files of results, the spec and the view of MLflow's page are written, too.
        """
        changes = self._content.extend(records)
        tags = {**self._content.sweep_tags(), **({COMPLETE: "true"} if self.is_complete else {})}
        with self._store.writing():
            parent = self._run("", self._context.name, tags, self._context.created_at)
            for (number, replica), rows in sorted(changes.runs.items()):
                trial = self._content.history.trials[number]
                run = self._write_trial(parent, trial, rows if replica == WHOLE else ())
                if replica != WHOLE:
                    self._write_replica(run, self._content.history.replica(number, replica), rows)
            self._write_picks(parent)
            for record in records:
                if isinstance(record.event, Reported | Closed):
                    self._attach_media(record.event)
            if any(isinstance(record.event, TermEnded) for record in records):
                self._schedule_paused()
            self._write(parent, changes.sweep, tags, {})
            parent.iteration = self.k
            ended = self._content.history.ended
            ended_at = self._content.ended_at if ended else None
            self._set_status(parent, SWEEP_STATUS[ended], ended_at, self._context.name)
            if self._shown is None and self._context.folder.spec.is_file():
                self._store.attach(parent.stored, self._context.folder.spec)
            self._write_view(parent)

    def _write_view(self, parent: _Run) -> None:
        """Write the view of MLflow's page at first, and when it no longer shows all trials."""
        trials = len(self._content.history.trials)
        if self._shown is None or self._shown <= mlflow_view.AT_FIRST < trials:
            view = mlflow_view.view(self._context, parent.stored.id, trials)
            self._store.tag_experiment(mlflow_view.tag(self._context), view)
            self._shown = trials

    def _write_picks(self, parent: _Run) -> None:
        """Write the order of the former and the new best trial if `History.best` has changed.

        The page then shows the new one first.
        """
        history = self._content.history
        pick = None if history.best is None else history.best.number
        for number in {self._pick, pick} - {None} if pick != self._pick else ():
            self._write_trial(parent, history.trials[number or 0], ())
        self._pick = pick

    def _schedule_paused(self) -> None:
        """Set the runs of paused trials and replicas to scheduled, since no driver runs."""
        history = self._content.history
        for replica in (*history.replicas(Status.PAUSED), *history.test_replicas(Status.PAUSED)):
            trial = history.trials[replica.trial]
            for owner, name in (
                (trial, run_name(trial.number, WHOLE)),
                (replica, run_name(trial.number, replica.index)),
            ):
                run = self._runs.get(name)
                if run is not None and owner.status is Status.PAUSED:
                    status = self._content.status_of(owner.status)
                    self._set_status(run, status, None, run.stored.title)

    def _attach_media(self, event: Reported | Closed) -> None:
        """Send the files that an event's results name.

        A file that is sent again replaces itself.
        """
        run = self._runs[run_name(*self._content.run_of(event))].stored
        for file in () if run.deleted else self._content.media(event):
            self._store.attach(run, file, MEDIA)

    def _write_trial(self, parent: _Run, trial: Trial, rows: Sequence[Value]) -> _Run:
        """Write the rows, tags, parameters and status that a trial's run lacks; return the run.

        The run is created under the run `parent` if it is missing. Rows with other values are
        corrected if MLflow allows it. A deleted run stays as it is.
        """
        tags = {PARENT: parent.stored.id, **self._content.trial_tags(trial)}
        created = self._content.created_at[trial.number]
        name = title(trial.status, f"trial {trial.number}")
        run = self._run(run_name(trial.number, WHOLE), name, tags, created)
        self._write(run, rows, tags, parameters(trial))
        self._set_status(run, self._content.status_of(trial.status), trial.ended_at, name)
        if rows and self._content.grouped:  # its rows come once, and earlier ones were looked up
            run.iteration = 0
        return run

    def _write_replica(self, trial: _Run, replica: Replica, rows: Sequence[Value]) -> None:
        """Write rows, tags and status of the run of a seed or test below a trial's run."""
        tags = {PARENT: trial.stored.id, **self._content.replica_tags(replica)}
        started = replica.started_at or self._context.created_at
        kind = "test" if is_test(replica.index) else "seed"
        which = f"trial {replica.trial}, {kind} {tags['sweep.seed_index']}"
        name = title(replica.status, which)
        run = self._run(run_name(replica.trial, replica.index), name, tags, started)
        self._write(run, rows, tags, {})
        self._set_status(run, self._content.status_of(replica.status), replica.ended_at, name)

    def _run(self, name: str, title: str, tags: Mapping[str, str], started: float) -> _Run:
        """Return the run `name`, created with these tags and title if it is missing.

        A new run also gets the tags of user, source and commit. `started` is its start in seconds
        since 1970.
        """
        if name not in self._runs:
            self._origin = self._origin or _origin(self._context)
            given = {**self._origin, **tags}
            made = self._store.create(title, milliseconds(started), given)
            self._runs[name] = _Run(made, scored=True)
        return self._runs[name]

    def _write(
        self,
        run: _Run,
        rows: Sequence[Value],
        tags: Mapping[str, str],
        parameters: Mapping[str, str],
    ) -> None:
        """Send the rows, tags and parameters that a run lacks.

        Rows with other values are corrected if MLflow allows it. Does nothing for a deleted run.
        """
        stored = run.stored
        if stored.deleted:
            return
        changed = {name: text for name, text in tags.items() if stored.tags.get(name) != text}
        missing = {n: text for n, text in parameters.items() if n not in stored.parameters}
        new, other = self._new(run, rows)
        if new or changed or missing:
            self._store.log(stored, new, changed, missing)
        if other:
            self._store.replace(stored, other)
        if rows:
            others = keys_of_events(self._context.spec.metric)
            counted = [row.number for row in rows if row.key not in others]
            run.iteration, run.scored = max([run.iteration, *counted]), True

    def _new(self, run: _Run, rows: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        """Return the rows that MLflow lacks, each once, and those that have another value there.

        The latter are of iterations that were trained again.
        """
        others = keys_of_events(self._context.spec.metric)
        again = {
            row.key
            for row in rows
            if (not run.scored if row.key in others else row.number <= run.iteration)
        }
        newest = {(row.key, row.number): row for row in rows}.values()
        if not again:
            return list(newest), []
        known = {(row.key, row.time): row.value for row in self._store.rows(run.stored, again)}
        new = [row for row in newest if (row.key, row.time) not in known]
        there = (row for row in newest if (row.key, row.time) in known)
        # repr, as NaN equals nothing
        return new, [row for row in there if repr(known[row.key, row.time]) != repr(row.value)]

    def _set_status(self, run: _Run, status: str, end_time: float | None, title: str) -> None:
        """Set status and title of a run, unless these and the end are the same, or it is deleted.

        `end_time` is in seconds since 1970; None while the run continues.
        """
        stored = run.stored
        at = None if end_time is None else milliseconds(end_time)
        is_so = (stored.status, stored.title) == (status, title)
        if stored.deleted or (is_so and at in (None, stored.ended)):
            return
        self._store.set_status(stored, status, at, title)


def _known(run: StoredRun) -> _Run:
    """Return a run that MLflow has already.

    The iteration of its newest row is known only for runs of a single seed; else all rows are
    looked up.
    """
    newest = run.metrics.get("training_iteration", 0) if "sweep.seed" in run.tags else math.inf
    return _Run(run, newest)


def _origin(context: TrackerContext) -> dict[str, str]:
    """Return MLflow's tags for the user, the source and the Git commit of a run.

    The commit is that of the first folder in which modules are looked for; it is left out if that
    is in no repository.
    """
    tags = {"mlflow.source.name": context.spec.trainable, "mlflow.source.type": "LOCAL"}
    try:
        tags["mlflow.user"] = getpass.getuser()
    except (KeyError, OSError):  # the user has a number but no name
        tags["mlflow.user"] = "unknown"
    for folder in context.paths[:1]:
        ask = ["git", "-C", folder, "rev-parse", "--verify", "HEAD"]
        try:
            said = subprocess.run(ask, capture_output=True, text=True, timeout=10, check=True)  # noqa: S603 reads only
        except (OSError, subprocess.SubprocessError):
            continue
        tags["mlflow.source.git.commit"] = said.stdout.strip()
    return tags
