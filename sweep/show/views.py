"""What the commands show, as plain data: pure functions from a sweep to what ``--json`` prints.

`sweep.show.render` makes tables of the same data. A value that is missing or not finite is null.
Times are seconds; moments are seconds since 1970.
"""

from collections.abc import Sequence
from typing import Any

from sweep.errors import UsageError
from sweep.events import FINISHED, Row, Saved, Status
from sweep.history import History, Replica, Trial
from sweep.metrics import number
from sweep.seeds import replica_name
from sweep.show import exams, progress, wording
from sweep.show.look import DRIVEN, State, Sweep
from sweep.show.progress import Notes
from sweep.show.seedwise import decision, replica_row
from sweep.show.wording import finite

Data = dict[str, Any]

#: Trials in the table at the end of a sweep.
TOP = 10
#: The result in which environment steps are counted.
STEPS = "timesteps_total"


def overview(sweep: Sweep, now: float) -> Data:
    """One row of `sweep ls`."""
    history = sweep.history
    return {
        "name": sweep.folder.name,
        "state": sweep.state.value,
        "trials": history.searched,
        "bred": len(history.trials) - history.searched,
        "done": done(history),
        "wanted": history.wanted or sweep.spec.trials,
        "why": history.why,
        "metric": sweep.spec.metric,
        "mode": sweep.spec.mode,
        "best": best_so_far(history),
        "created_at": sweep.created_at,
        "age_s": max(0.0, now - sweep.created_at),
    }


def status(sweep: Sweep, notes: Notes, now: float) -> Data:
    """`sweep status`: counts, running trials, best, and how long the rest may take."""
    testing = sweep.history.exam is not None and sweep.state in DRIVEN
    measure = progress.exam_fraction if testing else progress.fraction
    share = measure(sweep.history, sweep.aim, notes)
    running = sweep.state in (State.RUNNING, State.TESTING)
    elapsed = max(0.0, now - sweep.epoch_began_at) if running and sweep.epoch_began_at else None
    left = None
    if elapsed is not None:
        left = progress.time_left(elapsed, share, sweep.fraction_at_epoch())
    return {
        **overview(sweep, now),
        "exhausted": sweep.history.exhausted,
        "searcher": sweep.spec.searcher.name,
        "scheduler": sweep.spec.scheduler.name,
        "time_attr": sweep.history.objective.time_attr,
        "rungs": list(sweep.aim.levels),
        **_run_with(sweep.history, testing),
        "counts": counts(sweep.history),
        "fraction": share,
        "elapsed_s": elapsed,
        "left_s": left,
        "steps": steps(sweep.history),
        "running": [
            running_replica(sweep.history, replica, notes, sweep.opened_at(replica), now)
            for replica in progress.running(sweep.history)
            if running
        ],
    }


def _run_with(history: History, testing: bool) -> Data:
    """How many slices run at once, in which pool; null where it was not recorded."""
    newest = history.exam if testing and history.exam else history
    return {"jobs": newest.jobs, "pool": newest.pool or None}


def running_replica(
    history: History, replica: Replica, notes: Notes, opened_at: float | None, now: float
) -> Data:
    """Where a running replica is, the newest of what the ledger and its note say."""
    note = notes.get((replica.trial, replica.index))
    value = next((p.value for p in reversed(replica.curve) if p.value is not None), None)
    before = number(replica.last.get("time_total_s")) or 0.0
    if note is not None and note.value is not None:
        value = note.value
    return {
        "trial": replica.trial,
        "replica": replica.index,
        "name": replica_name(replica.trial, replica.index),
        "iteration": replica.iteration if note is None else note.iteration,
        "time": replica.time if note is None or note.time is None else note.time,
        "goal": replica.goal.at,
        "value": finite(value),
        "seconds": before + (max(0.0, now - opened_at) if opened_at is not None else 0.0),
        "settings": dict(history.trials[replica.trial].searched),
    }


def results(sweep: Sweep) -> Data:
    """`sweep results`: every trial, best first, those without a score last."""
    history = sweep.history
    ranked = history.ranked()
    others = [trial for trial in history.trials if trial.score is None]
    return {
        "name": sweep.folder.name,
        "metric": sweep.spec.metric,
        "mode": sweep.spec.mode,
        "front": front(history),
        "trials": [row(trial) for trial in [*ranked, *others]],
    }


def row(trial: Trial) -> Data:
    """One trial in a table of results."""
    compared = {} if trial.objective.is_simple else beside(trial)
    return {
        **compared,
        "trial": trial.number,
        "parent": trial.parent,
        "status": trial.status.value,
        "score": finite(trial.score),
        "scores": [finite(replica.score_at()) for replica in trial.counted],
        "iterations": trial.iteration,
        "steps": finite(trial.total(STEPS)),
        "settings": dict(trial.searched),
        "config": trial.config,
        "reason": trial.reason,
    }


def beside(trial: Trial) -> Data:
    """What a trial is compared by beside the metric."""
    objective = trial.objective
    scores = zip(objective.also, trial.others, strict=True)
    limits = zip(objective.constraints, trial.violations, strict=True)
    return {
        "also": {path: finite(score) for (path, _), score in scores},
        "breaks": [constraint.path for constraint, violation in limits if violation > 0],
    }


