"""A scan of pickled bytes that refuses, before anything is loaded, all but plain data.

A pickle is a program of opcodes for a stack machine. `trainables.state` writes few of them:
constants, containers and numbered arrays. Opcodes that import, call, build or remember (the memo
lets a few bytes grow to gigabytes) are not in the table below, and what is not in the table is
refused. The scan runs the machine on descriptions of values (kind, depth) in place of values, so
it allocates nothing that the bytes ask for. Opcodes and their arguments: CPython,
Lib/pickletools.py.
"""

from collections.abc import Callable
from typing import Final, NamedTuple, NoReturn

#: Longest pickle, in bytes.
MAX_BYTES: Final = 64 * 2**20
#: Deepest nesting of containers.
MAX_DEPTH: Final = 64
#: Most opcodes.
MAX_OPCODES: Final = 2_000_000

_PREAMBLE = b"\x80\x04"  # PROTO 4
_INT64_BYTES = 8


class Refused(ValueError):
    """The bytes are not a pickle of plain data; the message names the byte and the reason."""


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


def scan(pickled: bytes, arrays: int) -> None:
    """Raise `Refused` unless `pickled` is plain data with `arrays` numbered arrays."""
    if len(pickled) > MAX_BYTES:
        raise Refused(f"the pickle has {len(pickled)} bytes; at most {MAX_BYTES} are allowed")
    _Machine(pickled).run(arrays)


class _Machine:
    """The stack machine of pickle, on kinds and depths."""

    def __init__(self, pickled: bytes) -> None:
        self.pickled = pickled
        self.position = 0  # of the opcode that is executed
        self.stack: list[_Value] = []
        self.marks: list[int] = []
        self.arrays = 0
        self.integer = (0, 0)  # the last small int: its value, and where it ends
        self.stopped = False

    def run(self, arrays: int) -> None:
        """Execute all opcodes; raises `Refused`."""
        try:
            self._run()
        except Refused as refusal:
            raise Refused(f"byte {self.position}: {refusal}") from None
        if self.arrays != arrays:
            raise Refused(f"{self.arrays} arrays are mentioned, {arrays} are there")

    def _run(self) -> None:
        pickled, push = self.pickled, self.stack.append
        if not pickled.startswith(_PREAMBLE):
            raise Refused("the pickle is not of protocol 4")
        position, end = len(_PREAMBLE), len(pickled)
        for _ in range(MAX_OPCODES):
            effect = _EFFECTS[pickled[position]] if position < end else None
            if type(effect) is _Value:  # the shortest way for the most frequent opcodes
                push(effect)
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
        position += 1
        end = position + width
        argument = int.from_bytes(pickled[position:end], "little")
        if counted:
            end += argument
        if end > len(pickled):
            raise Refused("an argument reaches beyond the end")
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
            container = _Value(container.kind, depth)
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
        self._grow(_DICT.kind, pairs)

    def add_items(self, _: int) -> None:
        self._grow(_SET.kind, self._hashable(self._pop_to_mark()))

    def frozen_set(self, _: int) -> None:
        self._put(_SET._replace(kind="frozenset"), self._hashable(self._pop_to_mark()))

    def _hashable(self, items: list[_Value]) -> list[_Value]:
        for item in items:
            if item is not _KEY and item is not _ATOM:
                raise Refused(f"a {item.kind} in a set")
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
