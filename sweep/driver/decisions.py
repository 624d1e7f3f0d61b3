"""Decisions as events: the slices and ends of a plan, and the meaning of a slice's outcome."""

import difflib
import math
import shlex
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace

from sweep.core.errors import LimitPassed, StorageError, UnknownMetric, UsageError
from sweep.driver.context import DriverContext
from sweep.driver.proposals import Proposer
from sweep.history import order
from sweep.history.events import (
    AT_GOAL,
    FINISHED,
    UNSAVED,
    Closed,
    Dropped,
    End,
    Event,
    Moved,
    Opened,
    Row,
    Status,
    UserHold,
)
from sweep.history.history import History
from sweep.history.replica import Replica
from sweep.history.results import NOTHING, numeric_names, to_number
from sweep.history.trial import Trial
from sweep.ledger.folder import log_size, remove_log
from sweep.schedulers import AddSeed, Exploit, NewTrial, Plan, Resume, Scheduler
from sweep.slices import reports, retention
from sweep.slices.cache import StaleProcess
from sweep.slices.messages import SliceOutcome
from sweep.spec import Limits, SweepSpec
from trainables.errors import shorten

# -------------------------------------------------------------------------------------------------
# The plan of a scheduler as events: trials that end, new trials, opened slices.
#
# A waiting clone replaces the first new trial of the plan.

#: Beginning of the reason of a clone that begins instead of a new trial.
_CLONE = "a clone takes the place of a new trial"


def plan_events(plan: Plan, history: History, proposer: Proposer) -> tuple[list[Event], bool]:
    """Return the events of a scheduler's plan, and True if the space ran out of points.

    They are to be recorded in one transaction: ends, new trials, opened slices. If the space ran
    out, there are fewer new trials, and the last event says so. The settings of new trials are
    proposed here, by the searcher. Waiting clones take the places of the first new trials. Replicas
    that have ended, or reached the goal already, get no event.
    """
    trials = history.trials
    begun = [*zip(history.waiting_clones, plan.fresh, strict=False)]
    searched, exhausted = proposer.search(history, plan.fresh[len(begun) :])
    bred = proposer.breed(history, plan.breed, len(trials) + len(searched))
    moves = [
        Moved(stop.trial, stop.status, stop.reason, replica.index, evidence=stop.evidence)
        for stop in plan.stop
        for replica in trials[stop.trial].replicas
        if replica.status not in FINISHED
    ]
    opened = [
        _opened_event(replica.trial, replica.index, resume, replica.slices)
        for resume in plan.resume
        for replica in trials[resume.trial].replicas
        if replica.status not in FINISHED  # one seed may have reached the goal already
        and (resume.goal.until is None or not replica.reached(resume.goal.until))
    ]
    opened += [_opened_event(more.trial, more.index, more) for more in plan.seeds]
    opened += [
        _opened_event(
            replica.trial, replica.index, replace(fresh, reason=f"{_CLONE}: {fresh.reason}")
        )
        for trial, fresh in begun
        for replica in trial.replicas
    ]
    new: list[NewTrial | Exploit] = [*plan.fresh[len(begun) :][: len(searched)], *plan.breed]
    opened += [
        _opened_event(event.trial, index, decision)
        for event, decision in zip([*searched, *bred], new, strict=True)
        for index in range(event.replicas)
    ]
    return [*moves, *searched, *bred, *opened, *exhausted], bool(exhausted)


def check_plan(plan: object, free: int, uncreated_trials: int, name: str) -> None:
    """Raise UsageError if a plan is no Plan, or asks for too many slots or new trials.

    `free` is the number of free slots, `uncreated_trials` that of trials which may still be
    created, and `name` the scheduler's name.
    """
    subject = f"scheduler: plan() of '{name}'"
    if not isinstance(plan, Plan):
        raise UsageError(f"{subject} returned {shorten(plan)}; expected a sweep.schedulers.Plan")
    wanted = sum(map(len, (plan.resume, plan.breed, plan.fresh, plan.seeds)))
    if wanted > free:
        raise UsageError(
            f"{subject} requested {wanted} slots; expected at most the {free} free ones"
        )
    if len(plan.fresh) > uncreated_trials:
        wanted = len(plan.fresh)
        allowed = f"at most {uncreated_trials}, the value of history.uncreated_trials"
        raise UsageError(f"{subject} requested {wanted} new trials; expected {allowed}")


