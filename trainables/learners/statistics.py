"""Statistics of gradient steps, which stay on their device until all are fetched at once.

To fetch a number from a GPU is to wait until the GPU has finished all that it was given, so a fetch
in every step would leave it idle while the next step is prepared. U updates, S statistics.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainables.policies.policy import Scalar


def on_host(statistics: Sequence[Mapping[str, Scalar]]) -> list[dict[str, float]]:
    """Convert statistics, name → number or tensor () for each step, to floats.

    All tensors are fetched from their device together.
    """
    numbers = [one for each in statistics for one in each.values()]
    fetched = iter(fetch(numbers).tolist())
    return [dict(zip(each, fetched, strict=False)) for each in statistics]


def fetch(numbers: Sequence[Any]) -> NDArray[Any]:
    """Return numbers, arrays or tensors, all of one shape, as one numpy array (U, …).

    Tensors are fetched from their device together, which waits for the device.
    """
    tensors = [one for one in numbers if hasattr(one, "detach")]
    if not tensors:
        return np.asarray(numbers)
    import torch

    together = torch.stack([one.detach() for one in tensors]).cpu().numpy()
    if len(tensors) == len(numbers):
        found: NDArray[Any] = together
        return found
    rows = iter(together)
    return np.asarray([next(rows) if hasattr(one, "detach") else one for one in numbers])
