"""Wall seconds of the 16 settings by Optuna on SQLite and Stable-Baselines3 in 2 processes.

Each process takes waiting trials of one study, reports the mean return at the end and saves the
model. Unlike with sweep, there is no tracker, and no checkpoint during training.
"""

import fcntl
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.speed.measures import clock
from benchmarks.speed.measures.settings16 import FIXED, SETTINGS, STEPS


def take_trial(study: Any, folder: Path) -> Any:
    """Take a waiting trial and return it. Returns None if no trial waits.

    A lock is needed, because on SQLite Optuna may give one trial to two processes at once.
    """
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if any(one.state.name == "WAITING" for one in study.get_trials(deepcopy=False)):
            return study.ask()
    return None


def work(folder: Path) -> None:
    """Train waiting trials until there are none."""
    import numpy as np
    import optuna
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    torch.set_num_threads(1)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.load_study(study_name="sixteen", storage=f"sqlite:///{folder}/study.db")

    def train(trial: optuna.Trial) -> float:
        lr = trial.suggest_float("lr", 1e-5, 1e-1, log=True)
        minibatch = trial.suggest_categorical("minibatch", [128, 256])
        entropy = trial.suggest_float("entropy", 0.0, 0.1)
        model = PPO(
            "MlpPolicy",
            make_vec_env("CartPole-v1", n_envs=8, seed=1),
            n_steps=32,
            batch_size=minibatch,
            n_epochs=FIXED["epochs"],
            learning_rate=lr,
            gamma=FIXED["gamma"],
            gae_lambda=FIXED["lambda"],
            clip_range=FIXED["clip"],
            ent_coef=entropy,
            policy_kwargs={"net_arch": [FIXED["hidden"]] * 2},
            seed=1,
            device="cpu",
        )
        model.learn(STEPS)
        model.save(folder / f"{trial.number}.zip")
        return float(np.mean([info["r"] for info in model.ep_info_buffer or ()]))

    while (trial := take_trial(study, folder)) is not None:
        study.tell(trial, train(trial))


def main() -> None:
    """Enqueue the settings and wait for both processes."""
    if len(sys.argv) > 1:
        work(Path(sys.argv[1]))
        return
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        prepare = (
            "import json,sys,optuna;"
            "s=optuna.create_study(study_name='sixteen',storage=sys.argv[1],direction='maximize');"
            "[s.enqueue_trial(one) for one in json.loads(sys.argv[2])]"
        )
        subprocess.run(  # noqa: S603 this interpreter
            [sys.executable, "-c", prepare, f"sqlite:///{folder}/study.db", json.dumps(SETTINGS)],
            check=True,
            stderr=subprocess.DEVNULL,
        )
        workers = [
            subprocess.Popen([sys.executable, "-m", __spec__.name, folder])  # noqa: S603 itself
            for _ in range(2)
        ]
        codes = [one.wait() for one in workers]
        if any(codes):
            raise SystemExit(f"a worker failed; exit codes: {codes}")
        clock.print_figure(time.perf_counter() - began)


if __name__ == "__main__":
    main()
