"""PPO in lanes on a device that fails as an accelerator does, in every process that imports this.

``DEVICE_HOLDS=N``: the memory of the device holds N lanes of one stack, and no more.
``DEVICE_DIES_AT=N`` with ``DEVICE_COUNTS=FILE``: the N-th iteration of all processes is its last;
FILE, which counts them, is the device: a new one is there when that is deleted.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

from trainables.algorithms import ppo
from trainables.core.failpoints import count_arrival
from trainables.stacks.stack import Stack

HOLDS, DIES_AT, COUNTS = "DEVICE_HOLDS", "DEVICE_DIES_AT", "DEVICE_COUNTS"
_step_group = Stack.step_group


#: PPO itself: whoever finds it here has imported this module.
OnFailingDevice = ppo.PPO


def _step_on_failing_device(stack: Stack, group: int, rates: Mapping[int, Any]) -> Any:
    lanes = len(stack._lanes) * stack._group_size
    if lanes > int(os.environ.get(HOLDS, lanes)):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 7 bytes.")
    if (last := os.environ.get(DIES_AT)) and count_arrival(Path(os.environ[COUNTS])) >= int(last):
        raise jax.errors.JaxRuntimeError("INTERNAL: CUDA_ERROR_ECC_UNCORRECTABLE: it is broken\nat")
    return _step_group(stack, group, rates)


Stack.step_group = _step_on_failing_device  # type: ignore[method-assign, assignment]
