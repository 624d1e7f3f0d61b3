"""Packed arrays in a file, base64 of LZ4 of a pickled array, read as data only.

A pickle is a program. Of its opcodes this reader knows those that numpy's arrays need: constants,
tuples, the memo, and four names for an array, its type and its construction. The bytes cannot
import or call anything; any other opcode or name is refused. Opcodes and their arguments are those
of CPython's Lib/pickletools.py, which reads them without running them.
"""

import base64
import binascii
import pickletools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Maximum size of an unpacked column, bytes.
MAX_BYTES = 256 * 2**20
#: Maximum number of opcodes; an array of numbers needs about 70.
MAX_OPCODES = 500
#: Maximum number of axes of an array.
MOST_DIMENSIONS = 8
#: Booleans, whole and real numbers of 1 to 8 bytes.
_KIND = re.compile(r"b1|[iu][1248]|f[248]")
#: Module and name that a pickle may import → meaning.
_NAMES = {
    ("numpy", "ndarray"): "ndarray",
    ("numpy", "dtype"): "dtype",
    ("_codecs", "encode"): "encode",
    ("__builtin__", "bytes"): "no bytes",
    **{(f"numpy.{core}.multiarray", "_reconstruct"): "empty" for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): "filled" for core in ("core", "_core")},
}
#: Opcode → the constant that it puts on the stack.
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
#: Opcode → length of the tuple that it makes.
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
#: Opcode → its use of the memo.
_MEMO = {
    **dict.fromkeys(("MEMOIZE", "BINPUT", "LONG_BINPUT"), "put"),
    **dict.fromkeys(("BINGET", "LONG_BINGET"), "get"),
}
#: Opcodes that put their argument on the stack.
_VALUES = {
    *("BININT", "BININT1", "BININT2", "LONG1", "BINUNICODE", "SHORT_BINUNICODE"),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
}


class NotAnArray(ValueError):
    """Packed text that does not contain a plain array; the message says what is there instead."""


class _Name(str):
    """The name of a class or function in a pickle, on the machine's stack; it is never imported."""

    __slots__ = ()


class _Kind:
    """A dtype on the machine's stack, whose byte order is set later."""

    def __init__(self, name: Any, *arguments: Any) -> None:
        if not isinstance(name, str) or not _KIND.fullmatch(name):
            raise NotAnArray("an array of values that are not numbers")
        self.dtype = np.dtype(name)

    def build(self, state: Any) -> None:
        """Set the byte order from the pickled `state`.

        Raises NotAnArray if there is none, or for a dtype of records.
        """
        if not (isinstance(state, tuple) and len(state) == 8 and state[1] in ("<", ">", "|", "=")):
            raise NotAnArray("a type of numbers without its byte order")
        if state[2:5] != (None, None, None):
            raise NotAnArray("an array of records")
        self.dtype = self.dtype.newbyteorder(state[1])


class _Array:
    """An array on the machine's stack, which is filled later."""

    def __init__(self) -> None:
        self.value: NDArray[Any] | None = None

    def build(self, state: Any) -> None:
        """Make the array of the pickled `state`: shape, dtype, order and bytes.

        Raises NotAnArray if one of them is missing or not valid, and ValueError if there are too
        few or too many bytes.
        """
        if not (isinstance(state, tuple) and len(state) == 5 and type(state[3]) is bool):
            raise NotAnArray("an array without its shape, type, order and bytes")
        _, shape, kind, fortran, data = state
        self.value = _fill_array(data, kind, shape, "F" if fortran else "C")


def pack(column: NDArray[Any]) -> str:
    """Return an array as text that RLlib's reader unpacks: a compressed pickle in base64."""
    import lz4.frame

    return base64.b64encode(lz4.frame.compress(column.dumps())).decode("ascii")


def unpack(text: str) -> NDArray[Any]:
    """Return the array in a text of `pack`, or of RLlib, without running code of its pickle.

    Raises NotAnArray if the text holds anything else, or more than `MAX_BYTES` unpacked bytes.
    """
    import lz4.frame

    try:
        packed = base64.b64decode(text, validate=True)
        opened = lz4.frame.LZ4FrameDecompressor()
        pickled = opened.decompress(packed, max_length=MAX_BYTES)
    except (binascii.Error, ValueError, RuntimeError, MemoryError) as error:
        raise NotAnArray(f"data that is neither numbers nor base64 of LZ4 ({error})") from None
    if not opened.eof:
        raise NotAnArray(f"data that is cut off or unpacks to more than {MAX_BYTES} bytes")
    try:
        return _Machine().run(pickled)
    except NotAnArray:
        raise
    except (ValueError, IndexError, KeyError, TypeError, OverflowError, MemoryError) as error:
        raise NotAnArray(f"data that is not a pickled array ({error})") from None


