"""The report as one file: its sections, their data, and the library that draws them.

Opening it loads nothing. The page's own policy forbids that, and allows only the two scripts whose
hashes it contains: code smuggled into a name or message would not run even if it became markup.
Library and data are compressed, which reduces the file to a third.
"""

import base64
import gzip
import hashlib
import importlib.util
import json
import os
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from sweep.core.errors import StorageError, with_remedy
from sweep.core.version import __version__
from sweep.ledger.ledger import Ledger
from sweep.operations.report import charts, sections, timeline
from sweep.operations.report.growth import growth
from sweep.operations.report.importance import Causes, Model
from sweep.operations.report.markup import Markup, tag
from sweep.operations.report.sections import Section
from sweep.views import formatting
from sweep.views.lookup import DRIVEN, Sweep

Data = dict[str, Any]

#: Number of settings, the most important ones, with a picture of their own.
_SLICES = 8


def build(sweep: Sweep, now: float, reload_s: float = 0.0) -> str:
    """Return the HTML report of a sweep as one text.

    Args:
        sweep: the sweep, read with its curves.
        now: current time in seconds since 1970.
        reload_s: seconds after which the page reloads itself; 0 for never.

    Raises:
        StorageError: Plotly, which draws the pictures, is not installed completely.
    """
    clock = timeline.Clock.of(sweep.records)
    provenance = _provenance(sweep)
    data, parts = content(sweep)
    parts.append(sections.search_space(sweep, provenance))
    written = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now))
    foot = f"Written {written} by sweep {__version__} from event {sweep.history.k} of its ledger."
    body = [
        sections.head(sweep, clock, now),
        sections.navigation(parts),
        tag("main", (sections.render(part) for part in parts)),
        tag("footer", tag("p", foot)),
    ]
    return document(sweep.folder.name, body, data, reload_s)


def _provenance(sweep: Sweep) -> Data:
    """Return what the ledger recorded at the sweep's creation, such as versions and processor."""
    ledger = Ledger(sweep.folder.ledger)
    try:
        return dict(ledger.provenance)
    finally:
        ledger.close()


def content(sweep: Sweep) -> tuple[Data, list[Section]]:
    """Compute the data of all pictures, by kind, and the sections that have something to show.

    The data also has ``metric`` and ``mode``. That of a picture without anything to show is None,
    or an empty list for ``front``.
    """
    clock = timeline.Clock.of(sweep.records)
    model = Model.of(sweep)
    importance = model.importance() if model else None
    names = list(importance.settings) if importance else []
    names += [name for name in sweep.spec.space.searched if name not in names]
    data: Data = {
        "metric": sweep.spec.metric,
        "mode": sweep.spec.mode,
        "learning": charts.learning(sweep),
        "search": charts.search(sweep, clock),
        "points": charts.points(sweep, names),
        "importance": charts.importance(importance, Causes.of(importance, sweep.history))
        if importance
        else None,
        "contour": charts.contour(model, *names[:2]) if model and len(model.columns) > 1 else None,
        "timing": charts.timing(sweep, clock),
        "lineage": charts.lineage(sweep),
        "front": charts.fronts(sweep),
        "growth": growth(sweep),
    }
    spent = data["timing"].pop("spent") if data["timing"] else None
    if data["importance"] is None:
        data["contour"] = None  # without an important setting there are no heights to draw
    parts = [
        _learning(data, sweep),
        sections.best(sweep),
        sections.test_seeds(sweep),
        _front(data),
        _importance(data),
        _contour(data),
        _parallel(data),
        _slices(data),
        _search(data),
        _lineage(data),
        _timeline(data),
        _rungs(data),
        sections.time_use(spent),
        sections.failures(sweep),
        sections.decisions(sweep),
    ]
    return data, [part for part in parts if part is not None]


def chart(kind: str, **more: object) -> Markup:
    """Return an empty element that the page's script fills with the picture of this kind.

    `more` are further attributes of the element.
    """
    return tag("div", class_="chart", data_chart=kind, **more)


def _learning(data: Data, sweep: Sweep) -> Section | None:
    """Return the section with the learning curves; None if no trial has a curve."""
    learning = data["learning"]
    if learning is None:
        return None
    drawn, sentences = len(learning["curves"]), []
    if drawn < learning["trials"]:
        sentences.append(
            f"{drawn:,} of {learning['trials']:,} curves are drawn: "
            "the best and evenly chosen others."
        )
    if learning["shown"] < learning["points"]:
        sentences.append(
            f"They are thinned to {learning['shown']:,} of {learning['points']:,} values: "
            "of each stretch the least and the greatest."
        )
    if any("low" in curve for curve in learning["curves"]):
        sentences.append("Of several seeds it is the mean, of the best two with its 95% interval.")
    if (score := sweep.spec.score).kind == "mean_last":
        sentences.append(f"Each value is the mean of the last {score.k}, as the score is.")
    sentences += [sections.sentence(one.text) for one in sweep.changes if one.key == "stop"]
    note = " ".join(
        ["The best trials in colour, others that were stopped early faded.", *sentences]
    )
    return Section("learning", "Learning curves", note, [chart("learning")], "Curves")