def check_decisions(plan: Plan, history: History, name: str) -> None:
    """Raise UsageError if a plan decides about trials that do not exist or cannot be decided about.

    `history` is the one that the scheduler saw, and `name` the scheduler's name. Without this check
    such a plan would be refused by the ledger or, with a wrong index of a seed, damage it.
    """
    subject, trials = f"scheduler: plan() of '{name}'", history.trials
    decided = [(stop.trial, "Stop") for stop in plan.stop]
    decided += [(resume.trial, "Resume") for resume in plan.resume]
    others = [*(more.trial for more in plan.seeds), *(child.parent for child in plan.breed)]
    for number in (*(number for number, _ in decided), *others):
        if not 0 <= number < len(trials):
            raise UsageError(f"{subject} named trial {number}; expected one of history.trials")
    for number, kind in decided:
        if (status := trials[number].status) is not Status.PAUSED:
            what = f"a {kind} of trial {number}, which is {status}"
            raise UsageError(f"{subject} returned {what}; expected a PAUSED trial")
    for stop in plan.stop:
        if stop.status not in (Status.PRUNED, Status.COMPLETED):
            what = f"a Stop of trial {stop.trial} with status {shorten(stop.status)}"
            raise UsageError(f"{subject} returned {what}; expected PRUNED or COMPLETED")
    _check_seeds(plan, history, subject)


def _check_seeds(plan: Plan, history: History, subject: str) -> None:
    """Raise UsageError if the new seeds of a plan do not follow those of their trials.

    `subject` names the scheduler in the message. The trials exist.
    """
    seeds = {more.trial: len(history.trials[more.trial].replicas) for more in plan.seeds}
    for more in plan.seeds:
        if more.index != seeds[more.trial]:
            what = f"an AddSeed of trial {more.trial} with index {more.index}"
            raise UsageError(
                f"{subject} returned {what}; expected the trial's next index, {seeds[more.trial]}"
            )
        seeds[more.trial] += 1


def _opened_event(
    trial: int, replica: int, decision: Resume | NewTrial | Exploit | AddSeed, number: int = 0
) -> Opened:
    """Return the event that opens a replica's slice `number`, because of a plan's `decision`."""
    return Opened(trial, replica, number, decision.goal, decision.reason, decision.evidence)


# -------------------------------------------------------------------------------------------------
# The consequences of a slice's end for its trial.
#
# A lost worker is retried from the last checkpoint, up to `max_failures` times in a row. An
# exception is retried once, unless it would recur; if it repeats at the same iteration, the trial
# FAILED, since an exact resume would always repeat it. A disk that refuses checkpoints, or a metric
# that no trial reports, is not counted as a trial's failure: the sweep ends and can be resumed.

#: End of a slice → beginning of the reason for its replica's new status.
_WHY = {
    End.GOAL: AT_GOAL,
    End.UNMEASURED: "it is past its rung",
    End.TIME: "its slice's time was up",
    End.ASKED: "the sweep was asked to stop",
    End.DONE: "a stopping criterion was met",
    End.DIVERGED: "it diverged",
    End.LIMIT: "a limit was passed",
}
#: End of a slice → status of its trial, for ends after which it does not continue.
_STATUS = {End.DONE: Status.COMPLETED, End.LIMIT: Status.STOPPED}
#: Maximum number of result names listed in a message.
MOST_NAMES = 30
#: Maximum number of suggestions in a message.
MOST_NEAR = 3
#: Minimum similarity of a misspelt name; val_loss and train_loss are less similar.
_SAME_WORD = 0.8
#: Name of the end of a trial, in messages.
_END = "its end"


