"""The same by Stable-Baselines3 with equal settings: wall seconds, the mean over 20 seeds."""

import statistics

import torch

from benchmarks.speed.measures import clock, learnt
from benchmarks.speed.measures.ppo_sb3 import make


def seconds(seed: int) -> float:
    """Of one seed."""
    model = make("stable_baselines3", seed)
    return learnt.seconds(
        lambda: model.learn(learnt.STEPS, reset_num_timesteps=False),
        lambda observations: model.predict(observations, deterministic=True)[0],
    )


def main() -> None:
    """All seeds, after some training that does not count."""
    torch.set_num_threads(1)
    make("stable_baselines3", 0).learn(256)
    clock.tell(statistics.mean(map(seconds, learnt.SEEDS)))


if __name__ == "__main__":
    main()