#: Explanation of the picture of a front's growth.
_GROWTH = (
    "The share of a box that the front covered after so much training of all trials. The box "
    "extends from the best values of the present front to a tenth of its range beyond the worst."
)


def _front(data: Data) -> Section | None:
    """Return the section with the front of several objectives.

    Returns None with one objective, or if no trial has a score in the metric and another objective.
    """
    if not data["front"]:
        return None
    note = "A line joins the trials that no other trial beats in every objective."
    note += _drawn_note(
        max(data["front"], key=lambda its: int(its["scored"])), "these and evenly chosen others"
    )
    body = [chart("front", data_index=index) for index, _ in enumerate(data["front"])]
    if data["growth"]:
        body += [tag("h3", "As it grew"), tag("p", _GROWTH, class_="note"), chart("growth")]
    return Section("front", "The front", note, body)


def _importance(data: Data) -> Section | None:
    """Return the section with the importance of settings; None if it is unknown."""
    shares = data["importance"]
    if shares is None:
        return None
    scope = (
        "Compared is what trials gained over the same stretch of training, since a child begins "
        "with what its parent has learnt."
        if shares["gained"]
        else "Only scores after the same length of training are compared, so a trial that was "
        "stopped early is not a bad value."
    )
    note = (
        f"Shares of the differences between trials. {scope} A pair is what two settings do beyond "
        f"what each does alone. {_unexplained(shares)}"
    )
    body = [chart("importance")]
    if len(shares["levels"]) > 1:
        body += [tag("h3", "At each rung"), chart("levels")]
    return Section("importance", "What decides", note, body)


#: Cause of unexplained differences → its description.
_WORDS = {
    "seed": "the seed, by which trainings of the same settings differ",
    "seed and evaluation": "the seed and the episodes of an evaluation",
    "evaluation": "the episodes of an evaluation",
    "interaction or too few trials": "interaction of more than two settings, or too few trials to "
    "see more",
    "not known": "the seed, interaction of more than two settings, or too few trials: how much the "
    "seed is, is unknown with one seed",
    "unexplained": "chance, or needs more trials to be seen",
}


def _unexplained(importance: Data) -> str:
    """Return a sentence about the causes of the differences that no setting explains."""
    parts = [f"{part['share']:.0%} is {_WORDS[part['name']]}" for part in importance["causes"]]
    return f"No setting explains {importance['unexplained']:.0%} of them: {'; '.join(parts)}."


def _contour(data: Data) -> Section | None:
    """Return the section with the joint effect of two settings; None if it is unknown."""
    if data["contour"] is None:
        return None
    one, other = (axis["name"] for axis in data["contour"]["axes"])
    note = (
        f"{one} and {other}: the share of the trials at the same rung that such settings beat, "
        "averaged over all other settings. The dots are the trials."
    )
    return Section("contour", "Two settings together", note, [chart("contour")], "Contour")


def _parallel(data: Data) -> Section | None:
    """Return the section with parallel coordinates; None with fewer than two scored trials."""
    points = data["points"]
    if points is None:
        return None
    shares = [("all", 1.0), ("best half", 0.5), ("best tenth", 0.1)]
    buttons = [
        tag("button", name, data_share=share, type="button", aria_pressed=str(share == 1).lower())
        for name, share in shares
    ]
    note = (
        "A line for each trial, better ones in stronger colours; the most important settings first."
    )
    if points["left_out"]:
        note += f" {formatting.plural(points['left_out'], 'further setting')} are left out."
    body = [tag("div", buttons, class_="buttons"), chart("parallel")]
    return Section(
        "parallel", "All settings together", note + _drawn_note(points), body, "Parallel"
    )


def _slices(data: Data) -> Section | None:
    """Return the section with a plot of scores for each of the `_SLICES` most important settings.

    Returns None with fewer than two scores.
    """
    points = data["points"]
    if points is None:
        return None
    note = (
        "The score of each trial against each setting; longer trained trials in stronger colours."
    )
    if points["since"]:
        note += " Rings are trials from before the space changed."
    charts_of = [chart("slice", data_index=index) for index in range(len(points["axes"][:_SLICES]))]
    body = [tag("div", charts_of, class_="pictures")]
    return Section("slices", "Each setting alone", note + _drawn_note(points), body, "Slices")


def _drawn_note(points: Data, choice: str = "the best and evenly chosen others") -> str:
    """Return a sentence, after a space, about the number of drawn trials; empty if all are drawn.

    `points` is the data of the picture; `choice` says which trials are drawn.
    """
    drawn = len(points["trials"])
    if drawn == points["scored"]:
        return ""
    return f" {drawn:,} of {points['scored']:,} trials are drawn: {choice}."


