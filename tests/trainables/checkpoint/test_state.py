"""What may stand in a checkpoint: round trips, refusals by path, and pickles made to do harm."""

import contextlib
import io
import os
import pickle  # noqa: TID251 the attacks are pickles
import pickletools
import subprocess
import sys
import time
import tracemalloc
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from enum import Enum, IntEnum
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.support.attacks import CANARY, PICKLES, PROTO, Calls, u32
from tests.support.proofs import proofs_except
from trainables.checkpoint.normal_form import MAX_VALUES, normalise
from trainables.checkpoint.pickle_scan import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_MEMORY,
    MAX_OPCODES,
    MEMORY_PER_BYTE,
    Refused,
    TooMuch,
    scan,
)
from trainables.checkpoint.state import _pickled, pack, unpack
from trainables.checkpoint.tagged import DTYPES, TAG, state_type
from trainables.core import rng
from trainables.errors import CorruptCheckpoint, StateError, WrongFormat


def round_trip(value: Any) -> Any:
    packed = pack(value)
    return unpack(packed.pickled, packed.arrays)


def same(first: Any, second: Any) -> bool:
    """Equality of values, types, dtypes, bits and order of keys."""
    if type(first) is not type(second):
        return False
    if isinstance(first, np.ndarray):
        return _same_array(first, second)
    if isinstance(first, (np.generic, float)):
        return _same_array(np.asarray(first), np.asarray(second))
    if isinstance(first, torch.Tensor):
        return first.dtype == second.dtype and torch.equal(first, second)
    if isinstance(first, dict):
        return same(list(first.items()), list(second.items()))
    if isinstance(first, deque) and first.maxlen != second.maxlen:
        return False
    if isinstance(first, (list, tuple, deque)):
        return len(first) == len(second) and all(map(same, first, second))
    return bool(first == second)


def _same_array(first: Any, second: Any) -> bool:
    shape_and_type = first.shape == second.shape and first.dtype == second.dtype
    return bool(shape_and_type and first.tobytes() == second.tobytes())


# ---- what comes back ----------------------------------------------------------------------------

_keys = st.text().filter(lambda key: key != TAG) | st.integers(-(2**63), 2**63 - 1)
_constants = (
    st.none()
    | st.booleans()
    | st.floats()
    | st.text()
    | st.binary()
    | st.integers(-(2**2038), 2**2038)
)
_arrays = hnp.arrays(
    st.sampled_from(sorted(DTYPES)), hnp.array_shapes(min_dims=0, max_dims=4, min_side=0)
)
_hashable = st.none() | st.booleans() | st.text() | st.integers(-(2**63), 2**63 - 1)
_plain: st.SearchStrategy[Any] = st.recursive(
    _constants | _arrays | st.sets(_hashable) | st.frozensets(_hashable),
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(_keys, inner)
        | st.builds(deque, st.lists(inner, max_size=3), st.none() | st.integers(3, 9))
    ),
)


@pytest.mark.slow
@settings(max_examples=200)
@given(_plain)
def test_plain_data_comes_back_equal(value: Any) -> None:
    assert same(round_trip(value), value)


@pytest.mark.parametrize("dtype", sorted(DTYPES))
@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,), (2, 3), (40, 50)])
def test_arrays_come_back_equal_and_writable(dtype: str, shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape)).astype(dtype).reshape(shape)
    again = round_trip({"a": array})["a"]
    assert same(again, array)
    assert again.flags.writeable
    assert again.flags.owndata
    assert not np.shares_memory(again, array)


@pytest.mark.parametrize(
    "array",
    [
        np.asfortranarray(np.arange(600.0).reshape(20, 30)),
        np.arange(6.0).reshape(2, 3).T,
        np.arange(1000)[::-3],
        np.arange(1000).reshape(10, 10, 10)[:, 2:5, ::2],
        np.broadcast_to(np.float32(2.0), (300, 2)),
        np.array([np.nan, np.inf, -np.inf, -0.0]),
    ],
)
def test_arrays_of_any_layout_come_back_equal(array: np.ndarray[Any, Any]) -> None:
    again = round_trip(array)
    assert same(again, array)
    if array.flags.f_contiguous:
        assert again.flags.f_contiguous
    again[...] = 1


