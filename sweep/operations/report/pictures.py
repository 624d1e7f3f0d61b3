"""Pictures of the report as PNG files, for slides and other pages, without browser or network.

They are drawn with matplotlib, a dependency of MLflow, from the data of the page.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sweep.core.errors import StorageError, with_remedy
from sweep.operations.report import page
from sweep.views import formatting
from sweep.views.lookup import Sweep
from trainables.core.importing import large_import

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Data = dict[str, Any]

#: Colours of the page in its light theme.
_COLOURS = ("#2563eb", "#e8590c", "#0a8f6a", "#9c36b5", "#d6336c", "#a67c00")
_ACCENT, _FADED, _LIGHT_BLUE, _INK, _MUTED, _GRID = (
    *("#2563eb", "#b4b9c2", "#8fb2f3"),
    *("#1a1d23", "#626a76", "#e3e6eb"),
)
#: Colours from the worst to the best.
_SCALE = ("#d3d7de", "#8fb2f3", "#1846b8")
#: Resolution of a picture in pixels per inch.
_DPI = 120
#: Errors that matplotlib raises for numbers that are too far apart.
_UNDRAWABLE = (ArithmeticError, MemoryError, RuntimeError, TypeError, ValueError)
#: Number of settings, the most important ones, in the picture of slices.
_SLICES = 6


def write(
    sweep: Sweep, folder: Path, say: Callable[[str], None], names: Sequence[str] = ()
) -> list[Path]:
    """Write a PNG file for each picture that has something to show; return their paths.

    Args:
        sweep: the sweep, read with its curves.
        folder: created if necessary; existing files of these names are replaced.
        say: called with a message for each picture that matplotlib cannot draw.
        names: names in `PICTURES`; empty for all.

    Raises:
        StorageError: the disk refused.
    """
    data, _ = page.content(sweep)
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in names or PICTURES:
            draft, path = folder / f".{name}.png.new", folder / f"{name}.png"
            try:
                drawn = _draw(PICTURES[name], data, draft, sweep.spec.name)
            except _UNDRAWABLE as error:
                say(f"{path.name} is left out, as matplotlib cannot draw it: {error}")
                continue
            if drawn:
                draft.replace(path)
                written.append(path)
    except OSError as error:
        raise StorageError(f"{folder}: {with_remedy(error)}") from error
    return written


def _draw(picture: Callable[[Data], "Figure | None"], data: Data, file: Path, title: str) -> bool:
    """Write the PNG file of a picture; return False if its data has nothing to show.

    `picture` is a function in `PICTURES`, `data` that of the page, and `title` goes into the file's
    metadata.
    """
    with np.errstate(all="ignore"):  # problems with numbers show up as errors below
        figure = picture(data)
        if figure is not None:
            figure.savefig(file, format="png", dpi=_DPI, metadata={"Title": title})
    return figure is not None


def _figure(width: float, height: float) -> "Figure":
    """Return an empty figure of a `width` and `height` in inches."""
    with large_import():
        from matplotlib.figure import Figure

    return Figure((width, height), layout="constrained", facecolor="white")


def _style_axes(axes: "Axes", x: str = "", y: str = "") -> None:
    """Give axes the style of the page: no frame, and a light grid behind the data."""
    axes.grid(color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    for side in axes.spines.values():
        side.set_visible(False)
    axes.tick_params(colors=_MUTED, labelsize=9, length=0)
    axes.set_xlabel(_text(x), color=_MUTED, fontsize=10)
    axes.set_ylabel(_text(y), color=_MUTED, fontsize=10)


def _text(words: str) -> str:
    """Return a text with dollar signs escaped, which would begin a formula in matplotlib."""
    return words.replace("$", r"\$")


def _curves(data: Data) -> "Figure | None":
    """Draw the learning curves; None if there are none."""
    learning = data["learning"]
    if learning is None:
        return None
    figure = _figure(9, 5)
    axes = figure.subplots()
    labelled = set()
    for curve in learning["curves"]:
        place = curve["place"]
        if place is None:
            early = curve["early"]
            colour, name = (_FADED, "stopped early") if early else (_LIGHT_BLUE, "others")
            label = None if name in labelled else name
            labelled.add(name)
            axes.plot(curve["x"], curve["y"], color=colour, linewidth=0.7, label=label, zorder=1)
            continue
        colour = _COLOURS[place]
        width, above = (2.4, 4) if place == 0 else (1.5, 3)
        label = f"trial {curve['trial']}"
        if "low" in curve and place < 2:
            low, high = _numbers(curve["low"]), _numbers(curve["high"])
            axes.fill_between(curve["x"], low, high, color=colour, alpha=0.12)
        axes.plot(curve["x"], curve["y"], color=colour, linewidth=width, label=label, zorder=above)
    _style_axes(axes, learning["time"], data["metric"])
    handles, labels = axes.get_legend_handles_labels()
    order = sorted(range(len(labels)), key=lambda i: (-handles[i].get_zorder(), -i))  # best first
    axes.legend(
        [handles[i] for i in order],
        [labels[i] for i in order],
        ncols=4,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.12),
        frameon=False,
        fontsize=9,
    )
    return figure


def _numbers(values: Sequence[float | None]) -> list[float]:
    """Return the values with NaN, which is not drawn, in place of None."""
    return [math.nan if value is None else value for value in values]


def _importance(data: Data) -> "Figure | None":
    """Draw the importance of settings; None if it is unknown."""
    importance = data["importance"]
    if importance is None:
        return None
    causes = importance["causes"]
    names = [_text(" & ".join(names)) for names in importance["names"]]
    names += [cause["name"] for cause in causes]
    shares = [
        100 * share for share in (*importance["shares"], *(cause["share"] for cause in causes))
    ]
    figure = _figure(8, 1 + 0.4 * len(names))
    axes = figure.subplots()
    colours = [_ACCENT] * (len(names) - len(causes)) + [_FADED] * len(causes)
    bars = axes.barh(names[::-1], shares[::-1], color=colours[::-1], height=0.62)
    axes.bar_label(bars, fmt="%.0f%%", padding=4, color=_MUTED, fontsize=9)
    _style_axes(axes, f"share of the differences in {data['metric']}, %")
    axes.grid(visible=False, axis="y")
    axes.margins(x=0.12)
    return figure


def _search(data: Data) -> "Figure | None":
    """Draw scores over time; None with fewer than two scored trials."""
    search = data["search"]
    if search is None:
        return None
    figure = _figure(9, 4)
    axes = figure.subplots()
    for early, colour, name in ((True, _FADED, "stopped early"), (False, _LIGHT_BLUE, "completed")):
        shown = [place for place, is_early in enumerate(search["early"]) if is_early is early]
        if shown:
            x, y = ([search[axis][place] for place in shown] for axis in ("x", "y"))
            axes.scatter(x, y, s=16, color=colour, label=name)
    best = search["best"]
    if best["x"]:  # empty if every trial violates a constraint
        until, score = [*best["x"], search["end"]], [*best["y"], best["y"][-1]]
        axes.step(until, score, where="post", color=_ACCENT, linewidth=2, label="best so far")
    _style_axes(axes, "seconds", data["metric"])
    axes.legend(frameon=False, fontsize=9)
    return figure


def _slices(data: Data) -> "Figure | None":
    """Draw a plot of scores for each of the `_SLICES` most important settings.

    Returns None with fewer than two scored trials.
    """
    points = data["points"]
    if points is None:
        return None
    shown = points["axes"][:_SLICES]
    columns = min(3, len(shown))
    rows = math.ceil(len(shown) / columns)
    figure = _figure(3.4 * columns, 2.8 * rows)
    colours = _colours(points["better"])
    for place, axis in enumerate(shown):
        axes = figure.add_subplot(rows, columns, place + 1)
        axes.scatter(axis["values"], points["scores"], c=colours, s=14)
        _style_axes(axes, axis["name"], data["metric"] if place % columns == 0 else "")
        if "labels" in axis:
            labels = [_text(label) for label in axis["labels"]]
            axes.set_xticks(range(len(labels)), labels, rotation=0 if len(labels) < 5 else 30)
        elif axis["log"]:
            axes.set_xscale("log")
    return figure


def _parallel(data: Data) -> "Figure | None":
    """Draw parallel coordinates; None with fewer than two scored trials."""
    points = data["points"]
    if points is None:
        return None
    scores: Data = {"name": data["metric"], "values": points["scores"], "log": False}
    finite = [score for score in points["scores"] if score is not None]
    scores |= {"low": min(finite), "high": max(finite)}
    shown = [*points["axes"], scores]
    figure = _figure(max(6.0, 1.7 * len(shown)), 4.6)
    axes = figure.subplots()
    heights = [
        [math.nan if value is None else _height(axis, value) for value in axis["values"]]
        for axis in shown
    ]
    for trial, colour in enumerate(_colours(points["better"])):
        line = [height[trial] for height in heights]
        better = points["better"][trial]
        axes.plot(line, color=colour, linewidth=0.5 + 1.3 * better, alpha=0.35 + 0.6 * better)
    _style_axes(axes)
    axes.grid(visible=False)
    axes.set_yticks([])
    axes.set_ylim(-0.05, 1.05)  # the full height even if all scores are equal
    axes.set_xticks(range(len(shown)), [_text(axis["name"]) for axis in shown])
    for place, axis in enumerate(shown):
        axes.axvline(place, color=_MUTED, linewidth=0.8)
        for height, label in _ticks(axis):
            behind = {"fc": "white", "ec": "none", "pad": 0.5, "alpha": 0.75}
            axes.text(
                place + 0.03, height, _text(label), size=8, color=_INK, va="center", bbox=behind
            )
    return figure


def _colours(better: Sequence[float | None]) -> list[Any]:
    """Return a colour for each trial; `better` has the ranks from 0 (worst) to 1."""
    from matplotlib.colors import LinearSegmentedColormap

    scale = LinearSegmentedColormap.from_list("better", _SCALE)
    return [scale(share or 0.0) for share in better]


def _height(axis: Data, value: float) -> float:
    """Return the height of a value on an axis, 0 to 1; a value of labels is an index."""
    if "labels" in axis:
        return (value + 0.5) / len(axis["labels"])
    low, high = axis["low"], axis["high"]
    if axis["log"]:
        low, high, value = math.log(low), math.log(high), math.log(value)
    low, high, value = low / 2, high / 2, value / 2  # the difference may overflow
    return 0.5 if high == low else (value - low) / (high - low)


def _ticks(axis: Data) -> list[tuple[float, str]]:
    """Return height, 0 to 1, and label of each tick of an axis.

    A numeric axis has ticks at both ends and in the middle, or one if the ends are equal.
    """
    if "labels" in axis:
        return [(_height(axis, i), label) for i, label in enumerate(axis["labels"])]
    low, high = axis["low"], axis["high"]
    middle = math.sqrt(low * high) if axis["log"] else low / 2 + high / 2
    ticks = [low] if low == high else [low, middle, high]
    return [(_height(axis, tick), formatting.number(float(f"{tick:.3g}"))) for tick in ticks]


#: Name of a file → function that draws it.
PICTURES: dict[str, Callable[[Data], "Figure | None"]] = {
    "curves": _curves,
    "importance": _importance,
    "parallel": _parallel,
    "search": _search,
    "slices": _slices,
}
