"""The state of an environment object as plain data: captured and put back.

An environment's state is taken to be the plain attributes of its layers (wrappers down to the
unwrapped one) and the positions of its random streams. One attribute that is not plain makes it
inexact at once; whether the plain ones are all of it is measured in `levels`.
"""

import collections
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from trainables import rng

MAX_DEPTH = 16

#: Links between layers and how they were made: rebuilt with the environment, no state.
STRUCTURE = frozenset({"env", "spec", "_cached_spec", "_saved_kwargs", "metadata"})

#: What an attribute may be without being state: it is made anew with the environment.
CODE = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType, np.dtype)

Encoded = list[Any]


class _NotPlainError(Exception):
    """The value is not plain data."""


def capture(unit: Any) -> dict[str, Any]:
    """The state of one environment: entry ``layers``, outermost first: name → [kind, data]."""
    return {"layers": [_capture_layer(layer) for layer in _layers(unit)]}


def restore(unit: Any, state: Mapping[str, Any]) -> None:
    """Put `state` into an environment that was made alike and has been reset once."""
    for layer, attributes in zip(_layers(unit), state["layers"], strict=True):
        for name, encoded in attributes.items():
            current = getattr(layer, name, None)
            value = _decode(encoded, current)
            if value is not current:
                setattr(layer, name, value)


def left_out(unit: Any) -> list[str]:
    """Names of attributes that `capture` cannot hold; where there are any, nothing is exact."""
    return [
        name
        for layer in _layers(unit)
        for name, value in vars(layer).items()
        if name not in STRUCTURE and not isinstance(value, CODE) and not _is_plain(value)
    ]


def seed_spaces(unit: Any, seed: int) -> None:
    """Give every space of every layer a stream of its own: an environment may draw from them."""
    for depth, layer in enumerate(_layers(unit)):
        for name, value in vars(layer).items():
            if isinstance(value, spaces.Space):
                value.seed(rng.integer(seed, "space", depth, name) % 2**31)


def _layers(unit: Any) -> Iterator[Any]:
    while isinstance(unit, gymnasium.Wrapper):
        yield unit
        unit = unit.env
    yield unit


def _capture_layer(layer: Any) -> dict[str, Encoded]:
    captured: dict[str, Encoded] = {}
    for name, value in vars(layer).items():
        if name in STRUCTURE:
            continue
        try:
            captured[name] = _encode(value)
        except _NotPlainError:
            continue
    return captured


def _is_plain(value: Any) -> bool:
    try:
        _encode(value)
    except _NotPlainError:
        return False
    return True


def _encode(value: Any, depth: int = 0) -> Encoded:
    """[kind, data], where data are plain; kinds keep what plain data alone would lose."""
    if depth > MAX_DEPTH:
        raise _NotPlainError
    if value is None or type(value) in (bool, int, float, str, bytes):
        return ["plain", value]
    if isinstance(value, np.random.Generator):
        return ["generator", rng.get_generator_state(value)]
    if isinstance(value, np.generic) and value.dtype.kind in "biufc":
        return ["scalar", np.asarray(value)]
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
        return ["array", value.copy()]
    if isinstance(value, spaces.Space):
        return ["space", _encode_space(value)]
    return _encode_container(value, depth + 1)


def _encode_container(value: Any, depth: int) -> Encoded:
    if type(value) in (list, tuple, set):
        items = sorted(value) if isinstance(value, set) else value
        return [type(value).__name__, [_encode(item, depth) for item in items]]
    if isinstance(value, dict) and type(value) is dict:
        return ["dict", [[_encode(k, depth), _encode(v, depth)] for k, v in value.items()]]
    if isinstance(value, collections.deque):
        return ["deque", [value.maxlen, [_encode(item, depth) for item in value]]]
    raise _NotPlainError


def _encode_space(space: spaces.Space[Any]) -> list[Any]:
    """The stream of a space (None: it has not drawn yet) and those of the spaces inside it."""
    # The attribute, not the property: asking the property would make a stream where there is none.
    own = space._np_random
    inner = [_encode_space(part) for part in _parts(space)]
    return [None if own is None else rng.get_generator_state(own), inner]


def _parts(space: spaces.Space[Any]) -> Sequence[spaces.Space[Any]]:
    if isinstance(space, spaces.Dict):
        return list(space.spaces.values())
    if isinstance(space, spaces.Tuple):
        return list(space.spaces)
    return []


def _decode(encoded: Encoded, current: Any) -> Any:
    """The value; streams and spaces are set in place on `current`, which is then returned."""
    kind, data = encoded
    if kind == "generator":
        return _decode_generator(data, current)
    if kind == "space":
        _decode_space(data, current)
        return current
    decoders: dict[str, Callable[[Any], Any]] = {
        "plain": lambda d: d,
        "scalar": lambda d: np.asarray(d)[()],
        "array": np.array,
        "list": _decode_all,
        "tuple": lambda d: tuple(_decode_all(d)),
        "set": lambda d: set(_decode_all(d)),
        "dict": lambda d: {_decode(k, None): _decode(v, None) for k, v in d},
        "deque": lambda d: collections.deque(_decode_all(d[1]), maxlen=d[0]),
    }
    return decoders[kind](data)


def _decode_all(items: list[Encoded]) -> list[Any]:
    return [_decode(item, None) for item in items]


def _decode_generator(state: Mapping[str, Any], current: Any) -> np.random.Generator:
    if isinstance(current, np.random.Generator):
        rng.set_generator_state(current, state)
        return current
    made = np.random.Generator(getattr(np.random, state["bit_generator"])())
    rng.set_generator_state(made, state)
    return made


def _decode_space(state: list[Any], space: spaces.Space[Any]) -> None:
    own, inner = state
    if own is not None:
        rng.set_generator_state(space.np_random, own)
    for part, saved in zip(_parts(space), inner, strict=True):
        _decode_space(saved, part)