class _Machine:
    """Executes those opcodes of pickle that arrays need, with stand-ins for classes."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def run(self, pickled: bytes) -> NDArray[Any]:
        """Return the array in a pickle; raises NotAnArray for any other pickle."""
        for count, (opcode, given, _) in enumerate(pickletools.genops(pickled)):
            if count > MAX_OPCODES:
                raise NotAnArray(f"a pickle of more than {MAX_OPCODES} opcodes")
            self.execute(opcode.name, given)
        if len(self.stack) != 1 or not isinstance(self.stack[0], _Array):
            raise NotAnArray("a pickle of something other than an array")
        found = self.stack[0].value
        if found is None:
            raise NotAnArray("an array without its bytes")
        return found

    def execute(self, name: str, argument: Any) -> None:
        """Execute one opcode with its argument, on the stack, the marks and the memo.

        Raises NotAnArray if no array needs it.
        """
        if name in _VALUES:
            self.stack.append(argument)
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name])
        elif name in _TUPLES:
            self.stack.append(tuple(self.pop(_TUPLES[name])))
        elif name in _MEMO:
            self.use_memo(_MEMO[name], argument)
        elif name in _EFFECTS:
            _EFFECTS[name](self, argument)
        elif name not in ("PROTO", "FRAME", "STOP"):
            raise NotAnArray(f"a pickle with the opcode {name}, which no array needs")

    def use_memo(self, verb: str, place: Any) -> None:
        """Store the topmost value in the memo at `place`, or push the one there.

        The `verb` is ``put`` or ``get``; a `place` of None is the next free one.
        """
        if verb == "get":
            self.stack.append(self.memo[place])
        else:
            self.memo[len(self.memo) if place is None else place] = self.stack[-1]

    def pop(self, count: int) -> list[Any]:
        """Remove the topmost `count` values and return them; NotAnArray if there are too few."""
        if len(self.stack) < count:
            raise NotAnArray("a pickle that takes from an empty stack")
        values = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return values

    def push_name(self, module: Any, name: Any) -> None:
        """Push the stand-in for a class or function; NotAnArray unless arrays need that one."""
        if not (isinstance(module, str) and isinstance(name, str)):
            raise NotAnArray("a pickle that names an object by something other than text")
        if (module, name) not in _NAMES:
            raise NotAnArray(f"a pickle that names {module}.{name}, which no array needs")
        self.stack.append(_Name(_NAMES[module, name]))

    def reduce(self) -> None:
        """Replace a function's name and its arguments on the stack by what the call would make.

        Raises NotAnArray for a function that no array needs.
        """
        what, given = self.pop(2)
        if not isinstance(what, _Name) or not isinstance(given, tuple) or what not in _MADE:
            raise NotAnArray("a pickle that calls something that is not part of an array")
        self.stack.append(_MADE[what](*given))

    def build(self) -> None:
        """Set the state of the dtype or array below the top to the topmost value, and remove that.

        Raises NotAnArray if neither is there.
        """
        made, state = self.pop(2)
        if not isinstance(made, _Kind | _Array):
            raise NotAnArray("a pickle that builds something that is not part of an array")
        made.build(state)
        self.stack.append(made)


#: Opcode → its effect on the machine.
_EFFECTS: dict[str, Callable[[_Machine, Any], None]] = {
    "MARK": lambda machine, _: machine.marks.append(len(machine.stack)),
    "TUPLE": lambda m, _: m.stack.append(tuple(m.pop(len(m.stack) - m.marks.pop()))),
    "GLOBAL": lambda machine, both: machine.push_name(*both.split(" ", 1)),
    "STACK_GLOBAL": lambda machine, _: machine.push_name(*machine.pop(2)),
    "REDUCE": lambda machine, _: machine.reduce(),
    "BUILD": lambda machine, _: machine.build(),
}


def _fill_array(data: Any, kind: Any, shape: Any, order: Any) -> NDArray[Any]:
    """Return a copy of these bytes as an array of this type, shape and order, in native byte order.

    Raises NotAnArray if one of them is not valid, and ValueError if there are too few or too many
    bytes.
    """
    lengths = isinstance(shape, tuple) and all(type(one) is int and one >= 0 for one in shape)
    if not lengths or len(shape) > MOST_DIMENSIONS or order not in ("C", "F"):
        raise NotAnArray("an array whose shape is not valid")
    if not isinstance(data, bytes | bytearray) or not isinstance(kind, _Kind):
        raise NotAnArray("an array of values that are not numbers")
    found = np.frombuffer(data, dtype=kind.dtype).reshape(shape, order=order)
    return found.astype(kind.dtype.newbyteorder("="))


def _array_of_buffer(data: Any, kind: Any, shape: Any, order: Any) -> _Array:
    """Return the `_Array` of a call that makes an array of these bytes, as protocol 5 pickles."""
    made = _Array()
    made.value = _fill_array(data, kind, shape, order)
    return made


def _encode(text: Any, kind: Any) -> bytes:
    """Return Latin-1 text as bytes: what a call of `codecs.encode` in NumPy's pickles makes.

    Raises NotAnArray for other arguments.
    """
    if not isinstance(text, str) or kind != "latin1":
        raise NotAnArray("bytes that are not latin1")
    return text.encode("latin1")


#: Meaning of a name in `_NAMES` → function that makes its object.
_MADE: dict[str, Callable[..., Any]] = {
    "empty": lambda *_: _Array(),
    "dtype": _Kind,
    "filled": _array_of_buffer,
    "encode": _encode,
    "no bytes": lambda: b"",
}
