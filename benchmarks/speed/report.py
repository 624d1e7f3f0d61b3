"""The page docs/performance.md: a table of all cases, the machine, and the versions."""

import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from benchmarks.speed import peers, pictures
from benchmarks.speed.cases import CASES, Side
from benchmarks.speed.measures.settings16 import STEPS
from benchmarks.speed.runner import ROOT, Figures

PAGE = ROOT / "docs" / "performance.md"
#: Measures the CPU time of each part of a slice.
PROFILE = Side("sweep", "slice_profile")
#: Packages whose versions the page states.
OURS = ("torch", "numpy", "gymnasium", "optuna", "mlflow", "joblib", "sqlalchemy")


def table(figures: Sequence[Figures]) -> str:
    """Return the table: for each case both medians, the ratio with its spread, and the goal."""
    head = "| comparison | sweep | the other | ratio (minimum to maximum) | goal | reached |"
    rows = [head, "| --- | --- | --- | --- | --- | --- |"]
    for one in figures:
        case = one.case
        if not one.pairs:
            rows.append(f"| {case.title} | not measured: {one.failure} | | | | |")
            continue
        minimum, maximum = one.spread
        limit = not case.more_is_better and not case.is_against_peer
        goal = f"{'at most' if limit else 'at least'} {case.goal:g}"
        cells = (
            case.title,
            f"{_number(one.median('ours'))} {case.unit}",
            f"{case.other.name}: {_number(one.median('other'))}",
            f"**{one.ratio:.2f}** ({minimum:.2f} to {maximum:.2f})",
            goal,
            "yes" if case.is_reached(one.ratio) else f"no: {case.reason}" if case.reason else "no",
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def profile(parts: Mapping[str, float]) -> str:
    """Return the table of the parts of a slice: CPU milliseconds and share of each."""
    total = sum(parts.values())
    head = ["| part | ms of CPU | share |", "| --- | --: | --: |"]
    rows = [f"| {name} | {ms:,.0f} | {100 * ms / total:.1f} % |" for name, ms in parts.items()]
    return "\n".join([*head, *rows, f"| **the slice** | **{total:,.0f}** | |"])


def write(figures: Sequence[Figures], parts: Mapping[str, float], version: str) -> None:
    """Write the page and its picture."""
    pictures.draw({one.case.name: one for one in figures})
    ours = ", ".join(f"{name} {metadata.version(name)}" for name in OURS)
    others = ", ".join(sorted({pin for pins in peers.PINS.values() for pin in pins}))
    day = datetime.now(UTC).date().isoformat()
    PAGE.write_text(
        TEXT.format(
            table=table([one for one in figures if one.case in CASES]),
            profile=profile(parts),
            steps=STEPS,
            ours=ours,
            others=others,
            day=day,
            version=version,
            python=platform.python_version(),
            machine=_machine(),
            pairs=min(len(one.pairs) for one in figures if one.case in CASES),
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

On the CPU, sweep trains PPO, DQN and SAC faster than Stable-Baselines3 and SBX, and PPO faster than
RLlib. Further rows compare sweep with bounds, such as a minimal handwritten loop or the time of
`import torch`. A ratio of 3 against a library means that sweep is three times as fast; against a
bound, the ratio is sweep's rate divided by the bound's rate, or sweep's time divided by the bound's
time.

`make bench` measures all rows and writes this page. For each row, sweep and the other program run
alternately, with one thread in each process and each library's own settings for this processor.
The ratio is the median over at least {pairs} pairs of runs, followed by the minimum and the
maximum. Rates are per second of CPU time; shell commands and disk operations are measured in wall
time.

{table}

Measured on {day} with commit `{version}`: {machine}, Python {python}, {ours}. The other libraries:
{others}.

## Cost against size

![Panels: steps per second against environments, CPU milliseconds of a trial against trials before \
it, milliseconds of a checkpoint against parameters, seconds of a sweep against slots\
](performance.svg)

The machine has two cores, so more than two slots add nothing.

## Where the time of a slice goes

The table shows one slice (a trial's training between two pauses) with one of the 16 settings above:
{steps:,} steps with checkpoints, in one process. The time of a part excludes the time of nested
parts.

{profile}

## How to repeat it

    make bench

`make bench` takes two hours, continues after an interruption, and installs the other libraries in
`build/peers`. `python -m benchmarks.speed --only NAME --runs 3` measures and prints one row.
`--against FOLDER` instead of `--only` compares this checkout with another checkout by the costs of
a result, an iteration of PPO, a checkpoint, and 64 short trials.
"""
