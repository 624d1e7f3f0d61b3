"""docs/performance.md: the table of all cases, the machine, the versions and how to repeat it."""

import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from benchmarks.speed import peers
from benchmarks.speed.runner import ROOT, Figures

PAGE = ROOT / "docs" / "performance.md"
OURS = ("torch", "numpy", "gymnasium", "optuna", "mlflow", "joblib", "sqlalchemy")


def table(figures: Sequence[Figures]) -> str:
    """A row for each case: both medians, the ratio with its spread, and what is to be reached."""
    head = "| what | sweep | the other | ratio (least to greatest) | to reach | reached |"
    rows = [head, "| --- | --- | --- | --- | --- | --- |"]
    for one in figures:
        case = one.case
        if not one.pairs:
            rows.append(f"| {case.title} | not measured: {one.failure} | | | | |")
            continue
        least, greatest = one.spread
        limit = not case.more_is_better and not case.against_peer
        goal = f"{'at most' if limit else 'at least'} {case.at_least:g}"
        cells = (
            case.title,
            f"{_number(one.median('ours'))} {case.unit}",
            f"{case.other.name}: {_number(one.median('other'))}",
            f"**{one.ratio:.2f}** ({least:.2f} to {greatest:.2f})",
            goal,
            "yes" if case.reached(one.ratio) else "no",
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def write(figures: Sequence[Figures], version: str) -> None:
    """Write the page."""
    ours = ", ".join(f"{name} {metadata.version(name)}" for name in OURS)
    others = ", ".join(sorted({pin for pins in peers.PINS.values() for pin in pins}))
    day = datetime.now(UTC).date().isoformat()
    PAGE.write_text(
        TEXT.format(
            table=table(figures),
            ours=ours,
            others=others,
            day=day,
            version=version,
            python=platform.python_version(),
            machine=_machine(),
            pairs=max(len(one.pairs) for one in figures),
        ),
        encoding="utf-8",
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _machine() -> str:
    cpus = Path("/proc/cpuinfo")
    lines = cpus.read_text(encoding="utf-8").splitlines() if cpus.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{len(models) or '?'} cores, {models[0] if models else platform.machine()}"


TEXT = """# Performance

Written by `make bench`; every row is measured beside the other side in one run, ours and the other
in turn, one process at a time and one thread each. A ratio is the median over up to {pairs} pairs;
behind it stand the least and the greatest. Rates are per second of CPU time; what is started from
the shell, and what waits for a disk, is measured by the wall.

Against peers a ratio says how many times faster sweep is; against a limit written by hand it says
which share of it sweep reaches (rates), or how many times its time sweep takes (times).

{table}

Measured on {day} with commit `{version}`: {machine}, Python {python}, {ours}. The others: {others}.

## How to repeat it

    make bench

takes half an hour or more, goes on where it was stopped, and installs the peers in `build/peers`,
where nothing of sweep sees them. `python -m benchmarks.speed --only NAME --runs 3` measures one row
and prints it.
"""
