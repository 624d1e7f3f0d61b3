"""The same PPO on CartPole by Stable-Baselines3, or by SBX, which is its like on JAX.

    python -m benchmarks.speed.measures.ppo_sb3 stable_baselines3|sbx

Environment steps per CPU second; what JAX compiles, it compiles before the clock starts.
"""

import importlib
import os
import sys
import time
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import torch
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


def make(library: str, seed: int) -> Any:
    """PPO of a library with the tuned settings (`ppo_ours`)."""
    return importlib.import_module(library).PPO(
        "MlpPolicy",
        make_vec_env("CartPole-v1", n_envs=8, seed=seed),
        n_steps=32,
        batch_size=256,
        n_epochs=20,
        learning_rate=1e-3,
        gamma=0.98,
        gae_lambda=0.8,
        clip_range=0.2,
        ent_coef=0.0,
        policy_kwargs={"net_arch": [64, 64]},
        seed=seed,
        device="cpu",
    )


def main() -> None:
    """Measure some 20,000 steps after 1,280."""
    torch.set_num_threads(1)
    model, warm = make(sys.argv[1], 1), Warm(5 * 256)
    model.learn(84 * 256, callback=warm)
    clock.tell((model.num_timesteps - warm.at) / (time.process_time() - warm.began))


if __name__ == "__main__":
    main()
