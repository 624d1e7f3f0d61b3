"""Train every row over several seeds and evaluate what was learnt; writes docs/learning.md.

    python -m benchmarks.learning [--only ROW …] [--seeds N] [--jobs 2] [--report-only]

Rows that are compared with Stable-Baselines3 train it, too, in an environment of its own that is
installed in ``build/peers``.

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
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.learning import report
from benchmarks.learning.rows import EPISODES, ROWS, Row
from benchmarks.speed import peers

RESULTS = Path(__file__).with_name("results.jsonl")
#: Who trains: the row's algorithm, or its reference.
OURS, REFERENCE = "sweep", "Stable-Baselines3"


def version(row: Row, by: str = OURS) -> str:
    """Of what a run of this row depends on that is written in the row."""
    settings = dict(row.config)
    if by == REFERENCE and row.reference:
        settings = {"env": row.config["env"], **asdict(row.reference)}
    played = [] if row.episodes == EPISODES else [row.episodes]
    plain = json.dumps([row.algorithm, row.steps, settings, *played], sort_keys=True)
    return hashlib.sha256(plain.encode()).hexdigest()[:12]


def known() -> dict[tuple[str, str, int], dict[str, Any]]:
    """The runs made so far, by row, version and seed."""
    lines = RESULTS.read_text(encoding="utf-8").splitlines() if RESULTS.exists() else []
    runs = [json.loads(line) for line in lines]
    return {(run["row"], run["version"], run["seed"]): run for run in runs}


def missing(rows: list[Row], seeds: int | None) -> Iterator[tuple[Row, int, str]]:
    """The runs that are still to be made, seed by seed: row, seed, by whom."""
    made = known()
    most = max(seeds or row.seeds for row in rows)
    for seed in range(most):
        for row in rows:
            for by in (OURS, REFERENCE) if row.reference else (OURS,):
                due = seed < (seeds or row.seeds)
                if due and (row.name, version(row, by), seed) not in made:
                    yield row, seed, by


def make(row: Row, seed: int, by: str) -> dict[str, Any]:
    """One run in a process of its own."""
    ours = by == OURS
    python = sys.executable if ours else str(peers.interpreter_of("sb3-simulators"))
    module = f"benchmarks.learning.{'run' if ours else 'reference'}"
    command = [python, "-m", module, row.name, str(seed)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603
    figures: dict[str, Any] = json.loads(done.stdout)
    return {**figures, "version": version(row, by), "by": by}


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
    if any(by == REFERENCE for _, _, by in wanted):
        peers.interpreter_of("sb3-simulators")  # installed by one, before two ask for it
    with ThreadPoolExecutor(asked.jobs) as pool:
        for done, future in enumerate(as_completed(pool.submit(make, *one) for one in wanted), 1):
            run = future.result()
            with RESULTS.open("a", encoding="utf-8") as file:
                file.write(json.dumps(run) + "\n")
            said = f"{run['row']} seed {run['seed']}, {run['by']}: {run['mean']:.1f}"
            sys.stdout.write(f"{done} of {len(wanted)}: {said} after {run['cpu_s']} s\n")
            sys.stdout.flush()
    made = known()
    by = {(row.name, version(row, by)): by for row in ROWS for by in (REFERENCE, OURS)}
    runs = [{**run, "by": by[name, of]} for (name, of, _), run in made.items() if (name, of) in by]
    report.write(
        [run for run in runs if run["by"] == OURS], [run for run in runs if run["by"] == REFERENCE]
    )


if __name__ == "__main__":
    main()
