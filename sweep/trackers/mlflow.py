"""MLflow: one experiment per sweep name, one run for the sweep, and below it one run per trial.

Where trials have several seeds, a trial's run has their aggregate as its curve and its score at
every event, and each seed a run below it; so has each test of a final evaluation.

The rows come from `sweep.trackers._shared.mlflow_content`; this module writes them, in batches,
through the client alone: no active run, no global tracking URI. A run is identified by its tags
``sweep.id``, ``sweep.history.trial`` and ``sweep.run``, so one that was created just before a crash
is found again. A run that a person has deleted is left alone.

Rows in MLflow cannot be changed. If iterations are run again after a crash, the first rows stay; an
exact trainable gives the same ones. When a trial goes on after it had ended (a top-up, a retry),
its run is RUNNING again, and its old end time stays until the next one. Rows that an earlier
release dated differently stay, until `sweep verify --repair` replaces their run. When the sweep's
metric changes, everything is sent again; a run with rows of the old one is deleted and made again.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from sweep import trackers
from sweep.errors import StorageError
from sweep.history.events import Measured, Recorded
from sweep.history.replica import Replica
from sweep.history.seeds import is_test
from sweep.history.trial import Trial
from sweep.ledger import tables
from sweep.trackers import TrackerContext
from sweep.trackers._shared.mlflow_content import (
    STATUS,
    SWEEP_STATUS,
    WHOLE,
    Content,
    Value,
    milliseconds,
    parameters,
    run_name,
)
from sweep.trackers._shared.mlflow_store import PARENT, connect, name_of, search

if TYPE_CHECKING:
    from mlflow.entities import Run

T = TypeVar("T")

#: Rows in one request, the most that MLflow takes; with the longest keys they stay below its 1 MB.
ROWS_AT_ONCE = 1000
#: Settings in one request; 20 of the longest values stay below 1 MB.
PARAMETERS_AT_ONCE = 20


class Tracker(trackers.Tracker):
    """Copies a sweep's history to MLflow."""

    def __init__(self, where: TrackerContext) -> None:
        self._where = where
        self._copy: _Copy | None = None

    def publish(self, records: Sequence[Recorded]) -> None:
        """Copy events; after a failure the state of the store is read again."""
        copy, self._copy = self._copy, None
        first = records[0].k
        if first > 1 and any(isinstance(record.event, Measured) for record in records):
            copy = self._anew(first - 1)
        elif copy is None or copy.k != first - 1:
            copy = _Copy(self._where, first - 1)
        copy.publish(records)
        self._copy = copy

    def _anew(self, k: int) -> "_Copy":
        """The copy up to event `k` by the present metric, in place of that by an earlier one."""
        from sweep.trackers._shared.mlflow_check import Check

        Check(self._where).set_aside()
        copy = _Copy(self._where, 0)
        for records in self._where.earlier(k):
            copy.publish(records)
        return copy

    def close(self) -> None:
        """Forget the store."""
        self._copy = None

    def unreadable(self) -> str:
        """Why the file of all sweeps cannot be read; empty if it can, or if there is a server."""
        if self._where.tracking_uri is not None:
            return ""
        return tables.unreadable(self._where.folder.mlflow)

    def differences(self) -> list[str]:
        """Where the copy differs from the whole ledger.

        A server that somebody else has named would get this user's credentials: StorageError.
        """
        from sweep.trackers._shared.mlflow_check import Check

        where = self._where
        if not where.uri_is_own:
            raise StorageError("somebody else has set its server (tracking-uri); see `sweep sync`")
        if where.tracking_uri is None and not tables.has(where.folder.mlflow, "experiments"):
            return [f"has no experiment {where.name}"]
        return [text for text, _ in Check(self._where).differences()]

    def set_aside(self) -> None:
        """Remove what sending would not repair; StorageError if the file of all is damaged."""
        from sweep.trackers._shared.mlflow_check import Check

        file = self._where.folder.mlflow
        problem = self.unreadable()
        if problem and file.exists():
            raise StorageError(
                f"{problem}; it holds the copies of all sweeps in {file.parent}: move it away, "
                f"then `sweep verify --repair` fills a new one, for each sweep"
            )
        if not problem:
            Check(self._where).set_aside()


@dataclass
class _Run:
    """A run in the store."""

    id: str
    status: str
    tags: dict[str, str]
    parameters: set[str] = field(default_factory=set)
    deleted: bool = False
    newest: float = 0
    """Rows up to this iteration, or event, may be there already."""


