"""Learning curves of many settings, trained once and kept as a table: ``curves.npz``.

    python -m benchmarks.search.curves [--jobs 2] [--out FILE]

Each of 200 settings of our PPO is trained on each environment under three seeds, 27 iterations
long, and the mean return of the newest 20 episodes is kept after every iteration. A search that is
played on the table takes milliseconds, and every searcher and scheduler sees the same noise. What
is trained stands in FILE.jsonl at once, so an interrupted run goes on where it was.

Arrays in the table, for S settings, R seeds and T iterations:

    <env>/value     (S, R, T) float32, the return; NaN before the first episode has ended
    <env>/steps     environment steps per iteration
    <env>/seconds   (S,) float32, median seconds of an iteration on the machine that made it
    settings        (S,) JSON
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.search.game import ITERATIONS
from benchmarks.search.tabulated import SPACE, TABLE
from sweep.driver.launch import draw_samples
from sweep.space import Space
from trainables.core import rng

SETTINGS, SEEDS = 200, 3
#: Environment → environment steps per iteration.
ENVIRONMENTS: Mapping[str, int] = {"CartPole-v1": 1024, "Acrobot-v1": 2048}
METRIC = "episode_reward_mean"


@dataclass(frozen=True)
class Run:
    """One setting on one environment under one seed."""

    env: str
    setting: int
    seed: int


def runs() -> Iterator[Run]:
    """Every run, seed by seed, so that a part of the table is of use."""
    for seed in range(SEEDS):
        for setting in range(SETTINGS):
            for env in ENVIRONMENTS:
                yield Run(env, setting, seed)


def settings() -> list[dict[str, Any]]:
    """The settings of the table, drawn from the game's space."""
    return [point.searched for point in draw_samples(Space.parse(_spec()), 0, SETTINGS)]


def _spec() -> dict[str, Any]:
    return {name: {kind: list(words)} for name, (kind, words) in SPACE.items()}


def train(run: Run) -> dict[str, Any]:
    """The curve of one run."""
    import torch

    from trainables.algorithms.ppo import PPO
    from trainables.trainable import TrialContext

    torch.set_num_threads(1)
    steps = ENVIRONMENTS[run.env]
    base = {
        "env": run.env,
        "num_envs_per_worker": 8,
        "rollout_fragment_length": steps // 8,
        "train_batch_size": steps,
        "metrics_smoothing_episodes": 20,
    }
    config = Space.nest(settings()[run.setting], base)
    name = f"{run.env}-{run.setting}-{run.seed}"
    seed = rng.integer(run.seed, "curves", run.setting)
    trainer = PPO(config, TrialContext(seed, name, name, Path("/nonexistent")))
    values, seconds = [], []
    try:
        for _ in range(ITERATIONS):
            began = time.perf_counter()
            result = trainer.train()
            seconds.append(time.perf_counter() - began)
            values.append(float(result.get(METRIC, float("nan"))))
    finally:
        trainer.stop()
    median = float(np.median(seconds))
    return {"env": run.env, "setting": run.setting, "seed": run.seed, "values": values, "s": median}


def train_all(log: Path, jobs: int) -> None:
    """Train what `log` does not have yet."""
    wanted = [run for run in runs() if _key(vars(run)) not in {_key(row) for row in read(log)}]
    done, began = 0, time.monotonic()
    with ProcessPoolExecutor(jobs) as pool, log.open("a", encoding="utf-8") as file:
        for future in as_completed([pool.submit(train, run) for run in wanted]):
            file.write(json.dumps(future.result()) + "\n")
            file.flush()
            done += 1
            left = (time.monotonic() - began) / done * (len(wanted) - done)
            sys.stderr.write(f"\r{done} of {len(wanted)} runs, {left / 60:.0f} min left ")


def read(log: Path) -> list[dict[str, Any]]:
    """The curves that are trained; a torn last line is left out."""
    if not log.exists():
        return []
    lines = log.read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line.endswith("}")]


def _key(row: Mapping[str, Any]) -> tuple[str, int, int]:
    return row["env"], row["setting"], row["seed"]


def write(log: Path, out: Path) -> None:
    """The table of the curves in `log`: as many seeds as every setting was trained under."""
    rows = {_key(row): row for row in read(log)}
    trained = [
        seed
        for seed in range(SEEDS)
        if all(_key(vars(r)) in rows for r in runs() if r.seed == seed)
    ]
    arrays: dict[str, Any] = {"settings": np.array([json.dumps(one) for one in settings()])}
    for env, steps in ENVIRONMENTS.items():
        found = [[rows[env, place, seed] for seed in trained] for place in range(SETTINGS)]
        values = [[row["values"] for row in of_setting] for of_setting in found]
        seconds = [np.median([row["s"] for row in of_setting]) for of_setting in found]
        arrays[f"{env}/value"] = np.array(values, np.float32)
        arrays[f"{env}/seconds"] = np.array(seconds, np.float32)
        arrays[f"{env}/steps"] = np.array(steps)
    with out.open("wb") as file:
        np.savez_compressed(file, **arrays)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=TABLE)
    asked = parser.parse_args()
    log = asked.out.with_suffix(".jsonl")
    train_all(log, asked.jobs)
    write(log, asked.out)


if __name__ == "__main__":
    main()
