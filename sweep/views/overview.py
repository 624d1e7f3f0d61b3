"""Data that the commands show: pure functions from a sweep to the output of ``--json``.

`sweep.cli.tables` makes tables of the same data. Values that are missing or not finite are null.
Durations are in seconds, times in seconds since 1970.
"""

import operator
from collections.abc import Sequence
from dataclasses import asdict
from itertools import takewhile
from typing import Any

from sweep.core import stats
from sweep.core.errors import BadConfig, UsageError
from sweep.history.events import (
    FINISHED,
    Closed,
    Created,
    Moved,
    Opened,
    Recorded,
    Row,
    Saved,
    Status,
    Suggested,
)
from sweep.history.history import History
from sweep.history.ranking import is_by_expectation
from sweep.history.replica import Replica, joint_curve
from sweep.history.results import to_number
from sweep.history.seeds import FIRST_TEST, is_test, replica_name, seed_of
from sweep.history.trial import Trial
from sweep.ledger.folder import Folder, noted_remark
from sweep.spec.space import initial
from sweep.views import final_evaluation, formatting, progress
from sweep.views.formatting import finite
from sweep.views.lookup import DRIVEN, State, Sweep
from sweep.views.progress import Notes

Data = dict[str, Any]


def replica_row(replica: Replica, sweep_seed: int) -> Data:
    """Return data of one replica of a trial.

    The keys are ``seed_index``, ``name``, ``seed``, ``status``, ``score``, ``iterations`` and
    ``reason``. `sweep_seed` is the spec's seed, from which the replica's follows.
    """
    return {
        "seed_index": replica.index,
        "name": replica_name(replica.trial, replica.index),
        "seed": seed_of(sweep_seed, replica.trial, replica.index),
        "status": replica.status.value,
        "score": finite(replica.score_at()),
        "iterations": replica.iteration,
        "reason": replica.reason,
    }


def origin(event: Created, sweep: Sweep) -> tuple[str, str]:
    """Return two texts: the way in which a trial was created, and by whom or from which trial.

    The first is ``cloned``, ``bred`` (offspring), ``suggested`` (by a user), ``given`` (under
    ``initial``, or by a grid) or ``proposed`` (by the searcher).
    """
    begins = f", iteration {event.births[0].saved.iteration}" if event.births else ""
    if event.clone_of is not None:
        return "cloned", f"from trial {event.clone_of}{begins}, by a person"
    if event.births:
        return "bred", f"from trial {event.births[0].trial}{begins}"
    spec, searcher = sweep.spec, f"by the searcher {sweep.spec.searcher.name}"
    if event.origin:
        searcher += f" from its {event.origin}"
    if event.reason:
        searcher += f": {event.reason}"
    if event.suggestion is not None:
        return "suggested", _suggested(event, sweep, searcher)
    before = sweep.history.trials[: event.trial]
    index = sum(trial.has_searched_settings and trial.suggestion is None for trial in before)
    first = index < len(spec.initial)
    if not (first or spec.space.crossed_domains):
        return "proposed", searcher
    left = initial.space_of(spec.space, spec.initial, index).domains
    rest = f", the rest {searcher}" if any(name in left for name in event.searched) else ""
    return "given", f"{'under initial' if first else 'in turn, as grid says'}{rest}"


def _suggested(event: Created, sweep: Sweep, searcher: str) -> str:
    """Return words for a suggestion's author and reason, and for the origin of other settings.

    `searcher` are the words for settings that the searcher proposed.
    """
    suggestion = sweep.history.trials[event.trial].suggestion
    if suggestion is None:
        return searcher
    said = f"by {author(suggestion)}"
    if not (rest := [name for name in event.searched if name not in suggestion.settings]):
        return said
    return f"{said}; {', '.join(rest)} {searcher}"


