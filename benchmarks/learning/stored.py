"""Learn from files that our policies wrote, and compare with the best of these policies.

    python -m benchmarks.learning.stored [--only ROW …] [--seeds N] [--jobs 2]

For each seed a few policies, most of them poor, are trained and write whole episodes while they
sample. Then each row learns from these files, without an environment, and plays 100 new episodes
greedily. The files are in ``build/stored``. Each run is appended to ``stored.jsonl`` when it ends,
and repeated only if the settings of its row have changed. So the program can be stopped and started
at any time.
"""

import argparse
import hashlib
import json
import statistics
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.learning import finished
from benchmarks.learning.rows import EPISODES, PPO_CARTPOLE, SMALL_NETWORKS
from benchmarks.learning.run import FRESH

if TYPE_CHECKING:
    from trainables.trainer.trainer import Trainer

RESULTS = Path(__file__).with_name("stored.jsonl")
FILES = Path("build") / "stored"
SEEDS = 5
"""Number of seeds of each row."""


@dataclass(frozen=True)
class Writers:
    """Policies that write the files of rows.

    A change of names or values here changes `version`, so that all runs are repeated.
    """

    title: str
    """Environment and quality of the policies, for the table."""
    config: Mapping[str, Any]
    """Settings of PPO, which trains the policies."""
    rounds: tuple[int, ...]
    """Training iterations of each policy."""
    steps: int
    """Number of environment steps that each policy writes, at least."""


@dataclass(frozen=True)
class StoredRow:
    """One line of the table.

    A change of names or values here changes `version`, so that the runs are repeated.
    """

    name: str
    writers: str
    """Key of `WRITERS`."""
    by: str
    """Name of the algorithm in the table."""
    algorithm: str
    """Module and class under `trainables.algorithms`."""
    rounds: int
    """Training iterations."""
    share: float
    """Goal as a share of the return of the best policy that wrote."""
    config: Mapping[str, Any]


#: Settings of PPO as in the table of learning, but with a constant learning rate.
CARTPOLE = {key: one for key, one in PPO_CARTPOLE.items() if not key.endswith("_schedule")}
PENDULUM = {
    "env": "Pendulum-v1",
    "num_envs_per_worker": 8,
    "rollout_fragment_length": 200,
    "lr": 1e-3,
    "gamma": 0.9,
    "num_sgd_iter": 10,
    "sgd_minibatch_size": 64,
}
WRITERS: Mapping[str, Writers] = {
    "cartpole": Writers(
        "CartPole-v1, three poor policies", {"env": "CartPole-v1", **CARTPOLE}, (4, 8, 12), 5000
    ),
    "cartpole-trained": Writers(
        "CartPole-v1, a trained policy", {"env": "CartPole-v1", **CARTPOLE}, (120,), 5000
    ),
    "pendulum": Writers("Pendulum-v1, three poor policies", PENDULUM, (5, 10, 15), 10_000),
}
#: Settings for 250 updates per round, 5,000 in all, from all written rows.
UPDATES = {"train_batch_size": 1000, "updates_per_step": 250, "lr": 1e-3}
ON_CARTPOLE = {"env": "CartPole-v1", **UPDATES, "learning_starts": 15_000}
ROWS: tuple[StoredRow, ...] = (
    StoredRow("cartpole-bc", "cartpole-trained", "bc", "bc:BC", 20, 0.9, {"env": "CartPole-v1"}),
    StoredRow("cartpole-mixed-bc", "cartpole", "bc", "bc:BC", 60, 1, {"env": "CartPole-v1"}),
    StoredRow(
        "cartpole-iql",
        "cartpole",
        "iql",
        "iql:IQL",
        22,
        1,
        {**ON_CARTPOLE, "expectile": 0.8, "beta": 10.0, **SMALL_NETWORKS},
    ),
    StoredRow("cartpole-dqn", "cartpole", "dqn", "dqn:DQN", 22, 1, ON_CARTPOLE),
    StoredRow(
        "cartpole-cql",
        "cartpole",
        "dqn, `cql_alpha: 0.5`",
        "dqn:DQN",
        22,
        1,
        {**ON_CARTPOLE, "cql_alpha": 0.5},
    ),
    StoredRow("pendulum-mixed-bc", "pendulum", "bc", "bc:BC", 60, 1, {"env": "Pendulum-v1"}),
    StoredRow(
        "pendulum-iql",
        "pendulum",
        "iql",
        "iql:IQL",
        22,
        1,
        {
            "env": "Pendulum-v1",
            **UPDATES,
            "learning_starts": 30_000,
            "gamma": 0.95,
            "expectile": 0.9,
            **SMALL_NETWORKS,
        },
    ),
)


