"""Wall seconds of ``sweep run`` with the 16 settings of PPO on CartPole.

python -m benchmarks.speed.measures.sweep_ours [STEPS [SLOTS [CORES]]]
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.speed.measures import clock
from benchmarks.speed.measures.settings16 import FIXED, SETTINGS, STEPS


def spec(steps: int = STEPS) -> dict[str, Any]:
    """Return the spec: all settings are given, no trial is stopped early, MLflow is on."""
    return {
        "name": "sixteen",
        "trials": len(SETTINGS),
        "trainable": "ppo",
        "metric": "episode_reward_mean",
        "mode": "max",
        "config": {
            "env": "CartPole-v1",
            "num_envs_per_worker": 8,
            "rollout_fragment_length": 32,
            "gamma": FIXED["gamma"],
            "lambda_": FIXED["lambda"],
            "clip_param": FIXED["clip"],
            "num_sgd_iter": FIXED["epochs"],
            "model": {"hidden": [FIXED["hidden"]] * 2, "activation": "tanh"},
        },
        "space": {
            "lr": {"loguniform": [1e-5, 1e-1]},
            "sgd_minibatch_size": {"choice": [128, 256]},
            "entropy_coeff": {"uniform": [0.0, 0.1]},
        },
        "initial": [
            {
                "lr": one["lr"],
                "sgd_minibatch_size": one["minibatch"],
                "entropy_coeff": one["entropy"],
            }
            for one in SETTINGS
        ],
        "stop": {"timesteps_total": steps},
        "scheduler": "fifo",
        "searcher": "random",
        "seed": 1,
    }


def command(folder: Path, steps: int, slots: int) -> list[str]:
    """Write the spec into a folder, and return the command that runs it."""
    file = folder / "sixteen.yaml"
    file.write_text(json.dumps(spec(steps)), encoding="utf-8")
    return [str(Path(sys.executable).with_name("sweep")), "run", str(file), "--jobs", str(slots)]


def run(folder: Path, steps: int, slots: int) -> float:
    """Run the sweep in a folder; return the wall seconds."""
    words = command(folder, steps, slots)
    began = time.perf_counter()
    subprocess.run(words, cwd=folder, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 our own command
    return time.perf_counter() - began


def main() -> None:
    """Run the sweep in a temporary folder."""
    steps, slots, cores = [*sys.argv[1:], *(str(STEPS), "2", "")[len(sys.argv) - 1 :]]
    if cores:  # child processes inherit it
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(cores)])
    with tempfile.TemporaryDirectory() as folder:
        clock.print_figure(run(Path(folder), int(steps), int(slots)))


if __name__ == "__main__":
    main()
