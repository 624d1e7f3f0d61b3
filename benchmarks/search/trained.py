"""Tables of our own trainers' learning curves, with our own keys: ``tables/NAME.npz``.

    python -m benchmarks.search.trained ppo-cartpole dqn-cartpole sac-pendulum --jobs 8

Every setting is trained under every seed to the end, for hours of CPU. Each finished training
stands in ``NAME.jsonl`` at once, so a command that was stopped, or has more settings or seeds,
continues there; the table is written when all are there. `benchmarks.search.game` says what it
holds.
"""

import argparse
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import qmc

from benchmarks.search import log
from benchmarks.search.game import Parameter

TABLES = Path(__file__).with_name("tables")
#: Settings of one Latin hypercube.
BLOCK = 48
#: Name → [kind, low, high] or [choice, values], as a table writes it.
RawSpace = Mapping[str, list[Any]]
PPO: RawSpace = {
    "lr": ["log", 1e-5, 3e-2],
    "gamma": ["choice", [0.9, 0.95, 0.98, 0.99, 0.999]],
    "lambda_": ["uniform", 0.7, 1.0],
    "clip_param": ["uniform", 0.05, 0.5],
    "entropy_coeff": ["log", 1e-5, 3e-2],
    "num_sgd_iter": ["logint", 1, 16],
    "sgd_minibatch_size": ["choice", [64, 128, 256, 512]],
    "model.hidden": ["choice", [[32, 32], [64, 64], [128, 128]]],
    "model.activation": ["choice", ["tanh", "relu"]],
    "observation_filter": ["choice", ["NoFilter", "MeanStdFilter"]],
}
DQN: RawSpace = {
    "lr": ["log", 1e-5, 1e-2],
    "gamma": ["choice", [0.9, 0.95, 0.98, 0.99, 0.999]],
    "tau": ["log", 5e-4, 1e-1],
    "updates_per_step": ["logint", 4, 64],
    "replay_batch_size": ["choice", [32, 64, 128, 256]],
    "n_step": ["int", 1, 8],
    "buffer_size": ["logint", 5000, 50000],
    "exploration_config.epsilon_timesteps": ["logint", 1000, 50000],
    "exploration_config.final_epsilon": ["log", 0.005, 0.3],
    "model.hidden": ["choice", [[32, 32], [64, 64], [128, 128]]],
}
SAC: RawSpace = {
    "lr": ["log", 3e-5, 3e-2],
    "gamma": ["choice", [0.9, 0.95, 0.98, 0.99, 0.999]],
    "tau": ["log", 5e-4, 1e-1],
    "updates_per_step": ["logint", 1, 2],
    "replay_batch_size": ["choice", [32, 64, 128, 256]],
    "learning_starts": ["logint", 100, 2000],
    "initial_alpha": ["log", 0.05, 5.0],
    "target_entropy": ["uniform", -3.0, 0.5],
    "model.hidden": ["choice", [[32, 32], [64, 64], [128, 128]]],
    "model.activation": ["choice", ["tanh", "relu"]],
}


@dataclass(frozen=True)
class Task:
    """The training behind one table."""

    algorithm: str
    env: str
    space: RawSpace
    steps: int
    """Environment steps of one training at least."""
    base: Mapping[str, Any]


ON_POLICY = {"num_envs_per_worker": 8, "rollout_fragment_length": 64}
TASKS: Mapping[str, Task] = {
    "ppo-cartpole": Task("ppo", "CartPole-v1", PPO, 55_296, ON_POLICY),
    "ppo-pendulum": Task("ppo", "Pendulum-v1", PPO, 110_592, ON_POLICY),
    "dqn-cartpole": Task("dqn", "CartPole-v1", DQN, 27_648, {}),
    "sac-pendulum": Task("sac", "Pendulum-v1", SAC, 13_500, {}),
}


@dataclass(frozen=True)
class Size:
    """The extent of the training behind a table."""

    settings: int = 96
    seeds: int = 8
    points: int = 27
    steps: int | None = None
    """Environment steps of one training; None: those of the task."""
    episodes: int = 16
    """Greedy episodes after each point; four times as many judge the end."""


@dataclass(frozen=True)
class Run:
    """One training."""

    name: str
    setting: int
    seed: int
    points: int
    timesteps: int
    """Environment steps between two points."""
    episodes: int


def settings(task: Task, size: Size) -> list[dict[str, Any]]:
    """The settings of a table: Latin hypercubes over the space, one for every 48 settings.

    So a table of more settings also has those of a smaller one, which need no training again.
    """
    space = {name: Parameter.parse(list(raw)) for name, raw in task.space.items()}
    cubes = range(math.ceil(size.settings / BLOCK))
    places = np.concatenate([qmc.LatinHypercube(len(space), rng=n).random(BLOCK) for n in cubes])
    return [
        {name: one.at(place) for (name, one), place in zip(space.items(), row, strict=True)}
        for row in places[: size.settings]
    ]