def slice_end_event(
    replica: Replica, outcome: SliceOutcome, dropped: tuple[str, ...], limits: Limits
) -> Closed:
    """Return the event that ends a slice: its results, and the replica's new status with a reason.

    A replica that is done is COMPLETED, one past a limit STOPPED, a diverged one PRUNED or FAILED
    by ``limits.not_finite``, and one that crashed or lost its process FAILED if no retry is left.
    All others are PAUSED. `dropped` are the digests of checkpoints to delete.
    """
    if outcome.end is End.CRASHED:
        status, reason = _judge_crashed(replica, outcome, limits.max_failures)
    elif outcome.end is End.LOST:
        status, reason = _judge_lost(replica, outcome.reason, limits.max_failures)
    elif outcome.end is End.UNSAVED:
        what = _refusing_place(outcome.error)
        status, reason = Status.PAUSED, f"the {what} did not store a checkpoint: {outcome.error}"
    else:
        status = _STATUS.get(outcome.end, Status.PAUSED)
        if outcome.end is End.DIVERGED:
            status = Status.FAILED if limits.not_finite == "fail" else Status.PRUNED
        reason = _reason(replica, outcome) + _missing_metric(replica, outcome)
        if status is Status.COMPLETED:
            reason += _not_finite_note(replica, outcome)
        reason += unpaused_note(replica, outcome)
    return _closed_event(replica, outcome, status, reason, dropped)


#: Ends after which a trial continues, if at all, from its newest checkpoint.
_LOST = frozenset({End.CRASHED, End.LOST, End.UNSAVED, End.INTERRUPTED})


def _closed_event(
    replica: Replica,
    outcome: SliceOutcome,
    status: Status,
    reason: str,
    dropped: tuple[str, ...],
    lost: bool | None = None,
) -> Closed:
    """Return the event that ends a slice, with its results and checkpoints.

    `dropped` are the digests of checkpoints to delete. `lost` is True if the results after the last
    checkpoint are lost, which marks them as unsaved; None derives that from the outcome's end.
    Results that were recorded while the slice ran are left out. `reason` is a text for people.
    """
    closed = Closed(
        outcome.trial,
        outcome.replica,
        outcome.number,
        outcome.end,
        status,
        reason,
        outcome.source,
        outcome.error,
        outcome.error_at,
        outcome.skipped,
        outcome.exactness,
        outcome.saved,
        dropped,
        outcome.remembered,
        outcome.value_found,
        outcome.is_random,
        reported_to=replica.reported_to,
    )
    first = outcome.source if replica.reported_to is None else replica.reported_to
    if not (outcome.end in _LOST if lost is None else lost):
        return replace(closed, source=first, rows=_rows_after(first, outcome.rows))
    nothing = not outcome.rows and replica.reported_to is None
    if nothing and outcome.source >= replica.iteration:  # the results of the previous attempt stay
        return replace(closed, source=replica.last_attempted, saved_to=replica.saved_to)
    saved_to = max((saved.iteration for saved in outcome.saved), default=outcome.source)
    first = min(first, saved_to)
    rows = tuple(_mark_unsaved(row, saved_to) for row in _rows_after(first, outcome.rows))
    some = bool(rows) and rows[-1].iteration > saved_to
    return replace(closed, source=first, rows=rows, saved_to=saved_to if some else None)


def _rows_after(iteration: int, rows: Sequence[Row]) -> tuple[Row, ...]:
    """Return the results after an iteration."""
    return tuple(row for row in rows if row.iteration > iteration)


def _mark_unsaved(row: Row, saved_to: int) -> Row:
    """Return a result; one after iteration `saved_to` gets the metric `UNSAVED`, as it was lost."""
    return (
        row if row.iteration <= saved_to else replace(row, metrics={**row.metrics, UNSAVED: True})
    )


def disk_refused(closed: Sequence[Closed], folder: object) -> str:
    """Return a message about the first slice that could not save a checkpoint; empty if all could.

    `folder` is the folder of the sweep, for the message.
    """
    for event in closed:
        if event.end is End.UNSAVED:
            return (
                f"trial {event.trial}: {event.reason}; earlier checkpoints are safe; repair "
                f"the {_refusing_place(event.error)}, then resume the sweep in {folder}"
            )
    return ""


def _refusing_place(error: str) -> str:
    """Return ``storage`` for an error of object storage, which begins with a URL; else ``disk``."""
    return "storage" if "://" in error.partition(" ")[0] else "disk"


def withdrawal_event(replica: Replica, reason: str) -> Closed:
    """Return the event that ends a replica's newest slice as if it had never run.

    It has no results, counts as no failure, and leaves the replica PAUSED.
    """
    at = (replica.trial, replica.index, replica.slices - 1)
    nothing = SliceOutcome(*at, End.INTERRUPTED, replica.iteration)
    return _closed_event(replica, nothing, Status.PAUSED, reason, ())


