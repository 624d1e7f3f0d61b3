"""Between environment and policy: flat float32 observations, actions as the space wants them.

N lanes, D features of a flattened observation, A action dimensions.
"""

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from trainables.errors import EnvError, NotFiniteError

Array = NDArray[Any]


def flatten(observations: Array, size: int, name: str) -> NDArray[np.float32]:
    """(N, *O) as a new (N, D) float32 array.

    Args:
        observations: as the environments gave them.
        size: D, what the observation space promised.
        name: how errors call where they come from.

    Raises:
        EnvError: another number of features.
        NotFiniteError: NaN or infinity.
    """
    flat = np.array(observations, dtype=np.float32).reshape(len(observations), -1)
    if flat.shape[1] != size:
        raise EnvError(
            f"{name}: an observation of shape {np.shape(observations)[1:]}; "
            f"the observation space promised {size} numbers"
        )
    require_finite(flat, f"{name}, environment", "observation")
    return flat


def require_finite(values: Array, rows: str, what: str) -> None:
    """NotFiniteError that names the first row of `values` (N, …) which is not finite."""
    finite = np.isfinite(values)
    if not finite.all():
        row = int(np.argwhere(~finite)[0][0])
        raise NotFiniteError(f"{rows} {row}: {what} {values[row]} is not finite")


class ActionAdapter:
    """What an environment is sent for what the policy chose.

    Args:
        space: of one environment.
        clip: to its bounds.
    """

    def __init__(self, space: spaces.Discrete | spaces.Box, clip: bool) -> None:
        self._space = space
        self._clip = clip

    def __call__(self, actions: Array) -> Array:
        """(N,) choices or (N, A) vectors → (N, *A) as the space wants them."""
        if isinstance(self._space, spaces.Discrete):
            return np.asarray(actions + self._space.start)
        shaped = actions.reshape(len(actions), *self._space.shape)
        if self._clip:
            shaped = np.clip(shaped, self._space.low, self._space.high)
        return np.asarray(shaped, dtype=self._space.dtype)