def test_numpy_scalars_keep_their_dtype() -> None:
    scalars = [np.float64(1.5), np.float32("nan"), np.bool_(True), np.int8(-3), np.complex64(1j)]
    assert same(round_trip(scalars), scalars)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.int64, torch.bool])
def test_tensors_come_back_as_tensors(dtype: torch.dtype) -> None:
    wide = torch.arange(600.0).reshape(20, 30)
    for tensor in (wide, wide.t(), torch.tensor(1.0), torch.zeros(0, 3)):
        assert same(round_trip(tensor.to(dtype)), tensor.to(dtype))


def test_a_networks_and_an_optimisers_state_can_be_loaded_again() -> None:
    net = torch.nn.Linear(30, 40)
    optimiser = torch.optim.Adam(net.parameters())
    net(torch.ones(30)).sum().backward()
    optimiser.step()
    state = round_trip({"net": net.state_dict(), "optimiser": optimiser.state_dict()})
    again = torch.nn.Linear(30, 40)
    again.load_state_dict(state["net"])
    optimiser_again = torch.optim.Adam(again.parameters())
    optimiser_again.load_state_dict(state["optimiser"])
    for one, other in ((net, optimiser), (again, optimiser_again)):
        other.zero_grad()
        one(torch.ones(30)).square().sum().backward()
        other.step()
    assert all(map(torch.equal, net.parameters(), again.parameters()))


def test_a_parameter_comes_back_without_gradient() -> None:
    again = round_trip(torch.nn.Parameter(torch.ones(2)))
    assert type(again) is torch.Tensor
    assert not again.requires_grad


def test_dicts_with_extras_become_dicts() -> None:
    counts = defaultdict(int, a=1)
    assert same(round_trip([OrderedDict(b=1, a=2), counts]), [{"b": 1, "a": 2}, {"a": 1}])


def test_a_full_deque_drops_from_the_left_again() -> None:
    again = round_trip(deque([1, 2, 3], maxlen=3))
    again.append(4)
    assert list(again) == [2, 3, 4]


def test_the_streams_come_back() -> None:
    state = {"global": rng.capture_global(), "mine": np.random.default_rng(1).bit_generator.state}
    assert same(round_trip(state), state)


def test_long_bytes_leave_the_pickle() -> None:
    packed = pack({"file": b"x" * 2**20})
    assert len(packed.pickled) < 1000
    assert unpack(packed.pickled, packed.arrays) == {"file": b"x" * 2**20}


def test_two_mentions_of_one_array_come_back_as_two() -> None:
    array = np.zeros(1000)
    first, second = round_trip([array, array])
    first[0] = 1
    assert second[0] == 0


def test_normalising_does_not_copy_large_arrays() -> None:
    array = np.zeros(1000)
    assert normalise([array])[0] is array


def test_packing_equal_states_gives_equal_bytes() -> None:
    state = {"a": [1, 2.5, "x"], "b": np.arange(3), "c": deque([1])}
    assert pack(state).pickled == pack(state).pickled


# ---- users' classes -----------------------------------------------------------------------------


@state_type("tests.Point", version=2)
class Point:
    def __init__(self, x: Any) -> None:
        self.x = x

    def to_state(self) -> Any:
        return {"x": self.x}

    @classmethod
    def from_state(cls, state: Any, version: int) -> Self:
        if version == 1:
            return cls(state)
        return cls(state["x"])


def _without_memo(value: Any) -> bytes:
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer, protocol=4)
    pickler.fast = True
    pickler.dump(value)
    return buffer.getvalue()


def test_a_registered_class_comes_back() -> None:
    again = round_trip({"p": Point([np.arange(400), Point(1)])})["p"]
    assert type(again) is Point
    assert same(again.x[0], np.arange(400))
    assert again.x[1].x == 1


def test_from_state_is_told_the_version_that_wrote() -> None:
    old = {TAG: "object", "name": "tests.Point", "version": 1, "data": 7}
    assert unpack(_without_memo(old), []).x == 7


def test_what_a_registered_class_holds_is_refused_by_path() -> None:
    with pytest.raises(StateError, match=r"^state\.p\.x: .*Path"):
        pack({"p": Point(Path())})


@pytest.mark.parametrize(
    ("name", "version", "message"),
    [("tests.Unheard", 1, "import the module"), ("tests.Point", 3, "version 3")],
)
def test_a_class_that_the_program_does_not_know_is_refused(
    name: str, version: int, message: str
) -> None:
    unknown = {TAG: "object", "name": name, "version": version, "data": None}
    with pytest.raises(WrongFormat, match=message):
        unpack(_without_memo(unknown), [])


