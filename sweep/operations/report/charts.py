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


def round_to_6_digits(value: float | None) -> float | None:
    """Return a number rounded to six significant digits; None if it is None or not finite."""
    return float(f"{value:.6g}") if value is not None and math.isfinite(value) else None


def learning(sweep: Sweep) -> Data | None:
    """Return the data of the picture of learning curves; None if no trial has a curve.

    The keys are ``time`` (name of the axis), ``curves`` (as of `_curve`), ``trials``, ``points``
    and ``shown`` (numbers as in `Curves`), and ``ends`` (those of `_earlier_ends`).
    """
    all_curves = curves(sweep)
    if not all_curves.drawn:
        return None
    return {
        "time": sweep.history.objective.time_attr,
        "curves": [_curve(curve) for curve in all_curves.drawn],
        "trials": all_curves.trials,
        "points": all_curves.points,
        "shown": all_curves.shown,
        "ends": [round_to_6_digits(end) for end in _earlier_ends(sweep)],
    }


def _earlier_ends(sweep: Sweep) -> list[float]:
    """Return the values of ``stop`` for `time_attr` that a user's changes have replaced.

    There is one for each change of a number, oldest first, in units of `time_attr`.
    """
    time_attr = sweep.history.objective.time_attr
    ends = [one.before[time_attr] for one in sweep.changes if time_attr in one.before]
    return [float(end) for end in ends if _is_number(end)]


def _curve(curve: Curve) -> Data:
    """Return one curve as data: ``trial``, ``x``, ``y``, ``place`` (its rank) and ``early``.

    With several seeds there are also ``low``, ``high`` and ``seeds``.
    """
    data: Data = {
        "trial": curve.trial,
        "x": [round_to_6_digits(time) for time, _ in curve.points],
        "y": [round_to_6_digits(value) for _, value in curve.points],
        "place": curve.place,
        "early": curve.ended_early,
    }
    if curve.low:
        low, high = (
            [round_to_6_digits(v) for v in curve.low],
            [round_to_6_digits(v) for v in curve.high],
        )
        data |= {"low": low, "high": high, "seeds": curve.seeds}
    return data


def search(sweep: Sweep, clock: timeline.Clock) -> Data | None:
    """Return the data of the picture of each trial's score by the time of its last result.

    Each trial has an entry in ``x`` (seconds on the `clock`), ``y`` (score), ``trials`` (number)
    and ``early`` (not COMPLETED); of more than `MOST_TRIALS` trials, an even selection has.
    ``best`` has ``x``, ``y`` and ``trials`` where the best feasible score improved, and ``changes``
    the time and key of each change by a user. Returns None with fewer than two scored trials.
    """
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
        "x": [round_to_6_digits(at) for at, _ in drawn],
        "y": [round_to_6_digits(trial.score) for _, trial in drawn],
        "trials": [trial.number for _, trial in drawn],
        "early": [trial.status is not Status.COMPLETED for _, trial in drawn],
        "scored": len(rows),
        "best": {
            "x": [round_to_6_digits(at) for at, _ in steps],
            "y": [round_to_6_digits(trial.score) for _, trial in steps],
            "trials": [trial.number for _, trial in steps],
        },
        "end": round_to_6_digits(clock.total),
        "changes": [
            [round_to_6_digits(clock.seconds_until(one.time)), one.key] for one in sweep.changes
        ],
    }


