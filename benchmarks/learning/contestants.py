"""What is timed: PPO with updates on CartPole, by each who can do it.

    python -m benchmarks.learning.contestants NAME ITERATIONS

Prints one JSON line: steps, seconds by the wall and of the processor, and the milliseconds that the
parts of an iteration take, where the trainer tells them. Making the trainer and the first
iterations are not counted.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

ENVS, STEPS, EPOCHS, MINIBATCH = 8, 32, 20, 256
#: Iterations that are not counted: what is imported and allocated once.
WARM_UP = 3

Advance = Callable[[int], Mapping[str, float]]


def ours(learner: str) -> Advance:
    """Our PPO with this learner."""
    from trainables.algorithms.ppo import PPO

    trainer = PPO(
        {
            "env": "CartPole-v1",
            "seed": 1,
            "num_envs_per_worker": ENVS,
            "rollout_fragment_length": STEPS,
            "sgd_minibatch_size": MINIBATCH,
            "num_sgd_iter": EPOCHS,
            "lambda_": 0.8,
            "gamma": 0.98,
            "lr": 1e-3,
            "native_vector_env": True,
            "learner": learner,
        }
    )

    def advance(iterations: int) -> Mapping[str, float]:
        parts: dict[str, float] = {}
        for _ in range(iterations):
            for part, spent in trainer.train()["timers"].items():
                parts[part] = parts.get(part, 0.0) + spent / iterations
        return parts

    return advance


def stable_baselines3() -> Advance:
    """The same with Stable-Baselines3."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    model = PPO(
        "MlpPolicy",
        make_vec_env("CartPole-v1", n_envs=ENVS, seed=1),
        n_steps=STEPS,
        batch_size=MINIBATCH,
        n_epochs=EPOCHS,
        gae_lambda=0.8,
        gamma=0.98,
        learning_rate=1e-3,
        seed=1,
        device="cpu",
    )

    def advance(iterations: int) -> Mapping[str, float]:
        model.learn(iterations * ENVS * STEPS, reset_num_timesteps=False)
        return {}

    return advance


CONTESTANTS: Mapping[str, Callable[[], Advance]] = {
    "fused": lambda: ours("fused"),
    "torch": lambda: ours("torch"),
    "stable-baselines3": stable_baselines3,
}


def timed(name: str, iterations: int) -> dict[str, Any]:
    """The figures of one contestant."""
    torch.set_num_threads(1)
    advance = CONTESTANTS[name]()
    advance(WARM_UP)
    began = time.perf_counter(), time.process_time()
    parts = advance(iterations)
    return {
        "steps": iterations * ENVS * STEPS,
        "wall_s": time.perf_counter() - began[0],
        "cpu_s": time.process_time() - began[1],
        "parts_ms": parts,
    }


if __name__ == "__main__":
    print(json.dumps(timed(sys.argv[1], int(sys.argv[2]))))  # noqa: T201
