"""Checkpoints and pickles made to do harm, by their number in the list of attacks.

`PICKLES` are states; `FILES` are whole files, whose digests `sealed` makes right. Loaded by a plain
unpickler some of them leave a trace: a variable of the environment or a file, both called `CANARY`.
"""

import copyreg
import hashlib
import json
import os
import pickle  # noqa: TID251 the attacks are pickles
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

CANARY = "SWEEP_TEST_CANARY"
PROTO = b"\x80\x04"


class Calls:
    """Pickles as a call."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


class Builds:
    def __reduce__(self) -> Any:
        return (Builds, (), {"x": 1})


def text(text: str) -> bytes:
    return b"\x8c" + bytes([len(text)]) + text.encode()


def global_(module: str, name: str) -> bytes:
    return text(module) + text(name) + b"\x93"


def u32(number: int) -> bytes:
    return struct.pack("<I", number)


def u64(number: int) -> bytes:
    return struct.pack("<Q", number)


_SET_CANARY = (os.environ.__setitem__, CANARY, "1")
_putenv = f"import os; os.environ[{CANARY!r}] = '1'"

PICKLES: dict[str, bytes] = {
    "1 REDUCE os.system": pickle.dumps(Calls(os.system, f"touch {CANARY}"), 2),
    "1 REDUCE protocol 4": pickle.dumps(Calls(os.system, f"touch {CANARY}"), 4),
    "2 STACK_GLOBAL eval": PROTO + global_("builtins", "exec") + text(_putenv) + b"\x85R.",
    "3 dotted name": PROTO + global_("builtins", "object.__subclasses__") + b")R.",
    "4 operator chain": PROTO + global_("operator", "attrgetter") + text("system") + b"\x85R.",
    "5 INST": PROTO + b"(" + text(_putenv) + b"ibuiltins\nexec\n.",
    "6 OBJ": PROTO + b"(" + global_("builtins", "exec") + text(_putenv) + b"o.",
    "7 NEWOBJ_EX": PROTO + global_("builtins", "type") + text("X") + b")}\x87}\x92.",
    "7 NEWOBJ": PROTO + global_("builtins", "list") + b")\x81.",
    "8 BUILD": pickle.dumps(Builds(), 4),
    "9 EXT1": PROTO + b"\x82\x01.",
    "9 EXT2": PROTO + b"\x83\x01\x00.",
    "9 EXT4": PROTO + b"\x84\x01\x00\x00\x00.",
    "10 PERSID": PROTO + b"P0\n.",
    "11 BINPERSID out of range": PROTO + b"K\x01Q.",
    "11 BINPERSID negative": PROTO + b"J\xff\xff\xff\xffQ.",
    "11 BINPERSID str": PROTO + text("0") + b"Q.",
    "11 BINPERSID tuple": PROTO + b"K\x00\x85Q.",
    "11 BINPERSID None": PROTO + b"NQ.",
    "11 BINPERSID nested": PROTO + b"K\x00QQ.",
    "12 partial": PROTO + global_("functools", "partial") + b".",
    "12 resolve_name": PROTO + global_("pkgutil", "resolve_name") + text("os:system") + b"\x85R.",
    "12 importlib": PROTO + global_("importlib", "import_module") + text("this") + b"\x85R.",
    "12 numpy": PROTO + global_("numpy.f2py.crackfortran", "getlincoef") + b".",
    "12 GLOBAL": PROTO + b"cos\nsystem\n.",
    "13 loads in loads": PROTO + global_("pickle", "loads") + b"C\x04\x80\x04N." + b"\x85R.",
    "14 LONG_BINPUT 2^28": PROTO + b"Nr" + u32(2**28 - 1) + b".",
    "14 LONG_BINPUT 2^31": PROTO + b"Nr" + u32(2**31 - 1) + b".",
    "14 PUT": PROTO + b"Np268435455\n.",
    "14 MEMOIZE": PROTO + b"N\x94.",
    "15 BINBYTES8": PROTO + b"\x8e" + u64(10**11) + b"x.",
    "15 BYTEARRAY8": PROTO + b"\x96" + u64(10**11) + b"x.",
    "15 BINUNICODE8": PROTO + b"\x8d" + u64(10**11) + b"x.",
    "15 BINBYTES": PROTO + b"B" + u32(2**32 - 1) + b"x.",
    "15 BINUNICODE": PROTO + b"X" + u32(2**32 - 1) + b"x.",
    "16 FRAME 2^60": PROTO + b"\x95" + u64(2**60) + b"N.",
    "16 FRAME 2^64-1": PROTO + b"\x95" + u64(2**64 - 1) + b"N.",
    # The loader drops the first bytes of an opcode that a frame cuts: of the text's length here, so
    # that it reads opcodes within the text.
    "16 FRAME cuts an opcode": PROTO
    + b"\x95"
    + u64(3)
    + b"X"
    + u32(170)
    + (b"\0\0" + b"0]\x94" + b"h\0h\0\x86\x940" * 20 + b".").ljust(170, b".")
    + b".",
    "16 FRAME in a frame": PROTO + b"\x95" + u64(11) + b"N\x95" + u64(1) + b".",
    "17 LONG4": PROTO + b"\x8b" + struct.pack("<i", 50 * 10**6) + b"\x01" * (50 * 10**6) + b".",
    "17 INT text": PROTO + b"I" + b"9" * (5 * 10**6) + b"\n.",
    "17 LONG text": PROTO + b"L" + b"9" * (5 * 10**6) + b"L\n.",
    "18 nested lists": PROTO + b"]" * 10**6 + b"a" * (10**6 - 1) + b".",
    "18 nested marks": PROTO + b"(" * 10**6 + b"t" * 10**6 + b".",
    "19 nested tuples as key": PROTO + b"})" + b"\x85" * (3 * 10**6) + b"Ns.",
    "20 DUP": PROTO + b"]" + b"2\x86" * 100 + b".",
    "20 GET": PROTO + b"]\x94" + b"h\x00h\x00\x86\x94" * 50 + b".",
    "20 DUP TUPLE2 as key": PROTO + b"})" + b"2\x86" * 60 + b"Ns.",
    "21 list as key": PROTO + b"}]Ns.",
    "21 list as one of keys": PROTO + b"}(K\x01N]Nu.",
    "21 set of lists": PROTO + b"\x8f(]\x90.",
    "21 frozenset of dicts": PROTO + b"(}\x91.",
    "21 array as key": PROTO + b"}K\x00QNs.",
    "21 key without value": PROTO + b"}(K\x01u.",
    "21 colliding keys": PROTO
    + b"}("
    + b"".join(b"\x8a\x10" + (i * (2**61 - 1)).to_bytes(16, "little") + b"N" for i in range(9))
    + b"u.",
    **{f"22 protocol {n}": pickle.dumps([1], n) for n in (0, 1, 2, 3, 5)},
    "22 protocol 99": b"\x80\x63N.",
    "22 PROTO again": PROTO + b"\x80\x05N.",
    "23 trailing bytes": PROTO + b"N.x",
    "23 two pickles": PROTO + b"N." + PROTO + b"N.",
    "24 empty": b"",
    "24 only PROTO": PROTO,
    "24 no STOP": PROTO + b"N",
    "24 underflow": PROTO + b"a.",
    "24 nothing to stop with": PROTO + b".",
    "24 two values": PROTO + b"NN.",
    "24 open mark": PROTO + b"(N.",
    "24 no mark": PROTO + b"]Ne.",
    "24 takes below the mark": PROTO + b"N(\x85.",
    "24 argument cut off": PROTO + b"J\x01",
    "24 POP": PROTO + b"NN0.",
    "24 append to a dict": PROTO + b"}Na.",
    "24 items of a list": PROTO + b"]K\x01Ns.",
    "24 items of an array": PROTO + b"K\x00QK\x00Ns.",
    "25 NEXT_BUFFER": PROTO + b"\x97.",
    "25 READONLY_BUFFER": PROTO + b"N\x98.",
    "26 array pickled by numpy": pickle.dumps(np.arange(3), 4),
    "26 cloudpickle": pickle.dumps(Calls(copyreg._reconstructor, object, object, None), 4),  # type: ignore[attr-defined]  # private, but in every pickle of protocol 1
    "26 zip of torch": b"PK\x03\x04" + bytes(100),
    "array twice": PROTO + b"K\x00QK\x00Q\x86.",
}


# ---- files -----------------------------------------------------------------------------------


def sealed(content: bytes) -> bytes:
    return content + hashlib.sha256(content).digest()


def with_header(text: bytes, length: int | None = None, data: bytes = b"") -> bytes:
    head = struct.pack("<6sI", b"SWCK\x01\n", len(text) if length is None else length) + text
    return sealed(head + bytes(-len(head) % 64) + data)


PICKLE = b"\x80\x04}."  # an empty dict


def section(**changes: Any) -> dict[str, Any]:
    section = {
        "name": "state",
        "offset": 0,
        "len": len(PICKLE),
        "sha256": hashlib.sha256(PICKLE).hexdigest(),
        "dtype": "|u1",
        "shape": [len(PICKLE)],
    }
    return {**section, **changes}


def crafted(data: bytes = PICKLE, **changes: Any) -> bytes:
    header = {"format": 1, "min_reader": 1, "step": 1, "sections": [section()], **changes}
    return with_header(json.dumps(header).encode(), data=data)


def with_entry(entry: bytes) -> bytes:
    """A good file but for one more entry of its header."""
    header = {"format": 1, "min_reader": 1, "step": 1, "sections": [section()]}
    return with_header(json.dumps(header)[:-1].encode() + b"," + entry + b"}", data=PICKLE)


def two(**changes: Any) -> bytes:
    """A state that mentions one array of two numbers, which a section of its own holds."""
    pickled, body = b"\x80\x04}\x8c\x01aK\x00Qs.", bytes(16)
    state = section(
        len=len(pickled), shape=[len(pickled)], sha256=hashlib.sha256(pickled).hexdigest()
    )
    array = {
        "name": "array-0",
        "offset": 64,
        "len": 16,
        "sha256": hashlib.sha256(body).hexdigest(),
        "dtype": "<f8",
        "shape": [2],
        **changes,
    }
    return crafted(pickled.ljust(64, b"\0") + body, sections=[state, array])


FILES: dict[str, bytes] = {
    "29 magic of version 0": crafted().replace(b"SWCK\x01", b"SWCK\x00"),
    "29 magic of version 2": crafted().replace(b"SWCK\x01", b"SWCK\x02"),
    "29 format 0": crafted(format=0, min_reader=0),
    "29 format 2^32-1": crafted(format=2**32 - 1, min_reader=2**32 - 1),
    "29 newer reader needed": crafted(format=2, min_reader=2),
    "29 reader above format": crafted(format=1, min_reader=2),
    "29 format text": crafted(format="1"),
    "29 format true": crafted(format=True, min_reader=True),
    "29 format missing": with_header(b'{"sections":[]}'),
    "30 header length 2^32-1": with_header(b"{}", 2**32 - 1),
    "30 header length 0": with_header(b"{}", 0),
    "30 header longer than the file": with_header(b"{}", 500),
    "30 header into the digest": with_header(b"{}", 60),
    "31 overlapping": two(offset=0),
    "31 gap": two(offset=128),
    "31 outside": two(len=160, shape=[20]),
    "31 negative offset": two(offset=-64),
    "31 negative length": two(len=-16),
    "31 length true": two(len=True),
    "31 length text": two(len="16"),
    "31 duplicated": crafted(sections=[section(), section()]),
    "31 missing": crafted(sections=[]),
    "31 none": crafted(sections=None),
    "31 no list": crafted(sections={"0": section()}),
    "31 not dicts": crafted(sections=[1]),
    "31 section without name": crafted(sections=[{}]),
    "31 extra key": two(flags=1),
    "31 other name": two(name="array-1"),
    "31 digest of a section": two(sha256="0" * 64),
    "31 bytes that no section names": crafted(PICKLE + bytes(64)),
    "31 more arrays than the state mentions": crafted(
        PICKLE.ljust(64, b"\0"),
        sections=[
            section(),
            {
                "name": "array-0",
                "offset": 64,
                "len": 0,
                "sha256": hashlib.sha256(b"").hexdigest(),
                "dtype": "<f8",
                "shape": [0],
            },
        ],
    ),
    "32 shape overflows": two(shape=[2**62, 2**62]),
    "32 zero times huge": two(shape=[0, 2**63], len=0),
    "32 shape negative": two(shape=[-2]),
    "32 shape of two negatives": two(shape=[-1, -2]),
    "32 shape true": two(shape=[True, 2]),
    "32 shape float": two(shape=[2.0]),
    "32 shape number": two(shape=2),
    "32 too many axes": two(shape=[1] * 99 + [2]),
    "32 dtype O": two(dtype="O"),
    "32 dtype V": two(dtype="V8"),
    "32 dtype U": two(dtype="<U9999999"),
    "32 dtype big-endian": two(dtype=">f8"),
    "32 dtype list": two(dtype=["<f8"]),
    "33 duplicate key": with_entry(b'"step":1'),
    "33 duplicate key inside": with_entry(b'"x":{"y":1,"y":1}'),
    "33 NaN": with_entry(b'"x":NaN'),
    "33 infinity": with_entry(b'"x":-Infinity'),
    "33 1e999": with_entry(b'"x":1e999'),
    "33 1e5 deep": with_entry(b'"x":' + b"[" * 10**5 + b"]" * 10**5),
    "33 33 deep": with_entry(b'"x":' + b"[" * 33 + b"]" * 33),
    "33 int of 10^5000": with_entry(b'"x":1' + b"0" * 5000),
    "33 int of 10^50": with_entry(b'"x":1' + b"0" * 50),
    "33 bad UTF-8 in a text": with_entry(b'"x":"\xff"'),
    "33 NUL in a text": with_entry(b'"x":"\x00"'),
    "33 bad UTF-8": with_header(b'{"format":"\xff"}'),
    "33 BOM": with_header(b'\xef\xbb\xbf{"format":1}'),
    "33 NUL": with_header(b'{"format":\x001}'),
    "33 list": with_header(b"[]"),
    "33 number": with_header(b"1"),
    "33 empty": with_header(b" "),
    "33 control characters": with_header(b'{"format":"\\u001b[2J\\u202e"}'),
    "header over 1 MiB": with_entry(b'"x":"' + b"x" * 2**20 + b'"'),
    "state is not a dict": crafted(
        b"\x80\x04].", sections=[section(sha256=hashlib.sha256(b"\x80\x04].").hexdigest())]
    ),
    "26 a pickle": b"\x80\x04}.",
    "26 a zip": b"PK\x03\x04" + bytes(200),
    "empty": b"",
    "magic alone": b"SWCK\x01\n",
    "text": b"hello, world",
}
