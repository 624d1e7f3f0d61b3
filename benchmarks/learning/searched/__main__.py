"""Search wide spaces with 16 trials, then train what was found beside what is tuned.

    python -m benchmarks.learning.searched [--only ROW …] [--jobs 2]

The spaces stand beside this file: ranges at least ten times wide whose middle is not the tuned
value. The three best trials are trained anew under three seeds that the search has not seen; the
best of them is what was found. Its settings and the tuned ones are then trained under ten further
seeds each. Every step stands in ``sweeps/`` under ``build/learning``, or in ``results.jsonl`` here,
once it is over: stop and start as you like.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from benchmarks.learning.rows import named

HERE = Path(__file__).parent
RESULTS = HERE / "results.jsonl"
SWEEPS = Path("build") / "learning"
NAMES = tuple(sorted(path.stem for path in HERE.glob("*.yaml")))
#: Seeds that neither the search nor its choice has seen, nor any row of the table. The tuned
#: settings of Acrobot ppo and of CartPole dqn were chosen under the first six.
SEEDS = range(100, 110)
#: Settings that say how a search looks on, not how a trial learns.
LOOKING = ("evaluation_", "timesteps_per_iteration")


def sweep(*words: str) -> str:
    """Return the output of a command; its progress goes to the terminal.

    Raises:
        CalledProcessError: it failed.
    """
    command = [sys.executable, "-m", "sweep.cli.main", *words, "--root", str(SWEEPS)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603
    return done.stdout


def found(name: str, jobs: int) -> dict[str, Any]:
    """Settings of the trial that a search of this space chooses."""
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
    return {key: value for key, value in config.items() if not key.startswith(LOOKING)}


def known() -> list[dict[str, Any]]:
    """The runs made so far."""
    return [json.loads(line) for line in RESULTS.read_text("utf-8").splitlines()]


def due(name: str, settings: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any], int]]:
    """Yield the trainings that are due: the finder of the settings, the settings, and a seed."""
    of = {"found": settings, "tuned": named(name).config}
    made = [(run["row"], run["who"], run["config"], run["seed"]) for run in known()]
    for seed in SEEDS:
        for who, config in of.items():
            if (name, who, json.loads(json.dumps(dict(config))), seed) not in made:
                yield who, config, seed


def trained(name: str, who: str, config: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """One run, in a process of its own."""
    plain = json.dumps(dict(config))
    command = [sys.executable, "-m", "benchmarks.learning.run", name, str(seed)]
    command += ["--config", plain]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603
    mean = json.loads(done.stdout)["mean"]
    return {"row": name, "who": who, "seed": seed, "mean": mean, "config": json.loads(plain)}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning.searched")
    parser.add_argument("--only", nargs="*", choices=NAMES, metavar="ROW", help=", ".join(NAMES))
    parser.add_argument("--jobs", type=int, default=2, help="trials and runs side by side")
    asked = parser.parse_args()
    RESULTS.touch()
    for name in asked.only or NAMES:
        wanted = list(due(name, found(name, asked.jobs)))
        with ThreadPoolExecutor(asked.jobs) as pool:
            runs = [pool.submit(trained, name, *one) for one in wanted]
            for done, future in enumerate(as_completed(runs), 1):
                run = future.result()
                with RESULTS.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(run) + "\n")
                said = f"{name}, {run['who']}, seed {run['seed']}: {run['mean']:.1f}"
                sys.stdout.write(f"{done} of {len(wanted)}: {said}\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
