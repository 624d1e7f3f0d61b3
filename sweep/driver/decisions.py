"""Decisions as events: what a plan begins and ends, and what a slice's outcome means."""

import difflib
import shlex
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace

from sweep.driver.context import DriverContext
from sweep.driver.proposals import Proposer
from sweep.errors import LimitPassed, StorageError, UnknownMetric, UsageError
from sweep.history import order
from sweep.history.events import (
    FINISHED,
    Closed,
    Dropped,
    End,
    Event,
    Moved,
    Opened,
    Status,
    UserHold,
)
from sweep.history.history import History
from sweep.history.replica import Replica
from sweep.history.results import NOTHING, number, numbers
from sweep.history.trial import Trial
from sweep.schedulers import AddReplica, Exploit, NewTrial, Plan, Resume
from sweep.slices import retention
from sweep.slices.cache import StaleProcess
from sweep.slices.messages import SliceOutcome
from sweep.spec import Limits
from trainables.errors import shorten

# -------------------------------------------------------------------------------------------------
# A scheduler's plan as events: trials that end, trials that are made, slices that are opened.
#
# A clone that waits takes the place of the first new trial that the scheduler wants.

_CLONE = "a clone takes the place of a new trial"


def follow(plan: Plan, history: History, proposer: Proposer) -> tuple[list[Event], bool]:
    """The events of one transaction, and whether the space had fewer points than were wanted."""
    trials = history.trials
    begun = [*zip(history.waiting, plan.fresh, strict=False)]
    searched, exhausted = proposer.search(history, plan.fresh[len(begun) :])
    bred = proposer.breed(history, plan.breed, len(trials) + len(searched))
    moves = [
        Moved(stop.trial, stop.status, stop.why, replica.index, evidence=stop.evidence)
        for stop in plan.stop
        for replica in trials[stop.trial].replicas
        if replica.status not in FINISHED
    ]
    opened = [
        _opened(replica.trial, replica.index, resume, replica.slices)
        for resume in plan.resume
        for replica in trials[resume.trial].replicas
        if replica.status not in FINISHED  # one seed may be there already
        and (resume.goal.at is None or not replica.reached(resume.goal.at))
    ]
    opened += [_opened(more.trial, more.replica, more) for more in plan.seeds]
    opened += [
        _opened(replica.trial, replica.index, replace(fresh, why=f"{_CLONE}: {fresh.why}"))
        for trial, fresh in begun
        for replica in trial.replicas
    ]
    new: list[NewTrial | Exploit] = [*plan.fresh[len(begun) :][: len(searched)], *plan.breed]
    opened += [
        _opened(event.trial, index, decision)
        for event, decision in zip([*searched, *bred], new, strict=True)
        for index in range(event.replicas)
    ]
    return [*moves, *searched, *bred, *opened, *exhausted], bool(exhausted)


def check_plan(plan: object, free: int, to_create: int, name: str) -> None:
    """Raise UsageError for what a scheduler may not answer that was asked about `free` slots."""
    who = f"scheduler: plan() of '{name}'"
    if not isinstance(plan, Plan):
        raise UsageError(f"{who} returned {shorten(plan)}; expected a sweep.schedulers.Plan")
    wanted = sum(map(len, (plan.resume, plan.breed, plan.fresh, plan.seeds)))
    if wanted > free:
        raise UsageError(f"{who} wants {wanted} slots; expected at most the {free} that are free")
    if len(plan.fresh) > to_create:
        wanted = len(plan.fresh)
        allowed = f"at most the {to_create} that are left, which history.to_create says"
        raise UsageError(f"{who} wants {wanted} new trials; expected {allowed}")


def _opened(
    trial: int, replica: int, decision: Resume | NewTrial | Exploit | AddReplica, number: int = 0
) -> Opened:
    return Opened(trial, replica, number, decision.goal, decision.why, decision.evidence)


# -------------------------------------------------------------------------------------------------
# What becomes of a trial when one of its slices ends.
#
# A lost worker is retried from the last checkpoint, `max_failures` times in a row. An exception
# is retried once; when it repeats at the same iteration the trial is FAILED at once, since an
# exact resume repeats it for ever. A disk that takes no checkpoint is no trial's fault, and a
# metric that nobody reports is none either: the sweep ends, and can be resumed.

