"""Environment steps per CPU second of Stable-Baselines3 with the networks of `networks_ours`.

    python -m benchmarks.speed.measures.networks_sb3 perceptron|lstm|cnn

Gradient steps are included. The LSTM is that of sb3-contrib.
"""

import sys
import time
from functools import partial
from typing import Any

import torch
from sb3_contrib import RecurrentPPO
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

from benchmarks.speed.measures import clock
from benchmarks.speed.measures.networks import ENVS, MINIBATCH, WORK, environment

#: Kind → policy and its networks. Our perceptron is before the LSTM, that of sb3-contrib is after
#: the LSTM: its one hidden layer for each of two heads is about as large as our two shared layers.
POLICIES: dict[str, tuple[str, dict[str, Any]]] = {
    "perceptron": ("MlpPolicy", {"net_arch": [256, 256]}),
    "lstm": (
        "MlpLstmPolicy",
        {
            "net_arch": [64],
            "lstm_hidden_size": 64,
            "shared_lstm": True,
            "enable_critic_lstm": False,
        },
    ),
    "cnn": ("CnnPolicy", {}),
}


class WarmUp(BaseCallback):
    """Callback that starts the clock after `steps` steps, so that imports are not measured."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps
        self.began = self.at = 0.0

    def _on_rollout_start(self) -> None:
        if not self.began and self.num_timesteps >= self.steps:
            self.began, self.at = time.process_time(), self.num_timesteps

    def _on_step(self) -> bool:
        return True


def main() -> None:
    """Measure the iterations after the warm-up."""
    torch.set_num_threads(1)
    kind = sys.argv[1]
    work = WORK[kind]
    name, networks = POLICIES[kind]
    algorithm = RecurrentPPO if kind == "lstm" else PPO
    model = algorithm(
        name,
        make_vec_env(partial(environment, kind), n_envs=ENVS, seed=1),
        n_steps=work.steps,
        batch_size=MINIBATCH,
        n_epochs=work.epochs,
        learning_rate=work.rate,
        policy_kwargs=networks,
        seed=1,
        device="cpu",
    )
    iteration = ENVS * work.steps
    warm = WarmUp(work.warm_up * iteration)
    model.learn((work.warm_up + work.iterations) * iteration, callback=warm)
    clock.print_figure((model.num_timesteps - warm.at) / (time.process_time() - warm.began))


if __name__ == "__main__":
    main()