def decision(record: Recorded, sweep: Sweep, number: int) -> Data | None:
    """Return the decision about trial `number` that an event records.

    The keys are ``event`` (its number), ``term``, ``at`` (seconds since 1970), and the texts
    ``what`` and ``why``. Returns None unless the event is Created, Opened, Closed or Moved and is
    about this trial.
    """
    event = record.event
    if not isinstance(event, Created | Opened | Closed | Moved) or event.trial != number:
        return None
    seed = "" if isinstance(event, Created) else _seed_prefix(event.replica)
    match event:
        case Created():
            action, why = origin(event, sweep)
            if action == "proposed":
                why += f", from the history up to event {event.seen}"
        case Opened():
            goal = "the end" if event.goal.until is None else formatting.number(event.goal.until)
            action, why = f"{seed}slice {event.slice} to {goal}", event.reason
        case Closed():
            skipped = "".join(f"; skipped {one}" for one in event.skipped)
            action, why = f"{seed}slice {event.slice} ended: {event.status}", event.reason + skipped
        case Moved():
            action, why = f"{seed}{event.status}", event.reason
    return {
        "event": record.number,
        "term": record.term,
        "at": record.time,
        "what": action,
        "why": why,
    }


def _seed_prefix(replica: int) -> str:
    """Return a text's beginning such as ``seed 1, `` or ``test 0, ``; empty for the first seed."""
    if is_test(replica):
        return f"test {replica - FIRST_TEST}, "
    return f"seed {replica}, " if replica else ""


#: Columns of `overview` as a table, before those of the best trial's settings.
OVERVIEW = (
    *("name", "state", "trials", "bred", "done", "wanted", "why", "metric", "mode"),
    *("best/trial", "best/score", "best/expected", "best/expected_error", "created_at", "age_s"),
)
#: Columns of the trials of `results` as a table, before those of settings and objectives.
RESULTS = (
    *("trial", "parent", "status", "score", "expected", "expected_error", "scores", "iterations"),
    *("unsaved", "steps", "own_steps", "suggested", "reason"),
    *("started_at", "ended_at", "seconds", "checkpoint/seed_index", "checkpoint/iteration"),
    *("checkpoint/value", "checkpoint/file", "checkpoint/digest", "checkpoint/size"),
)
#: Number of trials in the table at the end of a sweep.
TOP = 10
#: Name of the result that counts environment steps.
STEPS = "timesteps_total"


def overview(sweep: Sweep, now: float) -> Data:
    """Return the data of one row of `sweep ls`; `now` is the time in seconds since 1970.

    ``trials`` counts the searched trials, of ``wanted`` in total, and ``bred`` offspring and
    clones; ``done`` is `ended_count`. ``why`` says why the sweep ended early. ``best`` is that of
    `best_so_far`.
    """
    history = sweep.history
    return {
        "name": sweep.folder.name,
        "state": sweep.state.value,
        "trials": history.searched_count,
        "bred": len(history.trials) - history.searched_count,
        "done": ended_count(history),
        "wanted": history.wanted or sweep.spec.trials,
        "why": history.end_reason,
        "metric": sweep.spec.metric,
        "mode": sweep.spec.mode,
        "best": best_so_far(history),
        "created_at": sweep.created_at,
        "age_s": max(0.0, now - sweep.created_at),
    }


def status(sweep: Sweep, notes: Notes, now: float) -> Data:
    """Return the data of `sweep status`: counts, running trials, best trial, time left.

    Besides the keys of `overview` it has ``counts`` (by status), ``fraction`` (done, 0 to 1),
    ``elapsed_s``, ``left_s``, ``running`` (as of `running_replica`) and more. Without a driver, or
    while it is paused, ``running`` is empty and both times are None. `notes` are those of running
    trials' progress files; `now` is the time in seconds since 1970.
    """
    testing = sweep.history.final_evaluation is not None and sweep.state in DRIVEN
    measure = progress.final_evaluation_fraction if testing else progress.fraction
    share = measure(sweep.history, sweep.aim, notes)
    running = sweep.state in (State.RUNNING, State.TESTING)
    elapsed = left = None
    if running and (began := sweep.term_began) is not None:
        elapsed = max(0.0, now - began.time)
        left = progress.time_left(elapsed, share, sweep.fraction_at_term())
    run = (testing and sweep.history.final_evaluation) or sweep.history
    return {
        **overview(sweep, now),
        "root": str(sweep.folder.root),
        "exhausted": sweep.history.exhausted,
        "changes": changes(sweep),
        "suggested": [
            {"settings": dict(one.settings), "author": one.author, "reason": one.reason}
            for one in sweep.history.open_suggestions.values()
        ],
        "searcher": sweep.spec.searcher.name,
        "scheduler": sweep.spec.scheduler.name,
        "time_attr": sweep.history.objective.time_attr,
        "rungs": list(sweep.aim.levels),
        "jobs": run.jobs,
        "pool": run.pool or None,
        "pool_remark": (running and noted_remark(sweep.folder, sweep.history.term)) or None,
        "counts": status_counts(sweep.history),
        "fraction": share,
        "elapsed_s": elapsed,
        "left_s": left,
        "steps": steps(sweep.history),
        "outlook": outlook(sweep.history),
        "running": [
            running_replica(sweep.history, replica, notes, sweep.last_trained_at(replica), now)
            for replica in progress.running(sweep.history)
            if running
        ],
    }