_WHY = {
    End.GOAL: "waits at its rung",
    End.TIME: "its slice's time was up",
    End.ASKED: "the sweep was asked to stop",
    End.DONE: "a stopping criterion was met",
    End.DIVERGED: "it diverged",
    End.LIMIT: "a limit was passed",
}
#: How a slice ended → where its trial stands then, if it does not go on.
_STATUS = {End.DONE: Status.COMPLETED, End.LIMIT: Status.STOPPED}
#: Names of results that a message lists.
MOST_NAMES = 30
#: Of those that could be meant.
MOST_NEAR = 3
_END = "its end"


def judge(
    replica: Replica, outcome: SliceOutcome, dropped: tuple[str, ...], limits: Limits
) -> Closed:
    """The event of a slice that returned."""
    if outcome.end is End.CRASHED:
        status, reason = _crashed(replica, outcome, limits.max_failures)
    elif outcome.end is End.LOST:
        status, reason = _retried(replica, outcome.why, limits.max_failures)
    elif outcome.end is End.UNSAVED:
        what = _refused_by(outcome.error)
        status, reason = Status.PAUSED, f"the {what} took no checkpoint: {outcome.error}"
    else:
        status = _STATUS.get(outcome.end, Status.PAUSED)
        if outcome.end is End.DIVERGED:
            status = Status.FAILED if limits.not_finite == "fail" else Status.PRUNED
        reason = _reason(replica, outcome) + _missing_metric(replica, outcome)
        reason += never_waited(replica, outcome)
    return Closed(
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
        outcome.instead,
        outcome.rows,
    )


def disk_refused(closed: Sequence[Closed], folder: object) -> str:
    """Why the sweep cannot go on, if the disk took a slice's checkpoints no longer."""
    for event in closed:
        if event.end is End.UNSAVED:
            return (
                f"trial {event.trial}: {event.reason}: {folder}; what was saved before is safe, "
                f"resume the sweep when the {_refused_by(event.error)} is well"
            )
    return ""


def _refused_by(error: str) -> str:
    """What took or gave no checkpoint: errors of a storage begin with its URL."""
    return "storage" if "://" in error.partition(" ")[0] else "disk"


def interrupted(replica: Replica, why: str) -> Closed:
    """The event of a slice whose driver went away; it is charged to nobody."""
    return _closed(replica, End.INTERRUPTED, Status.PAUSED, why)


def given_up(history: History, patient: bool) -> list[Moved]:
    """What becomes of the seeds that wait while another of their trial has ended before its end.

    If `patient`, only when all have come to the goals that were decided before, so that how far
    they got, and in which order they end, is the same whenever slices end.
    """
    return [
        Moved(trial.number, Status.STOPPED, f"another seed ended: {ended.reason}", replica.index)
        for trial in history.ordered(order.torn)
        if trial.held is not UserHold.STOP
        and (ended := next((r for r in trial.replicas if r.ended_early), None)) is not None
        for replica in trial.replicas
        if replica.status in (Status.WAITING, Status.PAUSED)
        if not (patient and any(r.unfinished or r.status is Status.RUNNING for r in trial.replicas))
    ]


def topped_up(history: History) -> list[Moved]:
    """Brings back what was pruned only because the sweep ended, as there is more to do now."""
    waited = (replica for replica in history.replicas(Status.PRUNED) if replica.waited)
    return [Moved(r.trial, Status.PAUSED, "the sweep has more to do", r.index) for r in waited]


def tried_again(history: History) -> list[Moved]:
    """Brings back what has ended of trials that failed."""
    return [
        Moved(trial.number, Status.PAUSED, "it is tried again", replica.index)
        for trial in history.ordered(order.having(Status.FAILED))
        for replica in trial.replicas
        if replica.status in FINISHED - {Status.COMPLETED}
    ]


def _reason(replica: Replica, outcome: SliceOutcome) -> str:
    if outcome.end is End.ASKED and replica.held:
        return f"a person asked it to {replica.held}"
    if outcome.end is End.DONE and not outcome.why:  # by no criterion
        top = replica.goal.top
        if top is None or any(row.metrics.get("done") is True for row in outcome.rows[-1:]):
            return "the trainable was done"
        return f"it came to the top, {replica.objective.time_attr} {top:g}"
    return f"{_WHY[outcome.end]}: {outcome.why}" if outcome.why else _WHY[outcome.end]


