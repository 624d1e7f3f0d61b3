"""Create tables of learning curves of our own trainers: ``tables/NAME.npz``.

    python -m benchmarks.search.trained ppo-cartpole dqn-cartpole sac-pendulum --jobs 8

Every setting is trained with every seed to the end, for hours of CPU. Each finished training is
appended to ``NAME.jsonl``, so a command that was interrupted, or has more settings or seeds,
continues. The table is written at the end. `benchmarks.search.game` describes its contents.
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
#: Number of settings of one Latin hypercube.
BLOCK = 48
#: Name → [kind, low, high] or [choice, values], as in a table.
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
    """The trainings of one table."""

    algorithm: str
    env: str
    space: RawSpace
    steps: int
    """Environment steps of one training, at least."""
    base: Mapping[str, Any]
    """Settings that are the same for all trainings."""


ON_POLICY = {"num_envs_per_worker": 8, "rollout_fragment_length": 64}
TASKS: Mapping[str, Task] = {
    "ppo-cartpole": Task("ppo", "CartPole-v1", PPO, 55_296, ON_POLICY),
    "ppo-pendulum": Task("ppo", "Pendulum-v1", PPO, 110_592, ON_POLICY),
    "dqn-cartpole": Task("dqn", "CartPole-v1", DQN, 27_648, {}),
    "sac-pendulum": Task("sac", "Pendulum-v1", SAC, 13_500, {}),
}


@dataclass(frozen=True)
class Size:
    """Numbers of trainings, points and steps of a table."""

    settings: int = 96
    seeds: int = 8
    points: int = 27
    steps: int | None = None
    """Environment steps of one training; None for those of the task."""
    episodes: int = 16
    """Number of greedy episodes after each point; at the end four times as many."""


@dataclass(frozen=True)
class Run:
    """One training of a table."""

    name: str
    setting: int
    seed: int
    points: int
    timesteps: int
    """Environment steps between two points."""
    episodes: int


def settings(task: Task, size: Size) -> list[dict[str, Any]]:
    """Return the settings of a table: Latin hypercubes over the space, of `BLOCK` settings each.

    A larger table contains the settings of a smaller one, which need not be trained again.
    """
    space = {name: Parameter.parse(list(raw)) for name, raw in task.space.items()}
    cubes = range(math.ceil(size.settings / BLOCK))
    positions = np.concatenate([qmc.LatinHypercube(len(space), rng=n).random(BLOCK) for n in cubes])
    return [
        {
            name: one.value_at(position)
            for (name, one), position in zip(space.items(), row, strict=True)
        }
        for row in positions[: size.settings]
    ]


def train(run: Run, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Train with the `chosen` settings; return the line with the curve and the final score."""
    import torch

    from sweep.core.plugins import find_trainable
    from sweep.spec.space import Space
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
        episodes = trainer.play(4 * run.episodes, seed=rng.integer(seed, "end"))
        final = _finite(np.mean([episode["episode_reward"] for episode in episodes]))
    except ArithmeticError:  # the training diverged; later values are unknown
        final = None
    finally:
        trainer.stop()
    curve = [*evals, *[None] * (run.points - len(evals))]
    return {**vars(run), "evals": curve, "final": final, "steps": steps}


def _finite(value: Any) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None


def runs(name: str, size: Size) -> Iterator[Run]:
    """Yield every training of a table, seed by seed."""
    timesteps = max(1, round((size.steps or TASKS[name].steps) / size.points))
    for seed in range(size.seeds):
        for setting in range(size.settings):
            yield Run(name, setting, seed, size.points, timesteps, size.episodes)


def train_all(name: str, size: Size, path: Path, jobs: int) -> None:
    """Make the trainings that the file does not contain, `jobs` at the same time."""
    done, rows = {_key(row) for row in log.read(path)}, settings(TASKS[name], size)
    left = [(run, rows[run.setting]) for run in runs(name, size) if run not in done]
    log.append_results(path, train, left, jobs)


def _key(row: Mapping[str, Any]) -> Run:
    return Run(*(row[field] for field in Run.__dataclass_fields__))


def write(name: str, size: Size, path: Path, out: Path) -> None:
    """Write the table of the trainings in the file `path` to `out`."""
    task, rows = TASKS[name], {_key(row): row for row in log.read(path)}
    shape = (size.settings, size.seeds)
    lines: list[list[dict[str, Any]]] = [[] for _ in range(size.settings)]
    for run in runs(name, size):
        lines[run.setting].append(rows[run])
    evals = np.array([[row["evals"] for row in line] for line in lines], np.float32)
    final = np.array([[row["final"] for row in line] for line in lines], np.float32)
    arrays: dict[str, Any] = {
        "space": json.dumps(task.space),
        "algorithm": task.algorithm,
        "env": task.env,
        "steps": np.array(max(row["steps"] for line in lines for row in line)),
        "evals": evals.reshape(*shape, size.points),
        "final": final.reshape(shape),
    }
    table = settings(task, size)
    for key, (kind, *_) in task.space.items():
        values = [one[key] for one in table]
        is_text = kind == "choice" and not all(isinstance(value, int | float) for value in values)
        column = (
            [json.dumps(value) for value in values] if is_text else np.array(values, np.float32)
        )
        arrays[f"hp/{key}"] = np.array(column)
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("wb") as file:
        np.savez_compressed(file, **{f"{name}/{key}": array for key, array in arrays.items()})


def main(words: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search.trained")
    parser.add_argument("names", nargs="+", choices=list(TASKS), metavar="NAME")
    parser.add_argument("--settings", type=int, default=Size.settings, help="rows")
    parser.add_argument("--seeds", type=int, default=Size.seeds)
    parser.add_argument("--points", type=int, default=Size.points)
    parser.add_argument(
        "--steps", type=int, help="environment steps of one training; by default the task's"
    )
    parser.add_argument(
        "--episodes", type=int, default=Size.episodes, help="episodes after each point"
    )
    parser.add_argument("--jobs", type=int, default=2, help="trainings at the same time")
    parser.add_argument("--out", type=Path, default=TABLES)
    options = parser.parse_args(words)
    size = Size(options.settings, options.seeds, options.points, options.steps, options.episodes)
    for name in options.names:
        path = options.out / f"{name}.jsonl"
        train_all(name, size, path, options.jobs)
        write(name, size, path, path.with_suffix(".npz"))


if __name__ == "__main__":
    main()
