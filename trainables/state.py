"""What may stand in a checkpoint: data only, normalised, packed, scanned and read.

Allowed are dict (keys: str, or int of up to 64 bits), list, tuple, set, frozenset, str, bytes,
int, float, bool, None, numpy arrays and scalars (bool, integer, float, complex), torch tensors of
these dtypes and of bfloat16, deque, and classes registered with `state_type`. OrderedDict and
defaultdict become dict. All else is refused, by path.

What comes back equals what went in: dtypes, shapes, Fortran order and a deque's length limit
included. Arrays come back writable and as copies; tensors on the CPU and without gradient. Two
mentions of one object come back as two objects: a state must not rely on aliasing.

Packed state is a pickle (protocol 4, no memo) of plain containers and constants, with large
arrays beside it. Reading imports and calls nothing that the bytes name: `trainables.pickle_scan`
refuses such bytes before they are loaded.
"""

import io
import pickle  # noqa: TID251 the one place that may; what it loads has been scanned
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from trainables import tagged
from trainables.errors import CorruptCheckpoint, StateError, WrongFormat, printable
from trainables.pickle_scan import MAX_BYTES, MAX_DEPTH, MAX_OPCODES, scan
from trainables.tagged import INLINE_BYTES, TAG, state_type

__all__ = ["Packed", "normalise", "pack", "state_type", "unpack"]

#: Most values in one state; each needs at most two opcodes, and a few are needed around them.
MAX_VALUES: Final = MAX_OPCODES // 2 - 100
_INT64: Final = 2**63
_MAX_INT_BITS = 8 * 255 - 1  # LONG1: 255 bytes, one bit of them the sign
_CONSTANTS: Final = frozenset({NoneType, bool, float, str})


@dataclass(frozen=True)
class Packed:
    """A state as bytes; `arrays` are in C order and may be views of the state's own."""

    pickled: bytes
    arrays: list[NDArray[Any]]


def normalise(value: Any, path: str = "state") -> Any:
    """`value` as plain containers, constants, tagged dicts and large arrays, the latter in C order.

    Raises:
        StateError: something that cannot stand in a checkpoint; its path starts with `path`.
    """
    return _Normaliser().visit(value, (None, path), 0)


def pack(state: Any, path: str = "state") -> Packed:
    """Normalise `state` and turn it into bytes and arrays.

    Raises:
        StateError: something that cannot stand in a checkpoint, or too much of it.
    """
    buffer = io.BytesIO()
    pickler = _Pickler(buffer)
    pickler.dump(normalise(state, path))
    pickled = buffer.getvalue()
    if len(pickled) > MAX_BYTES:
        found = f"{len(pickled)} bytes outside arrays (at most {MAX_BYTES})"
        raise StateError(path, found, "hold large data in numpy arrays or bytes")
    return Packed(pickled, pickler.arrays)


def unpack(pickled: bytes, arrays: Sequence[NDArray[Any]], source: object = "checkpoint") -> Any:
    """The state that `pack` was given; `source` names the file in errors.

    Raises:
        CorruptCheckpoint: the bytes are not what `pack` writes.
        WrongFormat: they hold a registered class that this program does not know.
    """
    try:
        scan(pickled, len(arrays))
        return _restore(_Unpickler(pickled, arrays).load())
    except tagged.UnknownType as error:
        raise WrongFormat(source, str(error)) from error
    except Exception as error:  # bytes from outside fail in any way
        reason = f"its state cannot be read: {type(error).__name__}: {error}"
        raise CorruptCheckpoint(source, printable(reason)) from error


# ---- writing ----------------------------------------------------------------------------------

#: Where a value was found: the path of what holds it, and its key or index there.
_Path = tuple[Any, str | int]