def interruption_event(
    history: History, spec: SweepSpec, unfinished: SliceOutcome, reason: str
) -> Closed:
    """Return the event that interrupts a slice, with the results and checkpoints of its journal.

    It does not count as a failure of the trial, which is PAUSED and continues. `unfinished` is the
    outcome according to the journal; `reason` is a text for people. Checkpoints that are not needed
    any more are marked for deletion.
    """
    replica, outcome = (
        history.replica(unfinished.trial, unfinished.replica),
        replace(unfinished, end=End.INTERRUPTED),
    )
    dropped = _superfluous_checkpoints(history, spec, replica, outcome)
    return _closed_event(replica, outcome, Status.PAUSED, reason, dropped)


def abandoned_moves(history: History, patient: bool) -> list[Moved]:
    """Return the moves to STOPPED of waiting replicas whose trial ended because of another replica.

    That replica has failed or was pruned; trials that a user stopped are left out. With `patient`,
    it returns none until the whole batch is done, so that neither the result nor the order of
    events depends on the order in which slices end.
    """
    if patient and _is_busy(history):
        return []
    return [
        Moved(trial.number, Status.STOPPED, f"another seed ended: {ended.reason}", replica.index)
        for trial in history.ordered(order.torn)
        if trial.hold is not UserHold.STOP
        and (ended := next((r for r in trial.replicas if r.ended_early), None)) is not None
        for replica in trial.replicas
        if replica.status in (Status.WAITING, Status.PAUSED)
        if not (patient and any(r.is_interrupted for r in trial.replicas))
    ]


def _is_busy(history: History) -> bool:
    """Return whether a slice runs, or was interrupted before its goal and can be resumed at once.

    A replica past its rung that has not reported the metric does not count as interrupted.
    """
    interrupted = (r for trial in history.ordered(order.interrupted) for r in trial.replicas)
    return bool(history.replicas(Status.RUNNING)) or any(
        replica.is_interrupted and not replica.is_unmeasured for replica in interrupted
    )


def reopening_moves(history: History) -> list[Moved]:
    """Return the moves by which replicas wait again that were pruned only as the sweep had ended.

    They become PAUSED, or WAITING if they belong to a clone that has not begun.
    """
    waited = (replica for replica in history.replicas(Status.PRUNED) if replica.was_waiting)
    return [
        Moved(
            r.trial,
            Status.PAUSED if r.slices else Status.WAITING,
            "the sweep continues beyond its earlier end",
            r.index,
        )
        for r in waited
    ]


def retried_moves(history: History) -> list[Moved]:
    """Return the moves to PAUSED by which trials with a failed replica are tried again.

    All their replicas that have ended are moved, except completed ones.
    """
    return [
        Moved(
            trial.number,
            Status.PAUSED,
            "it is retried, as `--retry-failed` requested",
            replica.index,
        )
        for trial in history.ordered(order.replica_status_key(Status.FAILED))
        for replica in trial.replicas
        if replica.status in FINISHED - {Status.COMPLETED}
    ]


def _reason(replica: Replica, outcome: SliceOutcome) -> str:
    """Return the reason, for people, of the new status of a replica after a slice.

    The slice neither crashed nor lost its process or a checkpoint.
    """
    if outcome.end is End.ASKED and replica.hold:
        return f"a user asked it to {replica.hold}"
    if outcome.end is End.DONE and not outcome.reason:  # no criterion was met
        top, time_attr = replica.goal.top, replica.objective.time_attr
        last = outcome.rows[-1].metrics if outcome.rows else {}
        time = to_number(last.get(time_attr))
        if top is None or last.get("done") is True or time is None or time < top:
            return "the trainable reported that it is done"
        return f"it reached its end, {time_attr} {top:g}"
    return f"{_WHY[outcome.end]}: {outcome.reason}" if outcome.reason else _WHY[outcome.end]


def _judge_lost(replica: Replica, loss: str, max_failures: int) -> tuple[Status, str]:
    """Return status and reason after a process was lost for the cause `loss`.

    It is FAILED if the replica lost more than `max_failures` in a row, this one included, else
    PAUSED, to be tried again.
    """
    times = replica.lost_slices + 1
    if times > max_failures:
        return Status.FAILED, f"{loss}; no retries are left"
    return Status.PAUSED, f"{loss}; retry {times} of {max_failures}"


