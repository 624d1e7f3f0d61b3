"""Checks of the values that callers give: observations, actions and log-probabilities."""

import copy
from typing import Any

import numpy as np
from gymnasium import spaces

from trainables.envs.calls.contract import is_plain
from trainables.envs.external.polled import EpisodeError
from trainables.envs.spaces.actions import layout_of
from trainables.errors import shorten

#: Largest distance of a log-probability from 0, for each number of an action; beyond it the ratio
#: to another policy's overflows.
MOST_LOGP = 40.0
#: Tolerance by which a log-probability may exceed 0.
ROUNDING = 1e-3
#: Largest float32.
LARGEST = float(np.finfo(np.float32).max)


def describe_place(episode_id: str, *agents: str) -> str:
    """Return an episode's name in errors, with that of one agent, if given."""
    of = "".join(f", agent {agent!r}" for agent in agents)
    return f"episode {shorten(episode_id)}{of}"


def checked_action(space: spaces.Space[Any], action: Any, subject: str) -> Any:
    """Return a copy of an action, in the space's dtype for a Box.

    Raises EpisodeError, which begins with `subject`, if it is outside the space.
    """
    if isinstance(space, spaces.Box):
        action = checked(space, action, subject)
    if not space.contains(action):
        raise EpisodeError(f"{subject} {shorten(action)} is not in {space}")
    return action if isinstance(space, spaces.Box) else copy.deepcopy(action)


def checked_logp(space: spaces.Space[Any], logp: Any, place: str) -> Any:
    """Return an action's log-probability, or None if it is None, unknown.

    Raises EpisodeError, which begins with `place`, if no action of the space can have it.
    """
    layout = layout_of(space)
    most = MOST_LOGP * len(layout.sizes)
    highest = most if layout.real_columns else 0.0
    if logp is None or (is_number(logp) and -most <= logp <= highest + ROUNDING):
        return logp
    expected = f"the log-probability of the action, from {-most:g} to {highest:g}, or None"
    raise EpisodeError(f"{place}: the logp is {shorten(logp)}; expected {expected}")


def is_number(value: Any) -> bool:
    """Return whether a value is a number, or a bool, that float32 can hold."""
    try:
        finite = abs(float(value)) <= LARGEST
    except (OverflowError, TypeError, ValueError):
        return False
    return finite and isinstance(value, int | float | np.integer | np.floating)


def checked(space: spaces.Space[Any], value: Any, subject: str) -> Any:
    """Return a copy of an observation or action, in its space's dtype.

    Raises EpisodeError, which begins with `subject`, if its shape or type is wrong or a number is
    not finite; bounds are not checked. An element of a nested space has to be in the space.
    """
    if not is_plain(space):
        if not space.contains(value):
            raise EpisodeError(f"{subject} {shorten(value)} is not in {space}")
        return copy.deepcopy(value)
    try:
        given = np.asarray(value)
    except ValueError:
        given = np.array(None)
    fits = given.dtype.kind in "biuf" and given.shape == space.shape
    dtype: Any = space.dtype
    if not (fits and np.can_cast(given.dtype, dtype, "same_kind")):
        raise EpisodeError(
            f"{subject} has shape {given.shape} and dtype {given.dtype}; expected shape "
            f"{space.shape} and dtype {dtype}, as {space} promises"
        )
    with np.errstate(over="ignore"):
        held = np.array(given, dtype=dtype)
    if not np.isfinite(held).all():
        raise EpisodeError(f"{subject} {shorten(given)} is not finite in {dtype}")
    return held
