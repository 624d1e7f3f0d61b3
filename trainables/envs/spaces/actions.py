"""Actions as flat rows: between a policy's choices and the actions that an environment takes.

A row has one column per number of the action, in the space's own order: a choice (int64) for a
Discrete, for each entry of a MultiDiscrete and for each bit of a MultiBinary, a real number for
each entry of a Box. The policy counts choices from 0. N rows, K columns.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from trainables.envs.spaces.leaves import count_choices, inner, leaf_values, named_leaves
from trainables.errors import ConfigError, type_of

Array = NDArray[Any]
#: Action space that is no Tuple or Dict.
ActionLeaf = spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary | spaces.Box
#: Largest number of a network's outputs: one for each choice and number of an action. Choices
#: together with real numbers are stored as float32, which holds integers up to 2**24 exactly.
MOST_CHOICES = 2**20
#: Largest number of columns that a message lists.
MOST_SHOWN = 8


@dataclass(frozen=True)
class ActionLayout:
    """The columns of a row of numbers that stands for an action, for example of a Tuple.

    A policy's head has one logit per choice of each column, column after column, and then one mean
    per real number.
    """

    sizes: tuple[int, ...]
    """Number of choices of each column; 0 for a real number."""
    scalar: bool = False
    """True for a single Discrete: a row is then one number, not a vector of length 1."""

    @cached_property
    def choice_columns(self) -> tuple[int, ...]:
        """Indices of the columns that are choices."""
        return tuple(i for i, size in enumerate(self.sizes) if size)

    @cached_property
    def real_columns(self) -> tuple[int, ...]:
        """Indices of the columns that are real numbers."""
        return tuple(i for i, size in enumerate(self.sizes) if not size)

    @property
    def logits(self) -> int:
        """Total number of logits of all choices."""
        return sum(self.sizes)

    @property
    def head_size(self) -> int:
        """Number of outputs of a policy's head: one per choice and one per real number."""
        return self.logits + len(self.real_columns)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one row: () for a single Discrete, else (K,)."""
        return () if self.scalar else (len(self.sizes),)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of rows in batches: int64 if all columns are choices, else float32."""
        return np.dtype(np.float32 if self.real_columns else np.int64)


class _QuickDiscrete(spaces.Discrete):
    """A Discrete with a fast `contains`: gymnasium's costs as much as a small environment."""

    def contains(self, x: Any) -> bool:
        """Return whether `x` is one of the choices."""
        if x.__class__ is np.int64:
            return int(self.start) <= int(x) < int(self.start) + int(self.n)
        return super().contains(x)


class _QuickMultiDiscrete(spaces.MultiDiscrete):
    """A MultiDiscrete with a fast `contains`."""

    def contains(self, x: Any) -> bool:
        """Return whether `x` is a row of choices."""
        if x.__class__ is np.ndarray and x.dtype == np.int64 and x.shape == self.shape:
            chosen = (x - self.start).view(np.uint64)  # one below the first is a very large one
            return 0 not in (chosen < self.nvec.view(np.uint64)).tobytes()
        return super().contains(x)


#: Space class → class with a fast `contains`.
_QUICK: dict[type, type] = {
    spaces.Discrete: _QuickDiscrete,
    spaces.MultiDiscrete: _QuickMultiDiscrete,
}


def speed_up_checks(env: Any) -> None:
    """Replace the class of gymnasium's action space by one whose `contains` is faster.

    gymnasium calls it in every step. Does nothing for other spaces, or for users' environments.
    """
    space = getattr(env, "action_space", None)
    whole = getattr(space, "dtype", None) == np.int64
    if type(env).__module__.startswith("gymnasium.") and whole and type(space) in _QUICK:
        space.__class__ = _QUICK[type(space)]


