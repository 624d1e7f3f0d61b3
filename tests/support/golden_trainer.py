"""Writes checkpoints of trainers that later programs must read and go on from to the bit.

    python -m tests.support.golden_trainer write|go-on ppo|dqn|impala|sac|td3

Each lies beside the results and weights of the iterations that came after it. Neither is ever
written anew for a format that was released. Both are computed under `SAME_BITS`, so they are the
same to the bit on every processor that has AVX2.
"""

import json
import os
import shutil
import subprocess
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
#: Variables that make OpenBLAS, MKL and torch take the same routines on every processor.
SAME_BITS = {
    "OPENBLAS_CORETYPE": "Haswell",
    "MKL_CBWR": "COMPATIBLE",
    "ATEN_CPU_CAPABILITY": "avx2",
}
#: Settings that the trainer would otherwise choose.
_CHOICES: dict[str, Any] = {"native_vector_env": False, "normalize_actions": False}
_CARTPOLE: dict[str, Any] = {
    **_CHOICES,
    "learner": "torch",
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
    **_CHOICES,
    "learner": "fused",
    "env": "Pendulum-v1",
    "seed": 11,
    "rollout_fragment_length": 4,
    "timesteps_per_iteration": 64,
    "learning_starts": 32,
    "replay_batch_size": 16,
    "buffer_size": 150,
    "model": {"hidden": [6, 4]},
}
#: Algorithm and settings, by name.
KINDS: dict[str, tuple[type[Trainer], dict[str, Any]]] = {
    "ppo": (PPO, CONFIG),
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


def folder_of(name: str) -> Path:
    """Where the checkpoint lies, and ``after.json`` beside it."""
    return FOLDER if name == "ppo" else FOLDER / name


def written(name: str) -> dict[str, Any]:
    """What became of the checkpoint where it was written."""
    found: dict[str, Any] = json.loads((folder_of(name) / "after.json").read_text())
    return found


def gone_on(name: str) -> dict[str, Any]:
    """What today's program makes of the checkpoint, in a process under `SAME_BITS`."""
    words = [sys.executable, "-m", "tests.support.golden_trainer", "go-on", name]
    ran = subprocess.run(
        words, env={**os.environ, **SAME_BITS}, stdout=subprocess.PIPE, check=True, text=True
    )
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


def go_on(name: str) -> None:
    """Restore the checkpoint, train on and print what became of it, as JSON on the last line."""
    cls, config = KINDS[name]
    (checkpoint,) = folder_of(name).glob("*.swck")
    trainer = cls(config)
    trainer.restore(str(checkpoint))
    found = trained_on(trainer)
    with tempfile.TemporaryDirectory() as made:
        versions = file.verify(Path(trainer.save(made)))["versions"]
    trainer.stop()
    sys.stdout.write(json.dumps({**found, "versions": versions}, default=float) + "\n")


def write(name: str) -> None:
    """Train, save, train on, and keep both."""
    cls, config = KINDS[name]
    folder, trainer = folder_of(name), cls(config)
    with tempfile.TemporaryDirectory() as made:
        for _ in range(BEFORE):
            trainer.train()
        path = Path(trainer.save(made))
        after = trained_on(trainer)
        trainer.stop()
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, folder / path.name)
        after["versions"] = file.verify(path)["versions"]
        text = json.dumps(after, indent=1, default=float) + "\n"
        (folder / "after.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1] == "go-on":
        go_on(sys.argv[2])
    elif not SAME_BITS.items() <= os.environ.items():
        sys.exit(f"written on one kind of machine alone: set {SAME_BITS}")
    else:
        write(sys.argv[2])
