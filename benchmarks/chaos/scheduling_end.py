"""Conditions of a finished sweep and of the requests to it."""

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from benchmarks.chaos.scheduling_stage import Stage
from benchmarks.chaos.scheduling_world import require
from sweep.cli import trial_tables
from sweep.history.events import FINISHED, HoldChanged, LimitsChanged, Status, UserHold
from sweep.ledger.requests import Verb
from sweep.operations.upkeep.verify import inspect_sweep
from sweep.testing.simulation import decisions
from sweep.views import explanation, lookup

#: Request → the hold that it sets.
_HOLDS = {Verb.STOP: UserHold.STOP, Verb.PAUSE: UserHold.PAUSE, Verb.UNPAUSE: UserHold.NONE}


def check(stage: Stage, spec: Mapping[str, Any]) -> None:
    """Check all conditions of a finished sweep. Raises Failed if a condition does not hold."""
    stage.oracle.load_all()
    _statuses(stage)
    _curves(stage)
    _requests(stage)
    _explained(stage)
    found = inspect_sweep(stage.folder, False).damages
    damages = [damage for damage in found if damage.digest not in stage.oracle.damaged]
    require(not damages, f"sweep verify: {damages}")
    if stage.is_undisturbed and not stage.oracle.has_unjust_failure and _is_deterministic(spec):
        _same_decisions(stage, spec)


def _statuses(stage: Stage) -> None:
    history = stage.oracle.mirror
    numbers = [trial.number for trial in history.trials]
    require(numbers == list(range(len(numbers))), f"trials {numbers}")
    if not history.end_reason:
        done = bool(history.exhausted) or history.searched_count == history.wanted
        require(
            done, f"the sweep is finished with {history.searched_count} of {history.wanted} trials"
        )
    for replica in history.replicas(*Status):
        waits = replica.hold is UserHold.PAUSE or (
            replica.status is Status.WAITING and bool(history.end_reason)
        )
        ended = replica.status in FINISHED or waits
        require(ended, f"{replica.name} is {replica.status} at the end: {replica.reason}")


def _curves(stage: Stage) -> None:
    """Require each iteration once in the table of results, with the known values."""
    oracle, history = stage.oracle, stage.oracle.mirror
    for replica in history.replicas(*Status):
        rows = oracle.reader.results(replica.trial, replica.index)
        first = replica.birth.saved.iteration + 1 if replica.birth else 1
        due = list(range(first, replica.last_attempted + 1))
        require([row.iteration for row in rows] == due, f"{replica.name} has not the rows {due}")
        for row in rows:
            expected = oracle.known.state_after(history, replica, row.iteration).metrics
            found = {key: row.metrics.get(key) for key in expected}
            require(repr(found) == repr(dict(expected)), f"{replica.name}: {found}, not {expected}")
        counted = (row for row in rows if row.iteration <= replica.iteration)
        steps = sum(float(row.metrics["timesteps_this_iter"]) for row in counted)
        require(replica.steps == steps, f"{replica.name} counts {replica.steps} steps, not {steps}")


def _requests(stage: Stage) -> None:
    """Require that each request was answered, and that each granted one was executed once."""
    due = _granted(stage) + stage.changed_trials
    done: Counter[Any] = Counter()
    for record in stage.oracle.records:
        event = record.event
        if isinstance(event, HoldChanged):
            done[event.trial, event.hold] += 1
        elif isinstance(event, LimitsChanged) and event.trials:
            done["trials", event.trials] += 1
    for trial in stage.oracle.mirror.trials:
        if trial.clone_of is not None:
            done[trial.number, "clone"] += 1
        ended = trial.hold is not UserHold.STOP or trial.status in FINISHED
        require(ended, f"trial {trial.number} should have been stopped")
    require(due == done, f"granted: {due}; executed: {done}")


def _granted(stage: Stage) -> Counter[Any]:
    """Return the effects of all granted requests."""
    due: Counter[Any] = Counter()
    for number, (verb, body) in stage.requested.items():
        answer = stage.requests.answer_to(number)
        require(answer is not None, f"request {number} is unanswered")
        if answer is None or not answer.granted:
            continue
        if verb is Verb.SET:
            due.update([("trials", body["trials"])] if "trials" in body else [])
        else:
            due.update((trial, _HOLDS.get(verb, "clone")) for trial in answer.trials)
    return due


def _explained(stage: Stage) -> None:
    """Require that `sweep explain` explains the decisions on each trial."""
    sweep = lookup.read(stage.folder)
    for trial in sweep.history.trials:
        data = explanation.explain(sweep, trial.number)
        json.dumps(data, allow_nan=False)
        trial_tables.explanation(data)
        begun = any(replica.slices for replica in trial.replicas)
        require(len(data["decisions"]) > begun, f"trial {trial.number} is not explained")


def _is_deterministic(spec: Mapping[str, Any]) -> bool:
    return bool(spec["deterministic"]) and "time_s" not in spec["budget"]


def _same_decisions(stage: Stage, spec: Mapping[str, Any]) -> None:
    """Require the same decisions in the same order as in an undisturbed sweep."""
    undisturbed = {**spec, "checkpoint": {**spec["checkpoint"], "max_disk": None}}
    other = Stage(undisturbed, slots=2)
    try:
        other.finish()
        due, found = decisions(other.oracle.records), decisions(stage.oracle.records)
    finally:
        other.close()
    for number, (one, two) in enumerate(zip(due, found, strict=False)):
        require(
            _as_text(one) == _as_text(two),
            f"decision {number} is {two}; in an undisturbed sweep {one}",
        )
    require(len(due) == len(found), f"{len(found)} decisions; in an undisturbed sweep {len(due)}")


def _as_text(decision: Any) -> str:
    """Return a decision as text without the names of files, which differ between sweeps."""
    return re.sub(r"'digest': '\w+', 'file': '[\w.-]+', 'size': \d+", "", repr(decision))
