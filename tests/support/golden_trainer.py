"""Writes the checkpoint of a trainer that later programs must read and go on from to the bit.

    python -m tests.support.golden_trainer ppo

It lies beside the results and weights of the iterations that came after it, on the machine that
wrote it. Neither is ever written anew for a format that was released.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from trainables.algorithms.dqn import DQN
from trainables.algorithms.ppo import PPO
from trainables.checkpoint import file
from trainables.trainer.trainer import Trainer

FOLDERS = {
    name: Path(__file__).parents[1] / "golden" / folder
    for name, folder in (("ppo", "trainer"), ("dqn", "trainer-dqn"))
}
SHARED: dict[str, Any] = {
    "env": "CartPole-v1",
    "seed": 11,
    "num_envs_per_worker": 2,
    "rollout_fragment_length": 32,
    "model": {"hidden": [4]},
    "observation_filter": "MeanStdFilter",
    "normalize_rewards": True,
}
PPO_S: dict[str, Any] = {"sgd_minibatch_size": 32, "num_sgd_iter": 2}
DQN_S: dict[str, Any] = {
    "lr": 2.3e-3,
    "replay_batch_size": 64,
    "buffer_size": 200,
    "learning_starts": 64,
    "updates_per_step": 4,
    "dueling": True,
    "noisy": True,
    "n_step": 3,
    "prioritized_replay": True,
    "num_atoms": 5,
    "v_max": 50,
    "tau": 0.05,
}
#: Iterations before the checkpoint, and after it.
BEFORE, AFTER = 3, 4
#: Numbers of a result that depend on the curve alone.
SHOWN = ("timesteps_total", "episodes_total", "episode_reward_mean", "training_iteration")


def make(name: str) -> Trainer:
    """The trainer whose checkpoint it is."""
    return PPO({**SHARED, **PPO_S}) if name == "ppo" else DQN({**SHARED, **DQN_S})


def trained_on(trainer: Trainer) -> dict[str, Any]:
    """What becomes of `AFTER` further iterations: their results, and the weights at the end."""
    results = [trainer.train() for _ in range(AFTER)]
    weights = trainer.get_weights()["default_policy"]
    return {
        "results": [{key: result.get(key) for key in SHOWN} for result in results],
        "weights": {name: np.asarray(value).ravel().tolist() for name, value in weights.items()},
    }


def write(name: str) -> None:
    """Train, save, train on, and keep both."""
    folder = FOLDERS[name]
    with tempfile.TemporaryDirectory() as made:
        trainer = make(name)
        for _ in range(BEFORE):
            trainer.train()
        path = Path(trainer.save(made))
        after = trained_on(trainer)
        trainer.stop()
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, folder / path.name)
        header = file.verify(path)
        after["machine"] = {"cpu": header["cpu"], "versions": header["versions"]}
        text = json.dumps(after, indent=1, default=float) + "\n"
        (folder / "after.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(sys.argv[1])
