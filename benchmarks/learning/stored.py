"""Learn from files alone what policies of ours wrote, and compare with the best of them.

    python -m benchmarks.learning.stored [--only ROW …] [--seeds N] [--jobs 2]

For each seed a few policies are trained, most of them poor, and write whole episodes as they
sample; then each row learns from these files, without an environment, and plays 100 fresh episodes
greedily. Files stand in ``build/stored``, every run in ``stored.jsonl`` here once it is over, and
is not made again unless its row's settings have changed: stop and start as you like.
"""

import argparse
import hashlib
import json
import statistics
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.learning.rows import EPISODES, PPO_CARTPOLE, SMALL_NETWORKS
from benchmarks.learning.run import FRESH

if TYPE_CHECKING:
    from trainables.trainer.trainer import Trainer

RESULTS = Path(__file__).with_name("stored.jsonl")
FILES = Path("build") / "stored"
SEEDS = 5


@dataclass(frozen=True)
class Writers:
    """Policies that write files."""

    title: str
    """Of the environment and of what they are."""
    config: Mapping[str, Any]
    """Of PPO, which trains them."""
    rounds: tuple[int, ...]
    """Of training, of each policy."""
    steps: int
    """That each writes, at least."""


@dataclass(frozen=True)
class StoredRow:
    """One line of the table."""

    name: str
    writers: str
    """One of `WRITERS`."""
    by: str
    """As the table shows it."""
    algorithm: str
    """Module and class under `trainables.algorithms`."""
    rounds: int
    share: float
    """Of the return of the best policy that wrote, which is to be reached."""
    config: Mapping[str, Any]


#: PPO as in the table of learning, at a learning rate that stays.
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
#: 250 updates a round, from all that was written: 5,000 in all.
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
    """The class of ``module:Class``."""
    module, _, name = algorithm.partition(":")
    found: type[Trainer] = getattr(import_module(f"trainables.algorithms.{module}"), name)
    return found


def greedy(trainer: "Trainer", seed: int) -> float:
    """The mean return of fresh episodes."""
    return statistics.fmean(one["episode_reward"] for one in trainer.play(EPISODES, seed=seed))


def write(name: str, seed: int) -> dict[str, Any]:
    """The files of policies of this seed, unless they are there; returns what these return."""
    folder = FILES / name / str(seed)
    if (said := folder / "returns.json").exists():
        known: dict[str, Any] = json.loads(said.read_text("utf-8"))
        return known
    of, ppo = WRITERS[name], trainer_of("ppo:PPO")
    whole = {"batch_mode": "complete_episodes", "train_batch_size": of.steps, "output": "logdir"}
    returns: dict[str, list[float]] = {"sampled": [], "greedy": []}
    for i, rounds in enumerate(of.rounds):
        given = {**of.config, "seed": 100 * seed + i, "env_level": "C"}
        policy = ppo(given)
        for _ in range(rounds):
            policy.train()
        returns["greedy"].append(greedy(policy, FRESH + seed))
        saved = policy.save(folder / str(i) / "checkpoint")
        policy.stop()
        # Learns so slowly that it stays what it was.
        writer = ppo({**given, **whole, "output": str(folder / str(i) / "output"), "lr": 1e-12})
        writer.restore(saved)
        returns["sampled"].append(writer.train()["episode_reward_mean"])
        writer.stop()
    said.write_text(json.dumps(returns), "utf-8")
    return returns


def learn(row: StoredRow, seed: int) -> dict[str, Any]:
    """Learn from the files and play; the figures of the run."""
    written = write(row.writers, seed)
    given = f"{FILES / row.writers / str(seed)}/*/output/*.json"
    trainer = trainer_of(row.algorithm)({**row.config, "input": given, "seed": seed})
    for _ in range(row.rounds):
        trainer.train()
    mean = greedy(trainer, FRESH + seed)
    trainer.stop()
    return {"row": row.name, "seed": seed, "mean": mean, **written, "version": version(row)}


def version(row: StoredRow) -> str:
    """Of what a run of this row depends on that is written here."""
    plain = json.dumps([asdict(row), asdict(WRITERS[row.writers])], sort_keys=True)
    return hashlib.sha256(plain.encode()).hexdigest()[:12]


def known() -> dict[tuple[str, str, int], dict[str, Any]]:
    """The runs made so far, by row, version and seed."""
    lines = RESULTS.read_text(encoding="utf-8").splitlines() if RESULTS.exists() else []
    runs = [json.loads(line) for line in lines]
    return {(run["row"], run["version"], run["seed"]): run for run in runs}


def missing(rows: list[StoredRow], seeds: int) -> list[tuple[StoredRow, int]]:
    """The runs that are still to be made, seed by seed."""
    made = known()
    due = [(row, seed) for seed in range(seeds) for row in rows]
    return [(row, seed) for row, seed in due if (row.name, version(row), seed) not in made]


def in_a_process(row: StoredRow, seed: int) -> dict[str, Any]:
    """One run in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.learning.stored", "--run", row.name, str(seed)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.learning.stored", description=(__doc__ or "").partition("\n")[0]
    )
    names = [row.name for row in ROWS]
    parser.add_argument("--only", nargs="*", choices=names, metavar="ROW", help=", ".join(names))
    parser.add_argument("--seeds", type=int, default=SEEDS, help="runs of each row")
    parser.add_argument("--jobs", type=int, default=2, help="runs side by side")
    parser.add_argument("--run", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.run:
        name, seed = asked.run
        figures = learn(next(row for row in ROWS if row.name == name), int(seed))
        sys.stdout.write(json.dumps(figures) + "\n")
        return
    wanted = missing([row for row in ROWS if not asked.only or row.name in asked.only], asked.seeds)
    with ThreadPoolExecutor(asked.jobs) as pool:
        # Written by one, before several read them.
        places = sorted({(row.writers, seed) for row, seed in wanted}, key=lambda one: one[1])
        for name, seed in places:
            write(name, seed)
        for done, future in enumerate(
            as_completed(pool.submit(in_a_process, *one) for one in wanted), 1
        ):
            run = future.result()
            with RESULTS.open("a", encoding="utf-8") as file:
                file.write(json.dumps(run) + "\n")
            said = f"{run['row']} seed {run['seed']}: {run['mean']:.1f}"
            sys.stdout.write(f"{done} of {len(wanted)}: {said}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
