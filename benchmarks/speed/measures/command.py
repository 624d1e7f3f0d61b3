"""Wall seconds of a command, including the start of its process.

python -m benchmarks.speed.measures.command import-torch|first-iteration|trivial-run
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.speed.measures import clock

PYTHON = sys.executable
SWEEP = str(Path(PYTHON).with_name("sweep"))
FIRST_ITERATION = (
    "from trainables.algorithms.ppo import PPO;"
    "PPO({'env': 'CartPole-v1', 'num_envs_per_worker': 8, 'rollout_fragment_length': 32}).train()"
)
TRIVIAL = """
name: trivial
trainable: trivial:train
metric: loss
mode: min
trials: 1
space: {x: {uniform: [0.0, 1.0]}}
stop: {training_iteration: 1}
"""
FUNCTION = """
from trainables import report


def train(config):
    report({"loss": config["x"]})
"""
COMMANDS = {
    "import-torch": [PYTHON, "-c", "import torch"],
    "first-iteration": [PYTHON, "-c", FIRST_ITERATION],
    "trivial-run": [SWEEP, "run", "trivial.yaml", "--jobs", "1"],
}


def main() -> None:
    """Run the command once in a temporary folder with a trivial spec."""
    name = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "trivial.yaml").write_text(TRIVIAL, encoding="utf-8")
        Path(folder, "trivial.py").write_text(FUNCTION, encoding="utf-8")
        began = time.perf_counter()
        subprocess.run(COMMANDS[name], cwd=folder, check=True, stdout=subprocess.DEVNULL)  # noqa: S603
        clock.print_figure(time.perf_counter() - began)


if __name__ == "__main__":
    main()