class ActionAdapter:
    """Converts a policy's rows of numbers to the environments' actions.

    With `clip`, real numbers are clipped to their bounds; with `normalize`, numbers from -1 to 1
    are first spread over their bounds, if they have both.
    """

    def __init__(self, space: spaces.Space[Any], clip: bool, normalize: bool = False) -> None:
        self._space = space
        self._layout = layout_of(space)
        low, high = bounds(space)
        choices = list(self._layout.choice_columns)
        starts = np.zeros(len(self._layout.sizes), dtype=self._layout.dtype)
        starts[choices] = low[choices]
        self._starts: Array = starts if starts.any() else np.zeros(0)
        if isinstance(space, spaces.Box) and space.dtype == np.float32:  # the bounds fit, too
            low, high = low.astype(np.float32), high.astype(np.float32)
        self.counts_from_zero = not len(self._starts)
        """True if the environment also counts choices from 0."""
        self._bounds = (low, high) if clip and self._layout.real_columns else None
        self.spread = spread(space) if normalize else None
        """Factors and offsets (K,) that spread the policy's numbers; None for no spreading."""

    def __call__(self, actions: Array) -> Array:
        """Return choices (N,) or rows (N, K) of a policy as actions (N, *A) of the environments.

        Choices then count as the environment does; real numbers are spread and clipped as this
        object was told. For a Tuple or Dict they stay rows (N, K), for `unflattener`.
        """
        rows = actions if self.counts_from_zero else actions + self._starts
        if self._layout.scalar:
            return rows
        if self.spread is not None:
            rows = rows * self.spread[0] + self.spread[1]
        if self._bounds is not None:
            rows = np.minimum(np.maximum(rows, self._bounds[0]), self._bounds[1])
        if not isinstance(self._space, ActionLeaf):
            return np.asarray(rows, dtype=_sent_type(self._layout))
        shape = (len(rows), *(self._space.shape or ()))
        return np.asarray(rows.reshape(shape), dtype=self._space.dtype)

    def bounded(self, actions: Array) -> Array:
        """Return a policy's rows (N, …), clipped if and where `__call__` would clip them."""
        if self._bounds is None:
            return actions
        low, high = (self.inverse(one) for one in self._bounds)
        return np.minimum(np.maximum(actions, low), high)

    def inverse(self, rows: Array) -> Array:
        """Return a policy's rows for rows (…, K) in the environment's numbers, without clipping."""
        if self.spread is not None:
            rows = (rows - self.spread[1]) / self.spread[0]
        return rows if self.counts_from_zero else rows - self._starts


#: Half the width and the middle of each column of an action row (K,), float32.
Spread: TypeAlias = tuple[Array, Array]
#: Bounds from here on are those of a number's type, which environments write for none.
UNBOUNDED = float(np.finfo(np.float32).max) / 2


def spread(space: spaces.Space[Any]) -> Spread | None:
    """Return factors and offsets (K,) that map -1 to 1 to each column's bounds.

    Choices, and numbers without both bounds, have factor 1 and offset 0; bounds from `UNBOUNDED` on
    are none. Returns None if all columns have these.
    """
    low, high = bounds(space)
    real = np.isin(np.arange(len(low)), layout_of(space).real_columns)
    within = real & (np.abs(low) < UNBOUNDED) & (np.abs(high) < UNBOUNDED) & (high > low)
    half = np.where(within, np.where(within, high, 0) / 2 - np.where(within, low, 0) / 2, 1.0)
    middle = np.where(within, np.where(within, high, 0) / 2 + np.where(within, low, 0) / 2, 0.0)
    if (half == 1).all() and (middle == 0).all():
        return None
    return half.astype(np.float32), middle.astype(np.float32)


def _sent_type(layout: ActionLayout) -> type[np.int64 | np.float64]:
    """Return the dtype of an action row that is sent to an environment."""
    # Not float32: the float32 nearest to a bound may lie beyond it.
    return np.float64 if layout.real_columns else np.int64


def layout_of(space: spaces.Space[Any]) -> ActionLayout:
    """Return the columns of a row that stands for an action of `space`.

    Raises ConfigError if no policy can act in this space.
    """
    _check_size(space)
    sizes = tuple(size for leaf in leaves(space) for size in _sizes(leaf))
    return ActionLayout(sizes, scalar=isinstance(space, spaces.Discrete))


def _check_size(space: spaces.Space[Any]) -> None:
    """Raise ConfigError for an action space with nothing to choose, or too much for a network."""
    outputs = sum(count_choices(leaf) for leaf in leaves(space))
    if not outputs:
        hint = "give it a dummy choice with a gymnasium.ActionWrapper, for example Discrete(1)"
        problem = f"its action space is {space}, which leaves nothing to choose"
        raise ConfigError("env", str(space), hint=hint, problem=problem)
    if outputs > MOST_CHOICES:
        raise ConfigError(
            "env",
            str(space),
            f"at most {MOST_CHOICES}",
            "split them into several columns (MultiDiscrete) or represent them as numbers (Box) in "
            "a gymnasium.ActionWrapper",
            f"its action space {space} has {outputs} choices, for each of which a policy computes "
            "one number",
        )


def leaves(space: spaces.Space[Any]) -> Iterator[ActionLeaf]:
    """Yield the parts of a space that are neither Tuple nor Dict, in the order of their columns.

    Raises ConfigError for a part that no policy can choose.
    """
    for name, leaf in named_leaves(space, "action").items():
        whole = isinstance(leaf, spaces.Box) and not np.issubdtype(leaf.dtype, np.floating)
        if not isinstance(leaf, ActionLeaf) or whole:
            kind = "a Box of integers" if whole else f"{type_of(leaf)}"
            if name == "action":
                problem = f"its action space is {leaf}, and policies cannot choose from {kind}"
            else:
                problem = f"{name} in its action space is {leaf}, and policies cannot choose from "
                problem += kind
            allowed = (
                "Discrete, MultiDiscrete, MultiBinary or a float Box, alone or in a Tuple or Dict"
            )
            hint = _whole_numbers_remedy(leaf) if isinstance(leaf, spaces.Box) else _WRAP
            raise ConfigError("env", str(leaf), allowed, hint, problem)
        yield leaf


