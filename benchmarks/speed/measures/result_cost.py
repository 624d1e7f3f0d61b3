"""CPU microseconds of a slice per result, without training.

    python -m benchmarks.speed.measures.result_cost result|saved|ppo

result  a function that only reports
saved   a function that reports with a checkpoint each time
ppo     the PPO trainer, which saves after each iteration

The module uses only functions that older versions have, too, so that two can be compared.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import Any

import sweep
from sweep.pools import inline
from trainables import get_checkpoint, report
from trainables.algorithms.ppo import PPO

#: Kind → results of a trial.
RESULTS = {"result": 5_000, "saved": 1_000, "ppo": 300}
TRIALS = 5
"""Number of trials; the first one, which imports modules, is not counted."""


def result(config: Mapping[str, Any]) -> None:
    """Report without checkpoints."""
    for _ in range(RESULTS["result"]):
        report({"loss": config["x"]})


def saved(config: Mapping[str, Any]) -> None:
    """Report with a checkpoint each time."""
    start = get_checkpoint() or {"i": -1}
    for i in range(start["i"] + 1, RESULTS["saved"]):
        report({"loss": config["x"]}, checkpoint={"i": i})


#: Kind → keys of the spec.
SPECS: dict[str, dict[str, Any]] = {
    "result": {"trainable": result, "metric": "loss", "mode": "min"},
    "saved": {"trainable": saved, "metric": "loss", "mode": "min"},
    "ppo": {
        "trainable": "ppo",
        "metric": "training_iteration",
        "mode": "max",
        "config": {
            "env": "CartPole-v1",
            "rollout_fragment_length": 8,
            "sgd_minibatch_size": 8,
            "num_sgd_iter": 1,
        },
        "checkpoint": {"every": 1},
        "stop": {"training_iteration": RESULTS["ppo"]},
    },
}


class SliceTimes:
    """Record of the CPU seconds of each slice, without those of the trainer's iterations."""

    def __init__(self) -> None:
        self.slices: list[float] = []
        self._trained = 0.0

    def wrap_slice(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that calls `run` for a slice and appends its time to `slices`."""

        def timed(*arguments: Any, **options: Any) -> Any:
            began, self._trained = time.process_time(), 0.0
            try:
                return run(*arguments, **options)
            finally:
                self.slices.append(time.process_time() - began - self._trained)

        return timed

    def wrap_training(self, train: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a method that calls `train`, whose time is subtracted from that of the slice."""

        def timed(trainer: Any) -> Any:
            began = time.thread_time()
            try:
                return train(trainer)
            finally:
                self._trained += time.thread_time() - began

        return timed


def main() -> None:
    """Run the trials in this process, each in one slice, and print the time of the fastest one."""
    kind, record = sys.argv[1], SliceTimes()
    pool: Any = inline
    pool.run_slice = record.wrap_slice(pool.run_slice)
    if kind == "ppo":
        trainer: Any = PPO
        trainer.train = record.wrap_training(trainer.train)
    spec = {"name": kind, "trials": TRIALS, "limits": {"slice_s": 600}, **SPECS[kind]}
    spec["space"] = {"lr" if kind == "ppo" else "x": {"uniform": [1e-4, 1e-3]}}
    with tempfile.TemporaryDirectory() as folder:
        sweep.run(root=folder, pool="inline", progress=False, trackers=[], **spec)
    value = 1e6 * min(record.slices[1:]) / RESULTS[kind]
    sys.stdout.write(json.dumps({"value": value}) + "\n")


if __name__ == "__main__":
    main()
