"""Torch policies in several processes that take every gradient step together.

Each process is a rank of one group on this machine and holds the same weights. Ranks exchange sums
over all ranks, and all of them receive the same bits. Only the loopback address is used.
"""

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from trainables.errors import ExchangeError
from trainables.policies.learning.torch_policy import TorchPolicy


def get_node_ip() -> str:
    """Return the loopback address, on which ranks meet; other machines cannot reach it."""
    return "127.0.0.1"


def find_free_port() -> int:
    """Return a TCP port that was free a moment ago.

    Another process may take it first, which cannot happen with a ``file://`` url.
    """
    with socket.socket() as probe:
        probe.bind((get_node_ip(), 0))
        return int(probe.getsockname()[1])


def setup_torch_data_parallel(
    policy: object, url: str, rank: int, world_size: int, backend: str, timeout_s: float
) -> None:
    """Make this process a rank of the torch process group that meets at `url`.

    Waits until all ranks have joined, at most `timeout_s` seconds. Sets the policy's `reduce` and
    `distributed_world_size`, and the environment variable ``GLOO_SOCKET_IFNAME`` to the loopback
    interface.

    Args:
        policy: policy whose gradients are summed over all ranks from now on.
        url: ``file://`` or ``tcp://`` url, the same for all ranks.
        backend: backend of torch.distributed, for example ``gloo``.
        timeout_s: seconds that a rank waits for the others in one exchange.

    Raises:
        ValueError: the policy is not a torch policy.
        ExchangeError: the other ranks did not join in time.
    """
    if not isinstance(policy, TorchPolicy):
        raise ValueError(  # noqa: TRY004 the value of a setting, seen from outside
            f"data-parallel learning needs a torch policy, but this one is a "
            f"{type(policy).__name__}; use a TorchPolicy or turn data_parallel off"
        )
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    with _exchanging(timeout_s):
        dist.init_process_group(
            backend,
            init_method=url,
            rank=rank,
            world_size=world_size,
            timeout=timedelta(seconds=timeout_s),
        )
    policy.distributed_world_size = world_size
    policy.reduce = lambda tensors: add_up(tensors, timeout_s)


def leave_group() -> None:
    """Leave the torch process group, if this process is in one."""
    if dist.is_initialized():
        dist.destroy_process_group()


def add_up(tensors: Sequence[Tensor], timeout_s: float) -> None:
    """Replace each tensor by its sum over all ranks, in one exchange; all have the same dtype.

    Raises ExchangeError if another rank is gone, or is more than `timeout_s` late.
    """
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    with _exchanging(timeout_s):
        dist.all_reduce(flat)
    sizes = [tensor.numel() for tensor in tensors]
    for tensor, part in zip(tensors, torch.split(flat, sizes), strict=True):
        tensor.copy_(part.view_as(tensor))


@contextmanager
def _exchanging(timeout_s: float) -> Iterator[None]:
    """Turn a RuntimeError in the block into an ExchangeError, whose text names `timeout_s`."""
    try:
        yield
    except RuntimeError as error:
        raise ExchangeError(
            f"another rank has died or did not arrive within {timeout_s} s "
            f"(data_parallel_timeout_s): {error}"
        ) from error
