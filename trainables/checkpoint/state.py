"""Contents of a checkpoint: data only, normalised, packed, scanned and read.

Allowed are dict (keys: str, or int of up to 64 bits), list, tuple, set, frozenset, str, bytes,
int, float, bool, None, numpy arrays and scalars (bool, integer, float, complex), torch tensors of
these dtypes and of bfloat16, deque, and classes registered with `state_type`. OrderedDict and
defaultdict become dict. All else is refused, by path.

What comes back equals what went in: dtypes, shapes, Fortran order and a deque's length limit
included. Arrays come back writable and as copies; tensors on the CPU and without gradient. Two
mentions of one object come back as two objects: a state must not rely on aliasing.

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
    normalise,
    parts_of,
    written,
)
from trainables.checkpoint.pickle_scan import MAX_MEMORY, MEMORY_PER_BYTE, TooMuch, scan
from trainables.checkpoint.tagged import OPAQUE, TAG, state_type
from trainables.errors import CorruptCheckpoint, StateError, TrainableError, WrongFormat, printable

__all__ = ["MAX_VALUES", "Packed", "normalise", "pack", "state_type", "unpack"]

#: What may hold tagged dicts.
_CONTAINERS = frozenset({dict, list, tuple})
#: A name that takes one look-up: it is asked for every value.
_ARRAY = np.ndarray
#: Most parts of one container that are weighed to say which of them is too large.
_MOST_WEIGHED = 1000


@dataclass(frozen=True)
class Packed:
    """A state as bytes; `arrays` are in C order and may be views of the state's own."""

    pickled: bytes
    arrays: list[NDArray[Any]]
    opaque: bool = False
    """True if it holds bytes that may run code when they are used."""

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.pickled) + sum(array.nbytes for array in self.arrays)

    def copied(self) -> "Packed":
        """The same, of which nothing changes when the state's own arrays do."""
        return replace(self, arrays=[array.copy() for array in self.arrays])


def pack(state: Any, path: str = "state") -> Packed:
    """Normalise `state` into bytes and arrays; StateError for what is no data, or too much."""
    normaliser = Normaliser()
    normal = normaliser.visit(state, (None, path), 0)
    pickled, arrays = _pickled(normal)
    try:
        # What is this small cannot swell to more than its reader takes.
        if len(pickled) > MAX_MEMORY // MEMORY_PER_BYTE:
            scan(pickled, len(arrays))
    except TooMuch as refused:
        found = f"too much outside arrays ({refused})"
        where = written(_heaviest(normal, (None, path)))
        raise StateError(where, found, "hold large data in numpy arrays or bytes") from refused
    return Packed(pickled, arrays, normaliser.opaque)


def _pickled(normal: Any) -> tuple[bytes, list[NDArray[Any]]]:
    buffer = io.BytesIO()
    pickler = _Pickler(buffer)
    pickler.dump(normal)
    return buffer.getvalue(), pickler.arrays


def _heaviest(value: Any, path: Path) -> Path:
    """Return the path of the heaviest part: as deep down as one part outweighs all others."""
    parts = parts_of(value, path)
    if not 0 < len(parts) <= _MOST_WEIGHED:
        return path
    weights = [_weight(part) for part, _ in parts]
    heaviest = max(range(len(parts)), key=weights.__getitem__)
    return _heaviest(*parts[heaviest]) if 2 * weights[heaviest] > sum(weights) else path


def _weight(normal: Any) -> int:
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
    own: bool = False,
) -> Any:
    """The state that `pack` was given.

    Args:
        pickled: its bytes.
        arrays: its arrays.
        source: names the file in errors.
        vouch: called before opaque bytes are handed out; raises if they must not be. None: the
            bytes were packed by this program.
        own: the arrays become the state's; otherwise it gets copies.

    Raises:
        CorruptCheckpoint: the bytes are not what `pack` writes.
        WrongFormat: they hold a registered class that this program does not know.
    """
    try:
        scan(pickled, len(arrays))
        return _restored(_Unpickler(pickled, arrays, own).load(), vouch)
    except tagged.UnknownType as error:
        raise WrongFormat(source, printable(str(error))) from error
    except (TrainableError, MemoryError):  # of `vouch`, or of the machine
        raise
    except Exception as error:  # bytes from outside fail in any way
        reason = f"its state cannot be read: {type(error).__name__}: {error}"
        raise CorruptCheckpoint(source, printable(reason)) from error


# ---- writing ----------------------------------------------------------------------------------


class _Pickler(pickle.Pickler):
    """Moves arrays out of the pickle; a normalised state holds nothing else that needs care."""

    def __init__(self, buffer: io.BytesIO) -> None:
        super().__init__(buffer, protocol=4)
        self.fast = True
        self.arrays: list[NDArray[Any]] = []

    def persistent_id(self, value: Any) -> int | None:
        if type(value) is not _ARRAY:
            return None
        self.arrays.append(value)
        return len(self.arrays) - 1


# ---- reading ----------------------------------------------------------------------------------


class _Unpickler(pickle.Unpickler):
    """Puts the arrays back in, or copies of them, and finds no class whatever the name."""

    def __init__(self, pickled: bytes, arrays: Sequence[NDArray[Any]], own: bool) -> None:
        super().__init__(io.BytesIO(pickled))
        self._arrays = arrays
        self._own = own

    def persistent_load(self, number: Any) -> NDArray[Any]:
        if type(number) is not int or not 0 <= number < len(self._arrays):
            raise pickle.UnpicklingError(f"no array {number!r}")
        array = self._arrays[number]
        return array if self._own else array.copy()

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"names code to import: {module}.{name}")


def _decoded(fields: dict[str, Any], vouch: Callable[[], None] | None) -> Any:
    if vouch is not None and fields[TAG] == OPAQUE:
        vouch()
    return tagged.decode(fields)


def _restored(value: Any, vouch: Callable[[], None] | None) -> Any:
    """Loaded data, changed in place, with its tagged dicts decoded, innermost first."""
    kind = type(value)
    if kind is dict:
        for key, item in value.items():
            if type(item) in _CONTAINERS:
                value[key] = _restored(item, vouch)
        return _decoded(value, vouch) if TAG in value else value
    if kind is list:
        for index, item in enumerate(value):
            if type(item) in _CONTAINERS:
                value[index] = _restored(item, vouch)
    return tuple(_restored(item, vouch) for item in value) if kind is tuple else value
