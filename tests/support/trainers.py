"""What the tests of trainers share: a small config, runs, and comparison to the last bit."""

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from trainables.algorithms.ppo import PPO
from trainables.core.results import VOLATILE_KEYS
from trainables.rollout.workers.worker import RolloutWorker
from trainables.trainable import TrialContext
from trainables.trainer.trainer import Trainer

SMALL: dict[str, Any] = {
    "env": "CartPole-v1",
    "num_envs_per_worker": 3,
    "rollout_fragment_length": 16,
    "train_batch_size": 96,
    "num_sgd_iter": 2,
    "lr": 1e-3,
    "lr_schedule": "linear",
    "schedule_timesteps": 5000,
    "observation_filter": "MeanStdFilter",
    "normalize_rewards": True,
    "evaluation_interval": 2,
    "evaluation_num_episodes": 3,
}

#: `SMALL` with nothing between the environment and what is stored of it.
PLAIN: dict[str, Any] = {
    **SMALL,
    "num_envs_per_worker": 2,
    "rollout_fragment_length": 12,
    "train_batch_size": 24,
    "observation_filter": "NoFilter",
    "normalize_rewards": False,
    "evaluation_interval": None,
}


def make(config: Mapping[str, Any] | None = None, seed: int = 7) -> PPO:
    """A small trainer; `config` overrides `SMALL`."""
    return PPO({**SMALL, **(config or {})}, TrialContext(seed=seed))


def only_worker(trainer: Trainer) -> RolloutWorker:
    """The worker of a trainer that has no others."""
    worker = trainer.workers.local_worker()
    assert worker is not None
    return worker


def run(trainer: Trainer, iterations: int) -> list[dict[str, Any]]:
    """The results of so many iterations without their volatile keys."""
    return [stable(trainer.train()) for _ in range(iterations)]


def stable(result: Mapping[str, Any]) -> dict[str, Any]:
    """A result without the keys that differ between equal runs."""
    return {key: value for key, value in result.items() if key not in VOLATILE_KEYS}


def final_state(trainer: Trainer) -> dict[str, Any]:
    """Everything that the trainer would save, but for the seconds it took."""
    state = copy.deepcopy(trainer.get_state())
    del state["counters"]["time_total_s"]
    return state


def differences(a: Any, b: Any, path: str = "") -> list[str]:
    """Paths at which two nested values differ in type, shape or one bit."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        if list(a) != list(b):
            return [f"{path}: keys {list(a)} and {list(b)}"]
        return [line for key in a for line in differences(a[key], b[key], f"{path}/{key}")]
    if isinstance(a, list | tuple) and type(a) is type(b) and len(a) == len(b):
        pairs = enumerate(zip(a, b, strict=True))
        return [line for i, (x, y) in pairs for line in differences(x, y, f"{path}/{i}")]
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        same = a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
        return [] if same else [f"{path}: arrays differ"]
    same = type(a) is type(b) and (a == b or (a != a and b != b))
    return [] if same else [f"{path}: {a!r} and {b!r}"]


def train_to_end(trainer: Trainer, iterations: int) -> tuple[list[dict[str, Any]], Any]:
    """Train and stop; return results and final state, both without settings."""
    results = [stable(trainer.train()) for _ in range(iterations)]
    for result in results:
        del result["config"]
    state = final_state(trainer)["trainable"]["data"]
    trainer.stop()
    return results, state


def check_restored_exactly(
    trainer: Trainer, again: Trainer, folder: Path, iterations: int = 2
) -> list[dict[str, Any]]:
    """`again` restores a checkpoint of `trainer` in `folder`, and trains on as that to the bit.

    Returns the results of these iterations, and stops `again`.
    """
    path = trainer.save(folder)
    expected = run(trainer, iterations)
    again.restore(path)
    assert differences(run(again, iterations), expected) == []
    assert differences(final_state(again), final_state(trainer)) == []
    again.stop()
    return expected


def check_learners_train_alike(make: Callable[[dict[str, Any]], Trainer], env: str) -> None:
    """Weights that numpy and torch learn in three iterations are equal but for rounding."""
    found = {}
    for learner in ("fused", "torch"):
        trainer = make({"env": env, "learner": learner})
        run(trainer, 3)
        found[learner] = trainer.get_weights()["default_policy"]
        trainer.stop()
    for name, value in found["torch"].items():
        np.testing.assert_allclose(found["fused"][name], value, atol=1e-4, err_msg=name)
