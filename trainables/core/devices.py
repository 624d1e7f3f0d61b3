"""The devices on which a trial computes: the GPU of torch, and the device of JAX with its errors.

JAX's errors begin with a status, such as ``RESOURCE_EXHAUSTED: Out of memory``. Most errors concern
one computation. A lost device or insufficient memory concerns all computations on the device.
Neither library is imported before it is needed.
"""

import os
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Literal

from pydantic import Field

from trainables.core.settings import Section
from trainables.errors import (
    DeviceError,
    DeviceLost,
    DeviceOutOfMemory,
    TrainableError,
    cut,
    printable,
)

#: Names of the class of all errors of XLA, in jaxlib now and before.
_OF_XLA = frozenset({"JaxRuntimeError", "XlaRuntimeError"})
#: Statuses with which a device computes no more.
_LOST = ("INTERNAL", "UNAVAILABLE", "DATA_LOSS")
#: Beginning of JAX's error that there is no device of the requested kind.
_NO_DEVICE = "Unable to initialize backend"
#: Parts of an error that is one of memory although its status is another.
_OF_MEMORY = ("RESOURCE_EXHAUSTED", "CUDA_ERROR_OUT_OF_MEMORY", "STATUS_ALLOC_FAILED")
#: Text in an error of JAX by which a Python function is known to have raised it, when the compiled
#: program called it.
_OF_A_CALLBACK = "allback"

#: Settings that decide how much memory a trial needs on a GPU, those with more effect first.
_TAKING_MEMORY = ("sgd_minibatch_size", "train_batch_size", "replay_batch_size", "buffer_size")


class DevicesConfig(Section):
    """Settings for the use of a trial's GPU (``num_gpus``)."""

    act_on: Literal["auto", "cpu", "gpu"] = Field(
        default="auto",
        description="Device on which the policy acts while it collects experience: cpu; or gpu, "
        "where acting and learning share the networks, so each observation is copied to the GPU "
        "only once. gpu needs num_gpus above 0, num_workers: 0, and ppo, a2c, impala, dqn, sac or "
        "td3. auto: gpu, if possible, for networks with convolutions or a layer of 256 units or "
        "more; otherwise cpu. Evaluations act on the CPU.",
    )
    graphs: Literal["auto", "on", "off"] = Field(
        default="auto",
        description="CUDA graphs: gradient steps of ppo, a2c, impala, dqn, sac, td3 and iql, and "
        "acting on the GPU (act_on), are captured once and launched as a whole. off; on, which "
        "needs num_gpus above 0; auto: on with CUDA. Steps that cannot be captured, such as those "
        "of optimizers other than adam and adamw, are launched kernel by kernel, and the log says "
        "so.",
    )
    precision: Literal["float32", "tf32", "bf16"] = Field(
        default="float32",
        description="Precision of matrix products and convolutions on the GPU. float32: torch's "
        "own default; tf32: 10 bits of mantissa, also in matrix products; bf16: 8 bits in the "
        "forward pass of the layers, while weights, losses and optimizers stay float32.",
    )


def accelerator() -> str:
    """Return the torch device type on which trials learn: ``cuda``, or "" if torch sees no GPU.

    Tests replace this function by one that returns ``cpu``, to run the code for GPUs on the CPU.
    Imports torch.
    """
    import torch

    return "cuda" if torch.cuda.is_available() else ""


def accelerator_bytes() -> int:
    """Return the total memory of the first CUDA device, bytes; tests replace this function, too."""
    import torch

    return int(torch.cuda.get_device_properties(0).total_memory)


def limit_memory(share: float) -> None:
    """Limit torch in this process to a share of its GPU's memory, from above 0 to 1, the whole.

    An allocation beyond it raises torch's error of too little memory, in this process alone.
    Nothing is limited without CUDA. Imports torch.
    """
    if accelerator() != "cuda":
        return
    import torch

    torch.cuda.set_per_process_memory_fraction(float(share))


@contextmanager
def advice_on_memory(share: float, settings: Collection[str]) -> Iterator[None]:
    """Turn torch's error of too little memory on a GPU inside the block into one with advice.

    Args:
        share: the trial's share of the GPU, ``num_gpus``.
        settings: names of the trial's settings, of which the advice names some.

    Raises:
        TrainableError: torch found too little memory.
    """
    try:
        yield
    except RuntimeError as error:
        torch = sys.modules.get("torch")
        if torch is None or not isinstance(error, torch.OutOfMemoryError):
            raise
        lower = " or ".join(name for name in _TAKING_MEMORY if name in settings)
        there = ", or set replay_on to cpu" if "replay_on" in settings else ""
        raise TrainableError(
            f"the trial needs more memory than num_gpus: {share:g} gives it, "
            f"{share * accelerator_bytes() / 1e9:.3g} GB of the GPU: "
            f"{cut(_first_line(str(error)), 200)}; lower {lower}{there}, or raise num_gpus, and "
            "resources: {gpu} of the sweep with it, so that fewer trials share the GPU"
        ) from error


@contextmanager
def matmul_precision(config: DevicesConfig) -> Iterator[None]:
    """Let torch use TF32 in matrix products and convolutions inside the block if settings say so.

    That is ``precision: tf32``; other values change nothing. The flags are restored afterwards.
    """
    if config.precision != "tf32":
        yield
        return
    import torch

    products, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn
    before = products.allow_tf32, convolutions.allow_tf32
    products.allow_tf32 = convolutions.allow_tf32 = True
    try:
        yield
    finally:
        products.allow_tf32, convolutions.allow_tf32 = before


def device_error(error: BaseException) -> DeviceError | None:
    """Return the DeviceError that an exception or one of its causes is, or stands for.

    JAX's errors about a device that is lost or not there, or about too little memory, become
    DeviceLost or DeviceOutOfMemory. Returns None for every other exception.
    """
    for one in _with_causes(error):
        if isinstance(one, DeviceError):
            return one
        text = str(one)
        if type(one).__name__ not in _OF_XLA:
            if isinstance(one, RuntimeError) and text.startswith(_NO_DEVICE):
                return DeviceLost(_first_line(text))
            continue
        if any(part in text for part in _OF_MEMORY):
            return DeviceOutOfMemory(_first_line(text))
        if text.startswith(_LOST) and _OF_A_CALLBACK not in text:
            return DeviceLost(_first_line(text))
    return None


def device_name() -> str:
    """Return the name of JAX's first device, such as ``NVIDIA H200`` or ``the CPU in 2 threads``.

    Returns "" if JAX is not imported.
    """
    if (jax := sys.modules.get("jax")) is None:
        return ""
    device, count = jax.devices()[0], len(os.sched_getaffinity(0))
    if device.platform != "cpu":
        return str(device.device_kind)
    return f"the CPU in {count} thread{'s' * (count > 1)}"


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception, its cause or context, the cause of that, and so on; each once."""
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        yield one
        one = one.__cause__ or one.__context__


def _first_line(text: str) -> str:
    """Return the first line of a text, with control characters escaped."""
    return printable(text.partition("\n")[0])
