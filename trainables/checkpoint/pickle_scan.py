"""A scan of pickled bytes that refuses, before anything is loaded, all but plain data.

A pickle is a program of opcodes for a stack machine. `trainables.checkpoint.state` writes few of
them: constants, containers and numbered arrays. Opcodes that import, call, build or remember (the
memo lets a few bytes grow to gigabytes) are not in the table below, and what is not in the table is
refused. The scan runs the machine on descriptions of values (kind, depth) in place of values, so
it allocates nothing that the bytes ask for, and adds up what loading them would take. Opcodes and
their arguments: CPython, Lib/pickletools.py.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, NoReturn

#: Largest pickle, bytes.
MAX_BYTES: Final = 64 * 2**20
#: Largest nesting depth of containers.
MAX_DEPTH: Final = 64
#: Largest number of opcodes.
MAX_OPCODES: Final = 2_000_000
#: Largest memory that loading everything but the arrays may take, bytes.
MAX_MEMORY: Final = 256 * 2**20
#: Largest memory that loading one byte of a pickle takes, bytes; an empty set does.
MEMORY_PER_BYTE: Final = 252

# Memory that loading takes, bytes, on 64-bit CPython 3.11: an upper bound.
_VALUE = 28  # of each value: in the loader's stack, and in the container that it ends in
_NUMBER = _VALUE + 48
_TEXT = _VALUE + 80  # and its characters
_PER_BYTE = 2  # of texts and the like: it is read, then made
_PER_WIDE_BYTE = 6  # of a text that is not ASCII: one character may make all four bytes wide
_SET_BYTES, _PER_ITEM = MEMORY_PER_BYTE, 136
_DICT_BYTES, _FILLED, _PER_PAIR = _VALUE + 80, 176, 96
_LIST_BYTES, _TUPLE_BYTES = _VALUE + 72, _VALUE + 56
#: First bytes of a pickle.
_PREAMBLE = b"\x80\x04"  # PROTO 4
#: Maximum length of an integer that may be the key of a dict, in bytes.
_INT64_BYTES = 8

# A value on the stack is one number: its kind, and from bit 4 on its depth, 0 for no container.
# A dict's key may only be of the first kind, an item of a set only of the first two.
_KEY, _ATOM, _LONG, _ARRAY, _LIST, _DICT, _SET, _TUPLE, _FROZENSET = range(9)
#: Name of each kind of value, by its number.
_KINDS = (
    "str or int",
    "constant",
    "long int",
    "array",
    "list",
    "dict",
    "set",
    "tuple",
    "frozenset",
)
#: Number of bits of a kind.
_KIND_BITS = 4
_EMPTY = 1 << _KIND_BITS  # a container of depth 1


class Refused(ValueError):
    """The bytes are not a pickle of plain data; the message names the byte and the reason."""


class TooMuch(Refused):
    """The bytes are plain data, but would take more memory than allowed."""


def scan(pickled: bytes, arrays: int, limit: int = MAX_MEMORY) -> int:
    """Check that a pickle holds plain data only, without loading it.

    Returns an upper bound of the memory that loading it takes, bytes.

    Args:
        pickled: the pickle; nothing in it is executed.
        arrays: number of arrays stored beside the pickle, which must mention them in order.
        limit: largest memory that loading may take, without the arrays, bytes.

    Raises:
        TooMuch: it would take more than `limit`, or is longer than `MAX_BYTES`.
        Refused: it is not plain data, or mentions other arrays.
    """
    if len(pickled) > MAX_BYTES:
        raise TooMuch(f"the pickle has {len(pickled)} bytes; at most {MAX_BYTES} are allowed")
    machine = _Machine(pickled, limit)
    try:
        machine.run()
    except Refused as refusal:
        raise type(refusal)(f"{refusal}, at byte {machine.position} of the state") from None
    except IndexError:
        raise Refused(f"the state ends too early, at byte {machine.position}") from None
    if machine.arrays != arrays:
        raise Refused(f"the state mentions {machine.arrays} arrays, but the file has {arrays}")
    return machine.memory


def _kind(value: int) -> str:
    """Return the name of a value's type; `value` is an int that stands for it on the stack."""
    return _KINDS[value % _EMPTY]