def _judge_crashed(
    replica: Replica, outcome: SliceOutcome, max_failures: int
) -> tuple[Status, str]:
    """Return status and reason after the trainable raised an exception.

    It is FAILED if the exception would recur, or if `replica`, which does not count this crash yet,
    crashed at this iteration before, or has `max_failures` crashes already; else PAUSED, to be
    tried again. Crashes in iterations that were finished since do not count.
    """
    at = outcome.error_at
    where = f"saving after iteration {at - 1}" if outcome.while_saving else f"iteration {at}"
    crash = f"{where} raised {outcome.reason}"
    if outcome.would_recur:
        return Status.FAILED, f"{crash}; the same would happen again, so it is not retried"
    if at in replica.crashes:
        return Status.FAILED, f"{crash}; the same happened before, so it is not retried"
    if len(replica.crashes) >= max_failures:
        return Status.FAILED, f"{crash}; all {max_failures} retries are used up"
    return Status.PAUSED, f"{crash}; it will be retried once"


def _missing_metric(replica: Replica, outcome: SliceOutcome) -> str:
    """Return a note with the reported names if a replica has never reported the metric.

    It is empty if the metric was reported, or the slice has no results, or ended by its time or a
    request.
    """
    metric = replica.objective.metric
    rows = outcome.rows
    seen = replica.reported or any(to_number(row.metrics.get(metric)) is not None for row in rows)
    if seen or not rows or outcome.end is End.TIME or outcome.end is End.ASKED:
        return ""
    names = sorted({*replica.names, *numeric_names(row.metrics for row in rows)})
    return f"; {_describe_missing(metric, names, outcome.value_found)}"


def without_metric_note(reason: str, metric: str) -> str:
    """Return the reason for a slice's end without notes about a missing or invalid metric.

    Args:
        reason: text from the ledger, to which such a note may have been appended.
        metric: name of the metric.
    """
    for note in (_LACKS, _IS_NO_NUMBER):
        reason = reason.partition(f"; {note.format(metric)}")[0]
    return reason


def _not_finite_note(replica: Replica, outcome: SliceOutcome) -> str:
    """Return a note that the last value of the metric is NaN or infinite; empty if it is not."""
    metric = replica.objective.metric
    found = (to_number(row.metrics.get(metric)) for row in reversed(outcome.rows))
    value = next((one for one in found if one is not None), 0.0)
    if math.isfinite(value):
        return ""
    return f"; its last {metric} is {value:g} (limits.not_finite: prune ends such a trial at once)"


def unpaused_note(replica: Replica, outcome: SliceOutcome | Closed) -> str:
    """Return a note if a replica ran past its rung to its end because it saved no checkpoint.

    It is empty otherwise.
    """
    rung, time_attr = replica.goal.until, replica.objective.time_attr
    if outcome.end is not End.DONE or rung is None or outcome.saved or replica.checkpoints:
        return ""
    before = [to_number(row.metrics.get(time_attr)) for row in outcome.rows[:-1]]
    before += [point.time for point in replica.curve[:-1]]
    if not any(time is not None and time >= rung for time in before):
        return ""
    return (
        f"; it trained past its rung at {time_attr} {rung:g}, because it reported no "
        "checkpoint from which it could continue: call report(..., checkpoint=...), or use a "
        "scheduler that pauses no trials, such as {name: asha, type: stopping}; for a "
        "command that saves no checkpoints, set checkpoints: false"
    )


# ---- a metric that no trial reports ----------------------------------------------------------

#: Words for results that lack the metric.
_LACKS = "its results had no metric '{}'"
#: Beginning of the words for a metric that is something else than a number.
_IS_NO_NUMBER = "in its results '{}' is "


def compared_levels(scheduler: Scheduler) -> Sequence[float] | None:
    """Return the rungs at which a scheduler compares trials in addition to their goals.

    Returns None if it compares them only at their ends, or may look before the metric is due, as
    pruners do.
    """
    return scheduler.levels if scheduler.levels or scheduler.pauses else None


