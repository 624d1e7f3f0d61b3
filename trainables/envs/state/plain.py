"""Values that environments hold as plain data and back, and fingerprints of them.

`encode` gives ``[kind, data]``; kinds keep what plain data alone would lose: tuples, sets, deques,
streams of chance, spaces, a simulator's objects.
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

MAX_DEPTH = 16
_PLAIN = frozenset({type(None), bool, int, float, str, bytes})

Encoded = list[Any]


class NotPlainError(Exception):
    """The value cannot be given as plain data."""


def is_plain(value: Any) -> bool:
    """Return whether `encode` accepts `value`."""
    try:
        encode(value)
    except NotPlainError:
        return False
    return True


def encode(value: Any, depth: int = 0) -> Encoded:
    """[kind, data], where data are plain; NotPlainError for what cannot be."""
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
    kind = type(value)
    if kind in (list, tuple, set):
        items = sorted(value, key=repr) if kind is set else value
        return [kind.__name__, [encode(item, depth) for item in items]]
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
    """The stream of a space (None: it has not drawn yet) and those of the spaces inside it."""
    # The attribute, not the property: asking the property would make a stream where there is none.
    own = space._np_random
    inner = [_encode_space(part) for part in _parts(space)]
    return [None if own is None else rng.get_generator_state(own), inner]


def _parts(space: spaces.Space[Any]) -> Sequence[spaces.Space[Any]]:
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        return []
    return [part for _, part in inner(space)]


def decode(encoded: Encoded, current: Any) -> Any:
    """The value that `encode` was given.

    Streams, spaces and simulations are set in place on `current`, which is then returned.
    """
    kind, data = encoded
    if kind == "plain":
        return data
    if kind == "generator":
        return _decode_generator(data, current)
    if kind in _IN_PLACE:
        _IN_PLACE[kind](current, data)
        return current
    if kind == "dict":
        before = current if isinstance(current, dict) else {}
        pairs = ((decode(key, None), value) for key, value in data)
        return {key: decode(value, before.get(key)) for key, value in pairs}
    return _DECODERS[kind](data)


def _decode_all(items: list[Encoded]) -> list[Any]:
    return [decode(item, None) for item in items]


def _decode_generator(state: Mapping[str, Any], current: Any) -> Any:
    if not isinstance(current, np.random.Generator):
        current = np.random.Generator(getattr(np.random, state["bit_generator"])())
    rng.set_generator_state(current, state)
    return current


def _decode_space(space: spaces.Space[Any], state: list[Any]) -> None:
    own, inner = state
    if own is not None:
        rng.set_generator_state(space.np_random, own)
    for part, saved in zip(_parts(space), inner, strict=True):
        _decode_space(part, saved)


_IN_PLACE: Mapping[str, Callable[[Any, Any], None]] = {
    "space": _decode_space,
    "mujoco data": mujoco.restore_data,
    "mujoco model": mujoco.check_model,
}
_DECODERS: Mapping[str, Callable[[Any], Any]] = {
    "scalar": lambda d: np.asarray(d)[()],
    "array": np.array,
    "letters": lambda d: np.frombuffer(d[2], dtype=d[0]).reshape(d[1]).copy(),
    "list": _decode_all,
    "tuple": lambda d: tuple(_decode_all(d)),
    "set": lambda d: set(_decode_all(d)),
    "deque": lambda d: collections.deque(_decode_all(d[1]), maxlen=d[0]),
}


def fingerprint(value: Any) -> str:
    """SHA-256 of a plain value; of the name of its type where it is not plain."""
    try:
        encoded = encode(value)
    except NotPlainError:
        encoded = ["no data", type(value).__qualname__]
    hashed = hashlib.sha256()
    _hash(encoded, hashed.update)
    return hashed.hexdigest()


def _hash(encoded: Any, update: Callable[[bytes], None]) -> None:
    """Feed numbers, words and arrays, each with its length, so that no two values read alike."""
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
