"""The normal form of a state: plain containers, constants, tagged dicts and arrays in C order.

`trainables.checkpoint.state` lists the allowed values; all others are refused with their path.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from types import NoneType
from typing import Any, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from trainables.checkpoint import tagged
from trainables.checkpoint.pickle_scan import MAX_DEPTH, MAX_OPCODES
from trainables.checkpoint.tagged import INLINE_BYTES, OPAQUE, TAG
from trainables.errors import StateError, printable

#: Largest number of values in one state: each needs at most two opcodes, the frame a few.
MAX_VALUES: Final = MAX_OPCODES // 2 - 100
#: Integers of 64 bits are at least -`_INT64` and below `_INT64`.
_INT64: Final = 2**63
#: Largest number of characters of a value in an error message.
_SHOWN: Final = 60
#: Maximum size of an integer, in bits.
_MAX_INT_BITS = 8 * 255 - 1  # LONG1: 255 bytes, one bit of them the sign
#: Types whose values are stored unchanged.
_CONSTANTS: Final = frozenset({NoneType, bool, float, str})


def normalise(value: Any, path: str = "state") -> Any:
    """Return `value` made only of what a checkpoint stores: containers, constants and arrays.

    Values of other types become dicts with a type tag. Raises StateError for a value that cannot be
    stored; `path` is the name of the whole in the message.
    """
    return Normaliser().visit(value, (None, path), 0)


#: Place of a value: the path of its container, and its key or index there.
Path = tuple[Any, str | int]


class Normaliser:
    """Converts one state to what a checkpoint stores, and counts its values.

    It also records whether some of these are bytes that may run code (`Opaque`).
    """

    def __init__(self) -> None:
        #: Number of values so far.
        self.values = 0
        #: True if the state contains bytes that may run code.
        self.opaque = False
        #: Type → method that normalises its values.
        self.walks: dict[type, Callable[[Any, Path, int], Any]] = {
            int: self._int,
            bytes: self._bytes,
            list: self._items,
            tuple: self._tuple,
            dict: self._dict,
            OrderedDict: self._dict,
            defaultdict: self._dict,
            set: self._set,
            frozenset: self._set,
            np.ndarray: self._array,
        }

    def visit(self, value: Any, path: Path, depth: int) -> Any:
        """Return a value in the form that is stored, converting its items as well.

        `path` is the value's place, `depth` the number of containers around it. Raises StateError,
        which names the path, if it cannot be stored.
        """
        if type(value) in _CONSTANTS:
            return value
        walk = self.walks.get(type(value))
        return walk(value, path, depth) if walk else self._tagged(value, path, depth)

    def _enter(self, values: int, path: Path, depth: int) -> None:
        """Add `values` to the count, before a container of as many values is visited.

        Raises StateError if there are too many in all, or the container is nested too deeply:
        `depth` is the number of containers around it.
        """
        self.values += values
        if depth >= MAX_DEPTH:
            found = f"nesting deeper than {MAX_DEPTH} levels"
            _refuse(path, found, "flatten it, and check that it does not contain itself")
        if self.values > MAX_VALUES:
            found = f"more than {MAX_VALUES} values"
            _refuse(path, found, "store long lists of numbers as numpy arrays")

    def _int(self, value: int, path: Path, _: int) -> int:
        """Return an int unchanged; raises StateError if it has more than 2039 bits."""
        if value.bit_length() > _MAX_INT_BITS:
            found = f"an int of {value.bit_length()} bits"
            _refuse(path, found, f"use at most {_MAX_INT_BITS} bits")
        return value

    def _bytes(self, value: bytes, path: Path, depth: int) -> Any:
        """Return bytes as they are, and as a tagged dict if longer than `INLINE_BYTES`."""
        return value if len(value) <= INLINE_BYTES else self._tagged(value, path, depth)

    def _items(self, value: Sequence[Any], path: Path, depth: int) -> list[Any]:
        """Return the normalised items of a list or tuple.

        Raises StateError if one cannot be stored, or the whole is too large or nested too deeply.
        """
        self._enter(1 + len(value), path, depth)
        inside = depth + 1
        return [
            item
            if (kind := type(item)) in _CONSTANTS or (kind is int and -_INT64 <= item < _INT64)
            else self.visit(item, (path, index), inside)
            for index, item in enumerate(value)
        ]

    def _tuple(self, value: tuple[Any, ...], path: Path, depth: int) -> tuple[Any, ...]:
        """Return a tuple of normalised items."""
        return tuple(self._items(value, path, depth))

    def _set(self, value: set[Any] | frozenset[Any], path: Path, depth: int) -> Any:
        """Return a set unchanged.

        Raises StateError if an item is not allowed in it, or the whole is too large or nested too
        deeply.
        """
        self._enter(1 + len(value), path, depth)
        for item in value:
            if not _is_set_item(item):
                found = f"{_describe(item)} in a set"
                _refuse(
                    path,
                    found,
                    "use str, float, bool, None, short bytes or ints of up to 64 bits",
                )
        return value

    def _dict(self, value: dict[Any, Any], path: Path, depth: int) -> dict[Any, Any]:
        """Return a plain dict of normalised values, also of an OrderedDict or defaultdict.

        Raises StateError if a key or value is not allowed, or the whole is too large or too deep.
        """
        self._enter(1 + 2 * len(value), path, depth)
        if TAG in value or set(map(type, value)) != {str}:
            for key in value:
                if not _is_key(key):
                    _refuse(
                        path,
                        f"the key {_describe(key)}",
                        "keys must be str, or int of up to 64 bits",
                    )
        inside = depth + 1
        return {
            key: item
            if (kind := type(item)) in _CONSTANTS or (kind is int and -_INT64 <= item < _INT64)
            else self.visit(item, (path, key), inside)
            for key, item in value.items()
        }

    def _array(self, value: NDArray[Any], path: Path, depth: int) -> Any:
        """Return a large array in C order, and a small or Fortran-ordered one as a tagged dict.

        A large array is copied only if it is not contiguous. Raises StateError if its dtype cannot
        be stored.
        """
        try:
            encoded = tagged.encode_array(value)
        except tagged.NotData as error:
            _refuse(path, error.found, error.remedy)
        if type(encoded) is not dict:
            return encoded
        if encoded[TAG] == "fortran":
            return self._fields(encoded, path, depth)
        # In normal form already: constants, and a shape.
        self._enter(1 + 2 * len(encoded), path, depth)
        self._enter(1 + value.ndim, path, depth + 1)
        return encoded

    def _tagged(self, value: Any, path: Path, depth: int) -> dict[str, Any]:
        """Return a scalar, tensor, deque, bytes, `Opaque` or registered object as a tagged dict.

        Sets `opaque` if it is `Opaque`. Raises StateError for any other type.
        """
        try:
            fields = tagged.encode(value)
        except tagged.NotData as error:
            _refuse(path, error.found, error.remedy)
        self.opaque |= fields[TAG] == OPAQUE
        return self._fields(fields, path, depth)

    def _fields(self, fields: dict[str, Any], path: Path, depth: int) -> dict[str, Any]:
        """Return the dict of a tagged value with its fields converted to what is stored."""
        self._enter(1 + 2 * len(fields), path, depth)
        return {name: self.visit(field, path, depth + 1) for name, field in fields.items()}


def parts_of(normal: Any, path: Path) -> list[tuple[Any, Path]]:
    """Return the values of a dict, list or tuple in stored form, each with its path.

    The fields of a tagged dict have the path of the dict. Empty for other values, sets too.
    """
    if isinstance(normal, dict):
        if TAG in normal:  # its fields are not places of the state
            return [(field, path) for field in normal.values()]
        return [(item, (path, key)) for key, item in normal.items()]
    if isinstance(normal, (list, tuple)):
        return [(item, (path, index)) for index, item in enumerate(normal)]
    return []


def _is_key(key: object) -> bool:
    """Return whether `key` may be a key of a dict in a state: a str, or an int of 64 bits.

    The key that marks tagged dicts is not allowed.
    """
    if isinstance(key, str):
        return type(key) is str and key != TAG
    return type(key) is int and -_INT64 <= key < _INT64


def _is_set_item(item: object) -> bool:
    """Return whether a set in a state may contain `item`: a constant of limited size.

    Long bytes and large ints are refused, since somebody could choose them to have equal hashes.
    """
    if type(item) is bytes:
        return len(item) <= INLINE_BYTES
    if type(item) is int:
        return _is_key(item)
    return type(item) in _CONSTANTS


def _describe(value: object) -> str:
    """Return a short description of a value, with its type."""
    if isinstance(value, int) and value.bit_length() > _INT64.bit_length():
        return f"an int of {value.bit_length()} bits"  # its digits take minutes
    shown = value[:_SHOWN] if isinstance(value, str) else value
    text = repr(shown) if isinstance(value, (str, int, float)) else "…"
    return f"{printable(text[:_SHOWN])} of type {type(value).__name__}"


def _refuse(path: Path, problem: str, remedy: str) -> NoReturn:
    """Raise StateError for the value at `path`: `problem` says what it is, `remedy` what to do."""
    raise StateError(format_path(path), problem, remedy)


def format_path(path: Path) -> str:
    """Return a path as text for messages, such as ``state.a[3]``."""
    holder, step = path
    if holder is None:
        return str(step)
    return format_path(holder) + (f"[{step}]" if isinstance(step, int) else f".{printable(step)}")
