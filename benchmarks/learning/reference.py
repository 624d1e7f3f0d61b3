"""Make one run of a row's reference with one seed, by Stable-Baselines3, and print its figures.

    build/peers/sb3-simulators/bin/python -m benchmarks.learning.reference ROW SEED

Steps and evaluation are those of `benchmarks.learning.run`; the figures are printed as JSON.
"""

import argparse
import json
import statistics
import sys
import time
from importlib import import_module
from typing import Any

import gymnasium
import stable_baselines3
import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack, VecNormalize

from benchmarks.learning.rows import Row, find

#: Prefix of the ids of Atari games.
GAMES = "ALE/"
POINTS = 50
FRESH = 10_000


class Curve(BaseCallback):  # type: ignore[misc] # its package has no types here
    """Callback that records the mean return of the last 100 episodes, `POINTS` times in a run."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.every, self.points = steps // POINTS, []  # type: ignore[var-annotated]

    def _on_step(self) -> bool:
        if self.num_timesteps >= self.every * (len(self.points) + 1):
            latest = [episode["r"] for episode in self.model.ep_info_buffer]
            self.points.append((self.num_timesteps, statistics.fmean(latest) if latest else None))
        return True


def make_envs(row: Row, count: int) -> Any:
    """Return `count` environments of a row as one vector environment that records returns."""
    env = row.config["env"]
    if env.startswith(GAMES):
        gymnasium.register_envs(import_module("ale_py"))
        settings = {"frameskip": 1, **row.config["env_config"]}  # the wrapper skips frames
        return VecFrameStack(make_atari_env(env, count, env_kwargs=settings), 4)
    return DummyVecEnv([lambda: Monitor(gymnasium.make(env))] * count)


def learn(row: Row, seed: int) -> dict[str, Any]:
    """Train with the row's budget and evaluate; return the figures of the run."""
    reference = row.reference
    if reference is None:
        raise SystemExit(f"{row.name} has no reference")
    torch.set_num_threads(1)
    envs = make_envs(row, reference.num_envs)
    settings = dict(reference.settings)
    if reference.normalize:
        envs = VecNormalize(envs, gamma=settings["gamma"])
    if networks := settings.pop("policy_kwargs", None):
        activation = getattr(torch.nn, networks["activation_fn"])
        settings["policy_kwargs"] = {**networks, "activation_fn": activation}
    algorithm = getattr(stable_baselines3, reference.model)
    policy = "CnnPolicy" if row.config["env"].startswith(GAMES) else "MlpPolicy"
    model = algorithm(policy, envs, seed=seed, device="cpu", **settings)
    curve, started = Curve(row.steps), time.process_time()
    model.learn(row.steps, callback=curve)
    cpu_s = time.process_time() - started
    evaluation_envs = make_envs(row, 1)
    if reference.normalize:
        evaluation_envs = VecNormalize(evaluation_envs, training=False, norm_reward=False)
        evaluation_envs.obs_rms = envs.obs_rms
    evaluation_envs.seed(FRESH + seed)
    returns, _ = evaluate_policy(model, evaluation_envs, row.episodes, return_episode_rewards=True)
    return {
        "row": row.name,
        "seed": seed,
        "mean": statistics.fmean(returns),
        "deviation": statistics.stdev(returns),
        "steps": model.num_timesteps,
        "cpu_s": round(cpu_s, 1),
        "curve": curve.points,
    }


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning.reference")
    parser.add_argument("row")
    parser.add_argument("seed", type=int)
    options = parser.parse_args()
    sys.stdout.write(json.dumps(learn(find(options.row), options.seed)) + "\n")


if __name__ == "__main__":
    main()