def missing_metric_error(
    history: History, name: str, rungs: Sequence[float] | None, at_end: bool = False
) -> UnknownMetric | None:
    """Return the error that no trial has reported the metric although one should have, or None.

    A trial should have it once it reached its first rung or, without rungs, its end; unless
    `at_end`, its kind of metric must be due by then, too (`_is_due`). The result depends only on
    the history, so a sweep that was killed and resumed ends at the same point.

    Args:
        name: the sweep as commands name it.
        rungs: ascending levels at which trials are compared in addition to their goals; None if
            trials are not even compared at goals.
        at_end: True if nothing more will be trained, so that no later evaluation can come.
    """
    if history.has_metric:
        return None
    for trial in history.trials:
        for replica in trial.replicas:
            where = _missing_place(trial, replica, rungs)
            if where and (at_end or _is_due(trial, replica)):
                return _unknown_metric(name, replica, where)
    return None


def _missing_place(trial: Trial, replica: Replica, rungs: Sequence[float] | None) -> str:
    """Return words for the point at which a replica should have reported the metric but has not.

    For example ``its rung at training_iteration 4``; empty if no result is there, or it has reached
    neither a rung nor its end. The caller has checked that it has not reported the metric. `rungs`
    are the levels at which trials are compared in addition to their goals; None if not even there.
    """
    if not replica.curve:
        return ""
    if _is_over(trial, replica):
        return _END
    at, rests = replica.goal.until, replica.status in (Status.PAUSED, Status.PRUNED)
    if rungs is None or not rests or at is None or not replica.is_past(replica.goal):
        return ""
    newest = max((level for level in rungs if at <= level <= replica.time), default=at)
    return f"its rung at {replica.objective.time_attr} {newest:g}"


def _is_over(trial: Trial, replica: Replica) -> bool:
    """Return whether a replica was trained to its end: it was completed, or a limit stopped it.

    Returns False if a user stopped it, or another seed's failure did.
    """
    if replica.status is Status.COMPLETED:
        return True
    cut = bool(trial.hold) or any(r.ended_early for r in trial.replicas)
    return replica.status is Status.STOPPED and not cut


def _is_due(trial: Trial, replica: Replica) -> bool:
    """Return whether a replica's results should have the metric by now, judged by its kind.

    An ``evaluation/`` metric is due after two intervals, another one after the first ended episode.
    Without an interval or a count of episodes it is due at the trial's end, or before if results
    have no number under its name, or a similar name. While None is reported it is not due.
    """
    metric = replica.objective.metric
    if replica.value_found == NOTHING:
        return False
    if not metric.startswith("evaluation/"):
        if "episodes_total" in replica.last_metrics:
            return replica.last_metrics["episodes_total"] != 0
        wrong = replica.value_found or _is_misspelt(metric, replica.names)
        return bool(wrong) or _is_over(trial, replica)
    interval = trial.config.get("evaluation_interval")
    if isinstance(interval, int) and interval >= 1:
        return replica.iteration // interval >= 2
    return _is_over(trial, replica)


def _unknown_metric(name: str, replica: Replica, place: str) -> UnknownMetric:
    """Return the error that no result has the metric, with similar names.

    `name` is the sweep as commands name it; `place` is the point at which the metric should have
    been reported.
    """
    metric = replica.objective.metric
    close = _similar_names(metric, replica.names)
    other = shlex.quote(close[0]) if close else "NAME"
    instead = replica.value_found or (
        "a text" if isinstance(replica.last_metrics.get(metric), str) else ""
    )
    found = _describe_missing(metric, replica.names, instead)
    then = " T" if found.endswith("?") else "; t"
    return UnknownMetric(
        f"metric: trial {replica.trial} reached {place}, but {found}{then}he training is "
        f"kept: `sweep resume {name} --metric {other}` continues the sweep"
    )


def _describe_missing(metric: str, names: Sequence[str], found: str) -> str:
    """Return words: results lack the metric, the `names` that they have, and similar ones.

    `found` describes a value of another type under the metric's name; empty if there is none.
    """
    has = _LACKS.format(metric)
    if not found and any(name.startswith(f"{metric}/") for name in names):
        found = "a nested dict"
    if found:
        has = f"{_IS_NO_NUMBER.format(metric)}{found}, not a number"
    close = " or ".join(f"'{key}'" for key in _similar_names(metric, names))
    shown = ", ".join(names[:MOST_NAMES]) + (", …" if len(names) > MOST_NAMES else "")
    return f"{has}; they have: {shown or 'no numbers'}" + (f"; did you mean {close}?" * bool(close))


