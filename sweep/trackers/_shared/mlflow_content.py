"""The rows, tags and parameters of a sweep in MLflow, as functions of its history.

A row's step is ``timesteps_total`` if the result has it, else the iteration; in the sweep's own
run, the sum of all trials' steps. Its time comes from the ledger, so that a row that is sent again
is identical; an iteration that was run again keeps its first time. NaN stays NaN; ±infinity becomes
the largest finite number of that sign, since SQL has no infinity.

A trial's curves are its results, without counts that never change or equal every row's step, and
``score``: the trial's score at each pause at a rung and at its end. A pruned or stopped trial is
FINISHED and its run's name says so: MLflow displays KILLED like a failure.
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
from sweep.history.results import to_number
from sweep.history.seeds import FIRST_TEST, is_test, replica_name, seed_of
from sweep.history.trial import Trial
from sweep.ledger.changes import Changes as SpecChanges
from sweep.ledger.folder import leads_elsewhere
from sweep.spec.space import choice_key
from sweep.trackers import TrackerContext
from sweep.trackers._shared.groups import Curve
from trainables.core.results import VOLATILE_KEYS

#: First parts of result keys that are not sent as curves.
NOT_CURVES = VOLATILE_KEYS - {"time_total_s"} | {"done", "evaluation_at_start", UNSAVED}
#: Results that seldom change or equal every row's step: sent as curves only if they are compared.
COUNTS = frozenset(
    {
        *("timesteps_total", "timesteps_this_iter", "episodes_total", "episodes_this_iter"),
        *("num_healthy_workers", "evaluation/episodes"),
    }
)
#: Key of a trial's score, and the key used instead if the metric has this name.
SCORE, OTHER_SCORE = "score", "sweep/score"
#: Key of the expected score under a new seed, and its replacement.
EXPECTED, OTHER_EXPECTED = "expected_score", "sweep/expected_score"
#: Number of best trials whose expected scores are sent again at a driver's end.
SAID_AT_THE_END = 1000
#: Result of a trainer about its machine → MLflow's name; in the sweep's own run.
SYSTEM = {
    "perf/cpu_util_percent": "system/cpu_utilization_percentage",
    "perf/ram_util_percent": "system/system_memory_usage_percentage",
}
#: Name of the media folder in a trial's folder, in result keys, and in MLflow.
MEDIA = "media"
#: Tag of a trial's run by which MLflow sorts trials like all tables of sweep. By itself MLflow
#: would place the newest of equal scores first.
ORDER = "sweep.order"
#: Pattern of the name of a picture, video or table.
MEDIA_FILE = re.compile(r"\d{6}-[A-Za-z0-9_-]{1,90}\.(png|json|mp4)")
#: Tag of the sweep's own run that is set while the copy contains all earlier events. A copy
#: without it was interrupted while all events were sent again.
COMPLETE = "sweep.complete"

#: Status of a trial → status of its run in MLflow.
STATUS: Mapping[Status, str] = {
    Status.WAITING: "SCHEDULED",
    Status.RUNNING: "RUNNING",
    Status.PAUSED: "RUNNING",
    Status.COMPLETED: "FINISHED",
    Status.PRUNED: "FINISHED",
    Status.STOPPED: "FINISHED",
    Status.FAILED: "FAILED",
}
#: Status → prefix of a run's name.
PREFIX = {Status.PRUNED: "pruned ", Status.STOPPED: "stopped "}
#: Status of a paused trial that waits for the next driver.
RESTS = "SCHEDULED"
#: End of a term (empty while it runs) → status of the sweep's run.
SWEEP_STATUS = {"": "RUNNING", "finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}

#: Maximum length of a key, in characters.
LONGEST_KEY = 250
#: Maximum length of a parameter's value, in characters.
LONGEST_PARAMETER = 6000
#: Maximum length of a tag's value, in characters.
LONGEST_TAG = 2000
#: Maximum step of a metric.
_LARGEST_STEP = 2**63 - 1
#: MLflow's rule for keys, for any alphabet.
_KEY = re.compile(r"[\w.\-/ :]+")


class Value(NamedTuple):
    """Row of a curve in MLflow."""

    key: str
    """Name of the curve."""
    number: int
    """Number of the iteration or event that the row is about. Together with `key` it identifies the
    row."""
    value: float
    """Value on the vertical axis of the curve; finite or NaN."""
    step: int
    """Value on the horizontal axis of the curve: environment steps, else iterations."""
    time: int
    """Time in milliseconds since 1970, different for all rows of one key."""


#: Trial of a run, and its replica or test; -1 for the trial itself.
RunKey = tuple[int, int]
#: Index in a `RunKey` of the trial itself.
WHOLE = -1


@dataclass
class Changes:
    """Rows that some events add to the runs in MLflow."""

    runs: dict[RunKey, list[Value]] = field(default_factory=dict)
    """Key of a run → its new rows, perhaps none; has every run that the events concern."""
    sweep: list[Value] = field(default_factory=list)
    """New rows of the sweep's own run."""


