"""The rows, tags and parameters of a sweep in MLflow, as functions of its history.

A row's step is ``timesteps_total`` if the result has it, else the iteration; in the sweep's own
run, the sum of all trials' steps. Its time comes from the ledger, so that a row that is sent again
is the same row; an iteration that was run again keeps its first time. NaN stays NaN; ±infinity
becomes the largest finite number of that sign, since SQL has no infinity.

A trial's curves are its results without counts that never change or are every row's step, and
``score``: what it was worth each time that it came to rest, at a rung or at its end. A pruned or
stopped trial is FINISHED and its run's name says so: MLflow draws KILLED like a failure.
"""

import hashlib
import math
import posixpath
import re
import sys
from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from sweep.history import ranking
from sweep.history.events import (
    UNSAVED,
    Closed,
    Created,
    Dropped,
    Event,
    Moved,
    Opened,
    Recorded,
    Reported,
    Row,
    Scalar,
    Status,
    TermEnded,
)
from sweep.history.history import History
from sweep.history.replica import Replica
from sweep.history.results import number
from sweep.history.seeds import FIRST_TEST, is_test, replica_name, seed_of
from sweep.history.trial import Trial
from sweep.ledger.folder import leads_elsewhere
from sweep.space import choice_key
from sweep.trackers import TrackerContext
from sweep.trackers._shared.groups import Curve
from trainables.core.results import VOLATILE_KEYS

#: First parts of result keys that are no curves.
NOT_CURVES = VOLATILE_KEYS - {"time_total_s"} | {"done", "evaluation_at_start", UNSAVED}
#: Results that seldom change or are the step of every row: no curves, unless they are compared.
COUNTS = frozenset(
    {
        *("timesteps_total", "timesteps_this_iter", "episodes_total", "episodes_this_iter"),
        *("num_healthy_workers", "evaluation/episodes"),
    }
)
#: The score of a trial; a metric of this name leaves it the second one, another result moves away.
SCORE, OTHER_SCORE = "score", "sweep/score"
#: What its settings are expected to score under a new seed, with the same exception.
EXPECTED, OTHER_EXPECTED = "expected_score", "sweep/expected_score"
#: Of so many trials this is said anew when a driver leaves: the first in rank.
SAID_AT_THE_END = 1000
#: Results of a trainer about its machine → MLflow's names; in the sweep's own run.
SYSTEM = {
    "perf/cpu_util_percent": "system/cpu_utilization_percentage",
    "perf/ram_util_percent": "system/system_memory_usage_percentage",
}
#: In a trial's folder, among the keys of its results, and in MLflow.
MEDIA = "media"
#: The tag of a trial's run by which MLflow sorts trials as every table of sweep does. MLflow itself
#: puts the newest of equal scores first.
ORDER = "sweep.order"
MEDIA_FILE = re.compile(r"\d{6}-[A-Za-z0-9_-]{1,90}\.(png|json|mp4)")
#: What of the rows and statuses a copy has; the tag ``sweep.layout`` of the sweep's own run. A copy
#: with another one may lack scores, and pruned trials may be KILLED there.
LAYOUT = "3"

