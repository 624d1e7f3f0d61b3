"""CPU microseconds of a slice for each result, beside training: ``python -m … KIND``.

KIND is ``result`` (a function that does nothing but report), ``saved`` (one that hands over a
checkpoint each time) or ``ppo`` (the shipped trainer, which saves after each iteration; what it
trains does not count). It uses nothing that an older version lacks, so that two can be compared.
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

#: Kind → results of a trial. The first of the trials imports and prepares, and does not count.
RESULTS = {"result": 5_000, "saved": 1_000, "ppo": 300}
TRIALS = 5


def result(config: Mapping[str, Any]) -> None:
    """Report, and save nothing."""
    for _ in range(RESULTS["result"]):
        report({"loss": config["x"]})


def saved(config: Mapping[str, Any]) -> None:
    """Report with a checkpoint."""
    start = get_checkpoint() or {"i": -1}
    for i in range(start["i"] + 1, RESULTS["saved"]):
        report({"loss": config["x"]}, checkpoint={"i": i})


#: Kind → what is swept.
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


class Accounts:
    """CPU seconds of each slice, without those of the trainer's iterations."""

    def __init__(self) -> None:
        self.slices: list[float] = []
        self._trained = 0.0

    def of_slice(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function that runs a slice, with its time in `slices`."""

        def timed(*arguments: Any, **named: Any) -> Any:
            began, self._trained = time.process_time(), 0.0
            try:
                return run(*arguments, **named)
            finally:
                self.slices.append(time.process_time() - began - self._trained)

        return timed

    def of_training(self, train: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return the method that trains an iteration, whose time does not count."""

        def timed(trainer: Any) -> Any:
            began = time.thread_time()
            try:
                return train(trainer)
            finally:
                self._trained += time.thread_time() - began

        return timed


def main() -> None:
    """Run the trials in this process, each in one slice; the cheapest counts."""
    kind, accounts = sys.argv[1], Accounts()
    asked: Any = inline
    asked.run_slice = accounts.of_slice(asked.run_slice)
    if kind == "ppo":
        trainer: Any = PPO
        trainer.train = accounts.of_training(trainer.train)
    spec = {"name": kind, "trials": TRIALS, "limits": {"slice_s": 600}, **SPECS[kind]}
    spec["space"] = {"lr" if kind == "ppo" else "x": {"uniform": [1e-4, 1e-3]}}
    with tempfile.TemporaryDirectory() as folder:
        sweep.run(root=folder, pool="inline", progress=False, trackers=[], **spec)
    value = 1e6 * min(accounts.slices[1:]) / RESULTS[kind]
    sys.stdout.write(json.dumps({"value": value}) + "\n")


if __name__ == "__main__":
    main()
