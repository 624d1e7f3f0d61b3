"""Trainables with a known answer: gradient descent on (x - target)², for tests all around.

Settings (all optional): ``lr`` step size; ``target``; ``x0`` start; ``noise`` standard deviation
of the noise on the gradient; ``step_s`` seconds that a step takes; ``fail_at`` iteration that
raises; ``die_at`` iteration that kills its own process, once, as the file ``die_once_file``
remembers; ``iterations`` and ``save_every`` of the function. A step counts as 10 time steps.
"""

import json
import os
import random
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from trainables import Trainable, get_checkpoint, get_context, report
from trainables.core import rng

TIMESTEPS_PER_STEP = 10


def expected_loss(config: Mapping[str, Any], iterations: int, seed: int) -> float:
    """The loss after `iterations` steps without interruption."""
    stream = rng.generator(seed, "noise")
    x = _start(config)
    for _ in range(iterations):
        x = _descend(config, x, stream.standard_normal())
    return _loss(config, x)


class Quadratic(Trainable):
    """Draws its noise from a named stream; its state is data."""

    def setup(self, config: dict[str, Any]) -> None:
        self.settings = config
        self.x = _start(config)
        self.stream = rng.generator(self.context.seed, "noise")

    def step(self) -> dict[str, Any]:
        _mishaps(self.settings, self.iteration + 1)
        self.x = _descend(self.settings, self.x, self.stream.standard_normal())
        return _result(self.settings, self.x)

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {"x": self.x, "stream": rng.get_generator_state(self.stream)}

    def load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.x = checkpoint["x"]
        rng.set_generator_state(self.stream, checkpoint["stream"])

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.setup(new_config)
        return True


class RayStyle(Trainable):
    """Written to Ray Tune's class API; draws from the global streams and saves a file."""

    def setup(self, config: dict[str, Any]) -> None:
        self.settings = config
        self.x = _start(config)

    def step(self) -> dict[str, Any]:
        _mishaps(self.settings, self.iteration + 1)
        noise = random.gauss(0.0, 1.0) + np.random.standard_normal()  # noqa: NPY002 as users do
        self.x = _descend(self.settings, self.x, noise)
        return _result(self.settings, self.x)

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        (Path(checkpoint_dir) / "weights.json").write_text(json.dumps({"x": self.x}))

    def load_checkpoint(self, checkpoint: str) -> None:
        self.x = json.loads((Path(checkpoint) / "weights.json").read_text())["x"]

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.setup(new_config)
        return True

    def cleanup(self) -> None:
        self.x = float("nan")


def quadratic_function(config: dict[str, Any]) -> None:
    """`Quadratic` as a function; it reports a checkpoint every ``save_every`` iterations."""
    x, stream, first = _start(config), rng.generator(get_context().seed, "noise"), 1
    start = get_checkpoint()
    if start is not None:
        x, first = start["x"], start["iteration"] + 1
        rng.set_generator_state(stream, start["stream"])
    for iteration in range(first, config.get("iterations", 100) + 1):
        _mishaps(config, iteration)
        x = _descend(config, x, stream.standard_normal())
        state = {"x": x, "iteration": iteration, "stream": rng.get_generator_state(stream)}
        saves = iteration % config.get("save_every", 1) == 0
        report(_result(config, x), checkpoint=state if saves else None)


def _start(config: Mapping[str, Any]) -> float:
    return float(config.get("x0", 5.0))


def _descend(config: Mapping[str, Any], x: float, noise: float) -> float:
    gradient = 2.0 * (x - config.get("target", 3.0)) + config.get("noise", 0.0) * noise
    return float(x - config.get("lr", 0.1) * gradient)


def _loss(config: Mapping[str, Any], x: float) -> float:
    return float((x - config.get("target", 3.0)) ** 2)


def _result(config: Mapping[str, Any], x: float) -> dict[str, Any]:
    loss = _loss(config, x)
    return {"loss": loss, "score": -loss, "x": x, "timesteps_this_iter": TIMESTEPS_PER_STEP}


def _mishaps(config: Mapping[str, Any], iteration: int) -> None:
    """Be slow, raise or die, if the settings say so."""
    time.sleep(config.get("step_s", 0.0))
    if iteration == config.get("fail_at"):
        raise RuntimeError(f"fail_at: {iteration}")
    if iteration == config.get("die_at"):
        marker = Path(config["die_once_file"])
        if not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