def changes(sweep: Sweep) -> list[Data]:
    """Return the changes of space and stopping criteria since the creation, oldest first.

    Each has the fields of `Change`, and its sentence as ``text``.
    """
    return [{**asdict(change), "text": change.text} for change in sweep.changes]


def running_replica(
    history: History, replica: Replica, notes: Notes, last_trained_at: float | None, now: float
) -> Data:
    """Return the data of a running replica, from its progress note or else from the ledger.

    The keys are ``trial``, ``seed_index``, ``name``, ``iteration``, ``time`` and ``goal`` in units
    of `time_attr` (the latter None for the end of training), ``value`` (the metric), ``seconds``
    (training time in the ledger, plus the time since the last sign of life), ``settings`` and
    ``worker`` (None without a cluster). `last_trained_at` is the time of the last sign of life, or
    None, and `now` the present time, both in seconds since 1970.
    """
    note = notes.get((replica.trial, replica.index))
    value = replica.value
    before = to_number(replica.last_metrics.get("time_total_s")) or 0.0
    if note is not None and note.value is not None:
        value = note.value
    return {
        "trial": replica.trial,
        "seed_index": replica.index,
        "name": replica_name(replica.trial, replica.index),
        "iteration": replica.iteration if note is None else note.iteration,
        "time": replica.time if note is None or note.time is None else note.time,
        "goal": replica.goal.until,
        "value": finite(value),
        "seconds": before
        + (max(0.0, now - last_trained_at) if last_trained_at is not None else 0.0),
        "settings": dict(history.trials[replica.trial].searched),
        "worker": (note and note.worker) or None,
    }


def results(sweep: Sweep) -> Data:
    """Return the data of `sweep results`: all trials, best first, those without a score last.

    Each of ``trials`` has the keys of `row` and `trial_record`; ``front`` is that of `front`, and
    ``changes`` of `changes`.
    """
    history = sweep.history
    ranked = history.ranked()
    others = [trial for trial in history.trials if trial.score is None]
    return {
        "name": sweep.folder.name,
        "metric": sweep.spec.metric,
        "mode": sweep.spec.mode,
        "front": front(history),
        "changes": changes(sweep),
        "trials": [{**row(trial, history), **trial_record(trial)} for trial in [*ranked, *others]],
    }


def trial_record(trial: Trial) -> Data:
    """Return ``started_at``, ``ended_at``, ``seconds`` and ``checkpoint`` of a trial.

    The first two are in seconds since 1970; ``seconds`` is the training time. ``checkpoint`` is the
    best one of the best seed, as data; None if there is none.
    """
    leader = trial.leader
    saved = leader.best_checkpoint
    return {
        "started_at": trial.started_at,
        "ended_at": trial.ended_at,
        "seconds": finite(trial.total("time_total_s")),
        "checkpoint": None if saved is None else checkpoint(leader, saved),
    }


def row(trial: Trial, history: History) -> Data:
    """Return scores, status and settings of one trial, for a table of results.

    ``settings`` are the searched ones, ``config`` all; ``expected`` and ``expected_error`` are as
    in `Expected`; ``scores`` has one for each compared seed; ``unsaved`` is the number of results
    that were lost, ``suggested`` the text of `author` or None. With several objectives or
    constraints it also has the keys of `other_results`.

    If a trial began from a checkpoint of another, as a population's child does, ``iterations`` and
    ``steps`` are those that its networks were trained for, including the other trial's up to there;
    ``own_steps`` are those after it, which a budget counts.
    """
    expected = history.expected(trial)
    compared = {} if trial.objective.is_simple else other_results(trial)
    return {
        **compared,
        "trial": trial.number,
        "parent": trial.parent,
        "status": trial.status.value,
        "score": finite(trial.score),
        "expected": None if expected is None else finite(expected.value),
        "expected_error": None if expected is None else finite(expected.error),
        "scores": [finite(replica.score_at()) for replica in trial.compared_replicas],
        "iterations": trial.iteration,
        "unsaved": trial.lost_results,
        "steps": finite(trial.total(STEPS)),
        "own_steps": finite(own_steps(trial)),
        "settings": dict(trial.searched),
        "suggested": None if trial.suggestion is None else author(trial.suggestion),
        "config": trial.config,
        "reason": trial.reason,
    }


