"""A scan of pickled bytes that refuses, before anything is loaded, all but plain data.

A pickle is a program of opcodes for a stack machine. `trainables.checkpoint.state` writes few of
them: constants, containers and numbered arrays. Opcodes that import, call, build or remember (the
memo lets a few bytes grow to gigabytes) are not in the table below, and what is not in the table is
refused. The scan runs the machine on descriptions of values (kind, depth) in place of values, so
it allocates nothing that the bytes ask for, and adds up what loading them would take. Opcodes and
their arguments: CPython, Lib/pickletools.py.
"""

import functools
from collections.abc import Callable
from typing import Final, NamedTuple, NoReturn

#: Longest pickle, in bytes.
MAX_BYTES: Final = 64 * 2**20
#: Deepest nesting of containers.
MAX_DEPTH: Final = 64
#: Most opcodes.
MAX_OPCODES: Final = 2_000_000
#: Most memory, in bytes, that everything but the arrays may take while it is loaded.
MAX_MEMORY: Final = 256 * 2**20
#: What one byte of a pickle may cost, at most: an empty set does.
MEMORY_PER_BYTE: Final = 252

# What loading takes, in bytes, on CPython 3.11 for 64 bits: never less than it really is.
_PLACE = 28  # of each value: in the loader's stack, and in the container that it ends in
_NUMBER = 48
_TEXT = 80  # and its characters
_PER_BYTE = 2  # of texts and the like: it is read, then made
_PER_WIDE_BYTE = 6  # of a text that is not ASCII: one character may make all four bytes wide
_SET_BYTES, _PER_ITEM = MEMORY_PER_BYTE - _PLACE, 136
_DICT_BYTES, _FILLED, _PER_PAIR = 80, 176, 96
_LIST_BYTES, _TUPLE_BYTES = 72, 56
_PREAMBLE = b"\x80\x04"  # PROTO 4
_INT64_BYTES = 8


class Refused(ValueError):
    """The bytes are not a pickle of plain data; the message names the byte and the reason."""


class TooMuch(Refused):
    """Plain data, but more of it than may be loaded."""


class _Value(NamedTuple):
    kind: str
    depth: int = 0


_KEY = _Value("str or int")  # may be a dict's key
_ATOM = _Value("constant")  # hashable, but no key
_LONG = _Value("long int")  # over 64 bits: hashes can be made to collide, so never hashed
_ARRAY = _Value("array")
_LIST = _Value("list", 1)
_DICT = _Value("dict", 1)
_SET = _Value("set", 1)
_TUPLE = _Value("tuple", 1)
_FROZENSET = _Value("frozenset", 1)


@functools.cache
def _value(kind: str, depth: int) -> _Value:
    return _Value(kind, depth)


def scan(pickled: bytes, arrays: int, most: int = MAX_MEMORY) -> int:
    """What loading takes, in bytes, at most; none of it is the arrays'.

    Args:
        pickled: the bytes.
        arrays: how many numbered arrays they mention.
        most: bytes of memory that loading may take.

    Raises:
        TooMuch: it would take more.
        Refused: they are not plain data, or mention other arrays.
    """
    if len(pickled) > MAX_BYTES:
        raise TooMuch(f"the pickle has {len(pickled)} bytes; at most {MAX_BYTES} are allowed")
    return _Machine(pickled, most).run(arrays)


