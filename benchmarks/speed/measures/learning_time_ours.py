"""Wall seconds of our PPO until a greedy return of 475 on CartPole, the mean of 20 seeds."""

import statistics

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.speed.measures import clock, learning_time
from benchmarks.speed.measures.ppo_ours import TUNED
from trainables.algorithms.ppo import PPO


def seconds(seed: int) -> float:
    """Return the wall seconds of training with one seed."""
    trainer = PPO({**TUNED, "seed": seed})

    def train() -> None:
        for _ in range(learning_time.STEPS // 256):
            trainer.train()

    def act(observations: NDArray[np.float32]) -> list[int]:
        return [trainer.compute_action(one) for one in observations]

    spent = learning_time.seconds(train, act)
    trainer.stop()
    return spent


def main() -> None:
    """Measure all seeds after a warm-up."""
    torch.set_num_threads(1)
    warm = PPO(TUNED)
    warm.train()
    warm.stop()
    clock.print_figure(statistics.mean(map(seconds, learning_time.SEEDS)))


if __name__ == "__main__":
    main()
