"""A user's class as an environment of compiled programs, checked function by function.

    class Corridor:
        observation_space = gymnasium.spaces.Box(0.0, 1.0, (1,))
        action_space = gymnasium.spaces.Discrete(2)
        limit = 50                              # steps after which an episode is truncated

        def __init__(self, length=10):          # env_config
            self.length = length

        def reset(self, key):
            return observation, state

        def step(self, key, state, action):
            return observation, state, reward, terminated

Functions and their arguments are in gymnax's order. They are traced by JAX: pure functions of
arrays, with all random numbers drawn from `key`. A state is any tree of arrays whose structure,
shapes and dtypes never change. `terminated` is True for ends of the episode itself only, since the
time limit is applied outside. Pixels of images are divided by their largest bound.

Observation, state and key are stored as the bits of one vector (S,) of uint32.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array, lax, random

from trainables.envs.compiled.contract import StepResult
from trainables.envs.spaces.images import part_divisor
from trainables.errors import ConfigError, shorten, type_of

#: Dtype → dtype of 32 bits in which its numbers are stored; those of 32 bits are not listed.
_WIDER = {
    **dict.fromkeys(("bool", "uint8", "uint16"), jnp.uint32),
    **dict.fromkeys(("int8", "int16"), jnp.int32),
    **dict.fromkeys(("float16", "bfloat16"), jnp.float32),
}


class UserEnvironment:
    """An object with a user's functions ``reset(key)`` and ``step(key, state, action)``, adapted.

    Its states may have any structure; here they are packed into one vector. All functions are
    checked when it is made.

    Args:
        made: the object.
        name: value of ``env``.

    Raises:
        ConfigError: a function or attribute is missing, or returns something else than it has to.
    """

    def __init__(self, made: Any, name: str) -> None:
        self._made, self._name = made, name
        for function, arguments in (("reset", "key"), ("step", "key, state, action")):
            if not callable(getattr(made, function, None)):
                raise self._wrong(f"{function}({arguments})", f"it has no function {function}")
        self.limit = self._checked_limit()
        self._seen = self._checked_observations()
        self.features = math.prod(self._seen.shape)
        self._divisor = part_divisor(self._seen)
        """Largest bound of an image, by which its pixels are divided as elsewhere; else 1."""
        self.choices, self.bounds = self._checked_actions()
        self._structure, self._leaves = self._checked_reset()
        self._check_step()

    def begin(self, key: Array) -> Array:
        """Return the first state (S,) of an episode, drawn with this random key.

        It holds the bits of a random key for the steps, the observation and the user's own state.
        """
        resetting, stepping = random.split(key)
        observation, state = self._made.reset(resetting)
        return self._packed(stepping, observation, state)

    def observe(self, state: Array) -> Array:
        """Return the observation (D,), in float32, that is stored in a state (S,)."""
        return lax.bitcast_convert_type(state[2 : 2 + self.features], jnp.float32)

    def step(self, state: Array, action: Array) -> StepResult:
        """Apply an action to a state (S,): a choice (), or real numbers (A,) within the bounds.

        The user's `step` gets a new random key, which is split from the one in the state. Returns
        next state, reward, and whether the episode was terminated; the time limit is not applied.
        """
        key, stepping = random.split(random.wrap_key_data(state[:2]))
        before = self._unpacked(state[2 + self.features :])
        sent = action if self.choices else action.reshape(self._made.action_space.shape)
        observation, after, reward, terminated = self._made.step(stepping, before, sent)
        packed = self._packed(key, observation, after)
        return StepResult(packed, jnp.float32(reward), jnp.bool_(terminated))

    # ---- states ------------------------------------------------------------------------------

    def _packed(self, key: Array, observation: Any, state: Any) -> Array:
        """Return random key, observation and the user's state as one vector (S,) of uint32 bits."""
        seen = jnp.asarray(observation, jnp.float32) / self._divisor
        leaves = [random.key_data(key), seen, *jax.tree.leaves(state)]
        return jnp.concatenate([_bits(one) for one in leaves])

    def _unpacked(self, bits: Array) -> Any:
        """Return the user's state from its bits, the last part of a vector of `_packed`."""
        found, at = [], 0
        for leaf in self._leaves:
            size = math.prod(leaf.shape)
            found.append(_from_bits(bits[at : at + size], leaf))
            at += size
        return jax.tree.unflatten(self._structure, found)

    # ---- checks ------------------------------------------------------------------------------

    def _wrong(self, allowed: str, problem: str) -> ConfigError:
        """Return a ConfigError about a `problem` of the user's class; `allowed` is expected."""
        return ConfigError("env", self._name, allowed, problem=f"{self._name}: {problem}")

    def _checked_limit(self) -> int:
        """Return the class's time limit in steps; raises ConfigError if it is no positive int."""
        limit = getattr(self._made, "limit", None)
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            problem = f"its limit is {shorten(limit)}"
            raise self._wrong(
                "a whole number of at least 1: the number of steps of its longest episode", problem
            )
        return limit

    def _checked_observations(self) -> spaces.Box:
        """Return the class's observation space.

        Raises ConfigError if it is not a Box, or a Box without numbers.
        """
        space = getattr(self._made, "observation_space", None)
        if not isinstance(space, spaces.Box) or not all(space.shape):
            problem = f"its observation_space is {shorten(space)}"
            raise self._wrong("a gymnasium.spaces.Box with at least one number", problem)
        return space

    def _checked_actions(self) -> tuple[int, tuple[tuple[float, ...], tuple[float, ...]]]:
        """Return the number of choices (0 for real numbers), and the bounds of real numbers.

        Raises ConfigError for any action space but a Discrete from 0 or a Box with finite bounds.
        """
        space = getattr(self._made, "action_space", None)
        if isinstance(space, spaces.Discrete) and space.start == 0:
            return int(space.n), ((), ())
        if isinstance(space, spaces.Box) and all(space.shape) and space.is_bounded():
            low, high = (np.ravel(one).tolist() for one in (space.low, space.high))
            return 0, (tuple(low), tuple(high))
        allowed = "a Discrete that begins at 0, or a Box with finite bounds"
        raise self._wrong(allowed, f"its action_space is {shorten(space)}")

    def _checked_reset(self) -> tuple[Any, Sequence[Any]]:
        """Return the tree structure of the user's states, and the shape and dtype of each array.

        Raises ConfigError unless `reset` returns an observation of its space's shape, and a state
        of at most 32-bit numbers.
        """
        given = self._traced("reset", self._made.reset, _any_key())
        if not isinstance(given, tuple) or len(given) != 2:
            raise self._wrong("(observation, state)", f"its reset(key) returns {_kind(given)}")
        self._check_observation("reset", given[0])
        leaves, structure = jax.tree.flatten(given[1])
        for path, leaf in jax.tree.leaves_with_path(given[1]):
            if not _is_storable(leaf.dtype):
                place, what = jax.tree_util.keystr(path), leaf.dtype
                raise self._wrong("numbers of at most 32 bits", f"its state{place} is {what}")
        return structure, leaves

    def _check_step(self) -> None:
        """Raise ConfigError unless `step` returns observation, state, reward and terminated.

        The observation must have its space's shape, the state the form that `reset` gave it, and
        the others must be one number each.
        """
        space = self._made.action_space
        like = jax.ShapeDtypeStruct(space.shape, jnp.int32 if self.choices else jnp.float32)
        state = jax.tree.unflatten(self._structure, self._leaves)
        given = self._traced("step", self._made.step, _any_key(), state, like)
        if not isinstance(given, tuple) or len(given) != 4:
            problem = f"its step(key, state, action) returns {_kind(given)}"
            raise self._wrong("(observation, state, reward, terminated)", problem)
        observation, after, reward, terminated = given
        self._check_observation("step", observation)
        for name, one in (("reward", reward), ("terminated", terminated)):
            if getattr(one, "shape", None) != ():
                seen = f"shape {one.shape}" if hasattr(one, "shape") else f"type {_kind(one)}"
                raise self._wrong("one number", f"its step returns a {name} of {seen}")
        before = _described(state)
        for path, about in _described(after).items():
            if before.get(path) != about:
                had = before.get(path, "absent")
                problem = f"its state{path} is {had} after reset, and {about} after step"
                raise self._wrong("states that always have the same form", problem)
        if jax.tree.structure(after) != self._structure:
            problem = "its reset and step return states of different structure"
            raise self._wrong("states that always have the same form", problem)

    def _check_observation(self, function: str, observation: Any) -> None:
        """Raise ConfigError unless what `function` returned has the observation space's shape."""
        shape = getattr(observation, "shape", None)
        if shape != self._seen.shape:
            seen = f"an observation of shape {shape}" if shape is not None else "no array"
            allowed = f"an observation of shape {self._seen.shape}, as its observation_space says"
            raise self._wrong(allowed, f"its {function} returns {seen}")

    def _traced(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return shapes and dtypes of what a user's function returns, without computing it.

        Raises ConfigError, which calls the function `name`, if JAX cannot trace it.
        """
        try:
            return jax.eval_shape(function, *arguments)
        except Exception as error:
            raised = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            problem = f"its {name} raised {shorten(raised)} when JAX traced it"
            raise self._wrong("a function that JAX can compile", problem) from error


def _any_key() -> Any:
    """Return shape and dtype of a random key of JAX."""
    return jax.eval_shape(random.key, 0)


def _bits(leaf: Any) -> Array:
    """Return the bits of an array's numbers as a vector of uint32, one for each number."""
    array = jnp.asarray(leaf)
    wide = array.astype(_WIDER.get(array.dtype.name, array.dtype))
    return lax.bitcast_convert_type(wide, jnp.uint32).ravel()


def _from_bits(bits: Array, like: Any) -> Array:
    """Return the array, of `like`'s shape and dtype, of which `_bits` returned the bits."""
    wide = _WIDER.get(like.dtype.name, like.dtype)
    return lax.bitcast_convert_type(bits, wide).reshape(like.shape).astype(like.dtype)


def _is_storable(dtype: Any) -> bool:
    """Return whether numbers of this dtype can be stored in 32 bits."""
    return dtype.name in _WIDER or dtype in (jnp.float32, jnp.int32, jnp.uint32)


def _described(state: Any) -> dict[str, str]:
    """Return path in a user's state → dtype and shape of the array there, as text."""
    return {
        jax.tree_util.keystr(path): f"{one.dtype}{list(one.shape)}"
        for path, one in jax.tree.leaves_with_path(state)
    }


def _kind(value: Any) -> str:
    """Return words about the type and length of a value that a user's function returned."""
    return f"{len(value)} values" if isinstance(value, tuple) else f"{type_of(value)}"
