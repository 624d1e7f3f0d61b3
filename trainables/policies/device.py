"""Where a policy learns: the device, and the threads of the trainer's own process."""

import torch

from trainables.errors import ConfigError
from trainables.resources import ResourcesConfig


def learning_device(resources: ResourcesConfig) -> torch.device:
    """The CPU, or with ``num_gpus`` the first GPU that torch sees.

    Raises:
        ConfigError: GPUs are asked for and torch sees none.
    """
    for key in ("num_gpus", "num_gpus_per_worker"):
        asked = getattr(resources, key)
        if asked and not torch.cuda.is_available():
            raise ConfigError(
                key,
                asked,
                "0 on this machine, where torch sees no GPU",
                f"check the CUDA installation: nvidia-smi must list a GPU, and torch must be built "
                f"for CUDA (torch.version.cuda is {torch.version.cuda})",
            )
    return torch.device("cuda" if resources.num_gpus else "cpu")


def set_threads(resources: ResourcesConfig) -> None:
    """Give torch its threads; the number of inter-op threads can be set once in a process.

    Raises:
        ConfigError: torch has begun to work in this process with another inter-op number.
    """
    intra, inter = resources.threads
    torch.set_num_threads(intra)
    if inter is None or inter == torch.get_num_interop_threads():
        return
    try:
        torch.set_num_interop_threads(inter)
    except RuntimeError as error:
        raise ConfigError(
            "tf_session_args.inter_op_parallelism_threads",
            inter,
            f"{torch.get_num_interop_threads()} in this process, where torch has begun to work",
            "use one number in all trainers of a process, or leave it out",
        ) from error