class _Machine:
    """The stack machine of pickle, on kinds and depths."""

    def __init__(self, pickled: bytes, most: int) -> None:
        self.pickled = pickled
        self.most = most
        self.memory = 0  # what has been executed takes so much
        self.position = 0  # of the opcode that is executed
        self.stack: list[_Value] = []
        self.marks: list[int] = []
        self.arrays = 0
        self.integer = (0, 0)  # the last small int: its value, and where it ends
        self.stopped = False

    def run(self, arrays: int) -> int:
        """Execute all opcodes; returns what loading takes, or raises `Refused`."""
        try:
            self._run()
        except Refused as refusal:
            raise type(refusal)(f"byte {self.position}: {refusal}") from None
        if self.arrays != arrays:
            raise Refused(f"{self.arrays} arrays are mentioned, {arrays} are there")
        return self.memory

    def _run(self) -> None:
        pickled, push = self.pickled, self.stack.append
        if not pickled.startswith(_PREAMBLE):
            raise Refused("the pickle is not of protocol 4")
        position, end = len(_PREAMBLE), len(pickled)
        for _ in range(MAX_OPCODES):
            effect = _EFFECTS[pickled[position]] if position < end else None
            if type(effect) is _Value:  # the shortest way for the most frequent opcodes
                push(effect)
                self.memory += _MEMORY[pickled[position]]
                position += 1
            else:
                position = self._execute(effect, position)
                if self.stopped:
                    return
        raise Refused(f"more than {MAX_OPCODES} opcodes")

    def _execute(self, effect: "_Effect", position: int) -> int:
        pickled, self.position = self.pickled, position
        if not isinstance(effect, _Operation):
            self._refuse_opcode()
        width, counted, act = effect
        self.memory += _MEMORY[pickled[position]]
        position += 1
        end = position + width
        argument = int.from_bytes(pickled[position:end], "little")
        if counted:
            begin, end = end, end + argument
            wide = act is _KEY and not pickled[begin:end].isascii()
            self.memory += argument * (_PER_WIDE_BYTE if wide else _PER_BYTE)
        if end > len(pickled):
            raise Refused("an argument reaches beyond the end")
        if self.memory > self.most:
            raise TooMuch(f"loading it would take more than {self.most} bytes of memory")
        if isinstance(act, _Value):
            self.stack.append(act)
        else:
            act(self, argument)
        return end

    def _refuse_opcode(self) -> NoReturn:
        rest = self.pickled[self.position : self.position + 1]
        found = f"opcode 0x{rest.hex()} is not allowed in plain data" if rest else "no STOP"
        raise Refused(found)

    # ---- the stack ----------------------------------------------------------------------------

    def _pop(self) -> _Value:
        if len(self.stack) <= (self.marks[-1] if self.marks else 0):
            raise Refused("takes from an empty stack")
        return self.stack.pop()

    def _pop_to_mark(self) -> list[_Value]:
        if not self.marks:
            raise Refused("no MARK to go back to")
        mark = self.marks.pop()
        values = self.stack[mark:]
        del self.stack[mark:]
        return values

    def _put(self, container: _Value, values: list[_Value]) -> None:
        depth = container.depth
        for value in values:
            if value.depth >= depth:
                depth = value.depth + 1
        if depth > MAX_DEPTH:
            raise Refused(f"nested deeper than {MAX_DEPTH}")
        if depth != container.depth:
            container = _value(container.kind, depth)
        self.stack.append(container)

    def _grow(self, kind: str, values: list[_Value]) -> None:
        container = self._pop()
        if container.kind != kind:
            raise Refused(f"adds items of a {kind} to a {container.kind}")
        self._put(container, values)

    # ---- opcodes ------------------------------------------------------------------------------

    def frame(self, length: int) -> None:
        """FRAME announces how many bytes follow; it must not promise more than there are."""
        if self.position + 9 + length > len(self.pickled):
            raise Refused("a frame reaches beyond the end")

    def mark(self, _: int) -> None:
        # What stands after a mark ends in a container, which stands after the mark before it.
        if len(self.marks) == MAX_DEPTH:
            raise Refused(f"nested deeper than {MAX_DEPTH}")
        self.marks.append(len(self.stack))

    def push_byte(self, value: int) -> None:
        self._push_integer(value, 1)

    def push_short(self, value: int) -> None:
        self._push_integer(value, 2)

    def push_integer(self, value: int) -> None:
        self._push_integer(value, 4)

    def _push_integer(self, value: int, width: int) -> None:
        self.stack.append(_KEY)
        self.integer = (value, self.position + 1 + width)

    def push_long(self, length: int) -> None:
        self.stack.append(_KEY if length <= _INT64_BYTES else _LONG)

    def array(self, _: int) -> None:
        """BINPERSID: the next array, by its number, which must come right before."""
        if self.integer != (self.arrays, self.position):
            raise Refused(f"expected array number {self.arrays}")
        self._pop()
        self.stack.append(_ARRAY)
        self.arrays += 1

    def append(self, _: int) -> None:
        self._grow(_LIST.kind, [self._pop()])

    def appends(self, _: int) -> None:
        self._grow(_LIST.kind, self._pop_to_mark())

    def set_item(self, _: int) -> None:
        value, key = self._pop(), self._pop()
        self._set([key, value])

    def set_items(self, _: int) -> None:
        self._set(self._pop_to_mark())

    def _set(self, pairs: list[_Value]) -> None:
        if len(pairs) % 2:
            raise Refused("a key without a value")
        for key in pairs[::2]:
            if key is not _KEY:
                raise Refused(f"a {key.kind} as a key")
        self.memory += _FILLED + len(pairs) // 2 * _PER_PAIR
        self._grow(_DICT.kind, pairs)

    def add_items(self, _: int) -> None:
        self._grow(_SET.kind, self._hashable(self._pop_to_mark()))

    def frozen_set(self, _: int) -> None:
        self._put(_FROZENSET, self._hashable(self._pop_to_mark()))

    def _hashable(self, items: list[_Value]) -> list[_Value]:
        for item in items:
            if item is not _KEY and item is not _ATOM:
                raise Refused(f"a {item.kind} in a set")
        self.memory += len(items) * _PER_ITEM
        return items

    def tuple_1(self, _: int) -> None:
        self._put(_TUPLE, [self._pop()])

    def tuple_2(self, _: int) -> None:
        self._put(_TUPLE, [self._pop(), self._pop()])

    def tuple_3(self, _: int) -> None:
        self._put(_TUPLE, [self._pop(), self._pop(), self._pop()])

    def tuple_n(self, _: int) -> None:
        self._put(_TUPLE, self._pop_to_mark())

    def stop(self, _: int) -> None:
        if len(self.stack) != 1 or self.marks:
            raise Refused(f"stops with {len(self.stack)} values on the stack; expected one")
        if self.position + 1 != len(self.pickled):
            raise Refused("bytes after STOP")
        self.stopped = True