def _select_evenly(rows: Sequence[Any], limit: int) -> list[Any]:
    """Return all rows, or `limit` of them at equal distances, the first included."""
    if len(rows) <= limit:
        return list(rows)
    return [rows[place * len(rows) // limit] for place in range(limit)]


def points(sweep: Sweep, names: Sequence[str]) -> Data | None:
    """Return the data of parallel coordinates: scored trials, worst first, and an axis per setting.

    `names` are the settings in the order of their axes; only the first `MOST_SETTINGS` get one. Of
    more than `MOST_TRIALS` trials, these are the best 100 and an even selection of the others.
    ``better`` has each trial's rank, from 0 (worst) to 1, and ``rung`` that of `_rung`. Returns
    None with fewer than two scored trials, or without names.
    """
    ranked = [trial for trial in sweep.history.ranked() if is_finite(trial.score)]
    if len(ranked) < 2 or not names:
        return None
    chosen = [*ranked[:100], *_select_evenly(ranked[100:], MOST_TRIALS - 100)]
    chosen.reverse()
    space = sweep.spec.space
    axes = [_axis(name, space.domain_of(name), chosen) for name in names[:MOST_SETTINGS]]
    levels = sweep.aim.levels
    place = {trial.number: place for place, trial in enumerate(ranked)}
    return {
        "trials": [trial.number for trial in chosen],
        "scores": [round_to_6_digits(trial.score) for trial in chosen],
        "better": [
            round_to_6_digits(1 - place[t.number] / max(1, len(ranked) - 1)) for t in chosen
        ],
        "rung": [_rung(trial, levels) for trial in chosen],
        "axes": axes,
        "since": sweep.first_of_space,
        "scored": len(ranked),
        "left_out": len(names) - len(axes),
    }


def _rung(trial: Trial, levels: Sequence[float]) -> int:
    """Return the number of rungs that a trial reached; a completed trial has reached all.

    Without rungs it is 1 for a completed trial and 0 for others.
    """
    if not levels or trial.status is Status.COMPLETED:
        return max(1, len(levels)) if trial.status is Status.COMPLETED else 0
    return sum(trial.reached(level) for level in levels)


def _axis(name: str, domain: Domain, trials: Sequence[Trial]) -> Data:
    """Return the data of a setting's axis: ``name``, and ``values``, None for an inactive one.

    There is a value for each trial, a number on an axis from ``low`` to ``high``, ``log`` or not.
    For lists, and for settings that are no number in some trial, it is an index of ``labels``.
    """
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
    numbers = [round_to_6_digits(float(value)) for value in found]
    low, high = _ends(domain, [n for n in numbers if n is not None])
    return {
        "name": name,
        "log": bool(isinstance(domain, Float | Int | Normal) and domain.log and low > 0),
        "low": low,
        "high": high,
        "values": [
            round_to_6_digits(float(trial.searched[name])) if name in trial.searched else None
            for trial in trials
        ],
    }


def _is_number(value: Any) -> bool:
    """Return whether a value is a number and no boolean."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _ends(domain: Domain, values: Sequence[float]) -> tuple[float, float]:
    """Return least and greatest value of an axis, those of `values`; 0 and 1 without any.

    The axis also contains the whole domain if that is a range.
    """
    low, high = min(values, default=0.0), max(values, default=1.0)
    if isinstance(domain, Float | Int):
        low, high = min(low, domain.low), max(high, domain.high)
    return float(low), float(high)


def _label(key: str) -> str:
    """Return a choice's label of at most 24 characters; `key` is the choice in JSON."""
    text = key[1:-1] if key.startswith('"') else key
    return text if len(text) <= 24 else f"{text[:23]}…"


def importance(result: Importance, causes: Causes) -> Data | None:
    """Return the data of the picture of the importance of settings and pairs.

    ``names`` and ``shares`` are of the ten greatest shares that are at least half a percent;
    ``levels`` has their shares at each level, ``unexplained`` that of no setting, and ``causes``
    what that consists of. Returns None if there is no such share.
    """
    shares = {names: share for names, share in result.shares.items() if share >= 0.005}
    if not shares:
        return None
    top = list(shares)[:10]
    return {
        "names": [list(names) for names in top],
        "shares": [round_to_6_digits(shares[names]) for names in top],
        "unexplained": round_to_6_digits(result.unexplained),
        "causes": [
            {"name": name, "share": round_to_6_digits(share)} for name, share in _parts(causes)
        ],
        "gained": result.gained,
        "levels": [
            {
                "at": "end" if math.isinf(level.time) else formatting.count(level.time),
                "trials": level.trials,
                "shares": [round_to_6_digits(level.shares.get(names, 0.0)) for names in top],
            }
            for level in result.levels
        ],
    }


def _parts(causes: Causes) -> Iterator[tuple[str, float]]:
    """Yield name and share, 0 to 1, of each cause of differences that no setting explains.

    Known causes with a share come first. The last entry is the rest of the share, named by what it
    may be due to.
    """
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
    """Return the data of the picture of the joint effect of two settings, given by their names.

    ``axes`` describes the values of both, and ``z`` has `Surface.better_than` in rows by the first.
    """
    surface = model.surface(first, second)
    axes: list[Data] = []
    for name, values in zip(surface.names, surface.values, strict=True):
        domain = model.space.domain_of(name)
        if isinstance(domain, Choice | Ordinal):
            labels = [_label(choice_key(value)) for value in values]
            axes.append({"name": name, "labels": labels, "values": list(range(len(labels)))})
        else:
            log = bool(domain.log and min(values) > 0)
            axes.append(
                {"name": name, "log": log, "values": [round_to_6_digits(float(v)) for v in values]}
            )
    return {
        "axes": axes,
        "z": [[round_to_6_digits(v) for v in row] for row in surface.better_than.tolist()],
    }


def timing(sweep: Sweep, clock: timeline.Clock) -> Data | None:
    """Return the data of the pictures of time: slices by slot, trials by rung, use of the slots.

    Each of ``bars``, to which many slices are merged, is a list of start, end, slot, rung, name and
    reason, as in `timeline.Bar`. ``terms`` has the times at which later drivers began, ``rungs``
    and ``spent`` the data of `timeline.rungs` and `time_use`. Returns None before the first slice.
    """
    bars = timeline.bars(sweep, clock)
    if not bars:
        return None
    shown = timeline.merge_bars(bars)
    levels = [formatting.count(level) for level in sweep.aim.levels]
    terms = [record.time for record in sweep.records if isinstance(record.event, TermBegan)]
    return {
        "lanes": timeline.lanes(bars),
        "bars": [
            [
                round_to_6_digits(b.start),
                round_to_6_digits(b.end),
                b.lane,
                b.rung,
                b.replica,
                b.reason,
            ]
            for b in shown
        ],
        "slices": len(bars),
        "levels": levels,
        "terms": [round_to_6_digits(clock.seconds_until(began)) for began in terms[1:]],
        "end": round_to_6_digits(clock.total),
        "rungs": timeline.rungs(sweep),
        "spent": timeline.time_use(sweep, bars, clock),
    }


def lineage(sweep: Sweep) -> Data | None:
    """Return the data of the picture of families: a line for each trial, below its parent's.

    A line leads from the time of its birth to its newest result, in units of `time_attr`; ``best``
    is true for the best trial and its ancestors. Returns None if no trial has a parent.
    """
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
                "from": round_to_6_digits(birth.time) if birth else 0.0,
                "to": round_to_6_digits(trial.time),
                "score": round_to_6_digits(trial.score),
                "parent": trial.parent,
                "best": trial.number in path,
                "settings": formatting.settings(trial.searched),
            }
        )
    return {"time": sweep.history.objective.time_attr, "trials": lines, "rows": len(row)}


def fronts(sweep: Sweep) -> list[Data]:
    """Return the data of a picture for each further objective: each trial's metric against it.

    ``x`` is the objective, ``y`` the metric's score, and ``front`` true for trials on the front. Of
    more than `MOST_TRIALS` trials, these and an even selection of others are drawn. An objective
    without trials that have both scores has no picture.
    """
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
                    "x": [round_to_6_digits(other) for _, other in rows],
                    "y": [round_to_6_digits(trial.score) for trial, _ in rows],
                    "front": [trial.number in on_front for trial, _ in rows],
                    "breaks": [not trial.feasible for trial, _ in rows],
                    "settings": [formatting.settings(trial.searched) for trial, _ in rows],
                }
            )
    return shown
