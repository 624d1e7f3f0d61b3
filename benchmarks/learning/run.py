"""Make one run of a row with one seed, and print its figures as JSON.

    python -m benchmarks.learning.run ROW SEED [--config JSON]

After the last step, the learnt policy plays new episodes greedily.
"""

import argparse
import json
import statistics
import sys
import time
from dataclasses import replace
from typing import Any

from benchmarks.learning.rows import Row, find

#: Number of points of a learning curve.
POINTS = 50
#: Number added to a run's seed for its evaluation, whose episodes were never trained on.
FRESH = 10_000


def learn(row: Row, seed: int) -> dict[str, Any]:
    """Train with the row's budget and evaluate; return the figures of the run."""
    settings = {
        "schedule_timesteps": row.steps,
        "timesteps_per_iteration": row.steps // POINTS,
        "evaluation_config": {"explore": False},
        "env_level": "C",  # no run is restored
        **row.config,
        "seed": seed,
    }
    trainer = row.trainer()(settings)
    started, curve = time.process_time(), []
    while trainer.progress.timesteps < row.steps:
        result = trainer.train()
        point = (result["timesteps_total"], result.get("episode_reward_mean"))
        curve.append(point)
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{row.name} seed {seed}: {point[0]:,} of {row.steps:,} steps ")
    cpu_s = time.process_time() - started
    returns = [one["episode_reward"] for one in trainer.play(row.episodes, seed=FRESH + seed)]
    trainer.stop()
    return {
        "row": row.name,
        "seed": seed,
        "mean": statistics.fmean(returns),
        "deviation": statistics.stdev(returns),
        "steps": curve[-1][0],
        "cpu_s": round(cpu_s, 1),
        "curve": curve,
    }


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning.run")
    parser.add_argument("row")
    parser.add_argument("seed", type=int)
    parser.add_argument("--config", type=json.loads, help="settings instead of the row's, as JSON")
    options = parser.parse_args()
    row = find(options.row)
    if options.config is not None:
        row = replace(row, config=options.config)
    sys.stdout.write(json.dumps(learn(row, options.seed)) + "\n")


if __name__ == "__main__":
    main()