def test_a_name_belongs_to_one_class() -> None:
    with pytest.raises(ValueError, match=r"tests\.Point"):

        @state_type("tests.Point")
        class Other(Point):
            pass


# ---- refusals by path ---------------------------------------------------------------------------


class Colour(Enum):
    RED = 1


class Number(IntEnum):
    ONE = 1


class Text(str):
    __slots__ = ()


Pair = namedtuple("Pair", "a b")
_cycle: list[Any] = []
_cycle.append(_cycle)


REFUSED: dict[str, Any] = {
    "Path": Path("x"),
    "Enum": Colour.RED,
    "IntEnum": Number.ONE,
    "subclass of str": Text("x"),
    "namedtuple": Pair(1, 2),
    "Counter": Counter("aab"),
    "object": object(),
    "builtin": len,
    "lambda": lambda: None,
    "class": int,
    "module": np,
    "bytearray": bytearray(b"x"),
    "memoryview": memoryview(b"x"),
    "complex": 1j,
    "range": range(3),
    "iterator": iter([]),
    "generator": np.random.default_rng(0),
    "datetime64": np.datetime64("2020-01-01"),
    "numpy text": np.str_("x"),
    "longdouble": np.longdouble(1),
    "array of objects": np.array([None]),
    "array of texts": np.array(["x"]),
    "structured array": np.array([(1, 2.0)], dtype="i4,f8"),
    "big-endian array": np.arange(3, dtype=">i4"),
    "masked array": np.ma.masked_array([1]),
    "int of 2041 bits": 2**2040,
    "sparse tensor": torch.zeros(2).to_sparse(),
    "float8 tensor": torch.zeros(2, dtype=torch.float8_e4m3fn),
    "torch module": torch.nn.Linear(1, 1),
    "set of a long int": {2**63},
    "set of an int of 50 MB": {1 << 400_000_000},
    "key of 50 MB": {1 << 400_000_000: 1},
    "set of long bytes": {b"x" * 1000},
    "set of a tuple": {(1, 2)},
    "key None": {None: 1},
    "key bool": {True: 1},
    "key float": {1.0: 1},
    "key bytes": {b"x": 1},
    "key tuple": {(1,): 1},
    "key of 65 bits": {2**63: 1},
    "key numpy": {np.int64(1): 1},
    "key of tags": {TAG: "array"},
    "cycle": _cycle,
}


@pytest.mark.parametrize("value", REFUSED.values(), ids=REFUSED.keys())
def test_what_is_no_plain_data_is_refused_by_path(value: Any) -> None:
    with pytest.raises(StateError) as refusal:
        pack({"agent": [0, {3: (value,)}]})
    assert refusal.value.path.startswith("state.agent[1][3][0]")
    assert "cannot be stored in a checkpoint; " in str(refusal.value)


def test_a_refusal_names_path_type_and_remedies() -> None:
    with pytest.raises(StateError) as refusal:
        pack({"logs": {"dir": Path("x")}}, "trial 3")
    message = str(refusal.value)
    assert message.startswith("trial 3.logs.dir: a value of type pathlib.")
    assert "return plain data" in message
    assert "@state_type" in message


def test_a_refused_path_cannot_fool_a_terminal() -> None:
    with pytest.raises(StateError) as refusal:
        pack({"\x1b[2J\u202e": object()})
    assert "\x1b" not in str(refusal.value)
    assert "\u202e" not in str(refusal.value)


def _nested(depth: int) -> Any:
    value: Any = np.arange(3)
    for _ in range(depth):
        value = [value]
    return value


def test_as_many_marks_may_be_open_as_levels_are_allowed() -> None:
    def nested(levels: int) -> bytes:
        return PROTO + b"(" * levels + b"t" * levels + b"."

    scan(nested(MAX_DEPTH), 0)
    with pytest.raises(Refused, match=f"nested deeper than {MAX_DEPTH}, at byte {2 + MAX_DEPTH} "):
        scan(nested(MAX_DEPTH + 1), 0)


