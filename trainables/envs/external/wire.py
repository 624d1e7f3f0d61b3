"""Spaces and their elements as JSON, for a policy server and its clients.

A number is a number, an array is nested lists, or its bytes in base64 if it is long; a Tuple is a
list, a Dict an object. All of it is data: nothing that was received is ever run.
"""

import base64
import binascii
import math
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np
from gymnasium import spaces

from trainables.envs.external.polled import EpisodeError
from trainables.envs.external.values import checked
from trainables.errors import shorten, type_of

#: Version of the protocol; server and clients refuse other versions.
PROTOCOL = 1
#: Reason why a client cannot run a policy itself.
CANNOT_RUN = (
    "is more than dense layers with a choice or real numbers, so clients cannot run it; use "
    'inference="remote"'
)
#: Number of elements beyond which an array is sent as bytes.
LONG = 256
Spaces = spaces.Space[Any] | Mapping[str, spaces.Space[Any]]
"""A space of one agent, or agent → space."""


def encode(space: Spaces, value: Any) -> Any:
    """Return an element of a space as JSON data.

    An array is a nested list, or base64 text of its bytes if it has more than `LONG` entries. Of
    spaces by agent, the result is agent → data, for each agent in `value`. Raises EpisodeError for
    an unknown agent.
    """
    if not isinstance(space, spaces.Space):
        names = {agent: _agent_name(space, agent, "a call") for agent in value}
        return {agent: encode(space[name], value[agent]) for agent, name in names.items()}
    if isinstance(space, spaces.Tuple):
        return [encode(part, one) for part, one in zip(space.spaces, value, strict=True)]
    if isinstance(space, spaces.Dict):
        return {key: encode(part, value[key]) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Discrete):
        return int(value)
    array = np.asarray(value, dtype=space.dtype)
    if array.size > LONG:
        return base64.b64encode(array.astype(_wire_dtype(space)).tobytes()).decode("ascii")
    return array.tolist()


