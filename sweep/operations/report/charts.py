"""The pictures of a sweep as plain data for the page, independent of a drawing library.

Functions return None if a picture would show nothing. Numbers have six digits.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from sweep.history.events import Closed, Reported, Status, TermBegan
from sweep.history.seeds import is_test
from sweep.history.trial import Trial
from sweep.operations.report import timeline
from sweep.operations.report.curves import Curve, curves, is_finite
from sweep.operations.report.importance import Causes, Importance, Model
from sweep.spec.space import Choice, Domain, Float, Int, Normal, Ordinal, choice_key
from sweep.views import formatting
from sweep.views.explanation import schedule
from sweep.views.lookup import Sweep

Data = dict[str, Any]

#: Maximum number of settings with a picture of their own, and of parallel axes.
MOST_SETTINGS = 12
#: Maximum number of trials drawn as points: the best, and an even selection of others.
MOST_TRIALS = 1000


def short(value: float | None) -> float | None:
    """Return a number with six digits, or None if it is not finite."""
    return float(f"{value:.6g}") if value is not None and math.isfinite(value) else None


def learning(sweep: Sweep) -> Data | None:
    """Return the data of the learning curves."""
    all_curves = curves(sweep)
    if not all_curves.drawn:
        return None
    return {
        "time": sweep.history.objective.time_attr,
        "curves": [_curve(curve) for curve in all_curves.drawn],
        "trials": all_curves.trials,
        "points": all_curves.points,
        "shown": all_curves.shown,
        "ends": [short(end) for end in _earlier_ends(sweep)],
    }


def _earlier_ends(sweep: Sweep) -> list[float]:
    """Return the ends of curves before the end was moved, on the axis of time."""
    time_attr = sweep.history.objective.time_attr
    ends = [one.before[time_attr] for one in sweep.changes if time_attr in one.before]
    return [float(end) for end in ends if _is_number(end)]


def _curve(curve: Curve) -> Data:
    """Return the data of one curve."""
    data: Data = {
        "trial": curve.trial,
        "x": [short(time) for time, _ in curve.points],
        "y": [short(value) for _, value in curve.points],
        "place": curve.place,
        "early": curve.ended_early,
    }
    if curve.low:
        low, high = [short(v) for v in curve.low], [short(v) for v in curve.high]
        data |= {"low": low, "high": high, "seeds": curve.seeds}
    return data


def search(sweep: Sweep, clock: timeline.Clock) -> Data | None:
    """Return the data of the picture of scores over time, with the best feasible score so far."""
    reported = {
        record.event.trial: record.time
        for record in sweep.records
        if isinstance(record.event, Reported | Closed) and record.event.rows
        if not is_test(record.event.replica)
    }
    rows = [
        (clock.seconds_until(reported[trial.number]), trial)
        for trial in sweep.history.trials
        if trial.number in reported and is_finite(trial.score)
    ]
    if len(rows) < 2:
        return None
    rows.sort(key=lambda row: row[0])
    sign, best, steps = sweep.history.objective.sign, -math.inf, []
    for at, trial in rows:
        score = sign * (trial.score or 0.0)
        if score > best and trial.feasible:
            best = score
            steps.append((at, trial))
    drawn = _select_evenly(rows, MOST_TRIALS)
    return {
        "x": [short(at) for at, _ in drawn],
        "y": [short(trial.score) for _, trial in drawn],
        "trials": [trial.number for _, trial in drawn],
        "early": [trial.status is not Status.COMPLETED for _, trial in drawn],
        "scored": len(rows),
        "best": {
            "x": [short(at) for at, _ in steps],
            "y": [short(trial.score) for _, trial in steps],
            "trials": [trial.number for _, trial in steps],
        },
        "end": short(clock.total),
        "changes": [[short(clock.seconds_until(one.time)), one.key] for one in sweep.changes],
    }


def _select_evenly(rows: Sequence[Any], limit: int) -> list[Any]:
    """Return at most `limit` rows, evenly selected."""
    if len(rows) <= limit:
        return list(rows)
    return [rows[place * len(rows) // limit] for place in range(limit)]


def points(sweep: Sweep, names: Sequence[str]) -> Data | None:
    """Return the data of parallel coordinates: trials with scores, worst first, and axes."""
    ranked = [trial for trial in sweep.history.ranked() if is_finite(trial.score)]
    if len(ranked) < 2 or not names:
        return None
    chosen = [*ranked[:100], *_select_evenly(ranked[100:], MOST_TRIALS - 100)]
    chosen.reverse()
    space = sweep.spec.space
    axes = [_axis(name, space.role(name), chosen) for name in names[:MOST_SETTINGS]]
    levels = sweep.aim.levels
    place = {trial.number: place for place, trial in enumerate(ranked)}
    return {
        "trials": [trial.number for trial in chosen],
        "scores": [short(trial.score) for trial in chosen],
        "better": [short(1 - place[t.number] / max(1, len(ranked) - 1)) for t in chosen],
        "rung": [_rung(trial, levels) for trial in chosen],
        "axes": axes,
        "since": sweep.first_of_space,
        "scored": len(ranked),
        "left_out": len(names) - len(axes),
    }


def _rung(trial: Trial, levels: Sequence[float]) -> int:
    """Return the number of levels that a trial reached; a completed trial all, or 1."""
    if not levels or trial.status is Status.COMPLETED:
        return max(1, len(levels)) if trial.status is Status.COMPLETED else 0
    return sum(trial.reached(level) for level in levels)


def _axis(name: str, domain: Domain, trials: Sequence[Trial]) -> Data:
    """Return the axis of a setting: values as numbers or as indices of labels, None if inactive."""
    found = [trial.searched[name] for trial in trials if name in trial.searched]
    listed = isinstance(domain, Choice | Ordinal)
    if listed or not all(map(_is_number, found)):
        keys = dict.fromkeys(domain.values_by_key) if isinstance(domain, Choice | Ordinal) else {}
        keys |= dict.fromkeys(map(choice_key, found))  # null is a choice as any other
        labels = list(keys)
        index = {key: place for place, key in enumerate(labels)}
        values: list[Any] = [
            index[choice_key(trial.searched[name])] if name in trial.searched else None
            for trial in trials
        ]
        return {"name": name, "labels": [_label(key) for key in labels], "values": values}
    numbers = [short(float(value)) for value in found]
    low, high = _ends(domain, [n for n in numbers if n is not None])
    return {
        "name": name,
        "log": bool(isinstance(domain, Float | Int | Normal) and domain.log and low > 0),
        "low": low,
        "high": high,
        "values": [
            short(float(trial.searched[name])) if name in trial.searched else None
            for trial in trials
        ],
    }


def _is_number(value: Any) -> bool:
    """Return whether a value is a number and no boolean."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _ends(domain: Domain, values: Sequence[float]) -> tuple[float, float]:
    """Return the least and the greatest value of an axis."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    if isinstance(domain, Float | Int):
        low, high = min(low, domain.low), max(high, domain.high)
    return float(low), float(high)


def _label(key: str) -> str:
    """Return a short label for a choice."""
    text = key[1:-1] if key.startswith('"') else key
    return text if len(text) <= 24 else f"{text[:23]}…"


def importance(result: Importance, causes: Causes) -> Data | None:
    """Return the picture of the importance of settings and pairs, in total and by level."""
    shares = {names: share for names, share in result.shares.items() if share >= 0.005}
    if not shares:
        return None
    top = list(shares)[:10]
    return {
        "names": [list(names) for names in top],
        "shares": [short(shares[names]) for names in top],
        "unexplained": short(result.unexplained),
        "causes": [{"name": name, "share": short(share)} for name, share in _parts(causes)],
        "gained": result.gained,
        "levels": [
            {
                "at": "end" if math.isinf(level.at) else formatting.count(level.at),
                "trials": level.trials,
                "shares": [short(level.shares.get(names, 0.0)) for names in top],
            }
            for level in result.levels
        ],
    }


def _parts(causes: Causes) -> Iterator[tuple[str, float]]:
    """Yield name and share of each cause that is not a setting and has a share."""
    seeds, evaluations = causes.seeds, causes.evaluations
    if seeds:
        yield ("seed" if evaluations is not None else "seed and evaluation"), seeds
    if evaluations:
        yield "evaluation", evaluations
    if seeds is None and evaluations is None:
        yield "unexplained", causes.rest
    else:
        yield ("interaction or too few trials" if seeds is not None else "not known"), causes.rest


def contour(model: Model, first: str, second: str) -> Data:
    """Return the data of a picture: the joint effect of two settings."""
    surface = model.surface(first, second)
    axes: list[Data] = []
    for name, values in zip(surface.names, surface.values, strict=True):
        domain = model.space.role(name)
        if isinstance(domain, Choice | Ordinal):
            labels = [_label(choice_key(value)) for value in values]
            axes.append({"name": name, "labels": labels, "values": list(range(len(labels)))})
        else:
            log = bool(domain.log and min(values) > 0)
            axes.append({"name": name, "log": log, "values": [short(float(v)) for v in values]})
    return {"axes": axes, "z": [[short(v) for v in row] for row in surface.better_than.tolist()]}


def timing(sweep: Sweep, clock: timeline.Clock) -> Data | None:
    """Return the data of a picture: slices by slot, rungs, and the use of time."""
    bars = timeline.bars(sweep, clock)
    if not bars:
        return None
    shown = timeline.joined(bars)
    levels = [formatting.count(level) for level in sweep.aim.levels]
    terms = [record.time for record in sweep.records if isinstance(record.event, TermBegan)]
    return {
        "lanes": timeline.lanes(bars),
        "bars": [
            [short(b.start), short(b.end), b.lane, b.rung, b.replica, b.reason] for b in shown
        ],
        "slices": len(bars),
        "levels": levels,
        "terms": [short(clock.seconds_until(began)) for began in terms[1:]],
        "end": short(clock.total),
        "rungs": timeline.rungs(sweep),
        "spent": timeline.spent(sweep, bars, clock),
    }


def lineage(sweep: Sweep) -> Data | None:
    """Return the data of a picture of families: a line for each trial, family by family."""
    trials = sweep.history.trials
    if all(trial.parent is None for trial in trials):
        return None
    row: dict[int, int] = {}
    for root in (trial for trial in trials if trial.parent is None):
        todo = [root.number]
        while todo:
            number = todo.pop()
            row[number] = len(row)
            children = sweep.history.children(number)
            todo += sorted((child.number for child in children), reverse=True)
    path = (
        {step["trial"] for step in schedule(sweep, "best")["schedule"]}
        if sweep.history.best
        else set()
    )
    lines = []
    for trial in trials:
        birth = trial.replicas[0].birth
        lines.append(
            {
                "trial": trial.number,
                "row": row[trial.number],
                "from": short(birth.time) if birth else 0.0,
                "to": short(trial.time),
                "score": short(trial.score),
                "parent": trial.parent,
                "best": trial.number in path,
                "settings": formatting.settings(trial.searched),
            }
        )
    return {"time": sweep.history.objective.time_attr, "trials": lines, "rows": len(row)}


def fronts(sweep: Sweep) -> list[Data]:
    """Return a picture for each further objective: the metric against it, with the front marked."""
    objective = sweep.history.objective
    on_front = {trial.number for trial in sweep.history.front()} if objective.objectives else set()
    shown = []
    for place, (path, mode) in enumerate(objective.objectives):
        rows = [
            (trial, trial.other_scores[place])
            for trial in sweep.history.trials
            if is_finite(trial.score) and is_finite(trial.other_scores[place])
        ]
        scored = len(rows)
        if scored > MOST_TRIALS:
            best = [row for row in rows if row[0].number in on_front]
            others = [row for row in rows if row[0].number not in on_front]
            rows = [*best, *_select_evenly(others, max(0, MOST_TRIALS - len(best)))]
        if rows:
            shown.append(
                {
                    "name": path,
                    "mode": mode,
                    "scored": scored,
                    "trials": [trial.number for trial, _ in rows],
                    "x": [short(other) for _, other in rows],
                    "y": [short(trial.score) for trial, _ in rows],
                    "front": [trial.number in on_front for trial, _ in rows],
                    "breaks": [not trial.feasible for trial, _ in rows],
                    "settings": [formatting.settings(trial.searched) for trial, _ in rows],
                }
            )
    return shown
