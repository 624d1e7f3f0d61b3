"""The long run: everything that may break is broken, and what is left is looked at.

    python -m benchmarks.chaos [--out DIR] [--seed S] [--only PART …] [--report-only]

A run that was stopped goes on where it was. At its end `report.json` and the table in
docs/reliability.md are made anew; with `--only`, from those parts and what earlier runs left.
"""

import argparse
import sys
from pathlib import Path

from benchmarks.chaos import report
from benchmarks.chaos.parts import PARTS


def main() -> int:
    """Run the parts; returns 1 if any case failed."""
    names = [part.name for part in PARTS]
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.chaos", formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("build/chaos"), help="where lines go")
    parser.add_argument("--seed", type=int, default=0, help="what all chance is made from")
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="these parts")
    parser.add_argument("--report-only", action="store_true", help="only sum up")
    given = parser.parse_args()
    failed = 0
    for part in PARTS:
        if part.name in given.only and not given.report_only:
            sys.stderr.write(f"{part.name}: {part.shows}\n")
            failed += part.run(given.out, part.rounds, given.seed)
    report.write(given.out, given.seed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