def pack(array: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Return ``shape`` and ``values`` of an array as JSON data, in float32, for `unpack`."""
    space = spaces.Box(-np.inf, np.inf, array.shape, np.float32)
    return {"shape": list(array.shape), "values": encode(space, array)}


def unpack(data: Any) -> np.ndarray[Any, Any]:
    """Return the array, of float32, of which `pack` has made JSON data."""
    space = spaces.Box(-np.inf, np.inf, tuple(map(int, data["shape"])), np.float32)
    made: np.ndarray[Any, Any] = decode(space, data["values"], "an array")
    return made


def decode(space: Spaces, data: Any, subject: str) -> Any:
    """Return the element of a space that JSON data describe; `encode` is the inverse.

    Raises EpisodeError, which begins with `subject`, if it is not in the space; the bounds of a Box
    are not checked.
    """
    if not isinstance(space, spaces.Space):
        return _decode_each(space, data, subject)
    if isinstance(space, spaces.Tuple):
        if not isinstance(data, list) or len(data) != len(space.spaces):
            _refuse(subject, data, f"a list of {len(space.spaces)} values")
        pairs = enumerate(zip(space.spaces, data, strict=True))
        return tuple(decode(part, one, f"{subject}.{i}") for i, (part, one) in pairs)
    if isinstance(space, spaces.Dict):
        if not isinstance(data, dict) or data.keys() != space.spaces.keys():
            _refuse(subject, data, f"an object with the keys {', '.join(space.spaces)}")
        return {
            key: decode(part, data[key], f"{subject}.{key}") for key, part in space.spaces.items()
        }
    if isinstance(space, spaces.Discrete):
        if type(data) is not int or not space.contains(data):
            _refuse(subject, data, f"a whole number in {space}")
        return np.int64(data)
    return checked(space, _array(space, data, subject), subject)


def _decode_each(
    spaces_: Mapping[str, spaces.Space[Any]], data: Any, subject: str
) -> dict[str, Any]:
    """Return agent → element of its space, from JSON data by agent; raises EpisodeError."""
    if not isinstance(data, dict):
        _refuse(subject, data, f"an object with agents as keys ({', '.join(spaces_)})")
    return {
        agent: decode(
            spaces_[_agent_name(spaces_, agent, subject)], one, f"{subject} of agent {agent!r}"
        )
        for agent, one in data.items()
    }


def _array(space: spaces.Space[Any], data: Any, subject: str) -> Any:
    """Return an array from nested lists or base64 text; its values are not checked.

    Raises EpisodeError, which begins with `subject`, for another size or type.
    """
    if not isinstance(data, str):
        if not isinstance(data, list | int | float) or isinstance(data, bool):
            _refuse(subject, data, f"nested lists of shape {space.shape}")
        try:
            array = np.array(data)
        except ValueError:
            _refuse(subject, data, f"nested lists of shape {space.shape}")
        # JSON has one kind of numbers: a whole one may stand for a real one.
        real = space.dtype is not None and space.dtype.kind == "f" and array.dtype.kind in "iu"
        whole = not real and array.dtype.kind in "iu"
        if whole and not np.array_equal(array.astype(space.dtype), array):
            _refuse(subject, data, f"numbers that {space.dtype} can represent")
        return array.astype(space.dtype) if real or whole else array
    size = math.prod(space.shape or ()) * _wire_dtype(space).itemsize
    try:
        raw = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != size:
        _refuse(
            subject,
            data,
            f"base64 of {size} bytes, for shape {space.shape} and dtype {_wire_dtype(space)}",
        )
    return np.frombuffer(raw, _wire_dtype(space)).reshape(space.shape or ()).astype(space.dtype)


def _wire_dtype(space: spaces.Space[Any]) -> np.dtype[Any]:
    """Return the space's dtype in little-endian order."""
    return np.dtype(space.dtype).newbyteorder("<")


def _agent_name(agents: Mapping[str, Any], agent: Any, subject: str) -> str:
    """Return `agent` if it is one of `agents`; else EpisodeError, which begins with `subject`."""
    if agent not in agents:
        there = ", ".join(map(repr, agents))
        raise EpisodeError(f"{subject}: there is no agent {shorten(agent)}; the agents are {there}")
    return str(agent)


def _refuse(subject: str, data: Any, expected: str) -> NoReturn:
    """Raise EpisodeError: `subject` has these JSON data, something else was `expected`."""
    raise EpisodeError(f"{subject} {shorten(data)} does not fit; expected {expected}")


# ---- spaces --------------------------------------------------------------------------------------


def describe(space: spaces.Space[Any]) -> dict[str, Any]:
    """Return a space as JSON data; `parse_space` is the inverse.

    For example ``{"discrete": 3, "start": 0}``, or a dict of ``box`` (the shape), ``low``, ``high``
    and ``dtype``.

    Raises ValueError for a kind of space that has no such form.
    """
    if isinstance(space, spaces.Dict):
        return {"dict": {key: describe(part) for key, part in space.spaces.items()}}
    if isinstance(space, spaces.Tuple):
        return {"tuple": [describe(part) for part in space.spaces]}
    if isinstance(space, spaces.Discrete):
        return {"discrete": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiDiscrete):
        return {"multi_discrete": space.nvec.tolist(), "start": space.start.tolist()}
    if isinstance(space, spaces.MultiBinary):
        return {"multi_binary": list(space.shape)}
    if isinstance(space, spaces.Box):
        bounds = {"low": _bounds_to_json(space.low), "high": _bounds_to_json(space.high)}
        return {"box": list(space.shape), **bounds, "dtype": str(space.dtype)}
    raise ValueError(f"{type_of(space)}, which clients cannot receive")


def parse_space(data: Any) -> spaces.Space[Any]:
    """Return the space that JSON data of `describe` describe; raises ValueError for other data."""
    if not isinstance(data, Mapping):
        raise ValueError(f"{shorten(data)} is not a space")  # noqa: TRY004 as for its content
    try:
        return _parse_space(data)
    except (AssertionError, KeyError, OverflowError, TypeError) as error:
        why = f"it has no key {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{shorten(dict(data))} is not a space ({why})") from error


def _parse_space(data: Mapping[str, Any]) -> spaces.Space[Any]:
    """Return the space that a JSON object describes; any exception means that it is none."""
    if "dict" in data:
        return spaces.Dict({str(key): parse_space(one) for key, one in data["dict"].items()})
    if "tuple" in data:
        return spaces.Tuple([parse_space(one) for one in data["tuple"]])
    if "discrete" in data:
        return spaces.Discrete(int(data["discrete"]), start=int(data.get("start", 0)))
    if "multi_discrete" in data:
        nvec = np.array(data["multi_discrete"])
        return spaces.MultiDiscrete(nvec, start=np.broadcast_to(data.get("start", 0), nvec.shape))
    if "multi_binary" in data:
        return spaces.MultiBinary([int(one) for one in data["multi_binary"]])
    shape = tuple(int(one) for one in data["box"])
    dtype = np.dtype(data.get("dtype", "float32"))
    low, high = (
        _bounds_from_json(data.get(name), shape, dtype, sign)
        for name, sign in (("low", -1), ("high", 1))
    )
    return spaces.Box(low, high, shape, dtype.type)


def _bounds_to_json(values: np.ndarray[Any, Any]) -> Any:
    """Return a Box's bounds as JSON: one number if they are all equal, else a flat list.

    None stands for no bound.
    """
    flat = [None if math.isinf(one) else one for one in values.reshape(-1).tolist()]
    return flat[0] if len(set(flat)) == 1 else flat


def _bounds_from_json(data: Any, shape: tuple[int, ...], dtype: np.dtype[Any], sign: int) -> Any:
    """Return one bound of a Box from JSON: a number for all entries, or a list.

    None stands for infinity with the given `sign`, -1 or 1.
    """
    flat = data if isinstance(data, list) else [data] * math.prod(shape)
    return np.array([sign * np.inf if one is None else one for one in flat], dtype).reshape(shape)
