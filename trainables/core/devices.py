"""The device on which JAX computes for many."""

import os
import sys


def device_name() -> str:
    """Return the name of JAX's device, of a CPU with its threads; empty if JAX is not imported."""
    if (jax := sys.modules.get("jax")) is None:
        return ""
    device, count = jax.devices()[0], len(os.sched_getaffinity(0))
    if device.platform != "cpu":
        return str(device.device_kind)
    return f"the CPU in {count} thread{'s' * (count > 1)}"