def _search(data: Data) -> Section | None:
    """Return the section with scores over time; None with fewer than two scored trials."""
    if data["search"] is None:
        return None
    note = "The score of each trial when it last reported, and the best so far."
    if data["search"]["changes"]:
        note += " Dotted lines are changes of the space or of the end."
    note += _drawn_note(data["search"], "evenly chosen")
    return Section("search", "The search", note, [chart("search")])


def _lineage(data: Data) -> Section | None:
    """Return the section with the families of trials; None if no trial has a parent."""
    if data["lineage"] is None:
        return None
    note = "Each line is a trial, beginning where it was bred; in colour the ancestors of the best."
    return Section("lineage", "Parents and children", note, [chart("lineage")], "Lineage")


def _timeline(data: Data) -> Section | None:
    """Return the section with slices over time; None before the first slice."""
    timing = data["timing"]
    if timing is None:
        return None
    note = "What ran in each slot, by the rung that it was to reach. Time without a driver is cut."
    if len(timing["bars"]) < timing["slices"]:
        note += (
            f" Slices of one trial that follow each other are one: {len(timing['bars']):,} bars of "
            f"{timing['slices']:,} slices."
        )
    return Section("timeline", "What ran when", note, [chart("timeline")], "Timeline")


def _rungs(data: Data) -> Section | None:
    """Return the section with rungs and promotions; None if no trial has reached a rung."""
    if data["timing"] is None or not data["timing"]["rungs"]:
        return None
    note = "The number of trials that reached each rung, and how they continued."
    return Section("rungs", "Rungs and promotions", note, [chart("rungs")], "Rungs")


# ---- the file -----------------------------------------------------------------------------------


def document(title: str, body: Sequence[Markup], data: Data, reload_s: float = 0.0) -> str:
    """Return the HTML of a whole file with styles, scripts and the pictures' `data`, by kind.

    `reload_s` is the number of seconds after which the page reloads itself; 0 for never. Raises
    StorageError if Plotly is not installed.
    """
    script, style = _asset("page.js"), _asset("page.css")
    library = _library()
    policy = (
        "default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; "
        f"script-src '{_hash(script)}' '{_hash(library)}'; base-uri 'none'; form-action 'none'"
    )
    packed = _compress(json.dumps(data, allow_nan=False, separators=(",", ":")))
    head = [
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="generator" content="sweep">',
        tag("title", f"{title} | sweep"),
        f"<style>{style}</style>",
    ]
    tail = [
        f'<script type="text/plain" id="data">{packed}</script>',
        f'<script type="text/plain" id="library">{_packed_library()}</script>',
        f"<script>{script}</script>",
    ]
    again = f' data-reload="{reload_s:g}"' if reload_s else ""
    opening = f'<!doctype html>\n<html lang="en"{again}>\n<head>'
    return "\n".join([opening, *head, "</head>\n<body>", *body, *tail, "</body>\n</html>\n"])


@cache
def _asset(name: str) -> str:
    """Return the text of a file of this package, such as ``page.js``."""
    return resources.files("sweep.operations.report").joinpath(name).read_text(encoding="utf-8")


@cache
def _library() -> str:
    """Return Plotly's script, found without importing its package, which takes a while.

    Raises:
        StorageError: Plotly is not installed completely.
    """
    found = importlib.util.find_spec("plotly")
    if found is None or not found.submodule_search_locations:
        raise StorageError("plotly is not installed; run `pip install plotly`")
    path = Path(found.submodule_search_locations[0]) / "package_data" / "plotly.min.js"
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror}; install plotly again") from error


@cache
def _packed_library() -> str:
    """Return Plotly's script, compressed and encoded as base64."""
    return _compress(_library())


def _compress(text: str) -> str:
    """Return a text compressed by gzip and encoded as base64."""
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()


def _hash(script: str) -> str:
    """Return the SHA-256 of a script in the form of a Content-Security-Policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def write(path: Path, text: str) -> None:
    """Write the page's `text` to a file atomically: readers see the old page or the new one.

    An existing pipe or device such as ``/dev/null`` is written to instead of being replaced. The
    folder must exist.

    Raises:
        StorageError: the file cannot be written.
    """
    try:
        if path.exists() and not path.is_file():
            path.write_text(text, encoding="utf-8")
            return
        number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        draft = Path(name)
        try:
            with os.fdopen(number, "w", encoding="utf-8") as file:
                file.write(text)
            draft.chmod(0o666 & ~_umask())
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(f"{path}: {with_remedy(error)}") from error


def _umask() -> int:
    """Return the umask of this process, which is 0 for a moment."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def is_driven(sweep: Sweep) -> bool:
    """Return whether a driver ran when `sweep` was read, so that the sweep may still change."""
    return sweep.state in DRIVEN
