"""Environment steps per CPU second of our PPO on CartPole with tuned settings, with updates.

    python -m benchmarks.speed.measures.ppo_ours [SETTINGS_AS_JSON]

8 environments x 32 steps, minibatches of 256, 20 epochs, 64-64 tanh actor and critic
(rl-baselines3-zoo's settings).
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.speed.measures import clock
from trainables.algorithms.ppo import PPO
from trainables.learners.fused import compiled

KERNEL = Path("build") / "speed" / "kernel.so"

TUNED: dict[str, Any] = {
    "env": "CartPole-v1",
    "seed": 1,
    "num_envs_per_worker": 8,
    "rollout_fragment_length": 32,
    "sgd_minibatch_size": 256,
    "num_sgd_iter": 20,
    "lr": 1e-3,
    "gamma": 0.98,
    "lambda_": 0.8,
    "clip_param": 0.2,
    "vf_loss_coeff": 1.0,  # factor of half the mean square; the peers have 0.5 of the mean square
    "model": {"hidden": [64, 64], "activation": "tanh"},
}


def learner(**further: Any) -> Callable[[], int]:
    """Return a function that trains one iteration and returns its number of steps.

    For ``learner: compiled``, the kernel is built under ``build/``.

    Args:
        further: settings that differ from `TUNED`.
    """
    if further.get("learner") == "compiled":
        KERNEL.parent.mkdir(parents=True, exist_ok=True)
        compiled.BUILT = compiled.build(KERNEL)
    trainer = PPO({**TUNED, **further})
    return lambda: int(trainer.train()["timesteps_this_iter"])


def main() -> None:
    """Measure 4 s of CPU time."""
    torch.set_num_threads(1)
    further: dict[str, Any] = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
    clock.print_figure(clock.steps_per_cpu_second(learner(**further), 4.0, warm_up=5))


if __name__ == "__main__":
    main()
