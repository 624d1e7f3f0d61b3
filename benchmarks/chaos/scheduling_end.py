"""Conditions of a sweep that is finished, and of people's requests on its way."""

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from benchmarks.chaos.scheduling_stage import Stage
from benchmarks.chaos.scheduling_world import claim
from sweep.cli import trial_tables
from sweep.history.events import FINISHED, Changed, HoldChanged, Status, UserHold
from sweep.ledger.requests import Verb
from sweep.operations.verify import inspect_sweep
from sweep.testing.simulation import decisions
from sweep.views import explanation, lookup

_HOLDS = {Verb.STOP: UserHold.STOP, Verb.PAUSE: UserHold.PAUSE, Verb.UNPAUSE: UserHold.NONE}


def check(stage: Stage, spec: Mapping[str, Any]) -> None:
    """Raise `Failed` for what is not as it must be."""
    stage.oracle.load_all()
    _statuses(stage)
    _curves(stage)
    _requests(stage)
    _explained(stage)
    found = inspect_sweep(stage.folder, False).damages
    damages = [damage for damage in found if damage.digest not in stage.oracle.damaged]
    claim(not damages, f"sweep verify: {damages}")
    if stage.pure and not stage.oracle.blamed and _is_deterministic(spec):
        _same_decisions(stage, spec)


def _statuses(stage: Stage) -> None:
    history = stage.oracle.mirror
    numbers = [trial.number for trial in history.trials]
    claim(numbers == list(range(len(numbers))), f"trials {numbers}")
    if not history.why:
        done = bool(history.exhausted) or history.searched_count == history.wanted
        claim(done, f"it is finished with {history.searched_count} of {history.wanted} trials")
    for replica in history.replicas(*Status):
        waits = replica.held is UserHold.PAUSE or (
            replica.status is Status.WAITING and bool(history.why)
        )
        ended = replica.status in FINISHED or waits
        claim(ended, f"{replica.name} is {replica.status} at the end: {replica.reason}")


def _curves(stage: Stage) -> None:
    """The table of results has each iteration once, as it was known beforehand."""
    oracle, history = stage.oracle, stage.oracle.mirror
    for replica in history.replicas(*Status):
        rows = oracle.reader.results(replica.trial, replica.index)
        first = replica.birth.saved.iteration + 1 if replica.birth else 1
        due = list(range(first, replica.attempted + 1))
        claim([row.iteration for row in rows] == due, f"{replica.name} has not the rows {due}")
        for row in rows:
            told = oracle.known.stand(history, replica, row.iteration).told
            said = {key: row.metrics.get(key) for key in told}
            claim(repr(said) == repr(dict(told)), f"{replica.name}: {said}, not {told}")
        counted = (row for row in rows if row.iteration <= replica.iteration)
        steps = sum(float(row.metrics["timesteps_this_iter"]) for row in counted)
        claim(replica.steps == steps, f"{replica.name} counts {replica.steps} steps, not {steps}")


def _requests(stage: Stage) -> None:
    """Each was answered, and what was granted was done once."""
    due = _granted(stage) + stage.told
    done: Counter[Any] = Counter()
    for record in stage.oracle.records:
        event = record.event
        if isinstance(event, HoldChanged):
            done[event.trial, event.hold] += 1
        elif isinstance(event, Changed) and event.trials:
            done["trials", event.trials] += 1
    for trial in stage.oracle.mirror.trials:
        if trial.clone_of is not None:
            done[trial.number, "clone"] += 1
        ended = trial.held is not UserHold.STOP or trial.status in FINISHED
        claim(ended, f"trial {trial.number} was to be stopped")
    claim(due == done, f"granted: {due}; done: {done}")


def _granted(stage: Stage) -> Counter[Any]:
    due: Counter[Any] = Counter()
    for number, (verb, body) in stage.asked.items():
        answer = stage.requests.answer_to(number)
        claim(answer is not None, f"request {number} is unanswered")
        if answer is None or not answer.granted:
            continue
        if verb is Verb.SET:
            due.update([("trials", body["trials"])] if "trials" in body else [])
        else:
            due.update((trial, _HOLDS.get(verb, "clone")) for trial in answer.trials)
    return due


def _explained(stage: Stage) -> None:
    """`sweep explain` has something to say of each trial."""
    sweep = lookup.read(stage.folder)
    for trial in sweep.history.trials:
        data = explanation.explain(sweep, trial.number)
        json.dumps(data, allow_nan=False)
        trial_tables.explanation(data)
        begun = any(replica.slices for replica in trial.replicas)
        claim(len(data["decisions"]) > begun, f"trial {trial.number} is not explained")


def _is_deterministic(spec: Mapping[str, Any]) -> bool:
    return bool(spec["deterministic"]) and "time_s" not in spec["budget"]


def _same_decisions(stage: Stage, spec: Mapping[str, Any]) -> None:
    """With `deterministic`, a sweep that nobody disturbs decides the same in the same order."""
    plain = {**spec, "checkpoint": {**spec["checkpoint"], "max_disk": None}}
    other = Stage(plain, slots=2)
    try:
        other.settle()
        due, found = decisions(other.oracle.records), decisions(stage.oracle.records)
    finally:
        other.close()
    for number, (one, two) in enumerate(zip(due, found, strict=False)):
        claim(_plain(one) == _plain(two), f"decision {number} is {two}; undisturbed it is {one}")
    claim(len(due) == len(found), f"{len(found)} decisions; undisturbed it takes {len(due)}")


def _plain(decision: Any) -> str:
    """A decision in words, with NaN equal to itself; files of another sweep have other names."""
    return re.sub(r"'digest': '\w+', 'file': '[\w.-]+', 'size': \d+", "", repr(decision))