class Times:
    """Times of a run's rows in MLflow: number → milliseconds since 1970, all different.

    The number is that of the iteration or event that the row is about.
    """

    def __init__(self) -> None:
        self._numbers, self._times = array("q"), array("q")
        self._last = 0

    def get(self, number: int) -> int | None:
        """Return the time of the row with this number; None if it has none."""
        place = bisect_left(self._numbers, number)
        known = place < len(self._numbers) and self._numbers[place] == number
        return self._times[place] if known else None

    def add(self, number: int, milliseconds: int) -> int:
        """Return the time of the row with this number, giving it one if it has none.

        A new one is `milliseconds`, or the newest plus 1 if that is not later.
        """
        known = self.get(number)
        if known is not None:
            return known
        self._last = max(milliseconds, self._last + 1)
        place = bisect_left(self._numbers, number)
        self._numbers.insert(place, number)
        self._times.insert(place, self._last)
        return self._last


class Content:
    """Everything that MLflow should show about a sweep, computed from its events.

    `extend` returns the new rows; other methods return the present tags and statuses.
    """

    def __init__(self, context: TrackerContext) -> None:
        self.history = History(context.objective, shows_unsaved=True)
        self.ended_at = 0.0
        """End of the newest term in seconds since 1970; 0 before one."""
        self.created_at: dict[int, float] = {}
        """Number of a trial → time of its creation in seconds since 1970."""
        self._context = context
        self._spec_changes = SpecChanges(context.first_spec or context.spec)
        objective = context.objective
        others = (name for name in objective.other_results if name not in (SCORE, EXPECTED))
        self._compared = frozenset({objective.metric, *others})
        """Names of results that are sent as curves even if they are counts; without those named
        like a score."""
        self._steps = self._iterations = 0
        """Environment steps, and iterations, of all trials so far."""
        self._standing: dict[int, int] = {}
        """Number of a trial → its environment steps so far, the maximum over its seeds."""
        self._scored: dict[int, tuple[int, float]] = {}
        """Number of a trial → its steps and score when the score was last sent."""
        self._said: dict[int, tuple[int, float]] = {}
        """Number of a trial → its steps and expected score when the latter was last sent."""
        self._curves: dict[int, Curve] = {}
        """Number of a trial → its curve over all seeds; filled only if trials may have several
        seeds."""
        self._began: dict[tuple[int, int], float] = {}
        """Trial and replica → start of the newest slice in seconds since 1970."""
        self._results: dict[RunKey, Times] = defaultdict(Times)
        """Key of a run → times of its iterations."""
        self._events: dict[RunKey | None, Times] = defaultdict(Times)
        """Key of a run (None for the sweep's own) → times of the events that have rows."""

    @property
    def grouped(self) -> bool:
        """True if trials may have several seeds, so that each seed has a run below the trial's."""
        return self._context.spec.seed_plan != 1

    def extend(self, records: Sequence[Recorded]) -> Changes:
        """Apply events, in the order of their numbers, and return the rows that they add."""
        changes = Changes()
        self._spec_changes.extend(records)
        for record in records:
            self.history.extend([record])
            event = record.event
            for run in self._about(event):
                changes.runs.setdefault(run, [])
            if isinstance(event, Created):
                self.created_at[event.trial] = record.time
            elif isinstance(event, Opened):
                self._began[event.trial, event.replica] = record.time
            elif isinstance(event, Reported | Closed):
                self._add(changes, event, record)
            if isinstance(event, Closed | Moved) and not is_test(event.replica):
                changes.runs[event.trial, WHOLE] += self._score(event.trial, record)
            elif isinstance(event, TermEnded):
                self._end(changes, record)
        return changes

    def _end(self, changes: Changes, record: Recorded) -> None:
        """Add the rows at the end of a driver's term, and set `ended_at`.

        They are counts of trials, and expected scores of the best `SAID_AT_THE_END` trials, which
        all trials influence.
        """
        self.ended_at = record.time
        changes.sweep += self._counts(record)
        for trial in self.history.ranked()[:SAID_AT_THE_END]:
            rows = changes.runs.setdefault((trial.number, WHOLE), [])
            rows += self._expected(trial, record)

    def _add(self, changes: Changes, event: Reported | Closed, record: Recorded) -> None:
        """Add the rows of an event's results to its run, its trial's run and the sweep's own.

        The sweep's own run gets rows only when a slice has ended. Results of a test are only in its
        run.
        """
        run = self._about(event)[-1]
        changes.runs[run] += self._rows(run, event, record.time)
        if event.rows and not is_test(event.replica):
            self._steps = int(self.history.total(_steps_of))
            self._iterations = int(self.history.total(_iterations_of))
            if isinstance(event, Closed):
                changes.sweep += self._progress(event, record)
            changes.runs[event.trial, WHOLE] += self._group(event)
            step = max(self._standing.get(event.trial, 0), _step(event.rows[-1]))
            self._standing[event.trial] = step

    def _rows(self, run: RunKey, event: Reported | Closed, end_time: float) -> Iterator[Value]:
        """Yield the rows of an event's results.

        Its slice, or the event, ended at `end_time` (seconds since 1970). Each iteration keeps its
        first time.
        """
        replica = self.history.replica(event.trial, event.replica)
        earliest = replica.started_at or self._context.created_at
        began = max(self._began.get((event.trial, event.replica), end_time), earliest)
        for row in event.rows:
            made = milliseconds(made_at(row, began, end_time))
            yield from values(row, self._results[run].add(row.iteration, made), self._compared)

    def status_of(self, status: Status) -> str:
        """Return MLflow's status for a status of a trial or replica.

        A paused one is scheduled if no driver runs.
        """
        return RESTS if status is Status.PAUSED and self.history.ended else STATUS[status]

    def _of_event(
        self, name: str, value: float, record: Recorded, run: RunKey | None = None, step: int = 0
    ) -> Value:
        """Return a row about an event, not an iteration, for the curve `name`.

        `run` is its run, and `step` its number of environment steps. `run` is None for the sweep's
        own run, whose step is the sum of all trials' steps.
        """
        time = self._events[run].add(record.number, milliseconds(record.time))
        step = step if run else self._steps or self._iterations
        return Value(name, record.number, finite(value), step, time)

    def _about(self, event: Event) -> list[RunKey]:
        """Return the keys of the runs that an event changes; none if it is not about a trial.

        The last is the one that gets its results.
        """
        if isinstance(event, Created):
            return [(event.trial, WHOLE)]
        if not isinstance(event, Opened | Reported | Closed | Moved | Dropped):
            return []
        own = [(event.trial, event.replica)] if self.grouped or is_test(event.replica) else []
        return [(event.trial, WHOLE), *own]

    def run_of(self, event: Reported | Closed) -> RunKey:
        """Return the key of the run that gets the event's results."""
        return self._about(event)[-1]

    def media(self, event: Reported | Closed) -> Iterator[Path]:
        """Yield the paths of files that the event's results name, such as videos of episodes.

        They are in the trial's folder. Links and files that do not exist are left out.
        """
        trial = self._context.folder.trial(event.trial, event.replica)
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
        """Yield rows of the metric aggregated over a trial's seeds.

        They are of the iterations that the event completes; none if trials have one seed. The time
        is the latest of the seeds'.
        """
        if not self.grouped:
            return
        trial = self.history.trials[event.trial]
        curve = self._curves.setdefault(event.trial, Curve(trial.objective))
        whole = (trial.number, WHOLE)
        for row in curve.extend(trial, event):
            seeds = (
                self._results[trial.number, r.index].get(row.iteration) for r in trial.replicas
            )
            made = max(time for time in seeds if time is not None)
            time = self._results[whole].add(row.iteration, made)
            yield from values(row, time, self._compared)

    def _score(self, number: int, record: Recorded) -> Iterator[Value]:
        """Yield the score of a trial that an event paused or ended, and the expected score.

        Each is left out if it is unknown, or was sent for these steps with this value. A seed that
        joined changes the score, and MLflow's newest row is the one with most steps.
        """
        trial, step = self.history.trials[number], self._standing.get(number)
        milestone = trial.milestones[-1] if trial.milestones else None
        if (
            milestone is None
            or milestone.event != record.number
            or milestone.score is None
            or step is None
        ):
            return
        if self._scored.get(number) != (step, milestone.score):
            self._scored[number] = (step, milestone.score)
            name = score_key(self._context.spec.metric)
            yield self._of_event(name, milestone.score, record, (number, WHOLE), step)
        yield from self._expected(trial, record)

    def _expected(self, trial: Trial, record: Recorded) -> Iterator[Value]:
        """Yield the expected score of a trial's settings.

        Yields nothing if it is unknown, or was sent for these steps with this value.
        """
        expected, step = self.history.expected(trial), self._standing.get(trial.number)
        if expected is None or step is None:
            return
        said = (step, expected.value)
        if self._said.get(trial.number) == said:
            return
        self._said[trial.number] = said
        name, whole = expected_key(self._context.spec.metric), (trial.number, WHOLE)
        yield self._of_event(name, expected.value, record, whole, step)

    def _progress(self, event: Closed, record: Recorded) -> Iterator[Value]:
        """Yield the best score so far and the machine's load as rows of the sweep's own run.

        They come with each slice that ended: ``best/<metric>``, the values of `SYSTEM`, and with
        several objectives ``front/trials``, the number of trials on the Pareto front.
        """
        best = self.history.highest
        score = None if best is None else best.score
        if score is not None:
            yield self._of_event(key(f"best/{self._context.spec.metric}"), score, record)
        if self.history.objective.objectives:
            yield self._of_event("front/trials", len(self.history.front()), record)
        for result, name in SYSTEM.items():
            seen = [to_number(row.metrics.get(result)) for row in event.rows]
            finite_ones = [n for n in seen if n is not None and math.isfinite(n)]
            if finite_ones:
                yield self._of_event(name, sum(finite_ones) / len(finite_ones), record)

    def _counts(self, record: Recorded) -> Iterator[Value]:
        """Yield the number of trials in each status as rows ``trials/<status>`` of the sweep."""
        for status in Status:
            count = self.history.count(status)
            yield self._of_event(f"trials/{status.lower()}", count, record)

    def sweep_tags(self) -> dict[str, str]:
        """Return the tags of the sweep's own run, name → text: ``sweep.…`` and MLflow's note.

        ``sweep.front``, the Pareto front, is among them only with several objectives, and
        ``sweep.changes`` only if the space or the criteria of stop were changed.
        """
        context, spec = self._context, self._context.spec
        best = self.history.best
        front = {}
        if self.history.objective.objectives:
            numbers = ", ".join(str(trial.number) for trial in self.history.front())
            front = {"sweep.front": truncate(numbers, LONGEST_TAG)}
        changed = [change.text for change in self._spec_changes.all]
        changes = {"sweep.changes": truncate("\n".join(changed), LONGEST_TAG)} if changed else {}
        return {
            **front,
            **changes,
            "sweep.id": context.sweep_id,
            "sweep.searcher": spec.searcher.name,
            "sweep.scheduler": spec.scheduler.name,
            "sweep.metric": spec.metric,
            "sweep.mode": spec.mode,
            "sweep.trials": str(len(self.history.trials)),
            "sweep.best_trial": "" if best is None else str(best.number),
            "sweep.searched": truncate(", ".join(spec.space.searched), LONGEST_TAG),
            **{f"sweep.version.{name}": version for name, version in context.versions.items()},
            "mlflow.note.content": _note(context, changed),
        }

    def trial_tags(self, trial: Trial) -> dict[str, str]:
        """Return the tags of a trial's run, name → text, except the one that names its parent run.

        `ORDER` sorts trials, best first; ``sweep.parent`` is the parent trial of an offspring. The
        others are those of `_tags` if trials have one seed, else id, number, number of seeds,
        status and reason.
        """
        bred = {} if trial.parent is None else {"sweep.parent": str(trial.parent)}
        expected = self.history.expected(trial)
        order = ranking.order_text(trial, expected, trial is self.history.best)
        own = {**bred, ORDER: order}
        if not self.grouped:
            return {**own, **self._tags(trial.replicas[0])}
        return {
            **own,
            "sweep.id": self._context.sweep_id,
            "sweep.trial": str(trial.number),
            "sweep.seeds": str(len(trial.replicas)),
            "sweep.status": trial.status.value,
            "sweep.reason": truncate(trial.reason, LONGEST_TAG),
        }

    def replica_tags(self, replica: Replica) -> dict[str, str]:
        """Return the tags of the run of one seed or test below a trial's, name → text.

        They are those of `_tags`, ``sweep.run`` (`run_name`), and for a test ``sweep.test``.
        """
        test = {"sweep.test": "true"} if is_test(replica.index) else {}
        return {**self._tags(replica), **test, "sweep.run": run_name(replica.trial, replica.index)}

    def _tags(self, replica: Replica) -> dict[str, str]:
        """Return the tags about one replica, name → text.

        They are ``sweep.id``, ``sweep.trial``, ``sweep.seed_index``, ``sweep.seed``,
        ``sweep.status``, ``sweep.reason``, ``sweep.checkpoint`` (the newest file, or empty) and
        ``sweep.unsaved`` (results after the newest checkpoint, or empty).
        """
        newest, index, lost = replica.newest_checkpoint, replica.index, replica.lost_results
        unsaved = f"{lost} after iteration {replica.saved_to}" if lost else ""
        return {
            "sweep.id": self._context.sweep_id,
            "sweep.trial": str(replica.trial),
            "sweep.seed_index": str(index - FIRST_TEST if is_test(index) else index),
            "sweep.seed": str(seed_of(self._context.spec.seed, replica.trial, index)),
            "sweep.status": replica.status.value,
            "sweep.reason": truncate(replica.reason, LONGEST_TAG),
            "sweep.checkpoint": "" if newest is None else newest.file,
            "sweep.unsaved": unsaved,
        }


