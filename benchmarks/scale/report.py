"""Reports of the measurements: figures.json, docs/scale.md and docs/scale.svg."""

import json
import os
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.pages import replace_between
from benchmarks.scale import drivers, simulate

ROOT = Path(__file__).resolve().parents[2]
FIGURES = Path(__file__).with_name("figures.json")
PAGE, PICTURE = ROOT / "docs" / "scale.md", ROOT / "docs" / "scale.svg"
#: Marks before and after the tables of the page.
BEGIN, END = "<!-- figures -->\n", "<!-- end of figures -->\n"
#: Lengths of slices, in seconds, for which the page gives the number of slots.
SLICES_S = (10, 30, 60)

Figures = Mapping[str, Any]
"""The contents of figures.json, or a part of them."""


def write(out: Path) -> None:
    """Update figures, page and picture from the measurements in the folder `out`.

    Figures of experiments that have no file in `out` are kept.
    """
    figures = read() if FIGURES.exists() else {"drivers": {}, "simulate": {}}
    figures["machine"] = f"{os.cpu_count()} cores, Python {platform.python_version()}"
    if (out / "drivers.jsonl").exists():
        figures["drivers"] = drivers.total(drivers.Log(out))
    for name in simulate.SEARCHES:
        if lines := simulate.read(out, name):
            figures["simulate"][name] = lines
    FIGURES.write_text(to_json(figures) + "\n", encoding="utf-8")
    PAGE.write_text(insert_figures(PAGE.read_text("utf-8"), figures), encoding="utf-8")
    draw(figures)


def to_json(figures: Figures) -> str:
    """Return the figures as JSON with each measurement of a search on a line."""
    return re.sub(r"\n(?: {4,}| {3}(?=[]}]))", " ", json.dumps(figures, indent=1))


def read() -> dict[str, Any]:
    """Return the figures of the last runs."""
    figures: dict[str, Any] = json.loads(FIGURES.read_text("utf-8"))
    return figures


def insert_figures(page: str, figures: Figures) -> str:
    """Return the page with these figures between its marks."""
    return replace_between(page, BEGIN, END, "\n".join(_tables(figures)) + "\n")


def _tables(figures: Figures) -> Iterator[str]:
    yield f"On {figures['machine']}."
    yield ""
    yield "| search | trials | CPU ms per slice | CPU ms until the next start | slices per second |"
    yield "| --- | --- | --- | --- | --- |"
    for name, lines in figures["simulate"].items():
        for line in _shown(lines):
            median, percentile, _ = line["next_ms"]
            cost = f"{line['cpu_ms']:.1f} | {median:.1f} (99 % within {percentile:.1f})"
            yield f"| {name} | {line['trials']:,} | {cost} | {1e3 / line['cpu_ms']:.0f} |"
    yield ""
    yield "| for each additional trial | driver's memory | ledger |"
    yield "| --- | --- | --- |"
    for name, lines in figures["simulate"].items():
        memory, ledger = (_growth(lines, key) / 1e3 for key in ("rss", "ledger"))
        yield f"| {name} | {memory:.1f} kB | {ledger:.1f} kB |"
    yield ""
    yield f"One driver is fully busy with {_slots(figures)}."
    if figures["drivers"]:
        yield ""
        yield from _hour(figures["drivers"])


def _shown(lines: Sequence[Figures]) -> list[Figures]:
    """Return the first line, the last line, and the first line of each power of ten of trials."""
    shown: dict[int, Figures] = {}
    for line in lines:
        shown.setdefault(len(str(line["trials"])), line)
    return [*shown.values(), *([lines[-1]] if lines[-1] not in shown.values() else [])]


def _growth(lines: Sequence[Figures], key: str) -> float:
    """Return the growth of `key` in bytes per trial, in the run whose trials were all driven."""
    run = [line for line in lines if not line["filled"]]
    trials = run[-1]["trials"] - run[0]["trials"] if run else 0
    return float((run[-1][key] - run[0][key]) / trials) if trials else 0.0


def _slots(figures: Figures) -> str:
    """Return the number of slots that one driver can fill, by the length of a slice, as text.

    The costs of the most expensive line are used.
    """
    cost_ms = max(line["cpu_ms"] for lines in figures["simulate"].values() for line in lines)
    return ", ".join(
        f"{int(seconds * 1e3 / cost_ms / 100) * 100:,} slots of {seconds} s slices"
        for seconds in SLICES_S
    )


def _hour(figures: Figures) -> Iterator[str]:
    yield f"| {figures['sweeps']} drivers on one server, {figures['minutes']:.0f} minutes | |"
    yield "| --- | --- |"
    counts = (figures[name] for name in ("slices", "iterations", "events"))
    yield "| slices, iterations, events | {:,}, {:,}, {:,} |".format(*counts)
    yield f"| missing, repeated or wrong iterations; other errors | {len(figures['wrong'])} |"
    yield f"| connections of all drivers and commands, at most | {figures['connections']} |"
    before, after = figures["megabytes"]
    yield f"| memory of a driver, first and last quarter | {before:.1f} MB, {after:.1f} MB |"
    yield f"| database at the end | {figures['database_bytes'] / 1e6:.1f} MB |"
    median, percentile, longest = figures["next_ms"]
    label = "from a slice's end to the next start: median, 99 % within, longest"
    yield f"| {label} | {median:.0f} ms, {percentile:.0f} ms, {longest:.0f} ms |"
    for name, (count, median, _, longest) in figures["commands"].items():
        label = f"`sweep {name}`, {count} times: median, longest"
        yield f"| {label} | {median:.1f} s, {longest:.1f} s |"


def draw(figures: Figures) -> None:
    """Draw the costs of a slice's end, memory and ledger over the number of trials."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot

    # Without outlines of text, random ids and the date, the same figures give the same file.
    mpl.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "sweep", "font.size": 9}
    panels = (
        ("cpu_ms", 1.0, "CPU ms per end of a slice"),
        ("rss", 1e-6, "memory, MB"),
        ("ledger", 1e-6, "ledger, MB"),
    )
    picture, axes = pyplot.subplots(1, len(panels), figsize=(3.2 * len(panels), 2.8))
    for panel, (key, unit, label) in zip(axes, panels, strict=True):
        for name, lines in figures["simulate"].items():
            values = [line[key] * unit for line in lines]
            trials = [line["trials"] for line in lines]
            panel.plot(trials, values, marker="o", markersize=3, label=name)
        panel.set(title=label, xlabel="trials", xscale="log")
        panel.set_ylim(bottom=0)
        panel.grid(alpha=0.3)
        panel.legend(frameon=False)
    picture.tight_layout()
    picture.savefig(PICTURE, metadata={"Date": None})
    pyplot.close(picture)
