"""The report of the long run: report.json, and its table in docs/reliability.md.

Integer figures of a part's cases are added. Other figures are reported by their maximum, ``name``,
and their median, ``name_median``.
"""

import json
import os
import platform
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.chaos.parts import PARTS, Part
from benchmarks.chaos.store_cases import Cases
from benchmarks.pages import replace_between

REPORT = Path(__file__).with_name("report.json")
PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
#: Marks before and after the table of the page.
BEGIN, END = "<!-- figures -->\n", "<!-- end of figures -->\n"
#: Entries of a case that are not figures.
_NO_FIGURES = {"case", "ok", "s", "failed"}


def write(out: Path, seed: int) -> None:
    """Write the report of the results in `out`, and update the page.

    Parts without results in `out` keep those of the last report.
    """
    before = read()["parts"] if REPORT.exists() else {}
    report = {
        "machine": f"{os.cpu_count()} cores, Python {platform.python_version()}, "
        f"{platform.system()} {platform.release().split('-')[0]}",
        "seed": seed,
        "parts": {part.name: _newest(Cases(out, part.name), before) for part in PARTS},
    }
    REPORT.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(insert_figures(PAGE.read_text("utf-8"), report), encoding="utf-8")


def read() -> dict[str, Any]:
    """Return the report of the last long run."""
    report: dict[str, Any] = json.loads(REPORT.read_text("utf-8"))
    return report


def insert_figures(page: str, report: Mapping[str, Any]) -> str:
    """Return the page with the table of this report between its marks."""
    return replace_between(page, BEGIN, END, "\n".join(_table(report)) + "\n")


def _table(report: Mapping[str, Any]) -> Iterator[str]:
    yield f"On {report['machine']}; seed {report['seed']}."
    yield ""
    yield "| failure | result | failed | minutes | part |"
    yield "| --- | --- | --- | --- | --- |"
    for part in PARTS:
        sums = report["parts"][part.name]
        yield (
            _row(part, sums) if sums["cases"] else f"| {part.event} | not run | | | `{part.name}` |"
        )


def _row(part: Part, sums: Mapping[str, Any]) -> str:
    texts = {"cases": _number(sums["cases"]), **_texts(sums["figures"])}
    figures = part.figures.format_map(defaultdict(lambda: "?", texts))  # failed cases have none
    minutes = f"{sums['seconds'] / 60:.1f}"
    return f"| {part.event} | {figures} | {sums['failed']} | {minutes} | `{part.name}` |"


def _newest(cases: Cases, before: Mapping[str, Any]) -> dict[str, Any]:
    return _sum(cases) if cases.done else before.get(cases.part, _sum(cases))


def _sum(cases: Cases) -> dict[str, Any]:
    lines = list(cases.done.values())
    names = {name for line in lines for name in line if name not in _NO_FIGURES}
    return {
        "cases": len(lines),
        "failed": sum(not line["ok"] for line in lines),
        "seconds": round(sum(line["s"] for line in lines), 1),
        "figures": dict(_figures(name, lines) for name in sorted(names)),
    }


def _figures(name: str, lines: list[dict[str, Any]]) -> tuple[str, Any]:
    values = [line[name] for line in lines if name in line]
    if all(isinstance(value, int) for value in values):
        return name, sum(values)
    return name, {"most": max(values), "median": round(statistics.median(values), 3)}


def _texts(figures: Mapping[str, Any]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for name, value in figures.items():
        if isinstance(value, Mapping):
            texts |= {name: str(value["most"]), f"{name}_median": str(value["median"])}
        else:
            texts[name] = _number(value)
    return texts


def _number(value: int) -> str:
    return f"{value:,}"