def test_nesting_has_a_limit() -> None:
    deepest = MAX_DEPTH - 2  # a small array is two levels itself
    assert same(round_trip(_nested(deepest)), _nested(deepest))
    with pytest.raises(StateError, match="deeper than 64"):
        pack(_nested(deepest + 1))


def test_too_many_values_are_refused() -> None:
    with pytest.raises(StateError, match="numpy arrays"):
        pack({"replay": [0.5] * (MAX_VALUES + 1)})


def test_a_too_long_pickle_is_refused() -> None:
    with pytest.raises(StateError, match="numpy arrays"):
        pack({"text": "x" * MAX_BYTES})


@pytest.mark.parametrize("unit", [[], [1], [1, 2], {}, {1: 2}, {1: 2, 3: 4}, (), (1,), np.int8(1)])
def test_whatever_is_written_can_be_read(unit: Any) -> None:
    """The limit on values leaves room for the opcodes that any value needs."""
    for value in ([unit] * 20_000, dict.fromkeys(range(20_000), unit)):
        counted = _values(normalise(value))
        opcodes = sum(1 for _ in pickletools.genops(pack(value).pickled))
        assert opcodes - 100 <= MAX_OPCODES / MAX_VALUES * counted


@pytest.mark.parametrize(
    ("state", "path"),
    [
        ({"a": 1, "b": {"c": [2, "é" + "x" * 45_000_000]}}, "state.b.c[1]"),
        ({"a": "é" * 10_000_000, "b": deque(["é" * 13_000_000])}, "state.b[0]"),
    ],
    ids=["text", "in a deque"],
)
def test_what_its_reader_would_refuse_is_refused_by_path(state: Any, path: str) -> None:
    with pytest.raises(StateError, match="bytes of memory") as refusal:
        pack(state)
    assert refusal.value.path == path


