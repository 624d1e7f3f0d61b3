"""Differences between MLflow's copy of a sweep and its ledger, row by row.

Rows on a server cannot be changed: if iterations were run again, the first rows stay there, so only
their presence is checked. Runs that a user deleted are ignored. A run with wrong rows cannot be
repaired; it is set aside (deleted, and no longer marked as this sweep's) and sent again.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from sweep.history.events import Closed, End, Recorded, Status
from sweep.trackers import TrackerContext
from sweep.trackers._shared.mlflow_content import (
    RESTS,
    SWEEP_STATUS,
    WHOLE,
    Content,
    RunKey,
    Value,
    parameters,
    run_name,
)
from sweep.trackers._shared.mlflow_store import StoredRun, find_store

#: Ends of slices with a checkpoint at the end; after other ends iterations may be run again.
SAVED_AT_ITS_END = frozenset({End.GOAL, End.UNMEASURED, End.TIME, End.DONE, End.ASKED})
#: Key and time in milliseconds, which identify a row.
Place = tuple[str, int]


class Check:
    """Comparison of a sweep's runs in MLflow with its ledger; reads both when it is created."""

    def __init__(self, context: TrackerContext, only_read: bool = True) -> None:
        self._context = context
        self._content = Content(context)
        self._keys: dict[str, RunKey] = {}
        """Name of each run that should exist → its trial and replica; without the sweep's own
        run."""
        self._due: dict[str, dict[Place, Value]] = defaultdict(dict)
        """Name of a run → rows that it should have."""
        self._sure: dict[str, float] = {}
        """Name of a run → last iteration that was certainly run only once; absent if all were."""
        for records in context.earlier_events(math.inf):
            self._take(records)
        self._store = find_store(context, only_read)
        self._runs: dict[str, list[StoredRun]] = {}
        for run in self._store.runs() if self._store else ():
            self._runs.setdefault(run.name, []).append(run)

    def differences(self) -> Iterator[tuple[str, StoredRun | None]]:
        """Yield a text for each difference; runs that a user deleted are not compared.

        The second value is its run if sending all events again would not repair the difference,
        else None.
        """
        names = ["", *self._keys]
        for name in sorted(self._runs.keys() - set(names)):
            unknown = f"the run of trial {name}, which is not in the ledger"
            for run in _active(self._runs[name]):
                yield unknown, run
        for name in names:
            title = f"trial {name}" if name else "the sweep's run"
            for problem, wrong in self._compare(name):
                yield f"{title}: {problem}", wrong

    def set_aside(self) -> None:
        """Delete the runs that sending all events again would not repair.

        Their tag ``sweep.id`` gets "(set aside)", so that they are no longer runs of this sweep.
        """
        wrong = {run.id: run for _, run in self.differences() if run is not None}
        aside = {"sweep.id": f"{self._context.sweep_id} (set aside)"}
        for _, run in sorted(wrong.items()):
            if self._store is not None:
                self._store.log(run, (), aside, {})
                self._store.delete(run)

    def close(self) -> None:
        """Close MLflow's database."""
        if self._store is not None:
            self._store.close()

    def _take(self, records: Sequence[Recorded]) -> None:
        """Add the rows that follow from these events to those that MLflow should have.

        Notes for each run up to which iteration rows were certainly made only once.
        """
        changes = self._content.extend(records)
        self._keys |= {run_name(*run): run for run in changes.runs}
        new = {"": changes.sweep, **{run_name(*run): rows for run, rows in changes.runs.items()}}
        for name, row in ((name, row) for name, rows in new.items() for row in rows):
            self._due[name].setdefault((row.key, row.time), row)
        for closed in (r.event for r in records if isinstance(r.event, Closed)):
            if closed.end in SAVED_AT_ITS_END and not closed.skipped:
                continue
            saved = [] if closed.skipped else [saved.iteration for saved in closed.saved]
            upto = closed.source if closed.saved_to is None else closed.saved_to
            since = 0 if self._content.grouped else max([upto, *saved])
            for name in (run_name(closed.trial, WHOLE), run_name(closed.trial, closed.replica)):
                self._sure[name] = min(self._sure.get(name, math.inf), since)
            self._sure[""] = 0

    def _compare(self, name: str) -> Iterator[tuple[str, StoredRun | None]]:
        """Yield the differences of the run `name`, as `differences` does for all."""
        runs = self._runs.get(name, [])
        if not runs:
            yield "has no run", None
        active = _active(runs)
        for extra in active[1:]:
            yield f"has a second run {extra.id}", extra
        for run in active[:1]:
            expected, standing = self._due[name], self._standing(run)
            for problem in (
                *self._wrong_rows(name, expected, standing),
                *self._settings(name, run),
            ):
                yield problem, run
            if lacking := len(self._parameters(name).keys() - run.parameters.keys()):
                yield f"{lacking} settings are missing", None
            if missing := len(expected.keys() - standing.keys()):
                yield f"{missing} rows are missing", None
            if run.status not in (statuses := self._statuses(name)):
                yield f"is {run.status}, should be {statuses[0]}", None

    def _statuses(self, name: str) -> list[str]:
        """Return the statuses in MLflow that a run may have, the right one first."""
        history = self._content.history
        if not name:
            return [SWEEP_STATUS[history.ended]]
        trial, replica = self._keys[name]
        its = history.trials[trial] if replica == WHOLE else history.replica(trial, replica)
        waits = [RESTS] if its.status is Status.PAUSED else []  # until it continues
        return [self._content.status_of(its.status), *waits]

    def _settings(self, name: str, run: StoredRun) -> Iterator[str]:
        """Yield a text for each parameter of a run that has a wrong value."""
        expected = self._parameters(name)
        for setting, seen in sorted(run.parameters.items()):
            if expected.get(setting) != seen:
                yield f"the setting {setting} is {seen}"

    def _parameters(self, name: str) -> dict[str, str]:
        """Return the parameters that a run should have, name → text.

        Returns an empty dict for runs of single seeds.
        """
        trial, replica = self._keys.get(name, (0, 0))
        return parameters(self._content.history.trials[trial]) if replica == WHOLE else {}

    def _wrong_rows(
        self, name: str, expected: Mapping[Place, Value], standing: Mapping[Place, Sequence[float]]
    ) -> Iterator[str]:
        """Yield texts about rows of a run that occur twice, have other times, or other values.

        `expected` has the rows that should be there, `standing` the values of those that are.
        Values of iterations that may have been run again are not compared.
        """
        if twice := sum(len(values) > 1 for values in standing.values()):
            yield f"{twice} rows occur more than once"
        ours = {key for key, _ in expected}
        if strange := [place for place in standing if place[0] in ours and place not in expected]:
            first = "{} at {}".format(*min(strange))
            yield f"{len(strange)} rows have other times, the first is {first} ms"
        sure = self._sure.get(name, math.inf)
        wrong = [
            row
            for place, row in expected.items()
            if row.number <= sure
            and place in standing
            and not any(_same(row.value, value) for value in standing[place])
        ]
        if wrong:
            first = f"{wrong[0].key} at step {wrong[0].step}"
            yield f"{len(wrong)} rows have another value, the first is {first}"

    def _standing(self, run: StoredRun) -> dict[Place, list[float]]:
        """Return the rows of a run in MLflow: key and time → its values.

        There are several values if the row occurs more than once.
        """
        standing: dict[Place, list[float]] = {}
        rows = self._store.rows(run, run.metrics.keys()) if self._store else ()
        for row in rows:
            standing.setdefault((row.key, row.time), []).append(row.value)
        return standing


def _active(runs: Sequence[StoredRun]) -> list[StoredRun]:
    """Return those runs that are not deleted."""
    return [run for run in runs if not run.deleted]


def _same(expected: float, stored: float) -> bool:
    """Return whether two values are equal, or both NaN."""
    return expected == stored or (math.isnan(expected) and math.isnan(stored))
