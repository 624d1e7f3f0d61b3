"""Environment steps per CPU second of our PPO with larger networks, including gradient steps.

    python -m benchmarks.speed.measures.networks_ours perceptron|lstm|cnn [SETTINGS_AS_JSON]

The tasks are those of `networks`.
"""

import json
import sys
import time
from typing import Any

import torch

from benchmarks.speed.measures import clock
from benchmarks.speed.measures.networks import ENVS, MINIBATCH, WORK
from trainables.algorithms.ppo import PPO

MODELS: dict[str, dict[str, Any]] = {
    "perceptron": {"hidden": [256, 256]},
    "lstm": {"hidden": [64, 64], "use_lstm": True, "lstm_cell_size": 64},
    "cnn": {},
}


def main() -> None:
    """Measure the iterations after the warm-up."""
    torch.set_num_threads(1)
    kind = sys.argv[1]
    settings: dict[str, Any] = json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}
    work = WORK[kind]
    pictures = "benchmarks.speed.measures.networks:Pictures"
    trainer = PPO(
        {
            "env": pictures if kind == "cnn" else "CartPole-v1",
            "seed": 1,
            "num_envs_per_worker": ENVS,
            "rollout_fragment_length": work.steps,
            "sgd_minibatch_size": MINIBATCH,
            "num_sgd_iter": work.epochs,
            "lr": work.rate,
            "model": MODELS[kind],
            **settings,
        }
    )
    for _ in range(work.warm_up):
        trainer.train()
    began = time.process_time()
    steps = sum(int(trainer.train()["timesteps_this_iter"]) for _ in range(work.iterations))
    clock.print_figure(steps / (time.process_time() - began))
    trainer.stop()


if __name__ == "__main__":
    main()
