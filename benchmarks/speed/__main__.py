"""Measure sweep beside its peers and limits; writes docs/performance.md and its picture.

    python -m benchmarks.speed [--only NAME …] [--runs 5] [--print]

Ours and the other run in turn, one process at a time, so leave the machine alone meanwhile. What
was measured of this commit stands in ``build/speed/runs.jsonl`` at once and is not measured again.
"""

import argparse
import sys

from benchmarks.speed import report, runner
from benchmarks.speed.cases import ALL


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.speed", description=(__doc__ or "").partition("\n")[0]
    )
    names = [one.name for one in ALL]
    parser.add_argument("--only", nargs="*", choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--runs", type=int, default=5, help="pairs of every case")
    parser.add_argument("--print", action="store_true", help="print the table, write no page")
    asked = parser.parse_args()
    chosen = [one for one in ALL if not asked.only or one.name in asked.only]
    figures = runner.run(chosen, asked.runs)
    if asked.print or asked.only:
        sys.stdout.write(report.table(figures) + "\n")
    else:
        report.write(figures, runner.ask(report.PROFILE)["parts"], runner.version())


if __name__ == "__main__":
    main()
