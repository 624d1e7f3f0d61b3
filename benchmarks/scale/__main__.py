"""Limits of one driver, and of the drivers that one database serves.

    python -m benchmarks.scale drivers [--minutes 60] [--sweeps 10] [--out DIR]
    python -m benchmarks.scale simulate [--trials 100000] [--slots 1000] [--filled N]
        [--step 1000] [--only NAME …] [--out DIR]
    python -m benchmarks.scale report [--out DIR]

A run that was interrupted continues. `report` writes the measurements in DIR into figures.json,
docs/scale.md and docs/scale.svg.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from benchmarks.scale import drivers, report, simulate


def main() -> int:
    """Measure; return 1 if a result was lost or recorded twice, or a command failed."""
    shown = argparse.ArgumentDefaultsHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", formatter_class=shown)
    parts = parser.add_subparsers(dest="part", required=True)
    part = parts.add_parser("drivers", formatter_class=shown)
    part.add_argument("--minutes", type=float, default=60.0, help="for which the drivers run")
    part.add_argument(
        "--sweeps", type=int, default=10, help="number of sweeps, each with its own driver"
    )
    part = parts.add_parser("simulate", formatter_class=shown)
    part.add_argument("--trials", type=int, default=100_000, help="trials of each search")
    part.add_argument("--slots", type=int, default=1_000, help="slices that run at once")
    part.add_argument("--filled", type=int, default=0, help="trials written at once, not driven")
    part.add_argument("--step", type=int, default=simulate.STEP, help="trials between two lines")
    part.add_argument(
        "--only",
        nargs="+",
        choices=simulate.SEARCHES,
        default=[*simulate.SEARCHES],
        help="searches",
    )
    for name in ("report", *parts.choices):
        part = parts.choices.get(name) or parts.add_parser(name, formatter_class=shown)
        part.add_argument(
            "--out", type=Path, default=Path("build/scale"), help="folder of all files"
        )
    given = parser.parse_args()
    if given.part == "report":
        report.write(given.out)
        return 0
    if given.part == "drivers":
        return 1 if drivers.measure(given.out, given.minutes, given.sweeps)["wrong"] else 0
    if len(given.only) == 1:
        name, step, filled = given.only[0], given.step, given.filled
        simulate.measure(given.out, name, given.trials, given.slots, step, filled)
        return 0
    for name in given.only:  # each in a process of its own, as its memory is measured
        words = ["--trials", str(given.trials), "--slots", str(given.slots), "--out", given.out]
        words += ["--filled", str(given.filled), "--step", str(given.step)]
        command = [sys.executable, "-m", "benchmarks.scale", "simulate", "--only", name, *words]
        subprocess.run(command, check=True)  # noqa: S603 ours
    return 0


if __name__ == "__main__":
    sys.exit(main())