def _steps_of(trial: Trial) -> tuple[float, ...]:
    """Return the number of environment steps of each replica, for `History.total`."""
    return tuple(replica.steps for replica in trial.replicas)


def _iterations_of(trial: Trial) -> tuple[float, ...]:
    """Return the number of results of each replica, for `History.total`."""
    return tuple(float(len(replica.curve)) for replica in trial.replicas)


def run_name(trial: int, replica: int) -> str:
    """Return the name of a run: ``3`` (a trial), ``3.0`` (a seed) or ``3.test0`` (a test).

    `replica` is `WHOLE` for the trial itself.
    """
    if replica == WHOLE:
        return str(trial)
    return replica_name(trial, replica) if replica else f"{trial}.0"


def score_key(metric: str) -> str:
    """Return the name of the curve of scores, `OTHER_SCORE` if the metric is called `SCORE`."""
    return OTHER_SCORE if metric == SCORE else SCORE


def expected_key(metric: str) -> str:
    """Return the name of the curve of expected scores.

    It is `EXPECTED`, or `OTHER_EXPECTED` if the metric is called `EXPECTED`.
    """
    return OTHER_EXPECTED if metric == EXPECTED else EXPECTED


def keys_of_events(metric: str) -> tuple[str, str]:
    """Return the names of a trial's curves about events, not iterations: score, expected score."""
    return score_key(metric), expected_key(metric)


