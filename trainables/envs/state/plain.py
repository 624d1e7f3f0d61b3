"""Values that environments hold as plain data and back, and fingerprints of them.

`encode` returns ``[kind, data]``; kinds preserve what plain data alone would lose: tuples, sets,
deques, random streams, spaces, a simulator's objects.
"""

import collections
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from trainables.core import rng
from trainables.envs.spaces.leaves import inner
from trainables.envs.state import mujoco
from trainables.errors import EnvError

#: Largest nesting depth.
MAX_DEPTH = 16
#: Types that are plain as they are.
_PLAIN = frozenset({type(None), bool, int, float, str, bytes})

#: A kind and its plain data.
Encoded = list[Any]


class NotPlainError(Exception):
    """Raised for a value that is not plain data, so that it cannot be saved."""


def is_plain(value: Any) -> bool:
    """Return whether `encode` accepts `value`."""
    try:
        encode(value)
    except NotPlainError:
        return False
    return True


def encode(value: Any, depth: int = 0) -> Encoded:
    """Return a value of an environment's attribute as [kind, data], plain data for a checkpoint.

    `depth` is the number of containers around it. Raises NotPlainError for more than `MAX_DEPTH` of
    them, and for objects other than numbers, texts, containers, arrays, generators, spaces and
    MuJoCo's simulations.
    """
    if depth > MAX_DEPTH:
        raise NotPlainError
    if type(value) in _PLAIN:
        return ["plain", value]
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
        return ["array", value.copy()]
    if isinstance(value, np.random.Generator):
        return ["generator", rng.get_generator_state(value)]
    if isinstance(value, np.generic) and value.dtype.kind in "biufc":
        return ["scalar", np.asarray(value)]
    if isinstance(value, np.ndarray) and value.dtype.kind in "SU":
        return ["letters", [value.dtype.str, list(value.shape), value.tobytes()]]
    if isinstance(value, spaces.Space):
        return ["space", _encode_space(value)]
    return _encode_container(value, depth + 1)


def _encode_container(value: Any, depth: int) -> Encoded:
    """Return a list, tuple, set, dict, deque or simulation as [kind, data].

    `depth` is the number of containers around its items. Raises NotPlainError for other values.
    """
    kind = type(value)
    if kind in (list, tuple, set):
        items = sorted(value, key=repr) if kind is set else value
        encoded = [encode(item, depth) for item in items]
        if kind is set and any(item[0] in _IN_PLACE for item in encoded):
            raise NotPlainError  # its items have no order by which `decode` could find them
        return [kind.__name__, encoded]
    if kind is dict:
        return ["dict", [[encode(k, depth), encode(v, depth)] for k, v in value.items()]]
    if isinstance(value, collections.deque):
        return ["deque", [value.maxlen, [encode(item, depth) for item in value]]]
    if mujoco.is_data(value):
        return ["mujoco data", mujoco.capture_data(value)]
    if mujoco.is_model(value):
        return ["mujoco model", mujoco.fingerprint_model(value)]
    raise NotPlainError


def _encode_space(space: spaces.Space[Any]) -> list[Any]:
    """Return the states of the random streams of a space and its parts: [own, [part, …]].

    The own one is None if nothing was ever drawn from the space.
    """
    # The attribute, not the property: asking the property would make a stream where there is none.
    own = space._np_random
    inner = [_encode_space(part) for part in _parts(space)]
    return [None if own is None else rng.get_generator_state(own), inner]


def _parts(space: spaces.Space[Any]) -> Sequence[spaces.Space[Any]]:
    """Return the direct parts of a Tuple or Dict space; empty for other spaces."""
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        return []
    return [part for _, part in inner(space)]


