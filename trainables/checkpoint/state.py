"""Contents of a checkpoint: data only, normalised, packed, scanned and read.

Allowed are dict (keys: str, or int of up to 64 bits), list, tuple, set, frozenset, str, bytes,
int, float, bool, None, numpy arrays and scalars (bool, integer, float, complex), torch tensors of
these dtypes and of bfloat16, deque, and classes registered with `state_type`. OrderedDict and
defaultdict become dict. All other objects are rejected with an error that contains their path.

A restored state equals the saved one, including dtypes, shapes, Fortran order and a deque's length
limit. Restored arrays are writable copies; restored tensors are on the CPU and have no gradient. An
object that occurs twice is restored as two objects, so a state must not rely on aliasing.

Packed state is a pickle (protocol 4, no memo) of plain containers and constants, with large
arrays beside it. Reading imports and calls nothing that the bytes name:
`trainables.checkpoint.pickle_scan` refuses such bytes before they are loaded.
"""

import io
import pickle  # noqa: TID251 the one place that may; what it loads has been scanned
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from trainables.checkpoint import tagged
from trainables.checkpoint.normal_form import (
    MAX_VALUES,
    Normaliser,
    Path,
    format_path,
    normalise,
    parts_of,
)
from trainables.checkpoint.pickle_scan import MAX_MEMORY, MEMORY_PER_BYTE, Refused, TooMuch, scan
from trainables.checkpoint.tagged import OPAQUE, TAG, state_type
from trainables.errors import CorruptCheckpoint, StateError, TrainableError, WrongFormat, printable

__all__ = ["MAX_VALUES", "Packed", "normalise", "pack", "state_type", "unpack"]

#: Types that may contain tagged dicts.
_CONTAINERS = frozenset({dict, list, tuple})
#: numpy's array type under a name that takes one look-up, since it is used for every value.
_ARRAY = np.ndarray
#: Largest number of parts of a container that are weighed to find the one that is too large.
_MOST_WEIGHED = 1000


@dataclass(frozen=True)
class Packed:
    """A state as a pickle of plain data, with the large arrays that it refers to by number."""

    pickled: bytes
    """Pickle of everything but the large arrays."""
    arrays: list[NDArray[Any]]
    """Large arrays in C order; they may be views of the state's arrays."""
    opaque: bool = False
    """True if the state contains bytes that may run code when they are used."""

    @property
    def size(self) -> int:
        """Size of pickle and arrays together, bytes."""
        return len(self.pickled) + sum(array.nbytes for array in self.arrays)

    def copied(self) -> "Packed":
        """Return a copy whose arrays are not shared with the object that the state describes."""
        return replace(self, arrays=[array.copy() for array in self.arrays])


def pack(state: Any, path: str = "state") -> Packed:
    """Convert `state` to a pickle of plain data and arrays.

    Args:
        path: name of the state in errors.

    Raises:
        StateError: it contains a value that cannot be stored, or too much outside arrays.
    """
    normaliser = Normaliser()
    normal = normaliser.visit(state, (None, path), 0)
    pickled, arrays = _pickled(normal)
    try:
        # What is this small cannot swell to more than its reader takes.
        if len(pickled) > MAX_MEMORY // MEMORY_PER_BYTE:
            scan(pickled, len(arrays))
    except TooMuch as refused:
        found = f"too much outside arrays ({refused})"
        where = format_path(_heaviest(normal, (None, path)))
        raise StateError(where, found, "store large data as numpy arrays or bytes") from refused
    return Packed(pickled, arrays, normaliser.opaque)


def _pickled(normal: Any) -> tuple[bytes, list[NDArray[Any]]]:
    """Return the pickle of plain data, and the large arrays that it refers to by number."""
    buffer = io.BytesIO()
    pickler = _Pickler(buffer)
    pickler.dump(normal)
    return buffer.getvalue(), pickler.arrays


def _heaviest(value: Any, path: Path) -> Path:
    """Return the path of that part of `value` which takes most memory, for an error message.

    Descends from `path` as long as one part outweighs all others together.
    """
    parts = parts_of(value, path)
    if not 0 < len(parts) <= _MOST_WEIGHED:
        return path
    weights = [_weight(part) for part, _ in parts]
    heaviest = max(range(len(parts)), key=weights.__getitem__)
    return _heaviest(*parts[heaviest]) if 2 * weights[heaviest] > sum(weights) else path


