"""Contract of reset and step: the first breach raises an error that shows what was returned.

O is the shape of one observation. The sampler checks whether numbers are finite, for all
environments at once.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from trainables.errors import shorten, type_of

Array = NDArray[Any]
#: observation, reward, terminated, truncated, info
Outcome = tuple[Any, float, bool, bool, dict[str, Any]]


class EnvContractError(Exception):
    """An environment returned something that breaks gymnasium's contract.

    The message lacks the environment's name, which the EnvError that is raised from it has.
    """


class EnvChecker:
    """Checks what `step` and `reset` of one environment return, and converts observations.

    Only observations of a Box are checked here; the preprocessor that flattens others checks them.

    Args:
        space: the observation space.
        observe: function applied to a checked observation, or None for no change.
    """

    def __init__(
        self, space: spaces.Space[Any], observe: Callable[[Any], Any] | None = None
    ) -> None:
        self._space, self._observe = space, observe
        self._plain = isinstance(space, spaces.Box) and is_plain(space)
        self._shape = space.shape
        self._dtype = space.dtype

    def step(self, returned: Any) -> Outcome:
        """Check the five values that the environment's `step` returned, and return them.

        The reward becomes a float, the flags bools, and the observation is passed through
        `observe`. Raises EnvContractError for a wrong value; observations of other spaces than Box
        are left to `observe`.
        """
        try:
            observation, reward, terminated, truncated, info = returned
        except (TypeError, ValueError):
            raise _wrong_step(returned) from None
        if self._plain and not (  # as `fits` says, without a call in every step
            observation.__class__ is np.ndarray
            and observation.shape == self._shape
            and observation.dtype == self._dtype
        ):
            observation = self.convert(observation, "step")
        if reward.__class__ is not float:
            reward = float(reward) if isinstance(reward, np.floating) else _as_float(reward)
        if terminated.__class__ is not bool:
            terminated = _as_bool(terminated, "terminated")
        if truncated.__class__ is not bool:
            truncated = _as_bool(truncated, "truncated")
        if info.__class__ is not dict:
            info = _require_dict(info, "step")
        if self._observe is not None:
            observation = self._observe(observation)
        return observation, reward, terminated, truncated, info

    def reset(self, returned: Any) -> Any:
        """Check what the environment's `reset` returned; return the observation, after `observe`.

        The info is dropped. Raises EnvContractError for a wrong value; observations of other spaces
        than Box are left to `observe`.
        """
        if returned is None:
            raise EnvContractError(
                "reset() returned nothing; expected (observation, info), because every "
                "episode begins with reset(), also after an episode that a horizon has cut "
                "off"
            )
        if (
            not isinstance(returned, tuple)
            or len(returned) != 2
            or not isinstance(returned[1], dict)
        ):
            raise EnvContractError(
                f"reset() returned {shorten(returned)}; expected (observation, info), where "
                "info is a dict, as in gymnasium; the older gym interface returned the "
                "observation alone"
            )
        observation = returned[0]
        if self._plain and not self.fits(observation):
            observation = self.convert(observation, "reset")
        return observation if self._observe is None else self._observe(observation)

    def fits(self, observation: Any) -> bool:
        """Return whether an observation is an array of the space's shape and dtype."""
        return (
            observation.__class__ is np.ndarray
            and observation.shape == self._shape
            and observation.dtype == self._dtype
        )

    def convert(self, observation: Any, method: str) -> Array:
        """Return an observation of another type as an array (*O), in its own dtype.

        Errors say that `method` returned it. Raises EnvContractError if its shape is another or its
        dtype cannot be cast to the space's.
        """
        expected = f"shape {self._shape} and dtype {self._dtype}, as {self._space} promises"
        try:
            array = np.asarray(observation)
        except ValueError as error:
            raise EnvContractError(
                f"{method}() returned the observation {shorten(observation)}, which is not an "
                f"array ({error}); expected {expected}"
            ) from error
        seen = f"{method}() returned an observation of shape {array.shape} and dtype {array.dtype}"
        if array.shape != self._shape:
            raise EnvContractError(f"{seen}; expected {expected}")
        if self._dtype is not None and not np.can_cast(array.dtype, self._dtype, "same_kind"):
            raise EnvContractError(
                f"{seen}, {shorten(observation)}, which cannot be cast safely; expected {expected}"
            )
        return array


def is_plain(space: spaces.Space[Any]) -> bool:
    """Return whether elements of `space` are arrays of numbers, all of one shape."""
    return space.shape is not None and space.dtype is not None and space.dtype.kind in "biuf"


def refused_seed(error: TypeError) -> EnvContractError | None:
    """Return an EnvContractError for a TypeError that ``reset(seed=…)`` raised.

    Returns None if its message does not mention ``seed``, so that the cause is another one.
    """
    if "seed" not in str(error):
        return None
    return EnvContractError(
        f"reset(seed=…) raised TypeError: {error}; expected a reset that takes a seed, "
        "reset(self, *, seed=None, options=None), because otherwise no training could be "
        "repeated"
    )


def _wrong_step(returned: Any) -> EnvContractError:
    """Return the error for a step that is not five values."""
    count = f"{len(returned)} values" if isinstance(returned, tuple) else f"{type_of(returned)}"
    older = (
        (
            "; these are the four values of the older gym interface: split its done into "
            "terminated and truncated"
        )
        if isinstance(returned, tuple) and len(returned) == 4
        else ""
    )
    return EnvContractError(
        f"step() returned {count}, {shorten(returned)}; expected the five "
        f"(observation, reward, terminated, truncated, info){older}"
    )


def _as_float(reward: Any) -> float:
    """Return a reward as a float; raises EnvContractError if it is not one real number.

    Arrays of one number, integers and bools are accepted.
    """
    array = (
        np.asarray(reward) if isinstance(reward, int | np.number | np.bool | np.ndarray) else None
    )
    if array is None or array.size != 1 or array.dtype.kind not in "biuf":
        raise EnvContractError(
            f"step() returned the reward {shorten(reward)}, {type_of(reward)}; "
            "expected one real number"
        )
    return float(array.item())


def _as_bool(flag: Any, name: str) -> bool:
    """Return the flag `name` as a bool; raises EnvContractError if it is not one."""
    if not isinstance(flag, bool | np.bool):
        raise EnvContractError(
            f"step() returned {name} = {shorten(flag)}, {type_of(flag)}; expected True or False"
        )
    return bool(flag)


def _require_dict(info: Any, method: str) -> dict[str, Any]:
    """Return an info; raises EnvContractError if it is not a dict."""
    if not isinstance(info, dict):
        raise EnvContractError(
            f"{method}() returned the info {shorten(info)}, {type_of(info)}; "
            "expected a dict, which may be empty"
        )
    return info
