"""Profile of a slice: one of the 16 settings, trained in this process.

    python -m benchmarks.speed.measures.slice_profile [STEPS]

Prints a line of JSON: ``value``, CPU milliseconds of the slice, and ``parts``, those of each part
without the parts inside it. The slices before it, which import and prepare, do not count.
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

#: The part that all others are inside; with it the account begins anew.
WHOLE = "the slice itself: results, where it ends"
#: Where a part's time is spent → its name; the time inside another part counts for that part.
PARTS = {
    "sweep.slices.slice:run_slice": WHOLE,
    "sweep.slices.slice:RealSlice.restored": "making the trainer",
    "trainables.trainer.trainer:Trainer.train": "an iteration's result",
    "trainables.rollout.workers.worker_set:LocalWorkers.sample": "sampling: the rest",
    "trainables.envs.vector.native:NativeVectorEnv.step": "sampling: stepping environments",
    "trainables.policies.acting.deciding:SideBySide.choose": "sampling: acting",
    "trainables.policies.acting.deciding:SideBySide.columns": "sampling: acting",
    "trainables.algorithms.ppo:PPO.learning_rows": "learning: advantages",
    "trainables.learners.sgd:learn": "learning: the loop and its statistics",
    "trainables.learners.fused.ppo:FusedLearner.minibatches": "learning: drawing minibatches",
    "trainables.learners.fused.ppo:FusedLearner.gradient": "learning: loss and gradient",
    "trainables.learners.fused.flat:FlatOptimizer.step": "learning: Adam",
    "trainables.trainer.trainer:Trainer.end_round": "synchronising weights, counting",
    "sweep.slices.checkpoints:Saving.save": "checkpoints: collecting, hashing, writing",
}
#: Trials before the one that is measured.
WARM = 2


class Parts:
    """CPU seconds of each part in the main thread, each without the parts inside it."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._inside: list[str] = []
        self._since = 0.0

    def wrap(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with its time on this account."""

        @functools.wraps(function)
        def timed(*arguments: Any, **named: Any) -> Any:
            if threading.current_thread() is not threading.main_thread():
                return function(*arguments, **named)
            if name == WHOLE:
                self.seconds.clear()
            self._turn()
            self._inside.append(name)
            try:
                return function(*arguments, **named)
            finally:
                self._turn()
                self._inside.pop()

        return timed

    def _turn(self) -> None:
        now = time.thread_time()
        if self._inside:
            self.seconds[self._inside[-1]] += now - self._since
        self._since = now


def install(parts: Parts) -> None:
    """Put the functions of `PARTS` on the account; what other modules have imported, too."""
    for path, name in PARTS.items():
        module, _, inside = path.partition(":")
        owner: Any = importlib.import_module(module)
        *classes, function = inside.split(".")
        for one in classes:
            owner = getattr(owner, one)
        plain = getattr(owner, function)
        timed = parts.wrap(name, plain)
        setattr(owner, function, timed)
        for other in list(sys.modules.values()):
            if not classes and getattr(other, function, None) is plain:
                setattr(other, function, timed)


def main() -> None:
    """Run three trials in this process and count the last one's slice."""
    torch.set_num_threads(1)
    importlib.import_module("sweep.pools.inline")  # it has imported `run_slice`
    parts = Parts()
    install(parts)
    asked = spec(int(sys.argv[1]) if len(sys.argv) > 1 else STEPS)
    with tempfile.TemporaryDirectory() as folder:
        asked |= {"trials": WARM + 1, "initial": asked["initial"][: WARM + 1]}
        sweep.run(root=folder, pool="inline", progress=False, **asked)
    told = {name: 1e3 * parts.seconds[name] for name in PARTS.values()}
    sys.stdout.write(json.dumps({"value": sum(told.values()), "parts": told}) + "\n")


if __name__ == "__main__":
    main()
