"""Measure sweep beside its peers and limits; writes docs/performance.md and its picture.

    python -m benchmarks.speed [--only NAME …] [--runs 5] [--print]
    python -m benchmarks.speed --against FOLDER [--only NAME …] [--runs 5]

Ours and the other run in turn, one process at a time, so leave the machine alone meanwhile. What
was measured of this commit stands in ``build/speed/runs.jsonl`` at once and is not measured again.
With ``--against`` our own costs are measured beside those of another checkout, and printed.
"""

import argparse
import sys
from pathlib import Path

from benchmarks.speed import against, report, runner
from benchmarks.speed.cases import ALL


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.speed", description=(__doc__ or "").partition("\n")[0]
    )
    names = ", ".join([*(one.name for one in ALL), *against.COSTS])
    parser.add_argument("--only", nargs="*", metavar="NAME", help=names)
    parser.add_argument("--against", type=Path, metavar="FOLDER", help="another checkout")
    parser.add_argument("--runs", type=int, default=5, help="pairs of every case")
    parser.add_argument("--print", action="store_true", help="print the table, write no page")
    asked = parser.parse_args()
    among = {one.name: one for one in ALL}
    if asked.against:
        among = against.cases(asked.against, runner.version(asked.against))
    if unknown := set(asked.only or ()) - among.keys():
        parser.error(f"--only: {', '.join(sorted(unknown))}; expected {', '.join(among)}")
    chosen = [case for name, case in among.items() if not asked.only or name in asked.only]
    figures = runner.run(chosen, asked.runs)
    if asked.print or asked.only or asked.against:
        sys.stdout.write(report.table(figures) + "\n")
    else:
        report.write(figures, runner.ask(report.PROFILE)["parts"], runner.version())


if __name__ == "__main__":
    main()