class _Copy:
    """The sweep's runs, brought up to event `k` and then kept up to date."""

    def __init__(self, where: TrackerContext, k: int) -> None:
        self._where = where
        self._created_ms = milliseconds(where.created_at)
        """An earlier release dated rows by their numbers, in milliseconds from here on."""
        self._content = Content(where)
        for records in where.earlier(k):
            self._content.extend(records)
        self._client, self._experiment = connect(where)
        self._runs: dict[str, _Run] = {}
        """Name (`run_name`; empty for the sweep's own) → run."""
        found = search(self._client, self._experiment, where.sweep_id)
        for run in sorted(found, key=lambda run: -len(run.data.metrics)):
            self._remember(run)

    @property
    def k(self) -> int:
        """The number of the newest event in the copy."""
        return self._content.history.k

    def publish(self, records: Sequence[Recorded]) -> None:
        """Write what `records` change: of each trial its rows first, then its status."""
        changes = self._content.extend(records)
        tags = self._content.sweep_tags()
        parent = self._run("", self._where.name, tags, self._where.created_at)
        for (number, replica), rows in sorted(changes.runs.items()):
            trial = self._content.history.trials[number]
            run = self._write_trial(parent, trial, rows if replica == WHOLE else ())
            if replica != WHOLE:
                self._write_replica(run, self._content.history.replica(number, replica), rows)
        self._write(parent, changes.sweep, tags, {})
        parent.newest = self.k
        ended = self._content.history.ended
        self._set_status(parent, SWEEP_STATUS[ended], self._content.ended_at if ended else None)

    def _write_trial(self, parent: _Run, trial: Trial, rows: Sequence[Value]) -> _Run:
        tags = {PARENT: parent.id, **self._content.trial_tags(trial)}
        created = self._content.created_at[trial.number]
        run = self._run(run_name(trial.number, WHOLE), f"trial {trial.number}", tags, created)
        self._write(run, rows, tags, parameters(trial))
        self._set_status(run, STATUS[trial.status], trial.ended_at)
        if rows and self._content.grouped:  # its rows come once; earlier ones have been looked up
            run.newest = 0
        return run

    def _write_replica(self, trial: _Run, replica: Replica, rows: Sequence[Value]) -> None:
        tags = {PARENT: trial.id, **self._content.replica_tags(replica)}
        started = replica.started_at or self._where.created_at
        kind = "test" if is_test(replica.index) else "seed"
        title = f"trial {replica.trial}, {kind} {tags['sweep.history.replica']}"
        run = self._run(run_name(replica.trial, replica.index), title, tags, started)
        self._write(run, rows, tags, {})
        self._set_status(run, STATUS[replica.status], replica.ended_at)

    def _remember(self, run: "Run") -> None:
        """Remember a run; another one of its name, by a request that timed out, is deleted."""
        name = name_of(run)
        if name not in self._runs:
            self._runs[name] = _known(run)
        elif run.info.lifecycle_stage == "active":
            self._client.delete_run(run.info.run_id)

    def _run(self, name: str, title: str, tags: Mapping[str, str], started: float) -> _Run:
        if name not in self._runs:
            made = self._client.create_run(
                self._experiment, milliseconds(started), dict(tags), title
            )
            self._runs[name] = _known(made)
        return self._runs[name]

    def _write(
        self,
        run: _Run,
        rows: Sequence[Value],
        tags: Mapping[str, str],
        parameters: Mapping[str, str],
    ) -> None:
        """Send the given rows, tags and parameters that the run does not have yet."""
        from mlflow.entities import Metric, Param, RunTag

        if run.deleted:
            return
        missing = [name for name in parameters if name not in run.parameters]
        for names in _batches(missing, PARAMETERS_AT_ONCE):
            params = [Param(name, parameters[name]) for name in names]
            self._client.log_batch(run.id, params=params, synchronous=True)
            run.parameters.update(names)
        for batch in _batches(self._new(run, rows), ROWS_AT_ONCE):
            # newest first, since a store looks for the newest row of each key
            newest_first = [Metric(r.key, r.value, r.time, r.step) for r in reversed(batch)]
            self._client.log_batch(run.id, metrics=newest_first, synchronous=True)
        run.newest = max([run.newest, *(row.number for row in rows)])
        changed = {name: text for name, text in tags.items() if run.tags.get(name) != text}
        if changed:
            run_tags = [RunTag(name, text) for name, text in changed.items()]
            self._client.log_batch(run.id, tags=run_tags, synchronous=True)
            run.tags.update(changed)

    def _new(self, run: _Run, rows: Sequence[Value]) -> list[Value]:
        """Those of `rows` that are not in the store, each once."""
        known: set[tuple[str, int]] = set()
        outdated: set[tuple[str, int, int]] = set()
        for name in sorted({row.key for row in rows if row.number <= run.newest}):
            for row in self._client.get_metric_history(run.id, name):
                known.add((name, row.timestamp))
                outdated.add((name, row.timestamp - self._created_ms, row.step))
        new: dict[tuple[str, int], Value] = {}
        for value in rows:
            is_outdated = (value.key, value.number, value.step) in outdated
            if (value.key, value.time) not in known and not is_outdated:
                new.setdefault((value.key, value.number), value)
        return list(new.values())

    def _set_status(self, run: _Run, status: str, ended: float | None) -> None:
        if run.deleted or run.status == status:
            return
        if ended is None:
            self._client.update_run(run.id, status)
        else:
            self._client.set_terminated(run.id, status, milliseconds(ended))
        run.status = status


def _known(run: "Run") -> _Run:
    """A run as the store describes it; which rows it has is only known of one with a seed."""
    data = run.data
    newest = data.metrics.get("training_iteration", 0) if "sweep.seed" in data.tags else math.inf
    deleted = run.info.lifecycle_stage == "deleted"
    tags = dict(data.tags)
    return _Run(run.info.run_id, run.info.status, tags, set(data.params), deleted, newest)


def _batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
