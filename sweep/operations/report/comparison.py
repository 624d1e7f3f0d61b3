"""Several sweeps on one page: their results, the curves of their best trials, their settings."""

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any

from sweep.core.stats import LEVEL
from sweep.core.version import __version__
from sweep.history.replica import Replica
from sweep.history.results import to_number
from sweep.history.trial import Trial
from sweep.operations.report import page, sections
from sweep.operations.report.charts import round_to_6_digits
from sweep.operations.report.curves import (
    FINE,
    Times,
    curve_of,
    curve_times,
    is_finite,
    replay_results,
    thin_indices,
    training_axis,
)
from sweep.operations.report.markup import Child, Markup, escape, table, tag
from sweep.operations.report.sections import Section
from sweep.views import comparison, formatting, overview
from sweep.views.lookup import Sweep
from sweep.views.overview import STEPS

Data = dict[str, Any]


def build(sweeps: Sequence[Sweep], now: float) -> str:
    """Return the HTML page that shows several sweeps side by side.

    The sweeps were read with their curves; `now` is the present time in seconds since 1970. Raises
    UsageError if a sweep is named twice, or has another metric or mode than the first, StorageError
    if Plotly is not installed.
    """
    compared = comparison.compare(sweeps)
    data: Data = {
        "metric": compared["metric"],
        "mode": compared["mode"],
        "best_curves": best_curves(sweeps),
        "found": best_scores(sweeps),
    }
    parts = [_results(compared), _best_curves(data), _best_by_training(data), _settings(compared)]
    shown = [part for part in parts if part is not None]
    names = [sweep.folder.name for sweep in sweeps]
    written = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now))
    body = [
        _head(compared),
        sections.navigation(shown),
        tag("main", map(sections.render, shown)),
        tag("footer", tag("p", f"Written {written} by sweep {__version__}.")),
    ]
    return page.document(", ".join(names), body, data)


# ---- pictures -----------------------------------------------------------------------------------


def best_curves(sweeps: Sequence[Sweep]) -> Data | None:
    """Return the data of the picture of each sweep's best trial; None if none has a curve.

    The horizontal axis, ``time``, is one that the sweeps have in common: their time attribute if it
    is the same, else environment steps if all report them, else iterations. Sweeps without a curve
    are left out of ``curves``.
    """
    name, times = _axis(sweeps)
    drawn = []
    for place, sweep in enumerate(sweeps):
        best = sweep.history.best
        curve = best and curve_of(best, FINE, times=times)
        if not curve or not curve.points:
            continue
        data: Data = {
            "name": sweep.folder.name,
            "place": place,
            "trial": curve.trial,
            "x": [round_to_6_digits(at) for at, _ in curve.points],
            "y": [round_to_6_digits(value) for _, value in curve.points],
        }
        if curve.low:
            data["low"] = [round_to_6_digits(value) for value in curve.low]
            data["high"] = [round_to_6_digits(value) for value in curve.high]
        drawn.append(data)
    return {"time": name, "curves": drawn} if drawn else None


def _axis(sweeps: Sequence[Sweep]) -> tuple[str, Times]:
    """Return name and function of the horizontal axis that the curves of all sweeps can share.

    The function returns a replica's values on the axis.
    """
    first, *others = {sweep.history.objective.time_attr: None for sweep in sweeps}
    if not others:
        return first, curve_times
    if all(overview.steps(sweep.history) for sweep in sweeps):
        return STEPS, _steps
    return "training_iteration", _iterations


def _steps(replica: Replica) -> Sequence[float]:
    """Return the environment steps at each point of a replica's curve, its ancestors' included."""
    own = list(accumulate(point.steps for point in replica.curve))
    total = to_number(replica.last_metrics.get(STEPS))
    before = 0.0 if total is None or not own else max(0.0, total - own[-1])
    return [before + steps for steps in own]


def _iterations(replica: Replica) -> Sequence[float]:
    """Return the iteration at each point of a replica's curve."""
    return [float(point.iteration) for point in replica.curve]


def best_scores(sweeps: Sequence[Sweep]) -> Data | None:
    """Return the data of the picture of each sweep's best score against the training so far.

    Training of all trials is counted in environment steps if all sweeps report them, else in
    seconds; ``spent`` says which. Sweeps without a feasible score are left out of ``curves``.
    Returns None if none is left.
    """
    unit, training_of = training_axis(sweeps)
    curves = []
    for place, sweep in enumerate(sweeps):
        rows = _best_scores(sweep, training_of)
        kept = [rows[index] for index in thin_indices([(x, y) for x, y, _ in rows], FINE)]
        if not kept:
            continue
        curves.append(
            {
                "name": sweep.folder.name,
                "place": place,
                "x": [round_to_6_digits(x) for x, _, _ in kept],
                "y": [round_to_6_digits(y) for _, y, _ in kept],
                "trials": [trial for _, _, trial in kept],
            }
        )
    if not curves:
        return None
    return {"spent": unit, "curves": curves}