@pytest.mark.slow
def test_as_many_values_of_any_kind_as_are_written_can_be_read() -> None:
    units: list[Any] = [set(), {}, [], 0.5, "é"]
    for unit in units:
        counted = 1 if isinstance(unit, (float, str)) else 2
        packed = pack([unit] * ((MAX_VALUES - 1) // counted))
        assert scan(packed.pickled, 0) <= MAX_MEMORY


def _values(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(1 + _values(item) for item in value.values())
    if isinstance(value, (list, tuple)):
        return 1 + sum(map(_values, value))
    return 1


# ---- pickles made to do harm --------------------------------------------------------------------


@pytest.mark.parametrize("attack", PICKLES.values(), ids=PICKLES.keys())
def test_a_harmful_pickle_is_refused_at_once_and_runs_nothing(
    attack: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(CANARY, raising=False)
    started = time.process_time()
    with pytest.raises(CorruptCheckpoint) as refusal:
        unpack(attack, [np.zeros(3)], "some file")
    assert time.process_time() - started < 5.0
    assert CANARY not in os.environ
    assert not list(tmp_path.iterdir())
    assert str(refusal.value).startswith("some file: ")
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 300


@pytest.mark.parametrize("attack", PICKLES.values(), ids=PICKLES.keys())
@pytest.mark.parametrize("arrays", [0, 1])
def test_the_scan_alone_refuses_a_harmful_pickle(attack: bytes, arrays: int) -> None:
    with pytest.raises(Refused):
        scan(attack, arrays)


def test_wherever_frames_end_what_is_loaded_was_scanned() -> None:
    """Frames of every length, also such that end within a number, a text or a length."""
    value = {"a": [1, 300, 2**40, -0.5, None], "é" * 9: (b"xyz", {"b", 7}, "\0\0" * 150), 9: {}}
    opcodes = pack(value).pickled[11:]
    ends = []
    for first in range(len(opcodes) + 1):
        pickled = PROTO + b"\x95" + first.to_bytes(8, "little") + opcodes
        try:
            scan(pickled, 0)
        except Refused:
            continue
        ends.append(first)
        assert unpack(pickled, []) == value
        for second in range(1, len(opcodes) - first, 29):
            after = b"\x95" + second.to_bytes(8, "little") + opcodes[first:]
            with contextlib.suppress(CorruptCheckpoint):
                assert unpack(pickled[: 11 + first] + after, []) == value
    assert set(ends) == {0, *(at for _, _, at in pickletools.genops(opcodes)), len(opcodes)}


def test_a_deque_is_made_of_a_list_only() -> None:
    fields = {TAG: "deque", "items": np.zeros(1000, np.uint8), "maxlen": None}
    with pytest.raises(CorruptCheckpoint, match="deque"):
        unpack(*_pickled(fields))


def test_what_only_loading_can_find_is_refused_too() -> None:
    not_utf8 = PROTO + b"\x8c\x01\xff."
    scan(not_utf8, 0)
    with pytest.raises(CorruptCheckpoint, match="UnicodeDecodeError"):
        unpack(not_utf8, [])


def test_every_array_must_be_mentioned() -> None:
    with pytest.raises(CorruptCheckpoint, match="mentions 0 arrays, but the file has 1"):
        unpack(PROTO + b"N.", [np.zeros(3)])


def test_a_pickle_over_the_size_limit_is_refused() -> None:
    with pytest.raises(CorruptCheckpoint, match="at most"):
        unpack(PROTO + b"B" + u32(MAX_BYTES) + bytes(MAX_BYTES) + b".", [])


def test_too_many_opcodes_are_refused() -> None:
    with pytest.raises(CorruptCheckpoint, match="opcodes"):
        unpack(PROTO + b"](" + b"N" * MAX_OPCODES + b"e.", [])


def test_a_pickle_in_bytes_stays_bytes() -> None:
    inner = pickle.dumps(Calls(os.system, f"touch {CANARY}"), 4)
    assert round_trip({"payload": inner}) == {"payload": inner}


def test_attacks_need_little_memory() -> None:
    """All of them in a process of 2 GB address space, as one of them asked for 4 GB when loaded."""
    code = (
        "import resource, numpy as np, pytest\n"
        "from tests.support.attacks import PICKLES\n"
        "from trainables.checkpoint.state import unpack\n"
        "from trainables.errors import CorruptCheckpoint\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + 400 * 2**20,) * 2)\n"
        "for attack in PICKLES.values():\n"
        "    with pytest.raises(CorruptCheckpoint): unpack(attack, [np.zeros(3)])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def _list_of(unit: bytes, count: int) -> bytes:
    return PROTO + b"](" + unit * count + b"e."


def _text(text: bytes) -> bytes:
    return b"X" + u32(len(text)) + text


#: The opcodes of one value that swells.
SWELLING = {
    "set": b"\x8f",
    "set of one": b"\x8f(N\x90",
    "set of five": b"\x8f(K\x01K\x02K\x03K\x04K\x05\x90",
    "frozenset": b"(\x91",
    "dict": b"}",
    "dict of one": b"}K\x01Ns",
    "dict of many": b"}(" + b"".join(b"M" + bytes([n, 1]) + b"N" for n in range(11)) + b"u",
    "list": b"]",
    "list of one": b"]Na",
    "nested lists": b"](](]ee",
    "tuple": b")\x85",
    "float": b"G" + bytes(7) + b"\1",
    "int": b"J\xff\xff\xff\x7f",
    "long int": b"\x8a\xff" + b"\x01" * 255,
    "text": _text(b"ab"),
    "wide text": _text(b"abc" + "\N{SNOWMAN}".encode()),
    "bytes": b"C\x01a",
    "deque": b"}(" + _text(TAG.encode()) + _text(b"deque") + _text(b"items") + b"]"
    + _text(b"maxlen") + b"Nu",
    "array": b"}(" + _text(TAG.encode()) + _text(b"array") + _text(b"dtype") + _text(b"|u1")
    + _text(b"shape") + b"K\x01\x85" + _text(b"data") + b"C\x01au",
}  # fmt: skip


#: Those of which reading takes the most memory for each byte, and one of each other kind.
SWELLING_MOST = {"set of five", "dict of many", "nested lists", "long int", "wide text", "array"}


def _peak_of_reading(pickled: bytes) -> int:
    tracemalloc.start()
    try:
        unpack(pickled, [])
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.slow
@pytest.mark.parametrize("name", proofs_except(SWELLING_MOST, SWELLING))
def test_reading_takes_no_more_memory_than_the_scan_has_counted(name: str) -> None:
    unit = SWELLING[name]
    for count in (1, 700, 5_000):
        pickled = _list_of(unit, count)
        counted = scan(pickled, 0)
        assert counted <= MEMORY_PER_BYTE * len(pickled)
        assert _peak_of_reading(pickled) <= counted + 2**16


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 30, 700, 5462, 43_691])
def test_one_large_container_takes_no_more_than_was_counted(count: int) -> None:
    keys = b"".join(b"J" + u32(number) for number in range(count))
    pairs = b"".join(b"J" + u32(number) + b"N" for number in range(count))
    for pickled in (
        PROTO + b"(" + keys + b"t.",
        PROTO + b"](" + keys + b"e.",
        PROTO + b"}(" + pairs + b"u.",
        PROTO + b"\x8f(" + keys + b"\x90.",
        PROTO + b"(" + keys + b"\x91.",
        PROTO + _text(b"a" * 30 * count) + b".",
        PROTO + _text(b"a" * 30 * count + "\N{GRINNING FACE}".encode()) + b".",
    ):
        assert _peak_of_reading(pickled) <= scan(pickled, 0) + 2**16


@pytest.mark.slow
@given(_plain)
def test_whatever_is_written_swells_no_more_than_its_scan_says(value: Any) -> None:
    packed = pack(value)
    counted = scan(packed.pickled, len(packed.arrays))
    assert counted <= MEMORY_PER_BYTE * len(packed.pickled)
    with pytest.raises(TooMuch):
        scan(packed.pickled, len(packed.arrays), counted - 1)


@pytest.mark.slow
def test_what_would_swell_is_refused_before_anything_is_made() -> None:
    attack = _list_of(SWELLING["set"], MAX_OPCODES - 10)
    tracemalloc.start()
    with pytest.raises(CorruptCheckpoint, match=f"more than {MAX_MEMORY} bytes of memory"):
        unpack(attack, [])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MAX_MEMORY / 8  # the scan's own


def test_a_text_that_one_character_makes_wide_is_counted_as_wide() -> None:
    attack = PROTO + _text(b"a" * (62 * 2**20) + "\N{GRINNING FACE}".encode()) + b"."
    with pytest.raises(CorruptCheckpoint, match="bytes of memory"):
        unpack(attack, [])


_TAGGED: dict[str, dict[str, Any]] = {
    "unknown kind": {TAG: "code"},
    "kind is a list": {TAG: [1]},
    "fields missing": {TAG: "array"},
    "field too many": {TAG: "scalar", "dtype": "<f8", "data": bytes(8), "x": 1},
    "dtype object": {TAG: "array", "dtype": "|O", "shape": (1,), "data": bytes(8)},
    "dtype void": {TAG: "array", "dtype": "V8", "shape": (1,), "data": bytes(8)},
    "dtype text": {TAG: "scalar", "dtype": "<U9999999", "data": b""},
    "shape too large": {TAG: "array", "dtype": "<f8", "shape": (2**40, 2**40), "data": b""},
    "shape negative": {TAG: "array", "dtype": "<f8", "shape": (-1,), "data": bytes(8)},
    "shape is true": {TAG: "array", "dtype": "<f8", "shape": (True,), "data": bytes(8)},
    "too many axes": {TAG: "array", "dtype": "<f8", "shape": (1,) * 100, "data": bytes(8)},
    "bytes missing": {TAG: "array", "dtype": "<f8", "shape": (2,), "data": bytes(8)},
    "data is text": {TAG: "array", "dtype": "<f8", "shape": (1,), "data": "12345678"},
    "transpose of a text": {TAG: "fortran", "data": "x"},
    "bytes of a text": {TAG: "bytes", "data": "x"},
    "tensor of a text": {TAG: "tensor", "data": "x"},
    "deque of a number": {TAG: "deque", "items": 1, "maxlen": None},
    "deque of negative length": {TAG: "deque", "items": [], "maxlen": -1},
    "version is a text": {TAG: "object", "name": "tests.Point", "version": "1", "data": 1},
    "data that from_state cannot read": {
        TAG: "object",
        "name": "tests.Point",
        "version": 2,
        "data": 1,
    },
}


@pytest.mark.parametrize("fields", _TAGGED.values(), ids=_TAGGED.keys())
def test_a_damaged_tag_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(CorruptCheckpoint):
        unpack(_without_memo({"x": fields}), [])


@settings(max_examples=300)
@given(st.binary(max_size=60))
def test_random_opcodes_are_refused_or_plain(garbage: bytes) -> None:
    try:
        value = unpack(PROTO + garbage, [])
    except (CorruptCheckpoint, WrongFormat):
        return
    assert same(round_trip(value), value)
