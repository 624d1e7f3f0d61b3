"""The sweeps that are killed: one of each kind of search, with trainables that log each step.

Each step is a line ``PID TRIAL ITERATION`` in the file that ``CHAOS_STEPS`` names, written before
the step begins. The lines show the progress of a sweep, the process of each trial, and repeated
steps. All kinds decide in batches, so that decisions are the same with and without kills.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tests.support.quadratic
from trainables.trainable import TrialContext

STEPS = "CHAOS_STEPS"
"""Environment variable with the path of the log."""
JOBS = 2
#: Spec with known curves and slow steps, so that kills occur inside slices.
_QUADRATIC = """
name: demo
trainable: benchmarks.chaos.workload:Quadratic
metric: loss
mode: min
config: {{noise: 0.1, step_s: 0.01}}
space: {{lr: {{loguniform: [0.001, 0.9]}}, x0: {{uniform: [4.0, 6.0]}}}}
stop: {{training_iteration: 9}}
deterministic: {{batch: 4}}
limits: {{max_failures: 100}}
trackers: [{trackers}]
seed: 7
trials: {trials}
{search}
"""
#: Name → keys of the search, number of trials, trackers.
_SEARCHES = {
    "asha": ("scheduler: asha", 9, "optuna"),
    "asha that stops": ("scheduler: {name: asha, type: stopping}", 9, ""),
    "hyperband": ("searcher: random\nscheduler: hyperband", 9, ""),
    "bohb": ("searcher: bohb\nscheduler: bohb", 12, ""),
    "median": ("scheduler: {name: median, n_startup_trials: 2}", 8, ""),
    "cmaes": ("searcher: {name: cmaes, population_size: 4}", 8, ""),
    "pbt": ("searcher: random\nscheduler: {name: pbt, perturbation_interval: 3}", 4, ""),
    "pb2": ("searcher: random\nscheduler: {name: pb2, perturbation_interval: 3}", 4, ""),
    "seeds": ("scheduler: asha\nseeds: {1: 2, 3: 3}", 9, ""),
    "mlflow": ("scheduler: asha", 9, "mlflow, optuna"),
}
SEARCHES = {
    name: _QUADRATIC.format(search=search, trials=trials, trackers=trackers)
    for name, (search, trials, trackers) in _SEARCHES.items()
}
#: The same sweeps with four times as many trials and no trackers.
LONG = {
    name: _QUADRATIC.format(search=search, trials=4 * trials, trackers="")
    for name, (search, trials, _) in _SEARCHES.items()
}
_ROLLOUTS = """
name: demo
trainable: benchmarks.chaos.rollouts:Rollouts
metric: episode_reward_mean
mode: max
config:
  env: CartPole-v1
  num_workers: 2
  num_envs_per_worker: 2
  rollout_fragment_length: 16
  train_batch_size: 64
  num_sgd_iter: 2
  sgd_minibatch_size: 32
  evaluation_interval: 4
  evaluation_num_episodes: 2
  recreate_failed_workers: {recreate}
space: {{lr: {{loguniform: [1e-4, 1e-2]}}}}
stop: {{training_iteration: 12}}
deterministic: {{batch: 2}}
limits: {{max_failures: 100}}
trackers: []
seed: 7
trials: 2
"""
#: Trainers with rollout workers; a dead worker is replaced, or the slice is lost.
TRAINERS = {
    "ppo": _ROLLOUTS.format(recreate="true"),
    "ppo without replacement": _ROLLOUTS.format(recreate="false"),
}
#: A small sweep whose trials can be lanes of one program.
LANES = """
name: demo
trainable: ppo
metric: episode_reward_mean
mode: max
config:
  env: CartPole-v1
  num_envs_per_worker: 4
  rollout_fragment_length: 64
  timesteps_per_iteration: 2048
  sgd_minibatch_size: 64
  log_sys_usage: false
space:
  lr: {loguniform: [1e-4, 1e-1]}
  num_sgd_iter: {randint: [1, 4]}
  model.hidden: {choice: [[5], [8]]}
  model.activation: {choice: [tanh, relu]}
  observation_filter: {choice: [NoFilter, MeanStdFilter]}
stop: {training_iteration: 27}
searcher: {name: random, prior: none}
scheduler: {name: asha, grace_period: 3, reduction_factor: 3}
checkpoint: {every: 2}
deterministic: {batch: 4}
limits: {max_failures: 100}
trackers: []
seed: 7
trials: 18
"""
KINDS = {**SEARCHES, **TRAINERS}


@dataclass(frozen=True)
class Step:
    """One step of a trial."""

    pid: int
    """Process of the step."""
    trial: str
    """Name of the replica's folder: ``3``, ``3.1``."""
    iteration: int


def read_steps(path: Path) -> list[Step]:
    """Return all steps so far in order; a truncated line is skipped."""
    return list(_parse(path.read_text())) if path.exists() else []


def _parse(text: str) -> Iterator[Step]:
    for line in text.splitlines(keepends=True):
        if line.endswith("\n"):
            pid, trial, iteration = line.split()
            yield Step(int(pid), trial, int(iteration))


class Quadratic(tests.support.quadratic.Quadratic):
    """Gradient descent that logs its steps."""

    def step(self) -> dict[str, Any]:
        """Log the step, then make it."""
        log_step(self.context, self.iteration + 1)
        return super().step()


def log_step(context: TrialContext, iteration: int) -> None:
    """Append the line of a step that is about to begin."""
    with Path(os.environ[STEPS]).open("a") as file:  # one short write, so that lines do not mix
        file.write(f"{os.getpid()} {context.trial_id} {iteration}\n")