class _Machine:
    """Executes a pickle's opcodes on a stack of ints instead of values.

    Each int says the type of the value and how deeply it is nested; no object is made. `limit` is
    the maximum memory in bytes that loading may take.
    """

    def __init__(self, pickled: bytes, limit: int) -> None:
        self.pickled = pickled
        self.most = limit
        #: Memory that loading the opcodes executed so far takes, bytes.
        self.memory = 0
        self.position = 0  # of the opcode that is executed
        self.before = 0  # of the opcode before it
        self.stack: list[int] = []
        self.marks = [0]  # the stack below the last one must not be touched
        self.arrays = 0
        self.frame_end = 0  # of the newest frame

    def run(self) -> None:
        """Execute all opcodes up to STOP, which must be the last; raises Refused or TooMuch.

        Raises IndexError if the bytes end before.
        """
        pickled, push = self.pickled, self.stack.append
        if not pickled.startswith(_PREAMBLE):
            raise Refused("the state does not begin with pickle's protocol 4")
        position, opcode_at, pushed, frame_end = len(_PREAMBLE), 0, 0, 0
        try:
            for _ in range(MAX_OPCODES):
                before, opcode_at = opcode_at, position
                width, counted, memory, effect = _OPCODES[pickled[position]]
                position += 1 + width
                if counted:
                    begin = position
                    length = (
                        pickled[begin - 1]
                        if width == 1
                        else int.from_bytes(pickled[begin - width : begin], "little")
                    )
                    position += length
                    if effect == _KEY and not pickled[begin:position].isascii():
                        memory += length * _PER_WIDE_BYTE
                    else:
                        memory += length * _PER_BYTE
                    push(_KEY if effect == _LONG and length <= _INT64_BYTES else effect)
                elif type(effect) is int:
                    push(effect)
                else:  # it alone looks at what the machine says of itself
                    self.before, self.position = before, opcode_at
                    self.memory += pushed
                    pushed = 0
                    if effect(self):
                        return
                    frame_end = self.frame_end
                pushed += memory
                # Of a cut opcode the loader drops the first bytes, and then reads other opcodes.
                if opcode_at < frame_end < position:
                    raise Refused("a frame ends within an opcode")
        finally:
            self.position = opcode_at
        raise Refused(f"the state has more than {MAX_OPCODES} opcodes")

    # ---- the stack ----------------------------------------------------------------------------

    def pop(self, count: int) -> list[int]:
        """Remove and return the top `count` values; raises Refused if there are too few."""
        if len(self.stack) < self.marks[-1] + count:
            raise Refused("a container takes a value that is not there")
        values = self.stack[-count:]
        del self.stack[-count:]
        return values

    def pop_to_mark(self) -> list[int]:
        """Remove the last mark and the values above it; return these values.

        Raises Refused if there is no mark, or TooMuch if loading takes too much memory.
        """
        if len(self.marks) == 1:
            raise Refused("a container ends that has not begun")
        self._check_memory()
        mark = self.marks.pop()
        values = self.stack[mark:]
        del self.stack[mark:]
        return values

    def put(self, kind: int, values: list[int]) -> None:
        """Push a container of type `kind` with the items `values`; Refused if nested too deeply."""
        depth = 1 + (max(values) >> _KIND_BITS) if values else 1
        if depth > MAX_DEPTH:
            raise Refused(f"containers are nested deeper than {MAX_DEPTH}")
        self.stack.append((depth << _KIND_BITS) + kind)

    def grow(self, kind: int, values: list[int]) -> None:
        """Add `values` to the container on top of the stack, which must be of type `kind`.

        Raises Refused if it is not, or becomes nested too deeply.
        """
        stack = self.stack
        if len(stack) <= self.marks[-1]:
            raise Refused(f"items of a {_KINDS[kind]} have no {_KINDS[kind]} to go into")
        container = stack[-1]
        if container % _EMPTY != kind:
            raise Refused(f"items of a {_KINDS[kind]} are added to a {_kind(container)}")
        depth = 1 + (max(values) >> _KIND_BITS) if values else 1
        if depth > MAX_DEPTH:
            raise Refused(f"containers are nested deeper than {MAX_DEPTH}")
        grown = (depth << _KIND_BITS) + kind
        if grown > container:
            stack[-1] = grown

    def _check_memory(self) -> None:
        """Raise TooMuch if loading the opcodes so far takes more memory than allowed."""
        if self.memory > self.most:
            raise TooMuch(f"loading it would take more than {self.most} bytes of memory")

    # ---- opcodes; the one that returns True ends the program -----------------------------------

    def frame(self) -> None:
        """Execute FRAME; raises Refused unless as many bytes follow as it announces.

        It must not begin within another frame.
        """
        begin = self.position + 9
        end = begin + int.from_bytes(self.pickled[begin - 8 : begin], "little")
        if end > len(self.pickled):
            raise Refused("a frame announces more bytes than there are")
        if self.position < self.frame_end:
            raise Refused("a frame begins within another")
        self.frame_end = end

    def mark(self) -> None:
        """Execute MARK: mark the top of the stack; raises Refused if too many marks are open."""
        # What stands after a mark ends in a container, which stands after the mark before it.
        if len(self.marks) > MAX_DEPTH:
            raise Refused(f"containers are nested deeper than {MAX_DEPTH}")
        self.marks.append(len(self.stack))

    def array(self) -> None:
        """Execute BINPERSID: replace the number on the stack by the array of that number.

        Raises Refused unless that is the next array, and the number was pushed right before.
        """
        code, number = self.pickled[self.before], self.pickled[self.before + 1 : self.position]
        if code not in b"KMJ" or int.from_bytes(number, "little") != self.arrays:
            raise Refused(f"the next array must have the number {self.arrays}, but has another")
        self.pop(1)
        self.stack.append(_ARRAY)
        self.arrays += 1

    def set_items(self, pairs: list[int]) -> None:
        """Execute SETITEMS: add `pairs`, keys and values in turn, to the dict on top of the stack.

        Raises Refused for a key without a value, or one that is not allowed.
        """
        if len(pairs) % 2:
            raise Refused("a dict has a key without a value")
        if pairs and (wrong := max(pairs[::2])):
            raise Refused(f"a dict has a {_kind(wrong)} as a key, and only str and int are allowed")
        self.memory += _FILLED + len(pairs) // 2 * _PER_PAIR
        self.grow(_DICT, pairs)

    def hashables(self) -> list[int]:
        """Remove the last mark and the items above it, for a set; return these items.

        Counts the memory that they take in the set. Raises Refused if a set may not contain one of
        them or there is no mark, and TooMuch if loading takes too much memory.
        """
        items = self.pop_to_mark()
        if (wrong := max(items, default=_KEY)) > _ATOM:
            raise Refused(
                f"a set has a {_kind(wrong)}, and only constants, str and int are allowed"
            )
        self.memory += len(items) * _PER_ITEM
        return items

    def stop(self) -> bool:
        """Execute STOP and return True; raises Refused unless one value and no bytes are left.

        Raises TooMuch if loading takes too much memory.
        """
        self._check_memory()
        if len(self.stack) != 1 or len(self.marks) != 1:
            raise Refused(f"the state ends with {len(self.stack)} values in place of one")
        if self.position + 1 != len(self.pickled):
            raise Refused("more bytes follow the end")
        return True