def decode(encoded: Encoded, current: Any) -> Any:
    """Return the value that `encode` was given.

    Generators, spaces and simulations are restored in place in `current`, the attribute's present
    value, which is then returned; those in a container, in the items of `current`. Raises EnvError
    if `current` is another MuJoCo model than was encoded, or has no such space or simulation.
    """
    kind, data = encoded
    if kind == "plain":
        return data
    if kind == "generator":
        return _decode_generator(data, current)
    if kind in _IN_PLACE:
        if current is None:
            problem = f"its saved state has a {kind} that the newly created environment lacks"
            advice = "keep such objects in attributes, or in lists whose length does not change"
            raise EnvError(f"environment: {problem}; {advice}")
        _IN_PLACE[kind](current, data)
        return current
    if kind == "dict":
        before = current if isinstance(current, dict) else {}
        pairs = ((decode(key, None), value) for key, value in data)
        return {key: decode(value, before.get(key)) for key, value in pairs}
    if kind == "deque":
        longest, items = data
        return collections.deque(_decode_all(items, current), maxlen=longest)
    if kind in _SEQUENCES:
        return _SEQUENCES[kind](_decode_all(data, current))
    return _DECODERS[kind](data)


def _decode_all(items: list[Encoded], current: Any) -> list[Any]:
    """Return the values that `encode` was given, from a list of its results [kind, data].

    If `current` is a sequence of as many items, each value is restored in place in its item.
    """
    is_paired = isinstance(current, list | tuple | collections.deque) and len(current) == len(items)
    before = current if is_paired else [None] * len(items)
    return [decode(item, now) for item, now in zip(items, before, strict=True)]


def _decode_generator(state: Mapping[str, Any], current: Any) -> Any:
    """Return a numpy generator set to this state: `current` if it is one, else a new one."""
    if not isinstance(current, np.random.Generator):
        current = np.random.Generator(getattr(np.random, state["bit_generator"])())
    rng.set_generator_state(current, state)
    return current


def _decode_space(space: spaces.Space[Any], state: list[Any]) -> None:
    """Restore the random streams of a space and its parts, as `_encode_space` returned them."""
    own, inner = state
    if own is not None:
        rng.set_generator_state(space.np_random, own)
    for part, saved in zip(_parts(space), inner, strict=True):
        _decode_space(part, saved)


#: Kind → function (current value, data) that restores a value in place.
_IN_PLACE: Mapping[str, Callable[[Any, Any], None]] = {
    "space": _decode_space,
    "mujoco data": mujoco.restore_data,
    "mujoco model": mujoco.check_model,
}
#: Kind → function that makes the value from its data.
_DECODERS: Mapping[str, Callable[[Any], Any]] = {
    "scalar": lambda d: np.asarray(d)[()],
    "array": np.array,
    "letters": lambda d: np.frombuffer(d[2], dtype=d[0]).reshape(d[1]).copy(),
}
#: Kind → type of a container, made from the list of its items.
_SEQUENCES: Mapping[str, Callable[[list[Any]], Any]] = {"list": list, "tuple": tuple, "set": set}


def fingerprint(value: Any) -> str:
    """Return the SHA-256 of a value, hexadecimal; if it is not plain data, of its type's name."""
    try:
        encoded = encode(value)
    except NotPlainError:
        encoded = ["no data", type(value).__qualname__]
    hashed = hashlib.sha256()
    _hash(encoded, hashed.update)
    return hashed.hexdigest()


def _hash(encoded: Any, update: Callable[[bytes], None]) -> None:
    """Pass plain data to `update`, the method of a hash, in a form without collisions.

    Each number, text and array comes with its length or type.
    """
    if isinstance(encoded, list | dict):
        update(f"{len(encoded)} in {type(encoded).__name__}:".encode())
        items = encoded if isinstance(encoded, list) else encoded.items()
        for item in items:
            _hash(list(item) if isinstance(item, tuple) else item, update)
        return
    if isinstance(encoded, np.ndarray):
        update(f"{encoded.dtype} {encoded.shape}:".encode() + encoded.tobytes())
        return
    text = repr(encoded).encode()
    update(f"{len(text)}:".encode() + text)