def _closed(replica: Replica, end: End, status: Status, reason: str) -> Closed:
    """The event of a replica's newest slice, of which nothing came."""
    newest, at = replica.slices - 1, replica.iteration
    return Closed(replica.trial, replica.index, newest, end, status, reason, source=at)


def _retried(replica: Replica, what: str, max_failures: int) -> tuple[Status, str]:
    """What becomes of a trial that lost a process."""
    times = replica.lost + 1
    if times > max_failures:
        return Status.FAILED, f"{what}; no retries are left"
    return Status.PAUSED, f"{what}; retry {times} of {max_failures}"


def _crashed(replica: Replica, outcome: SliceOutcome, max_failures: int) -> tuple[Status, str]:
    what = f"iteration {outcome.error_at} raised {outcome.why}"
    if outcome.error_at in replica.crashes:
        return Status.FAILED, f"{what}; it did so before, so retrying is no use"
    if len(replica.crashes) >= max_failures:
        return Status.FAILED, f"{what}; after {max_failures} retries no more are left"
    return Status.PAUSED, f"{what}; it is tried once more"


def _missing_metric(replica: Replica, outcome: SliceOutcome) -> str:
    """A note when the trial has no score yet, with the names that did appear."""
    metric = replica.objective.metric
    rows = outcome.rows
    seen = replica.reported or any(number(row.metrics.get(metric)) is not None for row in rows)
    if seen or not rows or outcome.end is End.TIME or outcome.end is End.ASKED:
        return ""
    names = sorted({*replica.names, *numbers(row.metrics for row in rows)})
    return f"; {_without(metric, names, outcome.instead)}"


def never_waited(replica: Replica, came: SliceOutcome | Closed) -> str:
    """A note when a trial ran past its rung to its end, having nothing to wait there with."""
    at, time_attr = replica.goal.at, replica.objective.time_attr
    if came.end is not End.DONE or at is None or came.saved or replica.checkpoints:
        return ""
    before = [number(row.metrics.get(time_attr)) for row in came.rows[:-1]]
    if not any(time is not None and time >= at for time in before):
        return ""
    return (
        f"; it ran past its rung at {time_attr} {at:g}, as it reported no checkpoint to wait with: "
        f"call report(..., checkpoint=...), or use a scheduler that pauses none, such as "
        f"{{name: asha, type: stopping}}"
    )


# ---- a metric that nobody reports -----------------------------------------------------------


def without_metric(
    history: History, name: str, rungs: bool, at_end: bool = False
) -> UnknownMetric | None:
    """Why the sweep cannot go on, if no trial has ever had the metric and one should have had it.

    That is one that has come to its first rung or, where there are none, to its end. It is a
    function of the history alone, so a sweep that was killed and resumed ends where the other does.

    Args:
        history: so far.
        name: the sweep's.
        rungs: whether goals on the way are where trials are compared and one without a score
            loses.
        at_end: nothing more would be trained, so that an evaluation to come never comes.
    """
    if history.reported:
        return None
    for trial in history.trials:
        for replica in trial.replicas:
            where = _where(trial, replica, rungs)
            if where and (at_end or _due(trial, replica)):
                return _unknown_metric(name, replica, where)
    return None


def _where(trial: Trial, replica: Replica, rungs: bool) -> str:
    """Where a replica stands that should have had the metric, in words; empty: it need not."""
    if not replica.curve:
        return ""
    if _is_over(trial, replica):
        return _END
    at, rests = replica.goal.at, replica.status in (Status.PAUSED, Status.PRUNED)
    if rungs and rests and at is not None and replica.reached(at):
        return f"its rung at {replica.objective.time_attr} {at:g}"
    return ""


def _is_over(trial: Trial, replica: Replica) -> bool:
    """Whether the trial was trained to its end: not crashed, diverged or stopped."""
    if replica.status is Status.COMPLETED:
        return True
    cut = bool(trial.held) or any(r.ended_early for r in trial.replicas)
    return replica.status is Status.STOPPED and not cut


