"""One run of one row under one seed, in a process of its own; prints its figures as JSON.

    python -m benchmarks.learning.run ROW SEED [--config JSON]

After the last step the policy that was learnt plays fresh episodes greedily.
"""

import argparse
import json
import statistics
import sys
import time
from dataclasses import replace
from typing import Any

from benchmarks.learning.rows import Row, named

#: Points of a curve.
POINTS = 50
#: Added to a run's seed: evaluations play what was never trained on.
FRESH = 10_000


def learn(row: Row, seed: int) -> dict[str, Any]:
    """Train to the row's budget and evaluate; the figures of the run."""
    whole = {
        "schedule_timesteps": row.steps,
        "timesteps_per_iteration": row.steps // POINTS,
        "evaluation_config": {"explore": False},
        "env_level": "C",  # nothing is restored
        **row.config,
        "seed": seed,
    }
    trainer = row.trainer()(whole)
    started, curve = time.process_time(), []
    while trainer.progress.timesteps < row.steps:
        result = trainer.train()
        point = (result["timesteps_total"], result.get("episode_reward_mean"))
        curve.append(point)
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{row.name} seed {seed}: {point[0]:,} of {row.steps:,} steps ")
    trained = time.process_time() - started
    returns = [one["episode_reward"] for one in trainer.play(row.episodes, seed=FRESH + seed)]
    trainer.stop()
    return {
        "row": row.name,
        "seed": seed,
        "mean": statistics.fmean(returns),
        "deviation": statistics.stdev(returns),
        "steps": curve[-1][0],
        "cpu_s": round(trained, 1),
        "curve": curve,
    }


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning.run")
    parser.add_argument("row")
    parser.add_argument("seed", type=int)
    parser.add_argument("--config", type=json.loads, help="settings in place of the row's, as JSON")
    asked = parser.parse_args()
    row = named(asked.row)
    if asked.config is not None:
        row = replace(row, config=asked.config)
    sys.stdout.write(json.dumps(learn(row, asked.seed)) + "\n")


if __name__ == "__main__":
    main()
