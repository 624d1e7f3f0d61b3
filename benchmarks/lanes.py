"""Speed of PPO in lanes of one program, beside as many trainers alone.

    python -m benchmarks.lanes [--lanes 1 8 64] [--rounds 5] [--write]

CartPole-v1, 8 environments x 32 steps, 20 epochs of one minibatch of 256, two networks of 64 x 64
tanh units; sampling, advantages and gradient steps. Alone is `PPO` in numpy, in one thread of this
process. Both are measured in turn; what counts is CPU time and, of lanes, wall time too. Compiling
is told apart. `--write` puts the table into docs/stack.md.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from trainables.algorithms.ppo import PPO
from trainables.core.processes.starting import ONE_THREAD
from trainables.trainable import Trainable, TrialContext

CONFIG = {
    "env": "CartPole-v1",
    "num_envs_per_worker": 8,
    "rollout_fragment_length": 32,
    "num_sgd_iter": 20,
    "sgd_minibatch_size": 256,
    "lr": 1e-3,
    "gamma": 0.98,
    "lambda_": 0.8,
    "log_sys_usage": False,
}
STEPS = 256
"""Environment steps of an iteration."""
PAGE = Path(__file__).parents[1] / "docs" / "stack.md"
BEGIN, END = "<!-- begin: benchmarks.lanes -->", "<!-- end: benchmarks.lanes -->"


class Speed(NamedTuple):
    """Environment steps of all trainers together, updates included."""

    per_cpu_s: float
    per_s: float


class Row(NamedTuple):
    """One line of the table."""

    lanes: int
    compiled_s: float
    """Seconds of the first iteration, in which the program is compiled or read from the cache."""
    speed: Speed
    share: float
    """Of the speed alone, per CPU second; the median of what was measured in turn."""


def measured(iterate: Callable[[], int], seconds: float) -> Speed:
    """Return the speed of a function that returns how many steps it made."""
    steps, wall, cpu = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - wall < seconds:
        steps += iterate()
    return Speed(steps / (time.process_time() - cpu), steps / (time.perf_counter() - wall))


def together(trainers: Sequence[Trainable]) -> int:
    """Let all lanes make an iteration; returns their steps."""
    type(trainers[0]).train_together(trainers)
    for one in trainers:
        one.train()
    return STEPS * len(trainers)


def compare(lanes: int, rounds: int, seconds: float) -> tuple[Row, float]:
    """Return the row of so many lanes, and the speed alone per CPU second."""
    alone = PPO(CONFIG, TrialContext(seed=0))
    trainers = [PPO({**CONFIG, "lanes": lanes}, TrialContext(seed=n)) for n in range(lanes)]
    begun = time.perf_counter()
    together(trainers)
    compiled_s = time.perf_counter() - begun
    pairs: list[tuple[Speed, Speed]] = []
    for _ in range(rounds):
        by_itself = measured(lambda: STEPS if alone.train() else 0, seconds)
        pairs.append((measured(lambda: together(trainers), seconds), by_itself))
    for one in (alone, *trainers):
        one.stop()
    speed = Speed(
        *(statistics.median(column) for column in zip(*(a for a, _ in pairs), strict=True))
    )
    share = statistics.median(a.per_cpu_s / b.per_cpu_s for a, b in pairs)
    return Row(lanes, compiled_s, speed, share), statistics.median(b.per_cpu_s for _, b in pairs)


def table(rows: Sequence[Row], alone: float, processors: int) -> str:
    """Return the results in Markdown."""
    lines = [
        f"Alone: {alone:,.0f} steps for each second of CPU. {processors} processors.",
        "",
        "| lanes | steps per CPU second | times alone | steps per second | first iteration |",
        "| --- | --- | --- | --- | --- |",
        *(
            f"| {row.lanes} | {row.speed.per_cpu_s:,.0f} | {row.share:.2f} "
            f"| {row.speed.per_s:,.0f} | {row.compiled_s:.1f} s |"
            for row in rows
        ),
    ]
    return "\n".join(lines)


def written(page: str, told: str) -> str:
    """Return a page with other results between its two marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{told}\n\n{END}{after}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the table, and write it if asked to."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--lanes", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--write", action="store_true")
    asked: Any = parser.parse_args(arguments)
    os.environ.update(ONE_THREAD)
    rows, alone = [], []
    for lanes in asked.lanes:
        row, by_itself = compare(lanes, asked.rounds, asked.seconds)
        rows.append(row)
        alone.append(by_itself)
        print(f"{lanes} lanes: {row.share:.2f} times alone per CPU second", flush=True)  # noqa: T201
    told = table(rows, statistics.median(alone), len(os.sched_getaffinity(0)))
    print(told)  # noqa: T201
    if asked.write:
        PAGE.write_text(written(PAGE.read_text("utf-8"), told), "utf-8")


if __name__ == "__main__":
    main()
