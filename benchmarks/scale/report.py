"""figures.json, docs/scale.md and docs/scale.svg: what was measured, and what follows from it."""

import json
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.scale import drivers, simulate

ROOT = Path(__file__).resolve().parents[2]
FIGURES = Path(__file__).with_name("figures.json")
PAGE, PICTURE = ROOT / "docs" / "scale.md", ROOT / "docs" / "scale.svg"
#: Around the tables in the page.
BEGIN, END = "<!-- figures -->\n", "<!-- end of figures -->\n"
#: Seconds of a slice for which the number of slots is given.
SLICES_S = (10, 30, 60)

Figures = Mapping[str, Any]


def write(out: Path) -> None:
    """Sum up what lies in `out`, where there is something, and renew page and picture."""
    figures = read() if FIGURES.exists() else {"drivers": {}, "simulate": {}}
    figures["machine"] = f"{os.cpu_count()} cores, Python {platform.python_version()}"
    if (out / "drivers.jsonl").exists():
        figures["drivers"] = drivers.total(drivers.Log(out))
    for name in simulate.SEARCHES:
        if lines := simulate.read(out, name):
            figures["simulate"][name] = lines
    FIGURES.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(renewed(PAGE.read_text("utf-8"), figures), encoding="utf-8")
    draw(figures)


def read() -> dict[str, Any]:
    """The figures of the last runs."""
    found: dict[str, Any] = json.loads(FIGURES.read_text("utf-8"))
    return found


def renewed(page: str, figures: Figures) -> str:
    """The page with these figures in it."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return before + BEGIN + "\n".join(_tables(figures)) + "\n" + END + after


def _tables(figures: Figures) -> Iterator[str]:
    yield f"On {figures['machine']}."
    yield ""
    yield "| search | trials | driver, CPU ms for an end | its next start, CPU ms | ends a second |"
    yield "| --- | --- | --- | --- | --- |"
    for name, lines in figures["simulate"].items():
        for line in _shown(lines):
            middle, nearly, _ = line["next_ms"]
            cost = f"{line['cpu_ms']:.1f} | {middle:.1f}, 99 of 100 within {nearly:.1f}"
            yield f"| {name} | {line['trials']:,} | {cost} | {1e3 / line['cpu_ms']:.0f} |"
    yield ""
    yield "| for each trial more | of the driver's memory | of the ledger |"
    yield "| --- | --- | --- |"
    for name, lines in figures["simulate"].items():
        memory, ledger = (_growth(lines, key) / 1e3 for key in ("rss", "ledger"))
        yield f"| {name} | {memory:.1f} kB | {ledger:.1f} kB |"
    yield ""
    yield f"One driver is busy all the time with {_slots(figures)}."
    if figures["drivers"]:
        yield ""
        yield from _hour(figures["drivers"])


def _shown(lines: Sequence[Figures]) -> list[Figures]:
    """The first line, the last one, and the first of each power of ten."""
    shown: dict[int, Figures] = {}
    for line in lines:
        shown.setdefault(len(str(line["trials"])), line)
    return [*shown.values(), *([lines[-1]] if lines[-1] not in shown.values() else [])]


def _growth(lines: Sequence[Figures], key: str) -> float:
    """Bytes for each trial, between the first and the last line of the run that filled nothing."""
    run = [line for line in lines if not line["filled"]]
    trials = run[-1]["trials"] - run[0]["trials"] if run else 0
    return float((run[-1][key] - run[0][key]) / trials) if trials else 0.0


def _slots(figures: Figures) -> str:
    """Return how many slots one driver can fill, by the length of a slice, for the dearest line."""
    dearest = max(line["cpu_ms"] for lines in figures["simulate"].values() for line in lines)
    return ", ".join(
        f"{int(seconds * 1e3 / dearest / 100) * 100:,} slots of {seconds} s slices"
        for seconds in SLICES_S
    )


def _hour(found: Figures) -> Iterator[str]:
    yield f"| {found['sweeps']} drivers on one server, {found['minutes']:.0f} minutes | |"
    yield "| --- | --- |"
    counts = (found[name] for name in ("slices", "iterations", "events"))
    yield "| slices, iterations, events | {:,}, {:,}, {:,} |".format(*counts)
    yield f"| missing, twice, or of another value | {len(found['wrong'])} |"
    yield f"| connections of all drivers and commands, at most | {found['connections']} |"
    before, after = found["megabytes"]
    yield f"| memory of a driver, first and last quarter | {before:.1f} MB, {after:.1f} MB |"
    yield f"| database at the end | {found['database_bytes'] / 1e6:.1f} MB |"
    middle, nearly, most = found["next_ms"]
    what = "from a slice's end to the next start: middle, 99 of 100, longest"
    yield f"| {what} | {middle:.0f} ms, {nearly:.0f} ms, {most:.0f} ms |"
    for name, (count, middle, _, most) in found["commands"].items():
        yield f"| `sweep {name}`, {count} times: middle, longest | {middle:.1f} s, {most:.1f} s |"


def draw(figures: Figures) -> None:
    """Draw what an end costs and what the driver takes, over the number of trials."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot

    # Text stays text, and nothing depends on the day: the same figures give the same file.
    mpl.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "sweep", "font.size": 9}
    panels = (
        ("cpu_ms", 1.0, "CPU ms for a slice's end"),
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
