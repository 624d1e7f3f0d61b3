"""Train every row over several seeds and evaluate what was learnt; writes docs/learning.md.

    python -m benchmarks.learning [--only ROW …] [--seeds N] [--jobs 2] [--report-only]

Every run stands in ``results.jsonl`` once it is over, and is not made again unless its row's
settings have changed: stop and start as you like.
"""

import argparse
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from benchmarks.learning import report
from benchmarks.learning.rows import ROWS, Row

RESULTS = Path(__file__).with_name("results.jsonl")


def version(row: Row) -> str:
    """Of what a run of this row depends on that is written in the row."""
    plain = json.dumps([row.algorithm, row.steps, dict(row.config)], sort_keys=True)
    return hashlib.sha256(plain.encode()).hexdigest()[:12]


def known() -> dict[tuple[str, str, int], dict[str, Any]]:
    """The runs made so far, by row, version and seed."""
    lines = RESULTS.read_text(encoding="utf-8").splitlines() if RESULTS.exists() else []
    runs = [json.loads(line) for line in lines]
    return {(run["row"], run["version"], run["seed"]): run for run in runs}


def missing(rows: list[Row], seeds: int | None) -> Iterator[tuple[Row, int]]:
    """The runs that are still to be made, seed by seed."""
    made = known()
    most = max(seeds or row.seeds for row in rows)
    for seed in range(most):
        for row in rows:
            if seed < (seeds or row.seeds) and (row.name, version(row), seed) not in made:
                yield row, seed


def make(row: Row, seed: int) -> dict[str, Any]:
    """One run in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.learning.run", row.name, str(seed)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603
    figures: dict[str, Any] = json.loads(done.stdout)
    return {**figures, "version": version(row)}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.learning", description=(__doc__ or "").partition("\n")[0]
    )
    names = [row.name for row in ROWS]
    parser.add_argument("--only", nargs="*", choices=names, metavar="ROW", help=", ".join(names))
    parser.add_argument("--seeds", type=int, help="runs of each row; its own number if left out")
    parser.add_argument("--jobs", type=int, default=2, help="runs side by side")
    parser.add_argument(
        "--report-only", action="store_true", help="write the page of what is known"
    )
    asked = parser.parse_args()
    chosen = [row for row in ROWS if not asked.only or row.name in asked.only]
    wanted = [] if asked.report_only else list(missing(chosen, asked.seeds))
    with ThreadPoolExecutor(asked.jobs) as pool:
        for done, future in enumerate(as_completed(pool.submit(make, *one) for one in wanted), 1):
            run = future.result()
            with RESULTS.open("a", encoding="utf-8") as file:
                file.write(json.dumps(run) + "\n")
            said = f"{run['row']} seed {run['seed']}: {run['mean']:.1f} after {run['cpu_s']} s"
            sys.stdout.write(f"{done} of {len(wanted)}: {said}\n")
            sys.stdout.flush()
    made = known()
    current = {row.name: version(row) for row in ROWS}
    report.write([run for (name, of, _), run in made.items() if current.get(name) == of])


if __name__ == "__main__":
    main()
