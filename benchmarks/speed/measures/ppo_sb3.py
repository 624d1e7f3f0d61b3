"""The same PPO on CartPole by Stable-Baselines3: environment steps per CPU second."""

import time

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

from benchmarks.speed.measures import clock


class Warm(BaseCallback):
    """Starts the clock after some iterations, so that imports and first calls do not count."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps
        self.began = self.at = 0.0

    def _on_step(self) -> bool:
        if not self.began and self.num_timesteps >= self.steps:
            self.began, self.at = time.process_time(), self.num_timesteps
        return True


def main() -> None:
    """Measure some 20,000 steps after 1,280."""
    torch.set_num_threads(1)
    envs = make_vec_env("CartPole-v1", n_envs=8, seed=1)
    model = PPO(
        "MlpPolicy",
        envs,
        n_steps=32,
        batch_size=256,
        n_epochs=20,
        learning_rate=1e-3,
        gamma=0.98,
        gae_lambda=0.8,
        clip_range=0.2,
        ent_coef=0.0,
        seed=1,
        device="cpu",
    )
    warm = Warm(5 * 256)
    model.learn(84 * 256, callback=warm)
    clock.tell((model.num_timesteps - warm.at) / (time.process_time() - warm.began))


if __name__ == "__main__":
    main()