_WRAP = (
    "wrap the environment in a gymnasium.ActionWrapper, and give the function that returns it: "
    "env: package.module:function"
)
"""Advice for an environment whose actions no policy can choose."""


def _whole_numbers_remedy(box: spaces.Box) -> str:
    """Return advice for actions that are a Box of integers: the same choices in another space.

    A Box without bounds, of several axes or with many values has no such space; then it is to wrap
    the environment.
    """
    low, high = ([int(one) for one in bound.reshape(-1)] for bound in (box.low, box.high))
    counts = [top - bottom + 1 for bottom, top in zip(low, high, strict=True)]
    if len(box.shape) != 1 or len(counts) > MOST_SHOWN or sum(counts) > MOST_CHOICES:
        return f"{_WRAP}; its action_space may be a float Box whose values it rounds"
    start = f", start={low}" if any(low) else ""
    return f"use MultiDiscrete({counts}{start}) instead"


def _sizes(leaf: ActionLeaf) -> list[int]:
    """Return the number of choices of each column of a leaf; 0 for a real number."""
    if isinstance(leaf, spaces.Discrete):
        return [int(leaf.n)]
    if isinstance(leaf, spaces.MultiDiscrete):
        return [int(n) for n in leaf.nvec.reshape(-1)]
    width = int(np.prod(leaf.shape))
    return [2 if isinstance(leaf, spaces.MultiBinary) else 0] * width


def bounds(space: spaces.Space[Any]) -> tuple[Array, Array]:
    """Return the lowest and the highest number of each column in the environment's terms.

    Each is (K,) of float64; a choice that starts at s has s and s + n - 1. Raises ConfigError for a
    part that no policy can choose.
    """
    lows: list[Array] = []
    highs: list[Array] = []
    for leaf in leaves(space):
        if isinstance(leaf, spaces.Box):
            low, high = leaf.low, leaf.high
        else:
            start = np.asarray(getattr(leaf, "start", 0)).reshape(-1)
            low = np.broadcast_to(start, (len(_sizes(leaf)),))
            high = low + np.array(_sizes(leaf)) - 1
        lows.append(np.asarray(low, dtype=np.float64).reshape(-1))
        highs.append(np.asarray(high, dtype=np.float64).reshape(-1))
    return np.concatenate(lows), np.concatenate(highs)


def rows_of(space: spaces.Space[Any], actions: Iterable[Any]) -> Array:
    """Return an environment's actions as a policy's rows: choices (N,) or rows (N, K).

    Choices then count from 0; real numbers stay as they are.
    """
    layout = layout_of(space)
    rows = np.array([row_of(space, action) for action in actions], dtype=np.float64)
    choices = list(layout.choice_columns)
    rows[:, choices] -= bounds(space)[0][choices]
    made = np.asarray(rows, dtype=layout.dtype)
    return made[:, 0] if layout.scalar else made


#: A function from an adapter's row to an action of the environment.
Unflattener = Callable[[Array], Any]


def row_space(space: spaces.Space[Any]) -> spaces.Box:
    """Return the Box of rows (K,) that stand for Tuple or Dict actions of an environment."""
    dtype = _sent_type(layout_of(space))
    low, high = bounds(space)
    return spaces.Box(low.astype(dtype), high.astype(dtype), dtype=dtype)


def row_of(space: spaces.Space[Any], action: Any) -> Array:
    """Return an environment's action as one vector (K,) of its numbers, as the environment counts.

    Choices are not counted from 0, unlike in a policy's rows.
    """
    return np.concatenate([np.reshape(leaf, -1) for leaf in leaf_values(space, action)])


def unflattener(space: spaces.Space[Any]) -> Unflattener:
    """Return a function that turns a row (K,) into an action of `space`.

    For a space that is not nested, that function returns its argument.
    """
    if isinstance(space, ActionLeaf):
        return lambda row: row  # it has the form already
    return _unflattener(space, 0)[0]


def _unflattener(space: spaces.Space[Any], first: int) -> tuple[Unflattener, int]:
    """Return a function that reads an action of `space` from a row, and the column after its last.

    It reads from column `first` on, and rounds choices and bits.
    """
    if isinstance(space, spaces.Tuple | spaces.Dict):
        parts = {}
        for key, part in inner(space):
            parts[key], first = _unflattener(part, first)
        if isinstance(space, spaces.Tuple):
            return (lambda row: tuple(read(row) for read in parts.values())), first
        return (lambda row: {key: read(row) for key, read in parts.items()}), first
    width = int(np.prod(space.shape or ()))
    last = first + width
    if isinstance(space, spaces.Discrete):
        return (lambda row: np.int64(np.rint(row[first]))), last
    shape, dtype = space.shape, space.dtype
    if isinstance(space, spaces.Box):
        return (lambda row: np.array(row[first:last], dtype=dtype).reshape(shape)), last
    return (lambda row: np.rint(row[first:last]).astype(dtype).reshape(shape)), last
