"""Measure sweep beside its peers and limits; write docs/performance.md and its picture.

    python -m benchmarks.speed [--only NAME …] [--runs 5] [--print]
    python -m benchmarks.speed --against FOLDER [--only NAME …] [--runs 5]

The two sides of a case run alternately, one process at a time; do not use the machine meanwhile.
Each measurement is appended to ``build/speed/runs.jsonl`` at once and is not repeated for the same
commit. ``--against`` compares our own costs with those of another checkout and prints them.
"""

import argparse
import sys
from pathlib import Path

from benchmarks.speed import against, report, runner
from benchmarks.speed.cases import ALL


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.speed", description=(__doc__ or "").partition("\n")[0]
    )
    names = ", ".join([*(one.name for one in ALL), *against.COSTS])
    parser.add_argument("--only", nargs="*", metavar="NAME", help=names)
    parser.add_argument(
        "--against", type=Path, metavar="FOLDER", help="another checkout of this repository"
    )
    parser.add_argument("--runs", type=int, default=5, help="pairs of runs of every case")
    parser.add_argument("--print", action="store_true", help="print the table and write no page")
    options = parser.parse_args()
    available = {one.name: one for one in ALL}
    if options.against:
        available = against.cases(options.against, runner.version(options.against))
    if unknown := set(options.only or ()) - available.keys():
        parser.error(f"--only: {', '.join(sorted(unknown))}; expected {', '.join(available)}")
    chosen = [case for name, case in available.items() if not options.only or name in options.only]
    figures = runner.run(chosen, options.runs)
    if options.print or options.only or options.against:
        sys.stdout.write(report.table(figures) + "\n")
    else:
        report.write(figures, runner.run_side(report.PROFILE)["parts"], runner.version())


if __name__ == "__main__":
    main()
