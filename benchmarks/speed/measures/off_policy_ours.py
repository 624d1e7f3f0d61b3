"""Environment steps per CPU second of our DQN on CartPole or SAC on Pendulum, with updates.

    python -m benchmarks.speed.measures.off_policy_ours dqn|sac

DQN: 128 updates of 64 after each 256 steps, two layers of 256 (rl-baselines3-zoo's settings). SAC:
an update of 256 after each step, two layers of 256, lr 1e-3 (also from there).
"""

import sys
from typing import Any

import torch

from benchmarks.speed.measures import clock
from trainables.algorithms.dqn import DQN
from trainables.algorithms.sac import SAC

SETTINGS: dict[str, dict[str, Any]] = {
    "dqn": {
        "env": "CartPole-v1",
        "num_envs_per_worker": 1,
        "rollout_fragment_length": 256,
        "updates_per_step": 128,
        "replay_batch_size": 64,
        "lr": 2.3e-3,
        "buffer_size": 100_000,
        "learning_starts": 1000,
        "tau": None,
        "target_network_update_freq": 10,
        "n_step": 1,
        "double_q": False,
        "exploration_config": {"epsilon_timesteps": 8_000, "final_epsilon": 0.04},
        "model": {"hidden": [256, 256]},
    },
    "sac": {
        "env": "Pendulum-v1",
        "num_envs_per_worker": 1,
        "rollout_fragment_length": 1,
        "updates_per_step": 1,
        "replay_batch_size": 256,
        "lr": 1e-3,
        "buffer_size": 100_000,
        "learning_starts": 100,
        "timesteps_per_iteration": 100,
        "model": {"hidden": [256, 256]},
    },
}


def main() -> None:
    """Measure 6 s of CPU time after the phase of random actions."""
    torch.set_num_threads(1)
    kind = sys.argv[1]
    trainer = {"dqn": DQN, "sac": SAC}[kind]({**SETTINGS[kind], "seed": 1})
    rate = clock.steps_per_cpu_second(
        lambda: int(trainer.train()["timesteps_this_iter"]), 6.0, warm_up=6
    )
    clock.print_figure(rate)


if __name__ == "__main__":
    main()