class Opcode(NamedTuple):
    """The description of an opcode that plain data may use: its argument, and its effect."""

    width: int
    """Length of the argument after the opcode, bytes."""
    counted: bool
    """True if the argument is a length: as many bytes follow it."""
    memory: int
    """Bytes of memory that loading the opcode takes, without those that depend on its argument."""
    effect: int | Callable[[_Machine], bool | None]
    """Int to push, which stands for a value, or method to call; True from one ends the program."""


#: Opcode → effect; all others are refused.
ALLOWED: Final[dict[str, Opcode]] = {
    "\x95": Opcode(8, False, 0, _Machine.frame),  # FRAME
    ".": Opcode(0, False, 0, _Machine.stop),  # STOP
    "N": Opcode(0, False, _VALUE, _ATOM),  # NONE
    "\x88": Opcode(0, False, _VALUE, _ATOM),  # NEWTRUE
    "\x89": Opcode(0, False, _VALUE, _ATOM),  # NEWFALSE
    "G": Opcode(8, False, _NUMBER, _ATOM),  # BINFLOAT
    "K": Opcode(1, False, _NUMBER, _KEY),  # BININT1
    "M": Opcode(2, False, _NUMBER, _KEY),  # BININT2
    "J": Opcode(4, False, _NUMBER, _KEY),  # BININT
    "\x8a": Opcode(1, True, _TEXT, _LONG),  # LONG1; short ones may be keys
    "\x8c": Opcode(1, True, _TEXT, _KEY),  # SHORT_BINUNICODE
    "X": Opcode(4, True, _TEXT, _KEY),  # BINUNICODE
    "C": Opcode(1, True, _TEXT, _ATOM),  # SHORT_BINBYTES
    "B": Opcode(4, True, _TEXT, _ATOM),  # BINBYTES
    "Q": Opcode(0, False, _VALUE, _Machine.array),  # BINPERSID
    "(": Opcode(0, False, 0, _Machine.mark),  # MARK
    "]": Opcode(0, False, _LIST_BYTES, _EMPTY + _LIST),  # EMPTY_LIST
    "a": Opcode(0, False, 0, lambda m: m.grow(_LIST, m.pop(1))),  # APPEND
    "e": Opcode(0, False, 0, lambda m: m.grow(_LIST, m.pop_to_mark())),  # APPENDS
    "}": Opcode(0, False, _DICT_BYTES, _EMPTY + _DICT),  # EMPTY_DICT
    "s": Opcode(0, False, 0, lambda m: m.set_items(m.pop(2))),  # SETITEM
    "u": Opcode(0, False, 0, lambda m: m.set_items(m.pop_to_mark())),  # SETITEMS
    ")": Opcode(0, False, _TUPLE_BYTES, _EMPTY + _TUPLE),  # EMPTY_TUPLE
    "\x85": Opcode(0, False, _TUPLE_BYTES, lambda m: m.put(_TUPLE, m.pop(1))),  # TUPLE1
    "\x86": Opcode(0, False, _TUPLE_BYTES, lambda m: m.put(_TUPLE, m.pop(2))),  # TUPLE2
    "\x87": Opcode(0, False, _TUPLE_BYTES, lambda m: m.put(_TUPLE, m.pop(3))),  # TUPLE3
    "t": Opcode(0, False, _TUPLE_BYTES, lambda m: m.put(_TUPLE, m.pop_to_mark())),  # TUPLE
    "\x8f": Opcode(0, False, _SET_BYTES, _EMPTY + _SET),  # EMPTY_SET
    "\x90": Opcode(0, False, 0, lambda m: m.grow(_SET, m.hashables())),  # ADDITEMS
    "\x91": Opcode(0, False, _SET_BYTES, lambda m: m.put(_FROZENSET, m.hashables())),  # FROZENSET
}


def _refuse(machine: _Machine) -> NoReturn:
    """Raise Refused for an opcode that is not allowed, at the machine's position."""
    code = machine.pickled[machine.position]
    raise Refused(f"opcode 0x{code:02x} is not allowed in plain data")


#: Entry of opcodes that plain data does not need.
_REFUSED = Opcode(0, False, 0, _refuse)
#: Entry of each opcode, by its byte.
_OPCODES: Final[list[Any]] = [tuple(ALLOWED.get(chr(code), _REFUSED)) for code in range(256)]