def title(status: Status, name: str) -> str:
    """Return a run's title on MLflow's page: its name, after ``pruned`` or ``stopped`` if it is."""
    return f"{PREFIX.get(status, '')}{name}"


def values(row: Row, time: int, compared: Container[str]) -> Iterator[Value]:
    """Yield the numbers of a result as rows of curves, all with the time `time` in milliseconds.

    The iteration comes first: a store that lacks it lacks the other numbers, too. `compared` are
    the names of results that are sent even if they are counts. Texts, other counts and the results
    of `NOT_CURVES` are left out.
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
    """Return the name of a result's curve in MLflow; empty if it is not sent as a curve.

    A result that is called like a score becomes ``results/…``, unless it is compared.
    """
    if is_compared:
        return key(name)
    if name in COUNTS or name.split("/")[0] in NOT_CURVES:
        return ""
    return f"results/{name}" if name in (SCORE, EXPECTED) else key(name)


def made_at(row: Row, began: float, end_time: float) -> float:
    """Return the time at which a result was made, in seconds since 1970.

    It is the result's ``timestamp``, limited to the slice from `began` to `end_time`, since a
    trainable may report any number. Without a timestamp, it is the end of the slice.
    """
    said = row.metrics.get("timestamp")
    made = math.nan if said is None or isinstance(said, str) else finite(said)
    return max(began, end_time if math.isnan(made) else min(made, end_time))


def milliseconds(seconds: float) -> int:
    """Return a time in seconds as MLflow stores it: whole milliseconds, rounded down."""
    return int(seconds * 1000)


def _step(row: Row) -> int:
    """Return a result's value on the horizontal axis: environment steps, else the iteration."""
    steps = row.metrics.get("timesteps_total")
    if isinstance(steps, int | float) and 0 <= steps <= _LARGEST_STEP:
        return int(steps)
    return row.iteration


