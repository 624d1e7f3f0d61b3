"""One run of a row's reference under one seed, by Stable-Baselines3; prints its figures as JSON.

    build/peers/sb3-simulators/bin/python -m benchmarks.learning.reference ROW SEED

It is trained and evaluated as `benchmarks.learning.run` does it: as many steps, then as many fresh
episodes greedily.
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

from benchmarks.learning.rows import Row, named

#: What the names of Atari games begin with.
GAMES = "ALE/"
POINTS = 50
FRESH = 10_000


class Curve(BaseCallback):  # type: ignore[misc] # there are no types of it where ours are checked
    """Keeps the mean return of the last 100 episodes, 50 times in a run."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.every, self.points = steps // POINTS, []  # type: ignore[var-annotated]

    def _on_step(self) -> bool:
        if self.num_timesteps >= self.every * (len(self.points) + 1):
            latest = [episode["r"] for episode in self.model.ep_info_buffer]
            self.points.append((self.num_timesteps, statistics.fmean(latest) if latest else None))
        return True


def made(row: Row, count: int) -> Any:
    """So many environments of a row whose episodes are noted."""
    env = row.config["env"]
    if env.startswith(GAMES):
        gymnasium.register_envs(import_module("ale_py"))
        how = {"frameskip": 1, **row.config["env_config"]}  # its wrapper skips frames
        return VecFrameStack(make_atari_env(env, count, env_kwargs=how), 4)
    return DummyVecEnv([lambda: Monitor(gymnasium.make(env))] * count)


def learn(row: Row, seed: int) -> dict[str, Any]:
    """Train to the row's budget and evaluate; the figures of the run."""
    reference = row.reference
    if reference is None:
        raise SystemExit(f"{row.name} has no reference")
    torch.set_num_threads(1)
    envs = made(row, reference.num_envs)
    settings = dict(reference.settings)
    if reference.normalize:
        envs = VecNormalize(envs, gamma=settings["gamma"])
    if networks := settings.pop("policy_kwargs", None):
        activation = getattr(torch.nn, networks["activation_fn"])
        settings["policy_kwargs"] = {**networks, "activation_fn": activation}
    kind = getattr(stable_baselines3, reference.model)
    policy = "CnnPolicy" if row.config["env"].startswith(GAMES) else "MlpPolicy"
    model = kind(policy, envs, seed=seed, device="cpu", **settings)
    curve, started = Curve(row.steps), time.process_time()
    model.learn(row.steps, callback=curve)
    trained = time.process_time() - started
    playing = made(row, 1)
    if reference.normalize:
        playing = VecNormalize(playing, training=False, norm_reward=False)
        playing.obs_rms = envs.obs_rms
    playing.seed(FRESH + seed)
    returns, _ = evaluate_policy(model, playing, row.episodes, return_episode_rewards=True)
    return {
        "row": row.name,
        "seed": seed,
        "mean": statistics.fmean(returns),
        "deviation": statistics.stdev(returns),
        "steps": model.num_timesteps,
        "cpu_s": round(trained, 1),
        "curve": curve.points,
    }


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning.reference")
    parser.add_argument("row")
    parser.add_argument("seed", type=int)
    asked = parser.parse_args()
    sys.stdout.write(json.dumps(learn(named(asked.row), asked.seed)) + "\n")


if __name__ == "__main__":
    main()