def _best_scores(
    sweep: Sweep, training_of: Callable[[Trial], float]
) -> list[tuple[float, float, int]]:
    """Return (training so far, best score, its trial) whenever the best score changed.

    `training_of` returns a trial's amount of training. The last entry is the present state. A score
    falls where the trial that had it became worse. Trials that violate a constraint do not count.
    """
    sign = sweep.history.objective.sign
    scores: dict[int, float] = {}
    rows: list[tuple[float, float, int]] = []
    total = 0.0
    leader: int | None = None
    for trial, total in replay_results(sweep, training_of):
        score, before = trial.score, scores.pop(trial.number, None)
        if score is not None and is_finite(score) and trial.feasible:
            scores[trial.number] = sign * score
        if scores.get(trial.number) == before:
            continue
        if leader is None or trial.number == leader or scores.get(trial.number, 0) > scores[leader]:
            leader = max(scores, key=lambda key: scores[key], default=None)
        if leader is not None:
            rows.append((total, sign * scores[leader], leader))
    changes = [row for index, row in enumerate(rows) if not index or row[1:] != rows[index - 1][1:]]
    return [*changes, (total, *changes[-1][1:])] if changes else []


# ---- sections -----------------------------------------------------------------------------------


def _head(compared: Mapping[str, Any]) -> Markup:
    """Return the head of the page, with the names and the metric.

    `compared` is the data of `sweep.views.comparison.compare`.
    """
    rows = compared["sweeps"]
    names = [row["name"] for row in rows]
    want = "greatest" if compared["mode"] == "max" else "least"
    lead = tag(
        "p",
        formatting.plural(len(rows), "sweep"),
        ": which settings make ",
        tag("b", escape(compared["metric"])),
        f" {want}?",
        class_="lead",
    )
    title = tag("div", tag("h1", ", ".join(names)), class_="title")
    return tag("header", title, lead, tag("p", class_="warning", id="trouble"))


def _name(row: Mapping[str, Any], place: int) -> Markup:
    """Return a sweep's name behind a dot in the colour of its lines.

    `place` is its index on the page.
    """
    return tag(
        "span", tag("i", class_="dot", style=f"background: var(--c{place % 6})"), row["name"]
    )


def _results(compared: Mapping[str, Any]) -> Section:
    """Return the section with a table of one row per sweep.

    `compared` is the data of `sweep.views.comparison.compare`.
    """
    rows: list[list[Child]] = [
        [
            _name(row, place),
            row["state"],
            formatting.number(row["trial"]),
            formatting.with_standard_error(row["expected"], row["expected_error"]),
            formatting.number(row["score"]),
            str(row["seeds"] or formatting.ABSENT),
            str(row["trials"]),
            formatting.count(row["steps"]),
            formatting.duration(row["seconds"]),
            f"{row['searcher']}, {row['scheduler']}",
        ]
        for place, row in enumerate(compared["sweeps"])
    ]
    titles = ["sweep", "state", "best trial", "on a new seed", "score", "seeds", "trials"]
    results = table([*titles, "steps", "training", "searched by"], rows, "twnnnnnnnt")
    note = (
        f"The best trial of each sweep by {compared['metric']}: what its settings are expected to "
        "score on a new seed, with the standard error, and its own score, which is partly luck."
    )
    if different := comparison.different_scores(compared):
        note += f" {different}"
    return Section("results", "What each found", note, [results], "Results")


def _best_curves(data: Data) -> Section | None:
    """Return the section with the learning curves of the best trials; None if there are none."""
    its = data["best_curves"]
    if its is None:
        return None
    note = "The best trial of each sweep."
    if any("low" in curve for curve in its["curves"]):
        note += f" Of several seeds it is the mean with its {LEVEL:.0%} interval."
    return Section(
        "best_curves", "Learning curves of the best", note, [page.chart("best_curves")], "Curves"
    )


def _best_by_training(data: Data) -> Section | None:
    """Return the section with best scores against training; None if no trial has a score."""
    its = data["found"]
    if its is None:
        return None
    note = (
        f"The best score that the sweep had after so many {its['spent']}. It falls where the trial "
        "that was best became worse."
    )
    chart = page.chart("found")
    return Section("found", "What was found for how much training", note, [chart], "Training")


def _settings(compared: Mapping[str, Any]) -> Section | None:
    """Return the section with the settings of the best trials side by side; None if there are none.

    `compared` is the data of `sweep.views.comparison.compare`.
    """
    if not compared["settings"]:
        return None
    shared = len(compared["shared"])
    searched = "no setting" if not shared else formatting.plural(shared, "setting")
    note = (
        f"The settings of the best trials. All sweeps search {searched}"
        f"{', which come first' if 0 < shared < len(compared['settings']) else ''}. Those not "
        "searched are in brackets with the reason; fixed ones are left out where all are the same."
    )
    rows: list[list[Child]] = [
        [name, *(comparison.setting(row, name) for row in compared["sweeps"])]
        for name in compared["settings"]
    ]
    heads = [row["name"] for row in compared["sweeps"]]
    made = table(["setting", *heads], rows, "w" + "t" * len(heads))
    return Section("settings", "Settings side by side", note, [made], "Settings")