def trainer_of(algorithm: str) -> "type[Trainer]":
    """Return the class of ``module:Class`` under `trainables.algorithms`."""
    module, _, name = algorithm.partition(":")
    found: type[Trainer] = getattr(import_module(f"trainables.algorithms.{module}"), name)
    return found


def greedy_return(trainer: "Trainer", seed: int) -> float:
    """Return the mean return of `EPISODES` new episodes, played greedily."""
    return statistics.fmean(one["episode_reward"] for one in trainer.play(EPISODES, seed=seed))


def write(name: str, seed: int) -> dict[str, Any]:
    """Train the policies of a seed and write their files, unless they exist.

    Returns:
        The mean returns of the policies, while they ``sampled`` and when they acted ``greedy``.
    """
    folder = FILES / name / str(seed)
    file = folder / "returns.json"
    if file.exists():
        known: dict[str, Any] = json.loads(file.read_text("utf-8"))
        return known
    writers, ppo = WRITERS[name], trainer_of("ppo:PPO")
    to_write = {
        "batch_mode": "complete_episodes",
        "train_batch_size": writers.steps,
        "output": "logdir",
    }
    returns: dict[str, list[float]] = {"sampled": [], "greedy": []}
    for i, rounds in enumerate(writers.rounds):
        given = {**writers.config, "seed": 100 * seed + i, "env_level": "C"}
        policy = ppo(given)
        for _ in range(rounds):
            policy.train()
        returns["greedy"].append(greedy_return(policy, FRESH + seed))
        saved = policy.save(folder / str(i) / "checkpoint")
        policy.stop()
        # With this learning rate the policy does not change.
        writer = ppo({**given, **to_write, "output": str(folder / str(i) / "output"), "lr": 1e-12})
        writer.restore(saved)
        returns["sampled"].append(writer.train()["episode_reward_mean"])
        writer.stop()
    file.write_text(json.dumps(returns), "utf-8")
    return returns


def learn(row: StoredRow, seed: int) -> dict[str, Any]:
    """Learn from the files and play; return the figures of the run."""
    written = write(row.writers, seed)
    given = f"{FILES / row.writers / str(seed)}/*/output/*.json"
    trainer = trainer_of(row.algorithm)({**row.config, "input": given, "seed": seed})
    for _ in range(row.rounds):
        trainer.train()
    mean = greedy_return(trainer, FRESH + seed)
    trainer.stop()
    return {"row": row.name, "seed": seed, "mean": mean, **written, "version": version(row)}


def version(row: StoredRow) -> str:
    """Return a digest of the entries of this module on which the row's runs depend."""
    text = json.dumps([asdict(row), asdict(WRITERS[row.writers])], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def missing_runs(rows: list[StoredRow], seeds: int) -> list[tuple[StoredRow, int]]:
    """Return the missing runs, seed by seed, as (row, seed)."""
    made = finished.by_version(RESULTS)
    due = [(row, seed) for seed in range(seeds) for row in rows]
    return [(row, seed) for row, seed in due if (row.name, version(row), seed) not in made]


def make(row: StoredRow, seed: int) -> dict[str, Any]:
    """Make one run in a process of its own; return its figures."""
    command = [sys.executable, "-m", "benchmarks.learning.stored", "--run", row.name, str(seed)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.learning.stored", description=(__doc__ or "").partition("\n")[0]
    )
    names = [row.name for row in ROWS]
    parser.add_argument("--only", nargs="*", choices=names, metavar="ROW", help=", ".join(names))
    parser.add_argument("--seeds", type=int, default=SEEDS, help="runs of each row")
    parser.add_argument("--jobs", type=int, default=2, help="runs at the same time")
    parser.add_argument("--run", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        name, seed = options.run
        figures = learn(next(row for row in ROWS if row.name == name), int(seed))
        sys.stdout.write(json.dumps(figures) + "\n")
        return
    wanted = missing_runs(
        [row for row in ROWS if not options.only or row.name in options.only], options.seeds
    )
    with ThreadPoolExecutor(options.jobs) as pool:
        # The files are written before several runs read them.
        writings = sorted({(row.writers, seed) for row, seed in wanted}, key=lambda one: one[1])
        for name, seed in writings:
            write(name, seed)
        finished.append(
            RESULTS,
            [pool.submit(make, *one) for one in wanted],
            lambda run: f"{run['row']} seed {run['seed']}: {run['mean']:.1f}",
        )


if __name__ == "__main__":
    main()
