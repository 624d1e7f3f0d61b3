"""Environment steps per CPU second of DQN or SAC by Stable-Baselines3, or by SBX on JAX.

    python -m benchmarks.speed.measures.off_policy_peer stable_baselines3|sbx dqn|sac

The settings are those of `off_policy_ours`. The compilation of JAX is not measured.
"""

import importlib
import os
import sys
import time
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import torch

from benchmarks.speed.measures import clock
from benchmarks.speed.measures.ppo_sb3 import WarmUp

STEPS = {"dqn": 11 * 1024, "sac": 1_600}


def make(library: str, kind: str) -> Any:
    """Return an algorithm of a library."""
    module = importlib.import_module(library)
    if kind == "dqn":
        return module.DQN(
            "MlpPolicy",
            "CartPole-v1",
            learning_rate=2.3e-3,
            batch_size=64,
            buffer_size=100_000,
            learning_starts=1000,
            target_update_interval=10,
            train_freq=256,
            gradient_steps=128,
            exploration_fraction=0.5,
            exploration_final_eps=0.04,
            policy_kwargs={"net_arch": [256, 256]},
            seed=1,
        )
    return module.SAC(
        "MlpPolicy",
        "Pendulum-v1",
        learning_rate=1e-3,
        buffer_size=100_000,
        policy_kwargs={"net_arch": [256, 256]},
        seed=1,
    )


def main() -> None:
    """Measure after the phase of random actions and a few updates."""
    torch.set_num_threads(1)
    library, kind = sys.argv[1:3]
    model, warm = make(library, kind), WarmUp(1_600 if kind == "dqn" else 600)
    model.learn(STEPS[kind], callback=warm)
    clock.print_figure((model.num_timesteps - warm.at) / (time.process_time() - warm.began))


if __name__ == "__main__":
    main()