def _is_misspelt(metric: str, names: Sequence[str]) -> bool:
    """Return whether results have a name very similar to the metric's, or one nested below it."""
    within = any(name.startswith(f"{metric}/") for name in names)
    return within or bool(difflib.get_close_matches(metric, names, 1, cutoff=_SAME_WORD))


def _similar_names(metric: str, names: Sequence[str]) -> list[str]:
    """Return up to `MOST_NEAR` names nested below the metric's name, or else similar ones."""
    within = [name for name in names if name.startswith(f"{metric}/")]
    return within[:MOST_NEAR] or difflib.get_close_matches(metric, names, MOST_NEAR, cutoff=0.6)


# -------------------------------------------------------------------------------------------------
# The events of ended slices, and the deletion of files after those are recorded.


def outcome_event(context: DriverContext, opened: Opened, future: Future[SliceOutcome]) -> Closed:
    """Return the event that ends a slice, with the size of its replica's log in bytes.

    `future` is done: it has the outcome of the slice, or the error that ended its process. With an
    error, results and checkpoints come from the slice's journal, and checkpoints that are intact on
    disk get other names.
    """
    folder = context.folder.trial(opened.trial, opened.replica)
    return replace(_outcome_event(context, opened, future), log=log_size(folder))


def _outcome_event(context: DriverContext, opened: Opened, future: Future[SliceOutcome]) -> Closed:
    """Return the event that ends a slice, by its future's outcome or error.

    Without an outcome, results and checkpoints come from the slice's journal. LimitPassed makes the
    replica STOPPED; a worker that had to be replaced, or a lost cluster, only interrupts it; any
    other error counts as a lost process.
    """
    replica = context.history.replica(opened.trial, opened.replica)
    history, spec, error = context.history, context.spec, future.exception()
    if isinstance(error, StaleProcess):
        return withdrawal_event(replica, "its worker had to be replaced")
    outcome = (
        future.result()
        if error is None
        else reports.lost_outcome(context.checkpoints, context.ledger, replica)
    )
    dropped = _superfluous_checkpoints(history, spec, replica, outcome)
    if isinstance(error, LimitPassed):
        outcome = replace(outcome, end=End.LIMIT)
        return _closed_event(replica, outcome, Status.STOPPED, str(error), dropped, lost=True)
    if isinstance(error, StorageError):
        return interruption_event(history, spec, outcome, str(error))
    if error is not None:
        outcome = replace(outcome, reason=str(error))
    return slice_end_event(replica, outcome, dropped, spec.limits)


def _superfluous_checkpoints(
    history: History, spec: SweepSpec, replica: Replica, outcome: SliceOutcome
) -> tuple[str, ...]:
    """Return the digests of checkpoints that are no longer needed after a slice's outcome.

    These are the ones that retention does not keep, and those after the checkpoint from which the
    slice continued. Checkpoints that offspring need are kept.
    """
    known = list(replica.checkpoints.values())
    again = {saved.digest for saved in outcome.saved}
    kept = [saved for saved in known if saved.iteration <= outcome.source]
    left = [saved for saved in known if saved not in kept and saved.digest not in again]
    sign = history.objective.sign
    policy = retention.Retention.from_spec(spec.checkpoint)
    spare = retention.expendable([*kept, *outcome.saved], policy, sign)
    needed = retention.needed_by_children(history, replica)
    return tuple(saved.digest for saved in (*left, *spare) if saved.digest not in needed)


def delete_unnamed_files(context: DriverContext, event: Closed | Dropped) -> None:
    """Delete the files that the history no longer names after an event was recorded.

    They are checkpoints, the journal of a closed slice, and a dropped log. Checkpoints in object
    storage are deleted later, in a thread. No slice of the replica may run.
    """
    if isinstance(event, Closed):
        reports.remove(context.folder, event.trial, event.replica, event.slice)
    if isinstance(event, Dropped) and event.log:
        remove_log(context.folder.trial(event.trial, event.replica))
    context.checkpoints.delete_unnamed_files(context.history.replica(event.trial, event.replica))
