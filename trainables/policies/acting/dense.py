"""Dense layers in numpy: actor and critic, stacked where both have the same layers.

N rows, D features, H units, A numbers of the actor's head; float32.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainables.policies.architecture import Activation

Array = NDArray[np.float32]
#: Numbers that are fewer than it takes for numpy's vector instructions to be worth an array.
FEW = 2048


class Networks(NamedTuple):
    """An actor and a critic; with one set of hidden layers, or one for each."""

    layers: list[tuple[Array, Array]]
    """Hidden ones, weights (K, D, H) and biases (K, 1, H): of the actor first and of the critic
    last; K is 1 where they share them."""
    heads: Mapping[str, NDArray[Any]]
    """``weight`` (H, A) and ``bias`` (A,) of ``actor.`` and ``critic.``."""
    head_bias: Array
    """(1, A) of the actor."""
    activation: Activation
    """After each hidden layer."""


def activate(x: Array, activation: Activation) -> None:
    """``tanh`` or ``relu``, in place."""
    if activation == "tanh":
        np.tanh(x, out=x)
    else:
        # The greater of two arrays takes a third of the time of that of an array and a number.
        zeros: Array | float = np.zeros(x.shape[-1], dtype=x.dtype) if x.size > FEW else 0.0
        np.maximum(x, zeros, out=x)
