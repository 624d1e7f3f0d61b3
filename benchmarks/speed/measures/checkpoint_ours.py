"""Milliseconds of a checkpoint with fsync: ``python -m … save|restore PARAMETERS``."""

import sys
import tempfile
from pathlib import Path

import torch

from benchmarks.speed.measures import clock
from trainables.algorithms.ppo import PPO


def main() -> None:
    """Save, or restore, a trainer whose networks have about so many parameters."""
    torch.set_num_threads(1)
    what, wanted = sys.argv[1], int(sys.argv[2])
    width = round(((225 + 8 * (wanted - 3)) ** 0.5 - 15) / 4)  # of two networks 4-w-w-2 and 4-w-w-1
    trainer = PPO(
        {"env": "CartPole-v1", "seed": 1, "model": {"hidden": [width, width]}, "num_sgd_iter": 1}
    )
    trainer.train()
    times = 30 if wanted < 100_000 else 7
    with tempfile.TemporaryDirectory(dir=".") as folder:
        path = Path(trainer.save(folder))
        if what == "save":
            clock.tell(clock.milliseconds(lambda: trainer.save(folder), times))
        else:
            clock.tell(clock.milliseconds(lambda: trainer.restore(path), times))
    trainer.stop()


if __name__ == "__main__":
    main()