class _Operation(NamedTuple):
    width: int  # bytes of the argument
    counted: bool  # the argument is the length of bytes that follow
    act: _Value | Callable[[_Machine, int], None]  # a value is pushed


_Effect = _Value | _Operation | None

ALLOWED: Final[dict[str, _Value | _Operation]] = {
    "\x95": _Operation(8, False, _Machine.frame),  # FRAME
    ".": _Operation(0, False, _Machine.stop),  # STOP
    "N": _ATOM,  # NONE
    "\x88": _ATOM,  # NEWTRUE
    "\x89": _ATOM,  # NEWFALSE
    "G": _Operation(8, False, _ATOM),  # BINFLOAT
    "K": _Operation(1, False, _Machine.push_byte),  # BININT1
    "M": _Operation(2, False, _Machine.push_short),  # BININT2
    "J": _Operation(4, False, _Machine.push_integer),  # BININT
    "\x8a": _Operation(1, True, _Machine.push_long),  # LONG1
    "\x8c": _Operation(1, True, _KEY),  # SHORT_BINUNICODE
    "X": _Operation(4, True, _KEY),  # BINUNICODE
    "C": _Operation(1, True, _ATOM),  # SHORT_BINBYTES
    "B": _Operation(4, True, _ATOM),  # BINBYTES
    "Q": _Operation(0, False, _Machine.array),  # BINPERSID
    "(": _Operation(0, False, _Machine.mark),  # MARK
    "]": _LIST,  # EMPTY_LIST
    "a": _Operation(0, False, _Machine.append),  # APPEND
    "e": _Operation(0, False, _Machine.appends),  # APPENDS
    "}": _DICT,  # EMPTY_DICT
    "s": _Operation(0, False, _Machine.set_item),  # SETITEM
    "u": _Operation(0, False, _Machine.set_items),  # SETITEMS
    ")": _TUPLE,  # EMPTY_TUPLE
    "\x85": _Operation(0, False, _Machine.tuple_1),  # TUPLE1
    "\x86": _Operation(0, False, _Machine.tuple_2),  # TUPLE2
    "\x87": _Operation(0, False, _Machine.tuple_3),  # TUPLE3
    "t": _Operation(0, False, _Machine.tuple_n),  # TUPLE
    "\x8f": _SET,  # EMPTY_SET
    "\x90": _Operation(0, False, _Machine.add_items),  # ADDITEMS
    "\x91": _Operation(0, False, _Machine.frozen_set),  # FROZENSET
}
_EFFECTS: Final[list[_Effect]] = [ALLOWED.get(chr(code)) for code in range(256)]
_MEMORY: Final[list[int]] = [0] * 256
"""What each opcode takes, without what depends on its argument."""
for _codes, _taken in (
    ("N\x88\x89Q", 0),
    ("GKMJ", _NUMBER),
    ("\x8a\x8cXCB", _TEXT),
    ("]", _LIST_BYTES),
    ("}", _DICT_BYTES),
    (")\x85\x86\x87t", _TUPLE_BYTES),
    ("\x8f\x91", _SET_BYTES),
):
    for _code in _codes:
        _MEMORY[ord(_code)] = _PLACE + _taken
