"""Wall seconds of Stable-Baselines3, with settings equal to those of `learning_time_ours`."""

import statistics

import torch

from benchmarks.speed.measures import clock, learning_time
from benchmarks.speed.measures.ppo_sb3 import make


def seconds(seed: int) -> float:
    """Return the wall seconds of training with one seed."""
    model = make("stable_baselines3", seed)
    return learning_time.seconds(
        lambda: model.learn(learning_time.STEPS, reset_num_timesteps=False),
        lambda observations: model.predict(observations, deterministic=True)[0],
    )


def main() -> None:
    """Measure all seeds after a warm-up."""
    torch.set_num_threads(1)
    make("stable_baselines3", 0).learn(256)
    clock.print_figure(statistics.mean(map(seconds, learning_time.SEEDS)))


if __name__ == "__main__":
    main()
