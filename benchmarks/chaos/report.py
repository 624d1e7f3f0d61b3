"""The report of the long run: report.json, and its table in docs/reliability.md.

Whole numbers of a part's cases are added; of others the largest is given as ``name``, and the
median as ``name_median``.
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

REPORT = Path(__file__).with_name("report.json")
PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
#: Around the table in the page.
BEGIN, END = "<!-- figures -->\n", "<!-- end of figures -->\n"
_OF_A_LINE = {"case", "ok", "s", "failed"}


def write(out: Path, seed: int) -> None:
    """Sum up what lies in `out`, keep the sums of parts of which nothing does, renew the page."""
    before = read()["parts"] if REPORT.exists() else {}
    report = {
        "machine": f"{os.cpu_count()} cores, Python {platform.python_version()}, "
        f"{platform.system()} {platform.release().split('-')[0]}",
        "seed": seed,
        "parts": {part.name: _newest(Cases(out, part.name), before) for part in PARTS},
    }
    REPORT.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(renewed(PAGE.read_text("utf-8"), report), encoding="utf-8")


def read() -> dict[str, Any]:
    """The report of the last long run."""
    report: dict[str, Any] = json.loads(REPORT.read_text("utf-8"))
    return report


def renewed(page: str, report: Mapping[str, Any]) -> str:
    """The page with this report's figures in it."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return before + BEGIN + "\n".join(_table(report)) + "\n" + END + after


def _table(report: Mapping[str, Any]) -> Iterator[str]:
    yield f"On {report['machine']}; seed {report['seed']}."
    yield ""
    yield "| what is done | what was seen | failed | minutes | part |"
    yield "| --- | --- | --- | --- | --- |"
    for part in PARTS:
        its = report["parts"][part.name]
        yield _row(part, its) if its["cases"] else f"| {part.shows} | not run | | | `{part.name}` |"


def _row(part: Part, its: Mapping[str, Any]) -> str:
    written = {"cases": _number(its["cases"]), **_written(its["figures"])}
    figures = part.figures.format_map(defaultdict(lambda: "?", written))  # failed cases have none
    minutes = f"{its['seconds'] / 60:.1f}"
    return f"| {part.shows} | {figures} | {its['failed']} | {minutes} | `{part.name}` |"


def _newest(cases: Cases, before: Mapping[str, Any]) -> dict[str, Any]:
    return _sum(cases) if cases.done else before.get(cases.part, _sum(cases))


def _sum(cases: Cases) -> dict[str, Any]:
    lines = list(cases.done.values())
    names = {name for line in lines for name in line if name not in _OF_A_LINE}
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


def _written(figures: Mapping[str, Any]) -> dict[str, str]:
    written: dict[str, str] = {}
    for name, value in figures.items():
        if isinstance(value, Mapping):
            written |= {name: str(value["most"]), f"{name}_median": str(value["median"])}
        else:
            written[name] = _number(value)
    return written


def _number(value: int) -> str:
    return f"{value:,}"