def author(suggestion: Suggested) -> str:
    """Return the author of a suggestion, followed by the reason if any: ``ada: as in 2024``."""
    return f"{suggestion.author}: {suggestion.reason}" if suggestion.reason else suggestion.author


def other_results(trial: Trial) -> Data:
    """Return a trial's further scores and violations.

    ``objectives`` maps each further objective to the score in it; ``violates`` lists the names of
    the violated constraints.
    """
    objective = trial.objective
    scores = zip(objective.objectives, trial.other_scores, strict=True)
    limits = zip(objective.constraints, trial.violations, strict=True)
    return {
        "objectives": {path: finite(score) for (path, _), score in scores},
        "violates": [constraint.path for constraint, violation in limits if violation > 0],
    }


def front(history: History) -> list[int] | None:
    """Return the numbers of the trials on the Pareto front; None with one objective."""
    if not history.objective.objectives:
        return None
    return [trial.number for trial in history.front()]


def best(sweep: Sweep) -> Data:
    """Return the data of `sweep best`: the best trial, how certain it is, and its best checkpoint.

    It has the keys of `row` and `trial_record`; ``pick`` is that of `pick`, ``final_evaluation``
    the report of test seeds (None without one), and ``scored`` the number of trials with a score.
    With several objectives it is the trial of the front that is best in the metric.

    Raises:
        UsageError: no trial has a score.
    """
    trial = best_trial(sweep.history, sweep.folder)
    return {
        "name": sweep.folder.name,
        "root": str(sweep.folder.root),
        "metric": sweep.spec.metric,
        "mode": sweep.spec.mode,
        **row(trial, sweep.history),
        "pick": pick(sweep.history, trial),
        "is_random": sweep.history.expectations.is_random,
        "front": front(sweep.history),
        "aggregate": sweep.spec.aggregate.to_spec(),
        "trials": len(sweep.history.trials),
        "scored": len(sweep.history.ranked()),
        **trial_record(trial),
        "final_evaluation": final_evaluation.report(sweep),
    }


def pick(history: History, trial: Trial) -> Data | None:
    """Return how certain it is that the trial has the best settings; None with too few trials.

    ``luck`` is the difference between its score and its settings' expected score, positive if
    better. ``chance`` is the probability that it is the best. ``runner_up`` has the best other
    trial; None if there is none. Its ``equals`` is the number of other trials with exactly the same
    expectation as `trial`, as at a ceiling. Its ``more_seeds`` is the number of further seeds of
    both that would probably tell them apart: 0 if they are told apart, None if it is too large or
    unknown. ``spreads`` has the fields of `Spreads`. Returns None also without randomness.
    """
    expected, spreads = history.expected(trial), history.expectations.spreads
    if expected is None or expected.error is None or spreads is None:
        return None
    chances, sign = history.expectations.chances(), history.objective.sign
    others = [other for other in history.ranked() if other is not trial]
    second = next(iter(others), None)
    runner_up, second_expected = None, None if second is None else history.expected(second)

    def as_much(other: Trial) -> bool:
        """Return whether another trial's expected score equals the pick's."""
        its = history.expected(other)
        return its is not None and its.value == expected.value

    if second is not None and second_expected is not None:
        runner_up = {
            "trial": second.number,
            "expected": finite(second_expected.value),
            "expected_error": finite(second_expected.error),
            "chance": chances.get(second.number, 0.0),
            "more_seeds": expected.seeds_to_tell_from(second_expected),
            "equals": sum(1 for _ in takewhile(as_much, others)),
        }
    return {
        "luck": finite(sign * ((trial.score or 0.0) - expected.value)),
        "chance": chances.get(trial.number, 0.0),
        "runner_up": runner_up,
        "spreads": {key: finite(value) for key, value in asdict(spreads).items()},
    }


