"""Milliseconds of saving or restoring a checkpoint, with fsync.

    python -m benchmarks.speed.measures.checkpoint_ours save|restore PARAMETERS

The module uses only functions that older versions have, too, so that two can be compared.
"""

import json
import sys
import tempfile
from pathlib import Path

import torch

from benchmarks.speed.measures import clock
from trainables.algorithms.ppo import PPO


def main() -> None:
    """Save or restore a trainer whose networks have about this number of parameters."""
    torch.set_num_threads(1)
    action, parameters = sys.argv[1], int(sys.argv[2])
    width = round(
        ((225 + 8 * (parameters - 3)) ** 0.5 - 15) / 4
    )  # two networks, 4-w-w-2 and 4-w-w-1
    trainer = PPO(
        {"env": "CartPole-v1", "seed": 1, "model": {"hidden": [width, width]}, "num_sgd_iter": 1}
    )
    trainer.train()
    times = 30 if parameters < 100_000 else 7
    with tempfile.TemporaryDirectory(dir=".") as folder:
        path = Path(trainer.save(folder))
        if action == "save":
            value = clock.milliseconds(lambda: trainer.save(folder), times)
        else:
            value = clock.milliseconds(lambda: trainer.restore(path), times)
    trainer.stop()
    sys.stdout.write(json.dumps({"value": value}) + "\n")


if __name__ == "__main__":
    main()