def front(history: History) -> list[int] | None:
    """The numbers of the trials that none is better than; None: there is one objective."""
    if not history.objective.also:
        return None
    return [trial.number for trial in history.front()]


def best(sweep: Sweep) -> Data:
    """`sweep best`: the trial with the best score, and where its best checkpoint lies.

    With several objectives it is the best of the front in the metric.
    """
    trial = best_trial(sweep.history, sweep.folder.name)
    leader = trial.leader
    saved = leader.best_checkpoint
    return {
        "name": sweep.folder.name,
        "metric": sweep.spec.metric,
        "mode": sweep.spec.mode,
        **row(trial),
        "front": front(sweep.history),
        "aggregate": sweep.spec.aggregate.written(),
        "trials": len(sweep.history.trials),
        "checkpoint": None if saved is None else checkpoint(leader, saved),
        "exam": exams.report(sweep),
    }


def best_trial(history: History, name: str) -> Trial:
    """The trial with the best score; UsageError if no trial has one."""
    ranked = history.ranked()
    if not ranked:
        metric = history.objective.metric
        raise UsageError(
            f"{name}: none of its {wording.plural(len(history.trials), 'trial')} has a score in "
            f"'{metric}' yet; see `sweep results {name}`"
        )
    return ranked[0]


def find_trial(history: History, name: str, number: int) -> Trial:
    """Trial `number` of the sweep `name`; UsageError if there is none."""
    if not 0 <= number < len(history.trials):
        has = f"trials 0 to {len(history.trials) - 1}" if history.trials else "no trials yet"
        raise UsageError(f"trial: {number} does not exist; {name} has {has}")
    return history.trials[number]


def show(sweep: Sweep, number: int, rows: Sequence[Row]) -> Data:
    """`sweep show`: everything about one trial; `rows` are its results."""
    trial = find_trial(sweep.history, sweep.folder.name, number)
    return {
        "name": sweep.folder.name,
        "metric": sweep.spec.metric,
        "mode": sweep.spec.mode,
        **row(trial),
        "goal": {"at": trial.goal.at, "top": trial.goal.top},
        "time_attr": trial.objective.time_attr,
        "exactness": trial.leader.exactness,
        "slices": trial.slices,
        "replicas": [
            replica_row(replica, sweep.spec.seed) for replica in [*trial.replicas, *trial.tests]
        ],
        "started_at": trial.started_at,
        "ended_at": trial.ended_at,
        "curve": [
            {"iteration": p.iteration, "time": p.time, "value": finite(p.value)}
            for p in trial.leader.curve
        ],
        "last": {key: finite(value) for key, value in (rows[-1].metrics if rows else {}).items()},
        "leader": trial.leader.index,
        "decisions": [d for record in sweep.records if (d := decision(record, number))],
        "checkpoints": [
            checkpoint(r, saved)
            for r in [*trial.replicas, *trial.tests]
            for saved in r.checkpoints.values()
        ],
        "error": trial.deciding.error,
    }


def checkpoint(replica: Replica, saved: Saved) -> Data:
    """A checkpoint; `file` is relative to the sweep's folder."""
    return {
        "replica": replica.index,
        "iteration": saved.iteration,
        "value": finite(saved.value),
        "file": f"trials/{replica_name(replica.trial, replica.index)}/{saved.file}",
        "digest": saved.digest,
        "size": saved.size,
    }


def summary(history: History, name: str) -> Data:
    """What is shown when a driver has ended: the best trials, counts and steps."""
    return {
        "name": name,
        "metric": history.objective.metric,
        "mode": history.objective.mode,
        "counts": counts(history),
        "trials": history.searched,
        "bred": len(history.trials) - history.searched,
        "wanted": history.wanted,
        "exhausted": history.exhausted,
        "why": history.why,
        "steps": steps(history),
        "top": [row(trial) for trial in history.ranked()[:TOP]],
    }


# ---- parts ----------------------------------------------------------------------------------


def counts(history: History) -> dict[str, int]:
    """Status → number of trials; only those that occur, in the order of `Status`."""
    return {status.value: len(found) for status in Status if (found := history.of(status))}


def done(history: History) -> int:
    """How many trials have ended; one in whose place a child goes on has not."""
    ended = sum(trial.status in FINISHED for trial in history.trials)
    return ended - sum(trial.parent is not None for trial in history.trials)


def best_so_far(history: History) -> Data | None:
    """Number, score and settings of the best trial; None: no trial has a score."""
    ranked = history.ranked()
    if not ranked:
        return None
    first = ranked[0]
    return {
        "trial": first.number,
        "score": finite(first.score),
        "settings": dict(first.searched),
    }


def steps(history: History) -> float | None:
    """Environment steps of all trials together; None: their results do not count them.

    What a bred trial has from its parent is counted there.
    """
    totals = (trial.own(STEPS) for trial in history.trials)
    found = [total for total in totals if total is not None]
    return sum(found) if found else None
