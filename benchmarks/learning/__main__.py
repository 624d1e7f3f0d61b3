"""Train every row over several seeds, evaluate the policies, and write docs/learning.md.

    python -m benchmarks.learning [--only ROW …] [--seeds N] [--jobs 2] [--report-only]

Some rows also train Stable-Baselines3, in a separate environment that is installed in
``build/peers``.

Each run is appended to ``results.jsonl`` when it ends, and repeated only if the settings of its row
have changed. So the program can be stopped and started at any time.
"""

import argparse
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.learning import finished, report
from benchmarks.learning.rows import EPISODES, ROWS, Row
from benchmarks.speed import peers

RESULTS = Path(__file__).with_name("results.jsonl")
#: Trainers of a run, values of its `by`: the row's algorithm, and its reference.
OURS, REFERENCE = "sweep", "Stable-Baselines3"


def version(row: Row, by: str = OURS) -> str:
    """Return a digest of the row's entries on which its runs by this trainer depend."""
    settings = dict(row.config)
    if by == REFERENCE and row.reference:
        settings = {"env": row.config["env"], **asdict(row.reference)}
    episodes = [] if row.episodes == EPISODES else [row.episodes]
    text = json.dumps([row.algorithm, row.steps, settings, *episodes], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def missing_runs(rows: list[Row], seeds: int | None) -> Iterator[tuple[Row, int, str]]:
    """Yield the missing runs, seed by seed, as (row, seed, trainer).

    Args:
        seeds: number of seeds of each row; None for the row's own number.
    """
    made = finished.by_version(RESULTS)
    largest = max(seeds or row.seeds for row in rows)
    for seed in range(largest):
        for row in rows:
            for by in (OURS, REFERENCE) if row.reference else (OURS,):
                due = seed < (seeds or row.seeds)
                if due and (row.name, version(row, by), seed) not in made:
                    yield row, seed, by


def untrained_rows(runs: Sequence[dict[str, Any]]) -> list[str]:
    """Return the names of the rows that none of these runs belongs to."""
    trained = {run["row"] for run in runs}
    return [row.name for row in ROWS if row.name not in trained]


def make(row: Row, seed: int, by: str) -> dict[str, Any]:
    """Make one run in a process of its own; return its figures."""
    ours = by == OURS
    python = sys.executable if ours else str(peers.interpreter_of("sb3-simulators"))
    module = f"benchmarks.learning.{'run' if ours else 'reference'}"
    command = [python, "-m", module, row.name, str(seed)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603
    figures: dict[str, Any] = json.loads(done.stdout)
    return {**figures, "version": version(row, by), "by": by}


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.learning", description=(__doc__ or "").partition("\n")[0]
    )
    names = [row.name for row in ROWS]
    parser.add_argument("--only", nargs="*", choices=names, metavar="ROW", help=", ".join(names))
    parser.add_argument(
        "--seeds", type=int, help="runs of each row; by default the row's own number"
    )
    parser.add_argument("--jobs", type=int, default=2, help="runs at the same time")
    parser.add_argument(
        "--report-only", action="store_true", help="only write the page, from finished runs"
    )
    options = parser.parse_args()
    chosen = [row for row in ROWS if not options.only or row.name in options.only]
    wanted = [] if options.report_only else list(missing_runs(chosen, options.seeds))
    if any(by == REFERENCE for _, _, by in wanted):
        peers.interpreter_of("sb3-simulators")  # install the packages before two runs need them
    with ThreadPoolExecutor(options.jobs) as pool:
        finished.append(RESULTS, [pool.submit(make, *one) for one in wanted], _text)
    made = finished.by_version(RESULTS)
    trainers = {(row.name, version(row, by)): by for row in ROWS for by in (REFERENCE, OURS)}
    runs = [{**run, "by": trainers[key[:2]]} for key, run in made.items() if key[:2] in trainers]
    ours = [run for run in runs if run["by"] == OURS]
    report.write(ours, [run for run in runs if run["by"] == REFERENCE])
    if absent := untrained_rows(ours):
        listed = " ".join(absent)
        sys.stderr.write(
            f"not on the page, because no run has today's settings: {listed}; "
            f"train them with --only {listed}\n"
        )


def _text(run: finished.Run) -> str:
    seed = f"{run['row']} seed {run['seed']}, {run['by']}"
    return f"{seed}: {run['mean']:.1f} after {run['cpu_s']} s"


if __name__ == "__main__":
    main()
