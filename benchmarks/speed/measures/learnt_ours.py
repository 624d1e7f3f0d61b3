"""PPO to a greedy return of 475 on CartPole: wall seconds of training, the mean over 20 seeds."""

import statistics

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.speed.measures import clock, learnt
from benchmarks.speed.measures.ppo_ours import TUNED
from trainables.algorithms.ppo import PPO


def seconds(seed: int) -> float:
    """Of one seed."""
    trainer = PPO({**TUNED, "seed": seed})

    def train() -> None:
        for _ in range(learnt.STEPS // 256):
            trainer.train()

    def act(observations: NDArray[np.float32]) -> list[int]:
        return [trainer.compute_action(one) for one in observations]

    spent = learnt.seconds(train, act)
    trainer.stop()
    return spent


def main() -> None:
    """All seeds, after some training that does not count."""
    torch.set_num_threads(1)
    warm = PPO(TUNED)
    warm.train()
    warm.stop()
    clock.tell(statistics.mean(map(seconds, learnt.SEEDS)))


if __name__ == "__main__":
    main()