class _Normaliser:
    """One walk over a state, counting its values."""

    def __init__(self) -> None:
        self.values = 0
        self.walks: dict[type, Callable[[Any, _Path, int], Any]] = {
            int: self._int,
            bytes: self._bytes,
            list: self._list,
            tuple: self._tuple,
            dict: self._dict,
            OrderedDict: self._dict,
            defaultdict: self._dict,
            set: self._set,
            frozenset: self._set,
            np.ndarray: self._array,
        }

    def visit(self, value: Any, path: _Path, depth: int) -> Any:
        """The normal form of `value`, which lies inside `depth` containers."""
        if type(value) in _CONSTANTS:
            return value
        walk = self.walks.get(type(value))
        return walk(value, path, depth) if walk else self._tagged(value, path, depth)

    def _enter(self, values: int, path: _Path, depth: int) -> None:
        self.values += values
        if depth >= MAX_DEPTH:
            found = f"nesting deeper than {MAX_DEPTH} levels"
            _refuse(path, found, "flatten it; it may contain itself")
        if self.values > MAX_VALUES:
            found = f"more than {MAX_VALUES} values"
            _refuse(path, found, "hold long lists of numbers in numpy arrays")

    def _int(self, value: int, path: _Path, _: int) -> int:
        if value.bit_length() > _MAX_INT_BITS:
            found = f"an int of {value.bit_length()} bits"
            _refuse(path, found, f"use at most {_MAX_INT_BITS} bits")
        return value

    def _bytes(self, value: bytes, path: _Path, depth: int) -> Any:
        return value if len(value) <= INLINE_BYTES else self._tagged(value, path, depth)

    def _items(self, value: Iterable[Any], path: _Path, depth: int) -> list[Any]:
        inside = depth + 1
        return [
            item
            if (kind := type(item)) in _CONSTANTS or (kind is int and -_INT64 <= item < _INT64)
            else self.visit(item, (path, index), inside)
            for index, item in enumerate(value)
        ]

    def _list(self, value: list[Any], path: _Path, depth: int) -> list[Any]:
        self._enter(1 + len(value), path, depth)
        return self._items(value, path, depth)

    def _tuple(self, value: tuple[Any, ...], path: _Path, depth: int) -> tuple[Any, ...]:
        self._enter(1 + len(value), path, depth)
        return tuple(self._items(value, path, depth))

    def _set(self, value: set[Any] | frozenset[Any], path: _Path, depth: int) -> Any:
        self._enter(1 + len(value), path, depth)
        for item in value:
            if not _is_hashed_alike(item):
                found = f"{_described(item)} in a set"
                _refuse(path, found, "use str, float, bool, None, short bytes and ints of 64 bits")
        return value

    def _dict(self, value: dict[Any, Any], path: _Path, depth: int) -> dict[Any, Any]:
        self._enter(1 + 2 * len(value), path, depth)
        for key in value:
            if not _is_key(key):
                _refuse(path, f"the key {_described(key)}", "use str, or int of up to 64 bits")
        inside = depth + 1
        return {
            key: item if type(item) in _CONSTANTS else self.visit(item, (path, key), inside)
            for key, item in value.items()
        }

    def _array(self, value: NDArray[Any], path: _Path, depth: int) -> Any:
        try:
            encoded = tagged.encode_array(value)
        except tagged.NotData as error:
            _refuse(path, error.found, error.remedy)
        return self._fields(encoded, path, depth) if isinstance(encoded, dict) else encoded

    def _tagged(self, value: Any, path: _Path, depth: int) -> dict[str, Any]:
        try:
            fields = tagged.encode(value)
        except tagged.NotData as error:
            _refuse(path, error.found, error.remedy)
        return self._fields(fields, path, depth)

    def _fields(self, fields: dict[str, Any], path: _Path, depth: int) -> dict[str, Any]:
        self._enter(1 + 2 * len(fields), path, depth)
        return {name: self.visit(field, path, depth + 1) for name, field in fields.items()}


def _is_key(key: object) -> bool:
    if isinstance(key, str):
        return type(key) is str and key != TAG
    return type(key) is int and -_INT64 <= key < _INT64


def _is_hashed_alike(item: object) -> bool:
    """Whether a set may hold `item`: a constant whose hash nobody can make collide."""
    if type(item) is bytes:
        return len(item) <= INLINE_BYTES
    if type(item) is int:
        return _is_key(item)
    return type(item) in _CONSTANTS


def _described(value: object) -> str:
    text = repr(value) if isinstance(value, (str, int, float)) else "…"
    return f"{printable(text[:60])} of type {type(value).__name__}"


def _refuse(path: _Path, found: str, remedy: str) -> NoReturn:
    raise StateError(_written(path), found, remedy)


def _written(path: _Path) -> str:
    holder, step = path
    if holder is None:
        return str(step)
    return _written(holder) + (f"[{step}]" if isinstance(step, int) else f".{printable(step)}")


class _Pickler(pickle.Pickler):
    """Moves arrays out of the pickle; a normalised state holds nothing else that needs care."""

    def __init__(self, buffer: io.BytesIO) -> None:
        super().__init__(buffer, protocol=4)
        self.fast = True
        self.arrays: list[NDArray[Any]] = []

    def persistent_id(self, value: Any) -> int | None:
        if type(value) is not np.ndarray:
            return None
        self.arrays.append(value)
        return len(self.arrays) - 1


# ---- reading ----------------------------------------------------------------------------------


class _Unpickler(pickle.Unpickler):
    """Puts copies of the arrays back in, and finds no class whatever the name."""

    def __init__(self, pickled: bytes, arrays: Sequence[NDArray[Any]]) -> None:
        super().__init__(io.BytesIO(pickled))
        self._arrays = arrays

    def persistent_load(self, number: Any) -> NDArray[Any]:
        if type(number) is not int or not 0 <= number < len(self._arrays):
            raise pickle.UnpicklingError(f"no array {number!r}")
        return self._arrays[number].copy()

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"names code to import: {module}.{name}")


def _restore(value: Any) -> Any:
    """`value` with its tagged dicts decoded, innermost first."""
    kind = type(value)
    if kind is dict:
        restored = {key: _restore(item) for key, item in value.items()}
        return tagged.decode(restored) if TAG in restored else restored
    if kind is list:
        return [_restore(item) for item in value]
    return tuple(_restore(item) for item in value) if kind is tuple else value