def finite(value: Scalar) -> float:
    """Return a number as MLflow's tables hold it: ±infinity as ± the largest float; NaN stays."""
    try:
        number = float(value)
    except OverflowError:  # an int beyond the range of float
        number = math.inf if int(value) > 0 else -math.inf
    return math.copysign(sys.float_info.max, number) if math.isinf(number) else number


def parameters(trial: Trial) -> dict[str, str]:
    """Return all settings of a trial for MLflow, dotted name → text.

    Searched ones come first, then fixed ones.
    """
    settings = {**trial.searched, **_unsearched_leaves(trial.config, trial.searched)}
    return {key(name): parameter(value) for name, value in settings.items()}


def _unsearched_leaves(
    config: Mapping[str, Any], searched: Container[str], above: str = ""
) -> dict[str, Any]:
    """Return the nested settings that are not searched: dotted name → value.

    `above` is the name, with a dot, of the mapping `config`; empty at the top.
    """
    leaves: dict[str, Any] = {}
    for part, value in config.items():
        name = f"{above}{part}"
        if name in searched:
            continue
        if isinstance(value, Mapping) and value:
            leaves |= _unsearched_leaves(value, searched, f"{name}.")
        else:
            leaves[name] = value
    return leaves


@lru_cache(maxsize=10_000)
def key(name: str) -> str:
    """Return a name as MLflow accepts it.

    If MLflow refuses `name`, the result is its allowed characters and a digest.
    """
    normal = posixpath.normpath(name) == name and name[0] not in "./"
    if normal and len(name) <= LONGEST_KEY and _KEY.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:8]
    readable = re.sub(r"[^\w.\- :]+", "_", name).strip("./")
    return f"{readable[: LONGEST_KEY - 9]}-{digest}"


