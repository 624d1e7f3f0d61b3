"""Explanation of a trial's state: the decisions about it, with the values that were compared.

A decision's evidence is shown as it was stored: single values as facts, successive lists of equal
length as columns of a table.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from sweep.history.events import (
    Closed,
    Created,
    End,
    Event,
    Goal,
    Moved,
    Opened,
    SpaceChanged,
    Status,
)
from sweep.history.seeds import is_test
from sweep.history.trial import Trial
from sweep.schedulers._shared.front_rungs import compared_at
from sweep.schedulers._shared.population import born_at
from sweep.schedulers._shared.rungs import Listed, is_interpolated, ranked_at
from sweep.spec.space import Space
from sweep.views import formatting, overview
from sweep.views.formatting import finite
from sweep.views.lookup import Sweep

Data = dict[str, Any]

#: Status of a trial → its word in a sentence.
_WORDS = {
    Status.WAITING: "waiting",
    Status.PAUSED: "paused",
    Status.COMPLETED: "completed",
    Status.PRUNED: "pruned",
    Status.STOPPED: "stopped",
    Status.FAILED: "failed",
}
#: Ends of slices after which the trial simply continues.
_PASSING = frozenset({End.UNMEASURED, End.TIME, End.INTERRUPTED, End.LOST, End.ASKED})


def explain(sweep: Sweep, number: int) -> Data:
    """Return the data of `sweep explain`: decisions about a trial, relatives and present rank.

    ``decisions`` are those of `steps`; ``parent`` (None without one) and ``children`` are numbers
    of trials; ``stands`` is the evidence of the rank, None if there is no rung to rank at or the
    sweep was read without curves. Raises UsageError if there is no trial `number`.
    """
    trial = overview.find_trial(sweep.history, sweep.folder.name, number)
    return {
        "name": sweep.folder.name,
        "trial": number,
        "status": trial.status.value,
        "reason": trial.reason,
        "metric": sweep.spec.metric,
        "mode": sweep.spec.mode,
        "objectives": dict(sweep.spec.objectives),
        "scheduler": sweep.spec.scheduler.name,
        "time_attr": sweep.history.objective.time_attr,
        "parent": trial.parent,
        "children": [child.number for child in sweep.history.children(number)],
        "decisions": list(steps(sweep, trial)),
        "stands": _present_rank(sweep, trial),
    }


def steps(sweep: Sweep, trial: Trial) -> Iterator[Data]:
    """Yield the decisions about a trial in order.

    Each has ``event`` (its number), ``at`` (seconds since 1970), the texts ``what`` and ``why``,
    and the numbers that were compared, as ``facts`` and ``tables`` (see `_numbers`).
    Successive equal ones, as about seeds that wait at a rung, are one. Changes of the space after
    the trial began are included; tests, and slices that only continue to the same goal, are left
    out.
    """
    goals: dict[int, Goal] = {}
    before: tuple[str, str] | None = None
    for record in sweep.records:
        event = record.event
        if isinstance(event, SpaceChanged) and trial.number < event.trial:
            step = {
                "event": record.number,
                "at": record.time,
                "what": "space",
                "facts": {},
                "tables": [],
            }
            yield {**step, "why": _space_change(event, sweep, trial)}
        if not isinstance(event, Created | Opened | Closed | Moved) or event.trial != trial.number:
            continue
        if is_test(getattr(event, "replica", 0)):
            continue
        if isinstance(event, Opened):
            again = goals.get(event.replica) == event.goal
            goals[event.replica] = event.goal
            if again:
                continue
        decided = _decision(event, sweep)
        if decided is not None and decided != before:
            what, why = before = decided
            facts, tables = _numbers(getattr(event, "evidence", {}))
            step = {"event": record.number, "at": record.time, "what": what, "why": why}
            yield {**step, "facts": facts, "tables": tables}


def _space_change(event: SpaceChanged, sweep: Sweep, trial: Trial) -> str:
    """Return words for the meaning of a change of the space for a trial from before it."""
    space = Space.parse(event.space, forbid=sweep.spec.forbid, replaces=True)
    outside = [n for n, value in trial.searched.items() if not space.has({n: value})]
    text = f"trials from {event.trial} on have settings of another space"
    if outside:
        text += f", in which {', '.join(outside)} of this trial cannot be proposed"
    return text


def _decision(event: Event, sweep: Sweep) -> tuple[str, str] | None:
    """Return an event's effect on its trial, and the reason, as texts; None without an effect.

    An effect is, for example, ``paused`` or ``continued, up to 9``. The end of a slice has none if
    the trial simply continues, as after its time was up.
    """
    match event:
        case Created():
            return overview.origin(event, sweep)
        case Opened(slice=0) if (
            sweep.history.replica(event.trial, event.replica).joined_at is not None
        ):
            return f"got seed {event.replica}", event.reason
        case Opened():
            goal = "the end" if event.goal.until is None else formatting.number(event.goal.until)
            return f"{'started' if event.slice == 0 else 'continued'}, up to {goal}", event.reason
        case Closed() if event.end not in _PASSING or event.status is Status.FAILED:
            several = len(sweep.history.trials[event.trial].replicas) > 1
            seed = f"seed {event.replica} " * (several and event.status is not Status.PAUSED)
            return f"{seed}{_WORDS[event.status]}", event.reason
        case Moved():
            return _WORDS[event.status], event.reason
    return None


def _numbers(evidence: Mapping[str, Any]) -> tuple[Data, list[Data]]:
    """Split a decision's evidence (name → value or list) into single values by name, and tables.

    A table is a dict of ``columns``, names, and ``rows``, lists of cells. Its columns are
    successive lists of equal length; empty tables are left out. Numbers that are not finite become
    None.
    """
    facts: Data = {}
    tables: list[Data] = []
    length = -1
    for name, value in evidence.items():
        if not isinstance(value, list | tuple):
            facts[name] = finite(value)
            length = -1
            continue
        if len(value) != length:
            tables.append({"columns": [], "rows": [[] for _ in value]})
            length = len(value)
        tables[-1]["columns"].append(name)
        for row, cell in zip(tables[-1]["rows"], value, strict=True):
            row.append(finite(cell))
    return facts, [table for table in tables if table["rows"]]


def _present_rank(sweep: Sweep, trial: Trial) -> Data | None:
    """Return evidence of the trial's present rank at the highest rung that it reached.

    The keys are ``facts`` and ``tables`` (see `_numbers`), and ``interpolated``, true if a shown
    score is interpolated between results before and after the rung. Returns None if the trial
    reached no rung, or has not reported the metric.
    """
    reached = [level for level in sweep.aim.levels if trial.reached(level)]
    if not reached or not trial.is_known:
        return None
    level = max(reached)
    there = [other for other in sweep.history.trials if other.reached(level)]
    by_fronts = sweep.aim.ranks_by_fronts
    ranking = compared_at(there, level) if by_fronts else Listed(ranked_at(there, level))
    numbers = [ranking[place][0].number for place in range(len(ranking))]
    place = numbers.index(trial.number) + 1
    promoted = sweep.aim.promotion_count(len(ranking))
    compared = dict(ranking.evidence(level, place, place if promoted is None else promoted))
    if promoted is None or level == sweep.aim.levels[-1]:
        del compared["promoted"]
    facts, tables = _numbers(compared)
    shown = (sweep.history.trials[number] for number in compared["trials"])
    interpolated = any(is_interpolated(one, level) for one in shown)
    return {"facts": facts, "tables": tables, "interpolated": interpolated}


def schedule(sweep: Sweep, choice: str) -> Data:
    """Return the settings of a trial and its ancestors over time, oldest first.

    ``schedule`` lists the steps: ``from`` (the start in units of `time_attr`), ``trial`` and the
    searched ``settings``. The other keys are ``name``, ``trial``, ``metric``, ``score`` and
    ``time_attr``. `choice` is ``best`` or a trial's number as text. Raises UsageError if there is
    no such trial.
    """
    history = sweep.history
    trial = overview.asked_trial(history, sweep.folder, choice)
    steps: list[Data] = []
    now: Trial | None = trial
    while now is not None:
        step = {"from": born_at(now), "trial": now.number, "settings": dict(now.searched)}
        steps.insert(0, step)
        now = None if now.parent is None else history.trials[now.parent]
    return {
        "name": sweep.folder.name,
        "trial": trial.number,
        "metric": sweep.spec.metric,
        "score": finite(trial.score),
        "time_attr": history.objective.time_attr,
        "schedule": steps,
    }


def schedule_yaml(data: Data) -> str:
    """Return the data of `schedule` as the text of a YAML file for the scheduler `pbt_replay`."""
    score = f"{data['metric']} {formatting.number(data['score'])}"
    whose = f"trial {data['trial']} of {data['name']}, {score}"
    steps = [f"  - {json.dumps(step)}" for step in data["schedule"]]
    lines = [
        f"# {whose}: its ancestors' settings and its own",
        *formatting.yaml_lines({"time_attr": data["time_attr"]}),
        "schedule:",
        *steps,
    ]
    return "\n".join(lines) + "\n"
