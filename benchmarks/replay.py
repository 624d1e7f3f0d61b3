"""Measure the cost of saving a large replay buffer repeatedly, and print a table.

    python -m benchmarks.replay [--size 1000000] [--steps 100000] [--rounds 5]

The buffer is full of CartPole's transitions. Between two checkpoints, `--steps` new transitions,
about as many as in a minute of training, replace the oldest ones. All files are in a temporary
folder.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trainables.checkpoint import file
from trainables.learners.replay import (
    PrioritizedReplay,
    PrioritizedReplayConfig,
    ReplayBuffer,
)

#: Seconds between two checkpoints.
MINUTE = 60.0


def transitions(count: int, stream: np.random.Generator) -> dict[str, Any]:
    """Return `count` random transitions with the columns of CartPole."""
    return {
        "observations": stream.random((count, 4), dtype=np.float32),
        "actions": stream.integers(0, 2, count),
        "rewards": np.ones(count, np.float32),
        "new_obs": stream.random((count, 4), dtype=np.float32),
        "terminated": stream.random(count) < 0.01,
    }


def measure_saves(
    replay: ReplayBuffer, steps: int, rounds: int, folder: Path
) -> list[tuple[float, int]]:
    """Return CPU seconds and bytes written of each of `rounds` checkpoints, `steps` steps apart.

    An additional first checkpoint, which writes the whole buffer, is not counted.
    """
    stream, measured = np.random.default_rng(1), list[tuple[float, int]]()
    for number in range(rounds + 1):
        before = {one.name for one in folder.iterdir()}
        began = time.process_time()
        file.write(folder, number, {}, {"replay": replay.get_state()})
        spent = time.process_time() - began
        new = [one.stat().st_size for one in folder.iterdir() if one.name not in before]
        measured.append((spent, sum(new)))
        replay.add(transitions(steps, stream))
    return measured[1:]


def main(given: Sequence[str] | None = None) -> None:
    """Measure, and print a row for each kind of replay buffer."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.replay")
    parser.add_argument("--size", type=int, default=1_000_000, help="transitions in the buffer")
    parser.add_argument("--steps", type=int, default=100_000, help="new ones per checkpoint")
    parser.add_argument("--rounds", type=int, default=5, help="checkpoints measured")
    options = parser.parse_args(given)
    sys.stdout.write("| replay | held | written | CPU time of a checkpoint | share of a minute |\n")
    sys.stdout.write("| --- | --- | --- | --- | --- |\n")
    by_error = PrioritizedReplayConfig(prioritized_replay=True)
    for replay in (ReplayBuffer(options.size, 0), PrioritizedReplay(options.size, 0, by_error)):
        replay.add(transitions(options.size, np.random.default_rng(0)))
        held = sum(one.nbytes for one in replay.get_state().values() if hasattr(one, "nbytes"))
        with tempfile.TemporaryDirectory() as folder:
            measured_saves = measure_saves(replay, options.steps, options.rounds, Path(folder))
        seconds = float(np.median([spent for spent, _ in measured_saves]))
        written = float(np.median([size for _, size in measured_saves]))
        sys.stdout.write(
            f"| {type(replay).__name__} | {held / 2**20:.1f} MiB | {written / 2**20:.1f} MiB "
            f"| {seconds:.2f} s | {seconds / MINUTE:.2%} |\n"
        )


if __name__ == "__main__":
    main()