#: Period of the outlook in seconds, and its maximum length relative to the training so far.
HOUR_S, FURTHEST = 3600.0, 8.0


def outlook(history: History) -> Data | None:
    """Return the expected improvement from more training; None if it cannot be estimated yet.

    ``again`` is the improvement of the best by as much training again, and ``hour`` that of the
    next hour at the present pace, None if the sweep has run less than 1 / `FURTHEST` of an hour.
    ``share`` and ``hour_share`` are the same as fractions of ``range`` (`Outlook.range`). Nothing
    is estimated unless expected scores alone rank the trials (`is_by_expectation`).
    """
    doubling = history.expectations.outlook() if is_by_expectation(history.objective) else None
    if doubling is None:
        return None
    spent, soon = history.driven_s, HOUR_S / FURTHEST
    hour = history.expectations.outlook(HOUR_S / spent) if spent >= soon else None
    return {
        "again": finite(doubling.gain),
        "share": doubling.relative_gain,
        "range": finite(doubling.range),
        "hour": None if hour is None else finite(hour.gain),
        "hour_share": None if hour is None else hour.relative_gain,
    }


def best_trial(history: History, folder: Folder) -> Trial:
    """Return the first trial of `History.ranked`; UsageError if no trial has a score."""
    ranked = history.ranked()
    if not ranked:
        metric = history.objective.metric
        raise UsageError(
            f"{folder.name}: none of its {formatting.plural(len(history.trials), 'trial')} has a "
            f"score in '{metric}' yet; see `sweep results "
            f"{folder.in_commands}`"
        )
    return ranked[0]


def find_trial(history: History, name: str, number: int) -> Trial:
    """Return the trial with this number, an int or numpy integer; `name` is the sweep's.

    Raises UsageError if no trial has this number, or if `number` is not an integer.
    """
    try:
        number = operator.index(number)  # also accepts numpy integers from a table
    except TypeError:
        raise BadConfig("trial", number, "the number of a trial") from None
    if not 0 <= number < len(history.trials):
        has = f"trials 0 to {len(history.trials) - 1}" if history.trials else "no trials yet"
        raise UsageError(f"trial {number} does not exist; {name} has {has}")
    return history.trials[number]


def asked_trial(history: History, folder: Folder, choice: str, place: str = "--trial") -> Trial:
    """Return the trial that a user named: ``best``, or a number as text.

    `place` is the option or argument, for messages.

    Raises:
        UsageError: there is no such trial.
    """
    if choice == "best":
        return best_trial(history, folder)
    if not choice.isdecimal():
        raise BadConfig(place, choice, "best, or the number of a trial")
    return find_trial(history, folder.name, int(choice))


def show(sweep: Sweep, number: int, rows: Sequence[Row]) -> Data:
    """Return the data of `sweep show`: everything about one trial.

    It has the keys of `row` and `trial_record` and more. `rows` are the results of the trial's best
    seed, of which ``last`` has the newest; ``curve`` is that seed's, too. ``changes`` are those of
    the sweep after the trial began. Raises UsageError if there is no trial `number`.
    """
    trial = find_trial(sweep.history, sweep.folder.name, number)
    return {
        "name": sweep.folder.name,
        "metric": sweep.spec.metric,
        "mode": sweep.spec.mode,
        **row(trial, sweep.history),
        "changes": [one for one in changes(sweep) if number < one["trials"]],
        "goal": {"at": trial.goal.until, "top": trial.goal.top},
        "time_attr": trial.objective.time_attr,
        "exactness": trial.leader.exactness,
        "slices": trial.slices,
        "constraints": [
            {
                "path": constraint.path,
                "limit": constraint.limit,
                "value": finite(constraint.bound + constraint.sign * violation),
                "violated": violation > 0,
            }
            for constraint, violation in zip(
                trial.objective.constraints, trial.violations, strict=True
            )
        ],
        "seeds": [
            replica_row(replica, sweep.spec.seed)
            for replica in [*trial.replicas, *trial.test_replicas]
        ],
        **trial_record(trial),
        "curve": [
            {
                "iteration": p.iteration,
                "time": p.time,
                "value": finite(p.value),
                **({"unsaved": True} if trial.leader.has_lost(p.iteration) else {}),
            }
            for p in trial.leader.curve
        ],
        "band": _band(trial),
        "last": {key: finite(value) for key, value in (rows[-1].metrics if rows else {}).items()},
        "leader": trial.leader.index,
        "decisions": [d for record in sweep.records if (d := decision(record, sweep, number))],
        "checkpoints": [
            checkpoint(r, saved)
            for r in [*trial.replicas, *trial.test_replicas]
            for saved in r.checkpoints.values()
        ],
        "error": trial.deciding_replica.error,
    }


