"""Writes checkpoints of trainers that later programs must read and go on from to the bit.

    python -m tests.support.golden_trainer [dqn|impala|sac|td3]

Each lies beside the results and weights of the iterations that came after it, on the machine that
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
from trainables.algorithms.impala import IMPALA
from trainables.algorithms.ppo import PPO
from trainables.algorithms.sac import SAC
from trainables.algorithms.td3 import TD3
from trainables.checkpoint import file
from trainables.trainer.trainer import Trainer

FOLDER = Path(__file__).parents[1] / "golden" / "trainer"
_CARTPOLE: dict[str, Any] = {
    "env": "CartPole-v1",
    "seed": 11,
    "num_envs_per_worker": 2,
    "rollout_fragment_length": 32,
    "model": {"hidden": [4]},
    "observation_filter": "MeanStdFilter",
    "normalize_rewards": True,
}
CONFIG: dict[str, Any] = {**_CARTPOLE, "sgd_minibatch_size": 32, "num_sgd_iter": 2}
_LEARNING: dict[str, Any] = {
    "env": "Pendulum-v1",
    "seed": 11,
    "rollout_fragment_length": 4,
    "timesteps_per_iteration": 64,
    "learning_starts": 32,
    "replay_batch_size": 16,
    "buffer_size": 150,
    "model": {"hidden": [6, 4]},
}
#: Of other algorithms, by the name of their folder.
OTHERS: dict[str, tuple[type[Trainer], dict[str, Any]]] = {
    "dqn": (
        DQN,
        {
            **_CARTPOLE,
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
        },
    ),
    "impala": (
        IMPALA,
        {**_CARTPOLE, "rho_bar": 2.0, "pg_rho_bar": None, "lambda_": 0.95, "entropy_coeff": 0.01},
    ),
    "sac": (SAC, {**_LEARNING, "exploration_config": {"random_timesteps": 32}}),
    "td3": (
        TD3,
        {
            **_LEARNING,
            "exploration_config": {"type": "OrnsteinUhlenbeckNoise", "random_timesteps": 32},
        },
    ),
}
#: Iterations before the checkpoint, and after it.
BEFORE, AFTER = 3, 4
#: Numbers of a result that depend on the curve alone.
SHOWN = ("timesteps_total", "episodes_total", "episode_reward_mean", "training_iteration")


def trained_on(trainer: Trainer) -> dict[str, Any]:
    """What becomes of `AFTER` further iterations: their results, and the weights at the end."""
    results = [trainer.train() for _ in range(AFTER)]
    weights = trainer.get_weights()["default_policy"]
    return {
        "results": [{key: result.get(key) for key in SHOWN} for result in results],
        "weights": {name: np.asarray(value).ravel().tolist() for name, value in weights.items()},
    }


def write(folder: Path, trainer: Trainer) -> None:
    """Train, save, train on, and keep both."""
    with tempfile.TemporaryDirectory() as made:
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
    for name in sys.argv[1:]:
        cls, config = OTHERS[name]
        write(FOLDER / name, cls(config))
    if not sys.argv[1:]:
        write(FOLDER, PPO(CONFIG))
