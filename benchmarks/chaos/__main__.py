"""Run all failure tests, and report their results.

    python -m benchmarks.chaos [--out DIR] [--seed S] [--only PART …] [--report-only]

An interrupted run continues. At its end, `report.json` and the table in docs/reliability.md are
updated. With `--only`, the results of other parts are those of earlier runs.
"""

import argparse
import sys
from pathlib import Path

from benchmarks.chaos import report
from benchmarks.chaos.parts import PARTS


def main() -> int:
    """Run the parts; return 1 if any case failed."""
    names = [part.name for part in PARTS]
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.chaos", formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument(
        "--out", type=Path, default=Path("build/chaos"), help="folder of the results"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of all random choices")
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="parts to run")
    parser.add_argument("--report-only", action="store_true", help="run no part")
    given = parser.parse_args()
    failed = 0
    for part in PARTS:
        if part.name in given.only and not given.report_only:
            sys.stderr.write(f"{part.name}: {part.event}\n")
            failed += part.run(given.out, part.rounds, given.seed)
    report.write(given.out, given.seed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
