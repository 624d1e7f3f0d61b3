"""`Quadratic` as a trainable that trains in lanes, without a program; notes who trains together."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.quadratic import Quadratic
from trainables import Trainable
from trainables.core import rng
from trainables.errors import ConfigError

#: Variable with the file that gets a line for each iteration of several at once: how many.
TOGETHER = "LANED_TOGETHER"
#: Variable with the number of lanes for which the memory of the device suffices; 0: it is lost.
HOLDS = "LANED_HOLDS"


class JaxRuntimeError(RuntimeError):
    """Named as the error of JAX is."""


class Laned(Quadratic):
    """A lane must have a setting ``lr`` below 1."""

    def get_state(self) -> dict[str, Any]:
        rng.seed_global(self.context.seed, "global")  # all lanes share the global streams
        return super().get_state()

    @classmethod
    def check_config(cls, config: Mapping[str, Any]) -> None:
        if "lanes" in config and config.get("lr", 0.1) >= 1:
            raise ConfigError("lr", config["lr"], "less than 1 with lanes")

    @classmethod
    def as_lane(cls, config: Mapping[str, Any], lanes: int) -> dict[str, Any]:
        return {**config, "lanes": lanes}

    @classmethod
    def train_together(cls, several: Sequence[Trainable]) -> None:
        lanes = max(one.settings["lanes"] for one in several if isinstance(one, Laned))
        if (holds := int(os.environ.get(HOLDS, lanes))) == 0:
            raise JaxRuntimeError("INTERNAL: CUDA_ERROR_LAUNCH_FAILED\nat some place")
        if lanes > holds:
            raise JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 7 bytes.")
        if file := os.environ.get(TOGETHER):
            with Path(file).open("a") as together:
                together.write(f"{len(several)}\n")
