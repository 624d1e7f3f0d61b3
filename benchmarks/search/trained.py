"""Create tables of learning curves of our own trainers: ``tables/NAME.npz``.

    python -m benchmarks.search.trained ppo-cartpole dqn-cartpole sac-pendulum --jobs 8
    python -m benchmarks.search.trained ppo-cartpole ppo-pendulum --lanes 64

Every setting is trained with every seed to the end, for hours of CPU. Each finished training is
appended to ``NAME.jsonl``, so a command that was interrupted, or has more settings or seeds,
continues. The table is written at the end. `benchmarks.search.game` describes its contents.

With ``--lanes`` trainings of PPO and DQN are lanes of compiled programs (``--pool stack``), which
is faster. The curve of a lane differs from that of a training alone as under another seed.
"""

import argparse
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from scipy.stats import qmc

from benchmarks.search import log
from benchmarks.search.game import Parameter

if TYPE_CHECKING:
    from trainables.trainer.trainer import Trainer

TABLES = Path(__file__).with_name("tables")
#: Number of settings of one Latin hypercube.
BLOCK = 48
#: Settings that trainings in one program must have in common.
SHAPES = ("sgd_minibatch_size", "replay_batch_size", "model.hidden")
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
    "dqn-acrobot": Task("dqn", "Acrobot-v1", DQN, 55_296, {}),
    "dqn-mountaincar": Task("dqn", "MountainCar-v0", DQN, 110_592, {}),
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


def start(run: Run, chosen: Mapping[str, Any], lanes: int | None = None) -> "Trainer":
    """Return the trainer of a training with the `chosen` settings."""
    from sweep.core.plugins import find_trainable
    from sweep.spec.space import Space
    from trainables.core import rng
    from trainables.trainable import TrialContext

    task = TASKS[run.name]
    base = {
        "env": task.env,
        "evaluation_interval": 1,
        "evaluation_num_episodes": run.episodes,
        "evaluation_config": {"explore": False},
        **task.base,
        "timesteps_per_iteration": run.timesteps,
        **({"lanes": lanes} if lanes else {}),
    }
    config = Space.nest(chosen, base)
    seed = rng.integer(run.seed, "trained", run.name, run.setting)
    name = f"{run.name}-{run.setting}-{run.seed}"
    context = TrialContext(seed, name, name, Path("/nonexistent"))
    return cast("Trainer", find_trainable(task.algorithm, ())(config, context))


@dataclass
class Curve:
    """The results of one training so far."""

    run: Run
    trainer: "Trainer"
    evals: list[float | None] = field(default_factory=list)
    """Mean returns of the greedy episodes after each point."""
    steps: int = 0
    """Environment steps of the training so far."""
    is_diverged: bool = False

    @property
    def is_finished(self) -> bool:
        """True if the training is at its last point, or has diverged."""
        return self.is_diverged or len(self.evals) == self.run.points

    def advance(self) -> None:
        """Train up to the next point; later values of a training that diverges are unknown."""
        try:
            result = self.trainer.train()
        except ArithmeticError:
            self.is_diverged = True
            return
        self.evals.append(_finite(result["evaluation"]["episode_reward_mean"]))
        self.steps = int(result["timesteps_total"])

    def finish(self) -> dict[str, Any]:
        """Play the last episodes, stop the trainer, and return the line of the training."""
        from trainables.core import rng

        try:
            final = None
            if not self.is_diverged:
                seed = rng.integer(self.trainer.seed, "end")
                episodes = self.trainer.play(4 * self.run.episodes, seed=seed)
                final = _finite(np.mean([episode["episode_reward"] for episode in episodes]))
        finally:
            self.trainer.stop()
        evals = [*self.evals, *[None] * (self.run.points - len(self.evals))]
        return {**vars(self.run), "evals": evals, "final": final, "steps": self.steps}


def train(run: Run, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Train with the `chosen` settings; return the line with the curve and the final score."""
    import torch

    torch.set_num_threads(1)
    curve = Curve(run, start(run, chosen))
    while not curve.is_finished:
        curve.advance()
    return curve.finish()


def train_in_lanes(
    left: Iterable[tuple[Run, Mapping[str, Any]]], lanes: int
) -> Iterator[dict[str, Any]]:
    """Yield the lines of trainings, `lanes` of which are trained at once, in one program.

    Trainings with equal minibatches and layers can share a program.
    """
    import torch

    torch.set_num_threads(1)
    by_shape: dict[str, list[tuple[Run, Mapping[str, Any]]]] = {}
    for run, chosen in left:
        shape = json.dumps([value for key, value in chosen.items() if key in SHAPES])
        by_shape.setdefault(shape, []).append((run, chosen))
    for group in by_shape.values():
        for begin in range(0, len(group), lanes):
            several = group[begin : begin + lanes]
            curves = [Curve(run, start(run, chosen, lanes)) for run, chosen in several]
            while training := [curve for curve in curves if not curve.is_finished]:
                type(training[0].trainer).train_together([curve.trainer for curve in training])
                for curve in training:
                    curve.advance()
            yield from [curve.finish() for curve in curves]


def _finite(value: Any) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None


def runs(name: str, size: Size) -> Iterator[Run]:
    """Yield every training of a table, seed by seed."""
    timesteps = max(1, round((size.steps or TASKS[name].steps) / size.points))
    for seed in range(size.seeds):
        for setting in range(size.settings):
            yield Run(name, setting, seed, size.points, timesteps, size.episodes)


def train_all(name: str, size: Size, path: Path, jobs: int, lanes: int | None) -> None:
    """Make the trainings that the file does not contain, in `jobs` processes or in `lanes`."""
    done, rows = {_key(row) for row in log.read(path)}, settings(TASKS[name], size)
    left = [(run, rows[run.setting]) for run in runs(name, size) if run not in done]
    if lanes:
        log.append(path, train_in_lanes(left, lanes), len(left))
    else:
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
    parser.add_argument("--lanes", type=int, help="trainings in one program; needs JAX")
    parser.add_argument("--out", type=Path, default=TABLES)
    options = parser.parse_args(words)
    size = Size(options.settings, options.seeds, options.points, options.steps, options.episodes)
    for name in options.names:
        path = options.out / f"{name}.jsonl"
        train_all(name, size, path, options.jobs, options.lanes)
        write(name, size, path, path.with_suffix(".npz"))


if __name__ == "__main__":
    main()