STATUS: Mapping[Status, str] = {
    Status.WAITING: "SCHEDULED",
    Status.RUNNING: "RUNNING",
    Status.PAUSED: "RUNNING",
    Status.COMPLETED: "FINISHED",
    Status.PRUNED: "FINISHED",
    Status.STOPPED: "FINISHED",
    Status.FAILED: "FAILED",
}
#: What stands before the name of a run.
PREFIX = {Status.PRUNED: "pruned ", Status.STOPPED: "stopped "}
#: The status of a trial that waits for the next driver.
RESTS = "SCHEDULED"
#: How a term ended (empty while it runs) → the status of the sweep's run.
SWEEP_STATUS = {"": "RUNNING", "finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}

LONGEST_KEY = 250
LONGEST_PARAMETER = 6000
LONGEST_TAG = 2000
_LARGEST_STEP = 2**63 - 1
#: MLflow's own rule, in any alphabet.
_KEY = re.compile(r"[\w.\-/ :]+")


class Value(NamedTuple):
    """One row of a curve."""

    key: str
    number: int
    """Of the iteration, or of the event; with the key it identifies the row."""
    value: float
    step: int
    time: int
    """Milliseconds since 1970; rows of one key have different ones."""


#: The trial of a run, and the replica or test below it; -1: the trial itself.
RunKey = tuple[int, int]
WHOLE = -1


@dataclass
class Changes:
    """Changes to the copy by a few events."""

    runs: dict[RunKey, list[Value]] = field(default_factory=dict)
    """Run → its new rows; with every run that the events are about, and its trial's."""
    sweep: list[Value] = field(default_factory=list)
    """New rows of the sweep's own run."""


class Times:
    """When the rows of a run were made: number → milliseconds since 1970, all different."""

    def __init__(self) -> None:
        self._numbers, self._times = array("q"), array("q")
        self._last = 0

    def of(self, number: int) -> int | None:
        """The time of a row, if it is known."""
        place = bisect_left(self._numbers, number)
        known = place < len(self._numbers) and self._numbers[place] == number
        return self._times[place] if known else None

    def add(self, number: int, milliseconds: int) -> int:
        """The row's time if it is known, else `milliseconds`, or 1 ms after the newest time."""
        known = self.of(number)
        if known is not None:
            return known
        self._last = max(milliseconds, self._last + 1)
        place = bisect_left(self._numbers, number)
        self._numbers.insert(place, number)
        self._times.insert(place, self._last)
        return self._last


class Content:
    """A fold over the events: `extend` returns the new rows, the rest describes the present."""

    def __init__(self, where: TrackerContext) -> None:
        self.history = History(where.objective, shows_unsaved=True)
        self.ended_at = 0.0
        """When the newest term ended, in seconds since 1970."""
        self.created_at: dict[int, float] = {}
        """Trial → when it was created, in seconds since 1970."""
        self._where = where
        objective = where.objective
        others = (name for name in objective.other_results if name not in (SCORE, EXPECTED))
        self._compared = frozenset({objective.metric, *others})
        """Results that are curves though they be counts, each under its own name; the key of the
        trial's score is none of them."""
        self._steps = self._iterations = 0
        """Of all trials, so far."""
        self._standing: dict[int, int] = {}
        """Trial → its steps so far, of several seeds the most."""
        self._scored: dict[int, tuple[int, float]] = {}
        """Trial → its steps when it came to rest last, and what it was worth."""
        self._said: dict[int, tuple[int, float]] = {}
        """Trial → its steps and its expectation when that was said last."""
        self._curves: dict[int, Curve] = {}
        """Trial → its curve, where trials have several seeds."""
        self._began: dict[tuple[int, int], float] = {}
        """Trial and replica → when its newest slice began."""
        self._results: dict[RunKey, Times] = defaultdict(Times)
        """Run → when its iterations were finished."""
        self._events: dict[RunKey | None, Times] = defaultdict(Times)
        """Run (None for the sweep's own) → when the events of its rows were recorded."""

    @property
    def grouped(self) -> bool:
        """True if a trial has several seeds, each with a run below the trial's."""
        return self._where.spec.seeds != 1

    def extend(self, records: Sequence[Recorded]) -> Changes:
        """Take in events in the order of their numbers."""
        changes = Changes()
        for record in records:
            self.history.extend([record])
            event = record.event
            for run in self._about(event):
                changes.runs.setdefault(run, [])
            if isinstance(event, Created):
                self.created_at[event.trial] = record.at
            elif isinstance(event, Opened):
                self._began[event.trial, event.replica] = record.at
            elif isinstance(event, Reported | Closed):
                self._add(changes, event, record)
            if isinstance(event, Closed | Moved) and not is_test(event.replica):
                changes.runs[event.trial, WHOLE] += self._score(event.trial, record)
            elif isinstance(event, TermEnded):
                self._end(changes, record)
        return changes

    def _end(self, changes: Changes, record: Recorded) -> None:
        """Add what is said when a driver leaves, of the best trials too, which all others move."""
        self.ended_at = record.at
        changes.sweep += self._counts(record)
        for trial in self.history.ranked()[:SAID_AT_THE_END]:
            rows = changes.runs.setdefault((trial.number, WHOLE), [])
            rows += self._expected(trial, record)

    def _add(self, changes: Changes, event: Reported | Closed, record: Recorded) -> None:
        """Add the rows of a slice, and what they change in its trial and the sweep."""
        run = self._about(event)[-1]
        changes.runs[run] += self._rows(run, event, record.at)
        if event.rows and not is_test(event.replica):
            self._steps = int(self.history.total(_steps_of))
            self._iterations = int(self.history.total(_iterations_of))
            if isinstance(event, Closed):
                changes.sweep += self._progress(event, record)
            changes.runs[event.trial, WHOLE] += self._group(event)
            step = max(self._standing.get(event.trial, 0), _step(event.rows[-1]))
            self._standing[event.trial] = step

    def _rows(self, run: RunKey, event: Reported | Closed, ended: float) -> Iterator[Value]:
        replica = self.history.replica(event.trial, event.replica)
        earliest = replica.started_at or self._where.created_at
        began = max(self._began.get((event.trial, event.replica), ended), earliest)
        for row in event.rows:
            made = milliseconds(made_at(row, began, ended))
            yield from values(row, self._results[run].add(row.iteration, made), self._compared)

    def status_of(self, status: Status) -> str:
        """The run's status of a trial or replica; one that is paused rests while nobody drives."""
        return RESTS if status is Status.PAUSED and self.history.ended else STATUS[status]

    def _of_event(
        self, name: str, value: float, record: Recorded, run: RunKey | None = None, step: int = 0
    ) -> Value:
        """A row about an event, by default of the sweep's own run."""
        time = self._events[run].add(record.k, milliseconds(record.at))
        step = step if run else self._steps or self._iterations
        return Value(name, record.k, finite(value), step, time)

    def _about(self, event: Event) -> list[RunKey]:
        """The runs that an event changes, the one that has its results last."""
        if isinstance(event, Created):
            return [(event.trial, WHOLE)]
        if not isinstance(event, Opened | Reported | Closed | Moved | Dropped):
            return []
        own = [(event.trial, event.replica)] if self.grouped or is_test(event.replica) else []
        return [(event.trial, WHOLE), *own]

    def run_of(self, event: Reported | Closed) -> RunKey:
        """The run that has its results."""
        return self._about(event)[-1]

    def media(self, event: Reported | Closed) -> Iterator[Path]:
        """The files that its results name: what callbacks show of episodes."""
        trial = self._where.folder.trial(event.trial, event.replica)
        folder = trial / MEDIA
        if leads_elsewhere(trial) or folder.is_symlink():
            return
        for key, name in (
            (key, name) for row in event.new_rows for key, name in row.metrics.items()
        ):
            named = MEDIA in key.split("/")[:-1] and isinstance(name, str)
            if named and MEDIA_FILE.fullmatch(str(name)):
                file = folder / str(name)
                if file.is_file() and not file.is_symlink():
                    yield file

    def _group(self, event: Reported | Closed) -> Iterator[Value]:
        """The aggregate of a trial's seeds by iteration, dated by the last of them."""
        if not self.grouped:
            return
        trial = self.history.trials[event.trial]
        curve = self._curves.setdefault(event.trial, Curve(trial.objective))
        whole = (trial.number, WHOLE)
        for row in curve.extend(trial, event):
            seeds = (self._results[trial.number, r.index].of(row.iteration) for r in trial.replicas)
            made = max(time for time in seeds if time is not None)
            time = self._results[whole].add(row.iteration, made)
            yield from values(row, time, self._compared)

    def _score(self, number: int, record: Recorded) -> Iterator[Value]:
        """Yield the score of a trial that paused or ended, unless it was sent for these steps.

        A seed that has joined changes it, and MLflow's newest row is that of the most steps.
        """
        trial, step = self.history.trials[number], self._standing.get(number)
        rest = trial.rests[-1] if trial.rests else None
        if rest is None or rest.k != record.k or rest.score is None or step is None:
            return
        if self._scored.get(number) != (step, rest.score):
            self._scored[number] = (step, rest.score)
            name = score_key(self._where.spec.metric)
            yield self._of_event(name, rest.score, record, (number, WHOLE), step)
        yield from self._expected(trial, record)

    def _expected(self, trial: Trial, record: Recorded) -> Iterator[Value]:
        """Yield the expected score of a trial's settings, unless it is the one sent before."""
        expected, step = self.history.expected(trial), self._standing.get(trial.number)
        if expected is None or step is None:
            return
        said = (step, expected.value)
        if self._said.get(trial.number) == said:
            return
        self._said[trial.number] = said
        name, whole = expected_key(self._where.spec.metric), (trial.number, WHOLE)
        yield self._of_event(name, expected.value, record, whole, step)

    def _progress(self, event: Closed, record: Recorded) -> Iterator[Value]:
        """The best score so far, and the machine's load: one row for each slice that ended."""
        best = self.history.highest
        score = None if best is None else best.score
        if score is not None:
            yield self._of_event(key(f"best/{self._where.spec.metric}"), score, record)
        for result, name in SYSTEM.items():
            seen = [number(row.metrics.get(result)) for row in event.rows]
            finite_ones = [n for n in seen if n is not None and math.isfinite(n)]
            if finite_ones:
                yield self._of_event(name, sum(finite_ones) / len(finite_ones), record)

    def _counts(self, record: Recorded) -> Iterator[Value]:
        """Yield the number of trials in each status, when a driver leaves."""
        for status in Status:
            count = self.history.count(status)
            yield self._of_event(f"trials/{status.lower()}", count, record)

    def sweep_tags(self) -> dict[str, str]:
        """Tags of the sweep's own run."""
        where, spec = self._where, self._where.spec
        best = self.history.best
        return {
            "sweep.id": where.sweep_id,
            "sweep.searcher": spec.searcher.name,
            "sweep.scheduler": spec.scheduler.name,
            "sweep.metric": spec.metric,
            "sweep.mode": spec.mode,
            "sweep.trials": str(len(self.history.trials)),
            "sweep.best_trial": "" if best is None else str(best.number),
            "sweep.searched": cut(", ".join(spec.space.searched), LONGEST_TAG),
            **{f"sweep.version.{name}": version for name, version in where.versions.items()},
            "mlflow.note.content": _note(where),
        }

    def trial_tags(self, trial: Trial) -> dict[str, str]:
        """Tags of a trial's run, without the parent run; ``sweep.parent`` only of a bred trial."""
        bred = {} if trial.parent is None else {"sweep.parent": str(trial.parent)}
        expected = self.history.expected(trial)
        order = ranking.order_text(trial, expected, trial is self.history.best)
        own = {**bred, ORDER: order}
        if not self.grouped:
            return {**own, **self._tags(trial.replicas[0])}
        return {
            **own,
            "sweep.id": self._where.sweep_id,
            "sweep.history.trial": str(trial.number),
            "sweep.seeds": str(len(trial.replicas)),
            "sweep.status": trial.status.value,
            "sweep.reason": cut(trial.reason, LONGEST_TAG),
        }

    def replica_tags(self, replica: Replica) -> dict[str, str]:
        """Tags of a run below a trial's, of one seed or one test."""
        test = {"sweep.test": "true"} if is_test(replica.index) else {}
        return {**self._tags(replica), **test, "sweep.run": run_name(replica.trial, replica.index)}

    def _tags(self, replica: Replica) -> dict[str, str]:
        newest, index, lost = replica.newest, replica.index, replica.unsaved
        unsaved = f"{lost} after iteration {replica.saved_to}" if lost else ""
        return {
            "sweep.id": self._where.sweep_id,
            "sweep.history.trial": str(replica.trial),
            "sweep.history.seed_index": str(index - FIRST_TEST if is_test(index) else index),
            "sweep.seed": str(seed_of(self._where.spec.seed, replica.trial, index)),
            "sweep.status": replica.status.value,
            "sweep.reason": cut(replica.reason, LONGEST_TAG),
            "sweep.checkpoint": "" if newest is None else newest.file,
            "sweep.unsaved": unsaved,
        }


def _steps_of(trial: Trial) -> tuple[float, ...]:
    return tuple(replica.steps for replica in trial.replicas)


def _iterations_of(trial: Trial) -> tuple[float, ...]:
    return tuple(float(len(replica.curve)) for replica in trial.replicas)


def run_name(trial: int, replica: int) -> str:
    """The name of a run within its sweep: ``3``, of a seed ``3.0``, of a test ``3.test0``."""
    if replica == WHOLE:
        return str(trial)
    return replica_name(trial, replica) if replica else f"{trial}.0"


def score_key(metric: str) -> str:
    """The key of a trial's score in a sweep by this metric."""
    return OTHER_SCORE if metric == SCORE else SCORE


def expected_key(metric: str) -> str:
    """The key of what a trial's settings are expected to score."""
    return OTHER_EXPECTED if metric == EXPECTED else EXPECTED


def keys_of_events(metric: str) -> tuple[str, str]:
    """The keys of which the rows are about events, not iterations."""
    return score_key(metric), expected_key(metric)


def title(status: Status, name: str) -> str:
    """Return the title of a run."""
    return f"{PREFIX.get(status, '')}{name}"


def values(row: Row, time: int, compared: Container[str]) -> Iterator[Value]:
    """The numbers of a result that was made at `time` as rows.

    The iteration comes first: if a store lacks it, it lacks the others too.
    """
    step, metrics = _step(row), row.metrics
    first = metrics.get("training_iteration")
    if first is not None and not isinstance(first, str):
        yield Value("training_iteration", row.iteration, finite(first), step, time)
    for name, value in metrics.items():
        if not isinstance(value, str) and name != "training_iteration":
            called = _curve(name, name in compared)
            if called:
                yield Value(called, row.iteration, finite(value), step, time)


@lru_cache(maxsize=10_000)
def _curve(name: str, is_compared: bool) -> str:
    """Return the name of a result in MLflow; empty if it is no curve."""
    if is_compared:
        return key(name)
    if name in COUNTS or name.split("/")[0] in NOT_CURVES:
        return ""
    return f"results/{name}" if name in (SCORE, EXPECTED) else key(name)


def made_at(row: Row, began: float, ended: float) -> float:
    """When a result was made, in seconds since 1970: its ``timestamp`` if that is within its slice.

    A trainable may report any timestamp; without one it is the end of the slice.
    """
    said = row.metrics.get("timestamp")
    made = math.nan if said is None or isinstance(said, str) else finite(said)
    return max(began, ended if math.isnan(made) else min(made, ended))


def milliseconds(seconds: float) -> int:
    """A time as MLflow keeps it."""
    return int(seconds * 1000)


def _step(row: Row) -> int:
    steps = row.metrics.get("timesteps_total")
    if isinstance(steps, int | float) and 0 <= steps <= _LARGEST_STEP:
        return int(steps)
    return row.iteration


def finite(value: Scalar) -> float:
    """The value as MLflow's stores keep it; NaN stays."""
    try:
        number = float(value)
    except OverflowError:  # an int beyond the range of float
        number = math.inf if int(value) > 0 else -math.inf
    return math.copysign(sys.float_info.max, number) if math.isinf(number) else number


def parameters(trial: Trial) -> dict[str, str]:
    """Every setting of a trial by its dotted name: what was searched, then all that is fixed."""
    settings = {**trial.searched, **_fixed(trial.config, trial.searched)}
    return {key(name): parameter(value) for name, value in settings.items()}


def _fixed(config: Mapping[str, Any], searched: Container[str], above: str = "") -> dict[str, Any]:
    """The leaves of a trainable's settings, without those that were searched."""
    leaves: dict[str, Any] = {}
    for part, value in config.items():
        name = f"{above}{part}"
        if name in searched:
            continue
        if isinstance(value, Mapping) and value:
            leaves |= _fixed(value, searched, f"{name}.")
        else:
            leaves[name] = value
    return leaves


@lru_cache(maxsize=10_000)
def key(name: str) -> str:
    """`name` if MLflow accepts it, else its allowed characters and a digest."""
    normal = posixpath.normpath(name) == name and name[0] not in "./"
    if normal and len(name) <= LONGEST_KEY and _KEY.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:8]
    readable = re.sub(r"[^\w.\- :]+", "_", name).strip("./")
    return f"{readable[: LONGEST_KEY - 9]}-{digest}"


def parameter(value: Any) -> str:
    """A setting as text: strings as they are, everything else as canonical JSON."""
    return cut(value if isinstance(value, str) else choice_key(value), LONGEST_PARAMETER)


def cut(text: str, limit: int) -> str:
    """`text` for a database, with a note if it was cut."""
    text = text.encode("utf-8", "backslashreplace").decode()  # half characters of odd file names
    if len(text) <= limit:
        return text
    note = f" … (cut; {len(text)} characters)"
    return text[: limit - len(note)] + note


def _note(where: TrackerContext) -> str:
    spec = where.spec
    best = "least" if spec.mode == "min" else "greatest"
    return (
        f"**{where.name}**: `{spec.trainable}`, searched by {spec.searcher.name}, scheduled by "
        f"{spec.scheduler.name}; best is the {best} `{spec.metric}`.\n\n"
        f"Each trial is a run below this one. This page is a copy: the sweep itself lies in its "
        f"folder.\n\n"
        f"    sweep status {where.name}\n"
        f"    sweep resume {where.name}\n"
        f"    sweep export-model {where.name} --out DIR\n"
    )
