"""CPU time of the parts of a slice that trains one of the 16 settings in this process.

    python -m benchmarks.speed.measures.slice_profile [STEPS]

The program prints a line of JSON: ``value``, CPU milliseconds of the slice, and ``parts``, the CPU
milliseconds of each part without the parts inside it. Earlier slices, which import modules, are not
counted.
"""

import functools
import importlib
import json
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch

import sweep
from benchmarks.speed.measures.settings16 import STEPS
from benchmarks.speed.measures.sweep_ours import spec

#: The part that contains all others; when it begins, the recorded times are cleared.
WHOLE = "the slice itself: results, decision when it ends"
#: Function → name of the part to which its time is added, without functions of other parts.
PARTS = {
    "sweep.slices.slice:run_slice": WHOLE,
    "sweep.slices.slice:RealSlice.restored": "creating the trainer",
    "trainables.trainer.trainer:Trainer.train": "the result of an iteration",
    "trainables.rollout.workers.worker_set:LocalWorkers.sample": "sampling: the rest",
    "trainables.envs.vector.native:NativeVectorEnv.step": "sampling: stepping environments",
    "trainables.policies.acting.deciding:VectorEnvDecider.choose": "sampling: acting",
    "trainables.policies.acting.deciding:VectorEnvDecider.columns": "sampling: acting",
    "trainables.algorithms.ppo:PPO.learning_rows": "learning: advantages",
    "trainables.learners.sgd:learn": "learning: the loop and its statistics",
    "trainables.learners.fused.ppo:FusedLearner.minibatches": "learning: drawing minibatches",
    "trainables.learners.fused.ppo:FusedLearner.gradient": "learning: loss and gradient",
    "trainables.learners.fused.flat:FlatOptimizer.step": "learning: Adam",
    "trainables.trainer.trainer:Trainer.end_round": "synchronising weights, counting",
    "sweep.slices.checkpoints:Saving.save": "checkpoints: collecting, hashing, writing",
}
#: Number of trials before the measured one.
WARM_UP = 2


class Parts:
    """CPU seconds of each part in the main thread, each without the parts inside it."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._inside: list[str] = []
        self._since = 0.0

    def wrap(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return `function` with its time added to the part of this name."""

        @functools.wraps(function)
        def timed(*arguments: Any, **named: Any) -> Any:
            if threading.current_thread() is not threading.main_thread():
                return function(*arguments, **named)
            if name == WHOLE:
                self.seconds.clear()
            self._switch()
            self._inside.append(name)
            try:
                return function(*arguments, **named)
            finally:
                self._switch()
                self._inside.pop()

        return timed

    def _switch(self) -> None:
        now = time.thread_time()
        if self._inside:
            self.seconds[self._inside[-1]] += now - self._since
        self._since = now


def install(parts: Parts) -> None:
    """Replace the functions of `PARTS` by timed ones, also where other modules imported them."""
    for path, name in PARTS.items():
        module, _, inside = path.partition(":")
        owner: Any = importlib.import_module(module)
        *classes, function = inside.split(".")
        for one in classes:
            owner = getattr(owner, one)
        original = getattr(owner, function)
        timed = parts.wrap(name, original)
        setattr(owner, function, timed)
        for other in list(sys.modules.values()):
            if not classes and getattr(other, function, None) is original:
                setattr(other, function, timed)


def main() -> None:
    """Run three trials in this process and print the times of the last one's slice."""
    torch.set_num_threads(1)
    importlib.import_module("sweep.pools.inline")  # this module imports `run_slice`
    parts = Parts()
    install(parts)
    options = spec(int(sys.argv[1]) if len(sys.argv) > 1 else STEPS)
    with tempfile.TemporaryDirectory() as folder:
        options |= {"trials": WARM_UP + 1, "initial": options["initial"][: WARM_UP + 1]}
        sweep.run(root=folder, pool="inline", progress=False, **options)
    milliseconds = {name: 1e3 * parts.seconds[name] for name in PARTS.values()}
    sys.stdout.write(
        json.dumps({"value": sum(milliseconds.values()), "parts": milliseconds}) + "\n"
    )


if __name__ == "__main__":
    main()
