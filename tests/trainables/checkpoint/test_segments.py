"""Large arrays: beside the checkpoint, written once, never held twice, and never half trusted."""

import hashlib
import json
import os
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from numpy.typing import NDArray

from trainables.checkpoint import segments
from trainables.checkpoint.file import Saved, read, segments_of, verify, write
from trainables.errors import CheckpointError, CorruptCheckpoint, UnreadableCheckpoint

CHUNK = 256


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays of 1000 bytes are large."""
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 1000)
    monkeypatch.setattr(segments, "CHUNK_BYTES", CHUNK)


def _replay(rows: int = 50) -> NDArray[np.float32]:
    return np.arange(rows * 8, dtype=np.float32).reshape(rows, 8)


def _segments(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.name.startswith("seg-")}


@pytest.fixture
def saved(small: None, tmp_path: Path) -> Saved:
    return write(tmp_path, 1, {}, {"replay": _replay(), "name": "x"})


# ---- what is written ----------------------------------------------------------------------------


def test_a_large_array_lies_in_segments_named_by_their_digest(saved: Saved, tmp_path: Path) -> None:
    names = _segments(tmp_path)
    assert len(names) == -(-_replay().nbytes // CHUNK)
    for name in names:
        content = (tmp_path / name).read_bytes()
        assert name == f"seg-{hashlib.sha256(content).hexdigest()}"
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    assert segments_of(saved.path) == names
    assert saved.size == saved.path.stat().st_size + _replay().nbytes
    assert _replay().tobytes()[:64] not in saved.path.read_bytes()


@pytest.mark.parametrize(
    "array",
    [
        _replay(),
        _replay()[:, ::-2],
        np.asfortranarray(_replay()),
        np.arange(2000, dtype=np.uint8),
        np.ones((300, 1, 2), dtype=np.bool_),
    ],
    ids=["C", "strided", "Fortran", "bytes", "bool"],
)
def test_it_comes_back_equal_and_writable(array: NDArray[Any], small: None, tmp_path: Path) -> None:
    again = read(write(tmp_path, 1, {}, {"a": array}).path).state["a"]
    assert (again.dtype, again.shape) == (array.dtype, array.shape)
    assert again.tobytes() == array.tobytes()
    assert again.flags.f_contiguous == array.flags.f_contiguous or not array.flags.f_contiguous
    again[0] = 0


def test_what_did_not_change_is_not_written_again(saved: Saved, tmp_path: Path) -> None:
    before = {name: (tmp_path / name).stat().st_ino for name in _segments(tmp_path)}
    changed = _replay()
    changed[0] = -1
    second = write(tmp_path, 2, {}, {"replay": changed})
    after = {name: (tmp_path / name).stat().st_ino for name in _segments(tmp_path)}
    assert len(after) == len(before) + 1
    assert after.items() >= before.items()
    assert np.array_equal(read(second.path).state["replay"], changed)
    assert np.array_equal(read(saved.path).state["replay"], _replay())


def test_arrays_that_are_too_many_for_one_file_leave_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "INSIDE_BYTES", 2000)
    arrays = [np.full(100, i, np.float64) for i in range(5)]
    saved = write(tmp_path, 1, {}, {"a": arrays})
    assert len(_segments(tmp_path)) == 3
    assert all(map(np.array_equal, read(saved.path).state["a"], arrays))


def test_larger_arrays_have_larger_chunks(
    small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "MOST_CHUNKS", 4)
    saved = write(tmp_path, 1, {}, {"replay": _replay(500)})
    assert len(_segments(tmp_path)) == 4
    assert np.array_equal(read(saved.path).state["replay"], _replay(500))


def test_neither_writing_nor_reading_holds_an_array_twice(tmp_path: Path) -> None:
    array = np.arange(6 * 2**20, dtype=np.float64)  # 48 MiB
    spare = 12 * 2**20
    saved, written = _peak(lambda: write(tmp_path, 1, {}, {"replay": array}))
    again, unchanged = _peak(lambda: write(tmp_path, 2, {}, {"replay": array}))
    loaded, used = _peak(lambda: read(saved.path))
    assert written < spare
    assert unchanged < spare
    assert used < array.nbytes + spare
    _, checked = _peak(lambda: verify(again.path))
    assert checked < spare
    assert np.array_equal(loaded.state["replay"], array)


def _peak(call: Callable[[], Any]) -> tuple[Any, int]:
    tracemalloc.start()
    try:
        return call(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# ---- damage -------------------------------------------------------------------------------------


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def _link(path: Path) -> None:
    content = path.read_bytes()
    path.unlink()
    elsewhere = path.with_name("elsewhere")
    elsewhere.write_bytes(content)
    path.symlink_to(elsewhere)


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("harm", [_cut, _flip, _link, _pipe, Path.unlink])
def test_a_segment_that_is_not_whole_spoils_its_checkpoint(
    harm: Callable[[Path], None], saved: Saved, tmp_path: Path
) -> None:
    name = sorted(_segments(tmp_path))[1]
    harm(tmp_path / name)
    for use in (read, verify):
        with pytest.raises(CorruptCheckpoint, match=name) as refusal:
            use(saved.path)
        assert str(refusal.value).startswith(str(saved.path))


@pytest.mark.parametrize("harm", [_cut, _flip, _link, _pipe, Path.unlink])
def test_saving_the_same_again_heals_a_damaged_segment(
    harm: Callable[[Path], None], saved: Saved, tmp_path: Path
) -> None:
    harm(tmp_path / sorted(_segments(tmp_path))[1])
    write(tmp_path, 2, {}, {"replay": _replay()})
    assert np.array_equal(read(saved.path).state["replay"], _replay())


def test_a_checkpoint_that_does_not_fit_into_memory_is_not_begun(
    saved: Saved, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Little:
        available = _replay().nbytes - 1

    monkeypatch.setattr(psutil, "virtual_memory", Little)
    with pytest.raises(UnreadableCheckpoint, match="1600 bytes of memory"):
        read(saved.path)


# ---- sections made to do harm -------------------------------------------------------------------


def _with(saved: Saved, **changes: Any) -> None:
    """Change the section of the array, and make the file's digest right again."""
    content = saved.path.read_bytes()
    length = struct.unpack_from("<I", content, 6)[0]
    header = json.loads(content[10 : 10 + length])
    start = -(-(10 + length) // 64) * 64
    header["sections"][1] |= changes
    text = json.dumps(header).encode()
    head = content[:6] + struct.pack("<I", len(text)) + text
    body = head + bytes(-len(head) % 64) + content[start:-32]
    (saved.path.parent / "best.swck").write_bytes(body + hashlib.sha256(body).digest())


ONE = "0" * 64
HARMFUL: dict[str, dict[str, Any]] = {
    "no list": {"segments": "abc"},
    "none": {"segments": []},
    "too few": {"segments": [ONE]},
    "numbers": {"segments": [1] * 7},
    "paths": {"segments": ["../../../etc/passwd"] * 7},
    "unknown": {"segments": [ONE] * 7},
    "length 0": {"len": 0, "shape": [0], "segments": []},
    "length negative": {"len": -1600},
    "length true": {"len": True},
    "length huge": {"len": 2**62, "shape": [2**60]},
    "shape huge": {"shape": [2**62, 2**62]},
    "shape negative": {"shape": [-50, -8]},
    "shape number": {"shape": 400},
    "too many axes": {"shape": [1] * 99 + [400]},
    "chunk 0": {"chunk": 0},
    "chunk 1": {"chunk": 1},
    "chunk float": {"chunk": float(CHUNK)},
    "chunk text": {"chunk": "256"},
    "dtype object": {"dtype": "|O"},
    "dtype list": {"dtype": ["<f4"]},
    "offset too": {"offset": 64},
    "other name": {"name": "array-1"},
}


def test_a_section_is_good_before_it_is_spoilt(saved: Saved, tmp_path: Path) -> None:
    _with(saved)
    assert np.array_equal(read(tmp_path / "best.swck").state["replay"], _replay())


@pytest.mark.parametrize("changes", HARMFUL.values(), ids=HARMFUL.keys())
def test_a_harmful_list_of_segments_is_refused(
    changes: dict[str, Any], saved: Saved, tmp_path: Path
) -> None:
    _with(saved, **changes)
    for use in (read, verify):
        with pytest.raises(CheckpointError) as refusal:
            use(tmp_path / "best.swck")
        assert type(refusal.value) is CorruptCheckpoint
        assert len(refusal.value.reason) < 500


def test_the_state_itself_cannot_lie_in_segments(saved: Saved, tmp_path: Path) -> None:
    content = saved.path.read_bytes()
    length = struct.unpack_from("<I", content, 6)[0]
    header = json.loads(content[10 : 10 + length])
    header["sections"] = [{**header["sections"][1], "name": "state"}]
    text = json.dumps(header).encode()
    head = content[:6] + struct.pack("<I", len(text)) + text
    body = head + bytes(-len(head) % 64)
    (tmp_path / "best.swck").write_bytes(body + hashlib.sha256(body).digest())
    with pytest.raises(CorruptCheckpoint, match="section 0"):
        read(tmp_path / "best.swck")