def _due(trial: Trial, replica: Replica) -> bool:
    """Whether the metric had to be there by now.

    An evaluation brings its results at its interval, maybe an iteration later; a mean over episodes
    comes when one has ended. A trainable that reports None under its name has none yet.
    """
    if replica.instead == NOTHING:
        return False
    if not replica.objective.metric.startswith("evaluation/"):
        return replica.last.get("episodes_total") != 0
    interval = trial.config.get("evaluation_interval")
    if isinstance(interval, int) and interval >= 1:
        return replica.iteration // interval >= 2
    return _is_over(trial, replica)


def _unknown_metric(name: str, replica: Replica, where: str) -> UnknownMetric:
    metric = replica.objective.metric
    close = _near(metric, replica.names)
    other = shlex.quote(close[0]) if close else "NAME"
    instead = replica.instead or ("a text" if isinstance(replica.last.get(metric), str) else "")
    found = _without(metric, replica.names, instead)
    then = " W" if found.endswith("?") else "; w"
    later = "" if where == _END else "; one that comes later needs a later first rung"
    return UnknownMetric(
        f"metric: trial {replica.trial} came to {where}, and {found}{then}hat was trained is kept: "
        f"`sweep resume {name} --metric {other}` goes on with it{later}"
    )


def _without(metric: str, names: Sequence[str], instead: str) -> str:
    """That results have no such number, and which they have: `names`, and the nearest of them."""
    has = f"its results had no metric '{metric}'"
    if not instead and any(name.startswith(f"{metric}/") for name in names):
        instead = "a nested dict"
    if instead:
        has = f"in its results '{metric}' is {instead}, and no number"
    close = " or ".join(f"'{key}'" for key in _near(metric, names))
    shown = ", ".join(names[:MOST_NAMES]) + (", …" if len(names) > MOST_NAMES else "")
    return f"{has}, they have: {shown or 'no numbers'}" + (f"; did you mean {close}?" * bool(close))


def _near(metric: str, names: Sequence[str]) -> list[str]:
    """The names that could be meant: what stands within it, else what is written alike."""
    within = [name for name in names if name.startswith(f"{metric}/")]
    return within[:MOST_NEAR] or difflib.get_close_matches(metric, names, MOST_NEAR, cutoff=0.6)


# -------------------------------------------------------------------------------------------------
# What came of slices: their events, and which files may go after those are recorded.


def outcome_event(context: DriverContext, opened: Opened, future: Future[SliceOutcome]) -> Closed:
    """The event of a slice that is over."""
    replica = context.history.replica(opened.trial, opened.replica)
    limits, error = context.spec.limits, future.exception()
    if isinstance(error, LimitPassed):
        return _closed(replica, End.LIMIT, Status.STOPPED, str(error))
    if isinstance(error, StaleProcess):
        return interrupted(replica, "its worker had to be replaced")
    if isinstance(error, StorageError):
        return interrupted(replica, str(error))
    if error is not None:
        return _closed(replica, End.LOST, *_retried(replica, str(error), limits.max_failures))
    outcome = future.result()
    dropped = _no_longer_needed(context, replica, outcome)
    return judge(replica, outcome, dropped, limits)


def _no_longer_needed(
    context: DriverContext, replica: Replica, outcome: SliceOutcome
) -> tuple[str, ...]:
    """Digests of checkpoints that the policy spares, or from which the replica fell back."""
    known = list(replica.checkpoints.values())
    again = {saved.digest for saved in outcome.saved}
    kept = [saved for saved in known if saved.iteration <= outcome.source]
    left = [saved for saved in known if saved not in kept and saved.digest not in again]
    sign = context.history.objective.sign
    policy = retention.Retention.of(context.spec.checkpoint)
    spare = retention.expendable([*kept, *outcome.saved], policy, sign)
    needed = retention.needed_by_children(context.history, replica)
    return tuple(saved.digest for saved in (*left, *spare) if saved.digest not in needed)


def let_go(context: DriverContext, event: Closed | Dropped) -> None:
    """Delete the files that the history has let go of, where no slice runs."""
    context.checkpoints.let_go(context.history.replica(event.trial, event.replica))
