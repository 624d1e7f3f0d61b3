"""Speed of PPO with many trials as lanes of one program, compared with a single trainer.

    python -m benchmarks.lanes [--lanes 1 8 64] [--rounds 5] [--write] [--beside-rejax]

CartPole-v1, 8 environments x 32 steps, 20 epochs of one minibatch of 256, two networks of 64 x 64
tanh units; sampling, advantages and gradient steps are measured. The single trainer is `PPO` in
numpy, in one thread of this process. The two are measured alternately, in CPU time, and the lanes
also in wall time. The table has the time of compiling in a column of its own. `--write` writes the
table into docs/stack.md. `--beside-rejax` measures one training of rejax instead of the single
trainer, in an environment of its own, which is installed in ``build/peers``.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.pages import replace_between
from benchmarks.speed import runner
from benchmarks.speed.cases import Side
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
"""Environment steps of one iteration of one trainer."""
PAGE = Path(__file__).parents[1] / "docs" / "stack.md"
BEGIN, END = "<!-- begin: benchmarks.lanes -->", "<!-- end: benchmarks.lanes -->"


class Speed(NamedTuple):
    """Environment steps of all trainers together; the time includes their gradient steps."""

    per_cpu_s: float
    per_s: float


class Row(NamedTuple):
    """One line of the table."""

    lanes: int
    compiled_s: float
    """Seconds of the first iteration, in which the program is compiled or read from the cache."""
    speed: Speed
    ratio: float
    """Median over rounds of this speed divided by that of the single trainer, per CPU second."""


def measure_speed(iterate: Callable[[], int], seconds: float) -> Speed:
    """Return the speed of `iterate`, which returns its number of steps, over `seconds`."""
    steps, wall, cpu = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - wall < seconds:
        steps += iterate()
    return Speed(steps / (time.process_time() - cpu), steps / (time.perf_counter() - wall))


def train_lanes(trainers: Sequence[Trainable]) -> int:
    """Train all lanes for one iteration; return the sum of their steps."""
    type(trainers[0]).train_together(trainers)
    for one in trainers:
        one.train()
    return STEPS * len(trainers)


def make_lanes(count: int) -> list[PPO]:
    """Return as many trainers that are lanes of one program."""
    return [PPO({**CONFIG, "lanes": count}, TrialContext(seed=n)) for n in range(count)]


def compare_with_rejax(lanes: int, rounds: int, seconds: float) -> list[tuple[float, float]]:
    """Return steps per CPU second of this number of lanes and of rejax, in each round."""
    trainers, rejax = make_lanes(lanes), Side("rejax", "ppo_rejax", group="rejax")
    train_lanes(trainers)
    return [
        (measure_speed(lambda: train_lanes(trainers), seconds).per_cpu_s, runner.measure(rejax))
        for _ in range(rounds)
    ]


def compare(lanes: int, rounds: int, seconds: float) -> tuple[Row, float]:
    """Return the row of this number of lanes, and the single trainer's steps per CPU second."""
    alone, trainers = PPO(CONFIG, TrialContext(seed=0)), make_lanes(lanes)
    begun = time.perf_counter()
    train_lanes(trainers)
    compiled_s = time.perf_counter() - begun
    pairs: list[tuple[Speed, Speed]] = []
    for _ in range(rounds):
        single = measure_speed(lambda: STEPS if alone.train() else 0, seconds)
        pairs.append((measure_speed(lambda: train_lanes(trainers), seconds), single))
    for one in (alone, *trainers):
        one.stop()
    speed = Speed(
        *(statistics.median(column) for column in zip(*(a for a, _ in pairs), strict=True))
    )
    ratio = statistics.median(a.per_cpu_s / b.per_cpu_s for a, b in pairs)
    return Row(lanes, compiled_s, speed, ratio), statistics.median(b.per_cpu_s for _, b in pairs)


def table(rows: Sequence[Row], alone: float, processors: int) -> str:
    """Return the results in Markdown."""
    lines = [
        f"Alone: {alone:,.0f} steps per CPU second. {processors} processors.",
        "",
        "| lanes | steps per CPU second | ratio to alone | steps per second | first iteration |",
        "| --- | --- | --- | --- | --- |",
        *(
            f"| {row.lanes} | {row.speed.per_cpu_s:,.0f} | {row.ratio:.2f} "
            f"| {row.speed.per_s:,.0f} | {row.compiled_s:.1f} s |"
            for row in rows
        ),
    ]
    return "\n".join(lines)


def insert_results(page: str, results: str) -> str:
    """Return the page with `results` between the marks `BEGIN` and `END`."""
    return replace_between(page, BEGIN, END, f"\n\n{results}\n\n")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print the table; with ``--write`` also write it into the page."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--lanes", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--beside-rejax", action="store_true")
    options: Any = parser.parse_args(arguments)
    os.environ.update(ONE_THREAD)
    if options.beside_rejax:
        for lanes in options.lanes:
            pairs = compare_with_rejax(lanes, options.rounds, options.seconds)
            ours, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
            ratios = sorted(a / b for a, b in pairs)
            print(  # noqa: T201
                f"{lanes} lanes: {ours:,.0f} steps for each second of CPU, rejax {theirs:,.0f}: "
                f"{statistics.median(ratios):.2f} times, {ratios[0]:.2f} to {ratios[-1]:.2f}"
            )
        return
    rows, alone = [], []
    for lanes in options.lanes:
        row, single = compare(lanes, options.rounds, options.seconds)
        rows.append(row)
        alone.append(single)
        print(f"{lanes} lanes: {row.ratio:.2f} times alone per CPU second", flush=True)  # noqa: T201
    results = table(rows, statistics.median(alone), len(os.sched_getaffinity(0)))
    print(results)  # noqa: T201
    if options.write:
        PAGE.write_text(insert_results(PAGE.read_text("utf-8"), results), "utf-8")


if __name__ == "__main__":
    main()