def train(run: Run, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The curve of one training of the `chosen` settings, and its end."""
    import torch

    from sweep.plugins import find_trainable
    from sweep.space import Space
    from trainables.core import rng
    from trainables.trainable import TrialContext

    torch.set_num_threads(1)
    task = TASKS[run.name]
    base = {
        "env": task.env,
        "evaluation_interval": 1,
        "evaluation_num_episodes": run.episodes,
        "evaluation_config": {"explore": False},
        **task.base,
        "timesteps_per_iteration": run.timesteps,
    }
    config = Space.nest(chosen, base)
    seed = rng.integer(run.seed, "trained", run.name, run.setting)
    name = f"{run.name}-{run.setting}-{run.seed}"
    context = TrialContext(seed, name, name, Path("/nonexistent"))
    trainer = find_trainable(task.algorithm, ())(config, context)
    evals, steps = [], 0
    try:
        for _ in range(run.points):
            result = trainer.train()
            evals.append(_finite(result["evaluation"]["episode_reward_mean"]))
            steps = int(result["timesteps_total"])
        played = trainer.play(4 * run.episodes, seed=rng.integer(seed, "end"))
        final = _finite(np.mean([episode["episode_reward"] for episode in played]))
    except ArithmeticError:  # it diverged: the rest is unknown
        final = None
    finally:
        trainer.stop()
    whole = [*evals, *[None] * (run.points - len(evals))]
    return {**vars(run), "evals": whole, "final": final, "steps": steps}


def _finite(value: Any) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None


def runs(name: str, size: Size) -> Iterator[Run]:
    """Every training of a table, seed by seed."""
    timesteps = max(1, round((size.steps or TASKS[name].steps) / size.points))
    for seed in range(size.seeds):
        for setting in range(size.settings):
            yield Run(name, setting, seed, size.points, timesteps, size.episodes)


def train_all(name: str, size: Size, path: Path, jobs: int) -> None:
    """Train what the file of trainings does not have yet."""
    done, its = {_key(row) for row in log.read(path)}, settings(TASKS[name], size)
    left = [(run, its[run.setting]) for run in runs(name, size) if run not in done]
    log.work(path, train, left, jobs)


def _key(row: Mapping[str, Any]) -> Run:
    return Run(*(row[field] for field in Run.__dataclass_fields__))


def write(name: str, size: Size, path: Path, out: Path) -> None:
    """The table of the trainings in a file."""
    task, rows = TASKS[name], {_key(row): row for row in log.read(path)}
    shape = (size.settings, size.seeds)
    found: list[list[dict[str, Any]]] = [[] for _ in range(size.settings)]
    for run in runs(name, size):
        found[run.setting].append(rows[run])
    evals = np.array([[row["evals"] for row in line] for line in found], np.float32)
    final = np.array([[row["final"] for row in line] for line in found], np.float32)
    arrays: dict[str, Any] = {
        "space": json.dumps(task.space),
        "algorithm": task.algorithm,
        "env": task.env,
        "steps": np.array(max(row["steps"] for line in found for row in line)),
        "evals": evals.reshape(*shape, size.points),
        "final": final.reshape(shape),
    }
    its = settings(task, size)
    for key, (kind, *_) in task.space.items():
        values = [one[key] for one in its]
        text = kind == "choice" and not all(isinstance(value, int | float) for value in values)
        column = [json.dumps(value) for value in values] if text else np.array(values, np.float32)
        arrays[f"hp/{key}"] = np.array(column)
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("wb") as file:
        np.savez_compressed(file, **{f"{name}/{key}": array for key, array in arrays.items()})


def main(words: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search.trained")
    parser.add_argument("names", nargs="+", choices=list(TASKS), metavar="NAME")
    parser.add_argument("--settings", type=int, default=Size.settings)
    parser.add_argument("--seeds", type=int, default=Size.seeds)
    parser.add_argument("--points", type=int, default=Size.points)
    parser.add_argument("--steps", type=int, help="of one training; as a rule, the task's")
    parser.add_argument("--episodes", type=int, default=Size.episodes, help="after each point")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=TABLES)
    asked = parser.parse_args(words)
    size = Size(asked.settings, asked.seeds, asked.points, asked.steps, asked.episodes)
    for name in asked.names:
        path = asked.out / f"{name}.jsonl"
        train_all(name, size, path, asked.jobs)
        write(name, size, path, path.with_suffix(".npz"))


if __name__ == "__main__":
    main()
