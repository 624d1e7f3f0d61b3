"""Search wide spaces with 16 trials, and compare the settings found with tuned ones.

    python -m benchmarks.learning.searched [--only ROW …] [--jobs 2]

The specs are beside this file; their ranges span at least a factor of ten, and their middle is not
the tuned value. The three best trials are retrained with three seeds that the search did not use;
the best of them has the *found* settings. The found and the tuned settings are then trained with
ten further seeds each. Sweeps are stored under ``build/learning``, and each run is appended to
``results.jsonl`` here when it ends. So the program can be stopped and started at any time.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.learning import finished
from benchmarks.learning.rows import find

HERE = Path(__file__).parent
RESULTS = HERE / "results.jsonl"
SWEEPS = Path("build") / "learning"
NAMES = tuple(sorted(path.stem for path in HERE.glob("*.yaml")))
#: Seeds that neither the search nor any row of the table uses. The tuned settings of Acrobot ppo
#: and of CartPole dqn were chosen with the first six.
SEEDS = range(100, 110)
#: Prefixes of settings that do not influence learning.
WITHOUT_INFLUENCE = ("evaluation_", "timesteps_per_iteration")


def sweep(*words: str) -> str:
    """Run a command of sweep and return its output; the terminal shows its progress.

    Raises CalledProcessError if the command failed.
    """
    command = [sys.executable, "-m", "sweep.cli.main", *words, "--root", str(SWEEPS)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603
    return done.stdout


def search(name: str, jobs: int) -> dict[str, Any]:
    """Run or resume the search of this name; return the settings of the trial that it chooses."""
    if (SWEEPS / name).exists():
        sweep("resume", name, "--jobs", str(jobs), "--json")
    else:
        sweep("run", str(HERE / f"{name}.yaml"), "--jobs", str(jobs), "--json")
    best = json.loads(
        sweep("best", name, "--test-seeds", "3", "--top", "3", "--jobs", str(jobs), "--json")
    )
    chosen = max(best["final_evaluation"]["trials"], key=lambda one: one["estimate"]["value"])
    trials = json.loads(sweep("results", name, "--json"))["trials"]
    config = next(one["config"] for one in trials if one["trial"] == chosen["trial"])
    return {key: value for key, value in config.items() if not key.startswith(WITHOUT_INFLUENCE)}


def missing_runs(
    name: str, settings: Mapping[str, Any]
) -> Iterator[tuple[str, Mapping[str, Any], int]]:
    """Yield the missing runs as (source of the settings, settings, seed).

    Args:
        settings: that the search found.
    """
    sources = {"found": settings, "tuned": find(name).config}
    made = [(run["row"], run["who"], run["config"], run["seed"]) for run in finished.read(RESULTS)]
    for seed in SEEDS:
        for who, config in sources.items():
            if (name, who, json.loads(json.dumps(dict(config))), seed) not in made:
                yield who, config, seed


def train(name: str, who: str, config: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Make one run in a process of its own; return its figures."""
    text_of_config = json.dumps(dict(config))
    command = [sys.executable, "-m", "benchmarks.learning.run", name, str(seed)]
    command += ["--config", text_of_config]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603
    mean = json.loads(done.stdout)["mean"]
    return {
        "row": name,
        "who": who,
        "seed": seed,
        "mean": mean,
        "config": json.loads(text_of_config),
    }


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning.searched")
    parser.add_argument("--only", nargs="*", choices=NAMES, metavar="ROW", help=", ".join(NAMES))
    parser.add_argument("--jobs", type=int, default=2, help="trials and runs at the same time")
    options = parser.parse_args()
    for name in options.only or NAMES:
        wanted = list(missing_runs(name, search(name, options.jobs)))
        with ThreadPoolExecutor(options.jobs) as pool:
            finished.append(
                RESULTS,
                [pool.submit(train, name, *one) for one in wanted],
                lambda run: f"{run['row']}, {run['who']}, seed {run['seed']}: {run['mean']:.1f}",
            )


if __name__ == "__main__":
    main()