def _band(trial: Trial) -> list[Data]:
    """Return ``mean``, ``least`` and ``greatest`` of a trial's seeds at each ``iteration`` of all.

    Seeds added later that are still catching up are left out; the list is empty with one seed.
    """
    if len(trial.compared_replicas) < 2:
        return []
    return [
        {
            "iteration": row.iteration,
            "mean": stats.mean(row.values),
            "least": min(row.values),
            "greatest": max(row.values),
        }
        for row in joint_curve(trial.compared_replicas)
    ]


def checkpoint(replica: Replica, saved: Saved) -> Data:
    """Return data of a checkpoint.

    The keys are ``seed_index``, ``iteration``, ``value`` (the metric), ``file`` (its path relative
    to the sweep's folder), ``digest`` (SHA-256) and ``size`` (bytes).
    """
    return {
        "seed_index": replica.index,
        "iteration": saved.iteration,
        "value": finite(saved.value),
        "file": f"trials/{replica_name(replica.trial, replica.index)}/{saved.file}",
        "digest": saved.digest,
        "size": saved.size,
    }


def summary(history: History, name: str) -> Data:
    """Return the data shown when a driver ends: the `TOP` best trials, counts by status, steps.

    ``top`` has the `row` of each best trial. ``trials``, ``bred``, ``wanted`` and ``why`` are as in
    `overview`; ``reported`` is true if any result had the metric, and ``first_error`` is that of
    `_first_error`. `name` is the sweep's name.
    """
    return {
        "name": name,
        "metric": history.objective.metric,
        "mode": history.objective.mode,
        "counts": status_counts(history),
        "trials": history.searched_count,
        "bred": len(history.trials) - history.searched_count,
        "wanted": history.wanted,
        "exhausted": history.exhausted,
        "why": history.end_reason,
        "steps": steps(history),
        "front": front(history),
        "reported": history.has_metric,
        "top": [row(trial, history) for trial in history.ranked()[:TOP]],
        "first_error": _first_error(history),
    }


def _first_error(history: History) -> Data | None:
    """Return ``trial`` and ``reason`` of the first trial if all trials failed; else None."""
    if not history.trials or history.count(Status.FAILED) < len(history.trials):
        return None
    first = history.trials[0]  # whose reason is that of the seed that failed
    return {"trial": first.number, "reason": first.reason}


def status_counts(history: History) -> dict[str, int]:
    """Return status → number of trials, without zeros, in the order of `Status`."""
    return {status.value: count for status in Status if (count := history.count(status))}


def ended_count(history: History) -> int:
    """Return the number of ended trials, without clones and trials that offspring replaced."""
    wanted = [trial for trial in history.trials if trial.clone_of is None]
    ended = sum(trial.status in FINISHED for trial in wanted)
    return ended - sum(trial.parent is not None for trial in wanted)


def best_so_far(history: History) -> Data | None:
    """Return data of the best trial; None if no trial has a score.

    The keys are ``trial``, ``score``, ``expected``, ``expected_error`` and ``settings``; with
    several objectives also ``objectives``, name → score, and ``front``, numbers of trials.
    """
    best = history.best
    if best is None:
        return None
    found = row(best, history)
    keys = ("trial", "score", "expected", "expected_error", "settings")
    told = {key: found[key] for key in keys}
    if history.objective.objectives:
        told |= {"objectives": found["objectives"], "front": front(history)}
    return told


def steps(history: History) -> float | None:
    """Return the environment steps of all trials together; None if no result counts them.

    Test replicas are left out. Steps that an offspring has from its parent's checkpoint count once.
    """
    found = [own for trial in history.trials if (own := own_steps(trial)) is not None]
    return sum(found) if found else None


def own_steps(trial: Trial) -> float | None:
    """Return the environment steps of a trial without those of the trial from which it began.

    Returns None if no result counts them.
    """
    total = trial.total(STEPS)
    return total if total is None or trial.parent is None else trial.steps
