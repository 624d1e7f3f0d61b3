"""The 16 fixed settings of PPO on CartPole that every tool trains, each for `STEPS` steps."""

import itertools
from typing import Any

STEPS = 51_200
"""Environment steps of each trial: 200 iterations of 8 environments x 32 steps."""

FIXED: dict[str, Any] = {"gamma": 0.98, "lambda": 0.8, "clip": 0.2, "epochs": 10, "hidden": 64}
SETTINGS: list[dict[str, float]] = [
    {"lr": lr, "minibatch": minibatch, "entropy": entropy}
    for lr, minibatch, entropy in itertools.product(
        (3e-4, 1e-3, 2e-3, 3e-3), (128, 256), (0.0, 0.001)
    )
]
