"""Environment steps per CPU second of PPO by Stable-Baselines3, or by SBX on JAX.

    python -m benchmarks.speed.measures.ppo_sb3 stable_baselines3|sbx

The settings are those of `ppo_ours`. The compilation of JAX is not measured.
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


class WarmUp(BaseCallback):
    """Callback that starts the clock after `steps` steps, so that imports are not measured."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps
        self.began = self.at = 0.0

    def _on_step(self) -> bool:
        if not self.began and self.num_timesteps >= self.steps:
            self.began, self.at = time.process_time(), self.num_timesteps
        return True


def make(library: str, seed: int) -> Any:
    """Return PPO of a library with the tuned settings of `ppo_ours`."""
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
    """Measure about 20,000 steps after 1,280."""
    torch.set_num_threads(1)
    model, warm = make(sys.argv[1], 1), WarmUp(5 * 256)
    model.learn(84 * 256, callback=warm)
    clock.print_figure((model.num_timesteps - warm.at) / (time.process_time() - warm.began))


if __name__ == "__main__":
    main()
