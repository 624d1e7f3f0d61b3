"""Dense layers in numpy; those of actor and critic are stacked where both have the same sizes.

N rows, D features, H units, A outputs of the actor's head; float32.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainables.policies.architecture import Activation

Array = NDArray[np.float32]
#: Array size up to which `np.maximum` is fast enough with a number instead of an array of zeros.
FEW = 2048


class Networks(NamedTuple):
    """Layers of an actor and a critic, which share the hidden layers or have one set each."""

    layers: list[tuple[Array, Array]]
    """Hidden layers: weights (K, D, H) and biases (K, 1, H).

    K is 1 if actor and critic share them, else 2: first the actor's, then the critic's.
    """
    heads: Mapping[str, NDArray[Any]]
    """``actor.weight`` (H, A), ``actor.bias`` (A,), ``critic.weight`` (H, 1) and ``critic.bias``
    (1,)."""
    head_bias: Array
    """Bias of the actor's head, (1, A)."""
    activation: Activation
    """Activation after each hidden layer."""


def activate(x: Array, activation: Activation) -> None:
    """Apply ``tanh`` or ``relu`` to `x` in place."""
    if activation == "tanh":
        np.tanh(x, out=x)
    else:
        # The maximum of two arrays takes a third of the time of that of an array and a number.
        zeros: Array | float = np.zeros(x.shape[-1], dtype=x.dtype) if x.size > FEW else 0.0
        np.maximum(x, zeros, out=x)