def parameter(value: Any) -> str:
    """Return a setting's value as a text: strings unchanged, everything else as canonical JSON.

    A text of more than `LONGEST_PARAMETER` characters is cut.
    """
    return truncate(value if isinstance(value, str) else choice_key(value), LONGEST_PARAMETER)


def truncate(text: str, limit: int) -> str:
    """Return a text for a database, cut to `limit` characters with a note that says so.

    Lone surrogates are escaped first; a text that is short enough has no note.
    """
    # replaces lone surrogates from file names
    text = text.encode("utf-8", "backslashreplace").decode()
    if len(text) <= limit:
        return text
    note = f" … (cut; {len(text)} characters)"
    return text[: limit - len(note)] + note


def _note(context: TrackerContext, changed: Sequence[str]) -> str:
    """Return the description of the sweep on MLflow's page, in Markdown.

    `changed` has a sentence for each change of the space or the criteria of stop.
    """
    spec = context.spec
    since = truncate("\n".join(f"- {text}" for text in changed), LONGEST_TAG)
    best = "least" if spec.mode == "min" else "greatest"
    return (
        f"**{context.name}**: `{spec.trainable}`, searched by {spec.searcher.name}, scheduled by "
        f"{spec.scheduler.name}; best is the {best} `{spec.metric}`.\n\n"
        f"Each trial is a run below this one. This page is a copy; the sweep itself is stored in "
        f"its folder.\n\n"
        f"    sweep status {context.name}\n"
        f"    sweep resume {context.name}\n"
        f"    sweep export-model {context.name} --out DIR\n" + (f"\n{since}\n" if changed else "")
    )