def _weight(normal: Any) -> int:
    """Return the largest memory that loading this plain data may take, bytes, without arrays."""
    pickled, arrays = _pickled(normal)
    try:
        return scan(pickled, len(arrays), sys.maxsize)
    except TooMuch:  # the pickle is too long
        return len(pickled) * MEMORY_PER_BYTE


def unpack(
    pickled: bytes,
    arrays: Sequence[NDArray[Any]],
    source: object = "checkpoint",
    vouch: Callable[[], None] | None = None,
    uses_arrays: bool = False,
) -> Any:
    """Return the state that was given to `pack`.

    OrderedDicts and defaultdicts come back as dicts, tensors and parameters as tensors on the CPU.

    Args:
        arrays: large arrays of the packed state.
        source: name of the file in errors.
        vouch: called before opaque bytes are decoded; raises if they are not trusted. None if
            the bytes were packed by this program.
        uses_arrays: True to use `arrays` in the state, False to copy them.

    Raises:
        CorruptCheckpoint: the bytes are not written by `pack`.
        WrongFormat: they contain a registered class that this program does not know.
    """
    try:
        scan(pickled, len(arrays))
        return _decode_all(_Unpickler(pickled, arrays, uses_arrays).load(), vouch)
    except tagged.UnknownType as error:
        raise WrongFormat(source, printable(str(error))) from error
    except (TrainableError, MemoryError):  # of `vouch`, or of the machine
        raise
    except Exception as error:  # bytes from outside fail in any way
        known = isinstance(error, Refused | pickle.UnpicklingError)
        why = str(error) if known else f"{type(error).__name__}: {error}"
        reason = f"is damaged or was not written by sweep ({why}); use another checkpoint"
        raise CorruptCheckpoint(source, printable(reason)) from error


# ---- writing ----------------------------------------------------------------------------------


class _Pickler(pickle.Pickler):
    """A pickler that replaces arrays by numbers, and collects them."""

    def __init__(self, buffer: io.BytesIO) -> None:
        super().__init__(buffer, protocol=4)
        self.fast = True
        self.arrays: list[NDArray[Any]] = []

    def persistent_id(self, value: Any) -> int | None:
        """Collect an array and return its number; None for other values, which are pickled."""
        if type(value) is not _ARRAY:
            return None
        self.arrays.append(value)
        return len(self.arrays) - 1


# ---- reading ----------------------------------------------------------------------------------


class _Unpickler(pickle.Unpickler):
    """An unpickler that puts arrays in place of their numbers, and refuses to find any class.

    Args:
        arrays: arrays that it refers to by number.
        uses_arrays: True to put the arrays themselves in, False for copies.
    """

    def __init__(self, pickled: bytes, arrays: Sequence[NDArray[Any]], uses_arrays: bool) -> None:
        super().__init__(io.BytesIO(pickled))
        self._arrays = arrays
        self._own = uses_arrays

    def persistent_load(self, number: Any) -> NDArray[Any]:
        """Return the array of this number, or a copy; UnpicklingError if there is none."""
        if type(number) is not int or not 0 <= number < len(self._arrays):
            raise pickle.UnpicklingError(f"no array {number!r}")
        array = self._arrays[number]
        return array if self._own else array.copy()

    def find_class(self, module: str, name: str) -> NoReturn:
        """Raise UnpicklingError: a pickle of plain data names no classes."""
        raise pickle.UnpicklingError(f"names code to import: {module}.{name}")


def _decode(fields: dict[str, Any], vouch: Callable[[], None] | None) -> Any:
    """Return the value of a tagged dict; calls `vouch` first if it is bytes that may run code."""
    if vouch is not None and fields[TAG] == OPAQUE:
        vouch()
    return tagged.decode(fields)


def _decode_all(value: Any, vouch: Callable[[], None] | None) -> Any:
    """Replace all tagged dicts in unpickled data by their values, innermost first; return the data.

    Lists and dicts are changed in place. `vouch` is called before bytes that may run code are
    returned.
    """
    kind = type(value)
    if kind is dict:
        for key, item in value.items():
            if type(item) in _CONTAINERS:
                value[key] = _decode_all(item, vouch)
        return _decode(value, vouch) if TAG in value else value
    if kind is list:
        for index, item in enumerate(value):
            if type(item) in _CONTAINERS:
                value[index] = _decode_all(item, vouch)
    return tuple(_decode_all(item, vouch) for item in value) if kind is tuple else value
