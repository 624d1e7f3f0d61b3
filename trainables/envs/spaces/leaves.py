"""Nested spaces as named leaves: the parts that are neither Tuple nor Dict, in the space's order.

A name is a path with dots, such as ``observation.position`` or ``action.0``; a space that is not
nested is one leaf with the plain name.
"""

import math
from collections.abc import Iterable
from typing import Any

from gymnasium import spaces

from trainables.errors import ConfigError, shorten


def named_leaves(space: spaces.Space[Any], name: str) -> dict[str, spaces.Space[Any]]:
    """Return dotted name → leaf of a nested space: each part that is neither Tuple nor Dict.

    Names begin with `name`. Raises ConfigError if two leaves have the same name.
    """
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        return {name: space}
    leaves: dict[str, spaces.Space[Any]] = {}
    for key, part in inner(space):
        inner_leaves = named_leaves(part, f"{name}.{key}")
        if twice := sorted(leaves.keys() & inner_leaves.keys()):
            problem = f"two parts of {shorten(space)} have the name {twice[0]}"
            hint = "use no dots in the keys of a Dict"
            raise ConfigError(name, str(space), hint=hint, problem=problem)
        leaves |= inner_leaves
    return leaves


def leaf_paths(space: spaces.Space[Any]) -> list[list[Any]]:
    """Return the list of keys and indices that lead to each leaf, in the order of `named_leaves`.

    A space that is not nested is one leaf, with an empty list.
    """
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        return [[]]
    return [[key, *rest] for key, part in inner(space) for rest in leaf_paths(part)]


def count_choices(leaf: spaces.Space[Any]) -> int:
    """Return the size of a leaf for a network: total number of choices, or of a Box's entries.

    A bit of a MultiBinary has two choices.
    """
    if isinstance(leaf, spaces.Discrete):
        return int(leaf.n)
    if isinstance(leaf, spaces.MultiDiscrete):
        return sum(int(n) for n in leaf.nvec.reshape(-1))
    width = math.prod(int(length) for length in leaf.shape or ())
    return 2 * width if isinstance(leaf, spaces.MultiBinary) else width


def leaf_values(space: spaces.Space[Any], value: Any) -> list[Any]:
    """Return the values of the leaves of an element of `space`, in the order of `named_leaves`."""
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        return [value]
    return [one for key, part in inner(space) for one in leaf_values(part, value[key])]


def inner(space: spaces.Tuple[Any] | spaces.Dict) -> Iterable[tuple[Any, spaces.Space[Any]]]:
    """Return (key or index, part) of each direct part of a Dict or Tuple."""
    return space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
