"""One checkpoint is one file, whole or absent, whatever happens to disk, process or bytes."""

import errno
import hashlib
import json
import os
import socket
import stat
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.attacks import FILES, crafted, sealed, section, two, with_entry
from trainables.checkpoint import container, disk
from trainables.checkpoint.file import Saved, parse_name, read, verify, write
from trainables.core import strict_json
from trainables.errors import (
    CheckpointError,
    CorruptCheckpoint,
    MissingCheckpoint,
    StateError,
    UnreadableCheckpoint,
    WrongFormat,
)

STATE = {"weights": np.arange(200.0), "step": np.int64(3), "name": "x", "bias": np.zeros(2)}
HEADER = {"sweep": "s", "trial": 3, "settings": {"lr": 0.1, "hidden": [64, 64]}}


@pytest.fixture
def saved(tmp_path: Path) -> Saved:
    return write(tmp_path, 7, HEADER, STATE)


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# ---- what is written ----------------------------------------------------------------------------


@pytest.mark.parametrize("inner", [7, "x", None, [], {}], ids=repr)
def test_a_header_is_as_deep_as_may_be(inner: Any) -> None:
    wraps: list[Callable[[Any], Any]] = [
        lambda one: [one],
        lambda one: {"a": one},
        lambda one: (one,),
    ]
    for wrap in wraps:
        value = inner
        for _ in range(strict_json.MAX_DEPTH):
            value = wrap(value)
        strict_json.check_depth(value)
        with pytest.raises(ValueError, match=f"nested deeper than {strict_json.MAX_DEPTH}"):
            strict_json.check_depth(wrap(value))


def test_a_checkpoint_comes_back(saved: Saved) -> None:
    loaded = read(saved.path, saved.digest)
    assert loaded.state.keys() == STATE.keys()
    assert np.array_equal(loaded.state["weights"], np.arange(200.0))
    assert loaded.state["weights"].flags.writeable
    assert {key: loaded.header[key] for key in HEADER} == HEADER
    assert (loaded.header["step"], loaded.header["epoch"]) == (7, 0)


def test_the_name_carries_step_and_digest_of_the_bytes(saved: Saved) -> None:
    content = saved.path.read_bytes()
    assert saved.path.name == f"ckpt-0000000007-{saved.digest}.swck"
    assert parse_name(saved.path.name) == (7, saved.digest)
    assert hashlib.sha256(content[:-32]).hexdigest() == saved.digest == content[-32:].hex()
    assert saved.size == len(content)
    assert stat.S_IMODE(saved.path.stat().st_mode) == 0o600


def test_the_layout_is_the_documented_one(saved: Saved) -> None:
    content = saved.path.read_bytes()
    magic, length = struct.unpack_from("<6sI", content)
    text = content[10 : 10 + length]
    header = json.loads(text)
    assert magic == b"SWCK\x01\n"
    assert text == json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    assert (header["format"], header["min_reader"]) == (1, 1)
    start = -(-(10 + length) // 64) * 64
    assert [part["name"] for part in header["sections"]] == ["state", "array-0"]
    for part in header["sections"]:
        assert part["offset"] % 64 == 0
        begin = start + part["offset"]
        body = content[begin : begin + part["len"]]
        assert hashlib.sha256(body).hexdigest() == part["sha256"]
    assert body == np.arange(200.0).tobytes()
    assert (part["dtype"], part["shape"]) == ("<f8", [200])


def test_the_header_says_what_else_decides_the_bits(tmp_path: Path) -> None:
    import torch

    header = verify(write(tmp_path, 1, {}, {}).path)
    assert header["versions"]["numpy"] == np.__version__
    assert header["versions"]["torch"] == str(torch.__version__)
    assert header["cpu"] == torch.backends.cpu.get_cpu_capability()
    assert header["threads"] == torch.get_num_threads()


def test_writing_imports_no_library(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from trainables.checkpoint import file as c\n"
        f"s = c.write(Path({str(tmp_path)!r}), 1, {{}}, {{}}); h = c.read(s.path).header\n"
        "assert 'torch' not in sys.modules and 'torch' not in h['versions'] and h['cpu'] is None"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_folders_are_made(tmp_path: Path) -> None:
    saved = write(tmp_path / "a" / "b", 1, {}, {})
    assert read(saved.path).state == {}


def test_writing_the_same_again_gives_the_same_file(saved: Saved, tmp_path: Path) -> None:
    assert write(tmp_path, 7, HEADER, STATE) == saved
    assert _names(tmp_path) == [saved.path.name]


def test_the_writers_own_entries_win(tmp_path: Path) -> None:
    header = {"step": 1, "format": 9, "sections": [], "versions": {}}
    assert read(write(tmp_path, 7, header, {}).path).header["step"] == 7


@pytest.mark.parametrize(
    "name",
    [
        "ckpt-7-" + "0" * 64 + ".swck",
        "ckpt-0000000007-" + "0" * 63 + ".swck",
        "ckpt-0000000007-" + "g" * 64 + ".swck",
        "ckpt-0000000007-" + "0" * 64 + ".swck\n",
        "ckpt-000000000٣-" + "0" * 64 + ".swck",
        "xckpt-0000000007-" + "0" * 64 + ".swck",
        ".tmp-0-1-" + "0" * 16,
        "",
    ],
)
def test_other_names_are_no_checkpoints_names(name: str) -> None:
    assert parse_name(name) is None


@pytest.mark.parametrize(
    "header",
    [
        {"x": float("nan")},
        {"x": object()},
        {"x": np.float32(1)},
        {1: 1, "a": 2},
        {"x": json.loads("[" * 40 + "]" * 40)},
    ],
    ids=["NaN", "object", "numpy", "mixed keys", "40 deep"],
)
def test_a_header_that_is_no_json_is_refused(header: Any, tmp_path: Path) -> None:
    with pytest.raises(StateError, match=r"^header: "):
        write(tmp_path, 1, header, {})
    assert _names(tmp_path) == []


def test_more_arrays_than_a_header_can_list_are_refused(tmp_path: Path) -> None:
    state = {"replay": [np.zeros(100) for _ in range(8000)]}
    with pytest.raises(StateError, match="stack arrays"):
        write(tmp_path, 1, {}, state)


def test_thousands_of_small_arrays_are_fine(tmp_path: Path) -> None:
    state = {"episode": [np.full(4, i, np.float32) for i in range(8000)]}
    again = read(write(tmp_path, 1, {}, state).path).state
    assert all(map(np.array_equal, again["episode"], state["episode"]))


def test_what_cannot_be_saved_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(StateError, match=r"^state\.x: "):
        write(tmp_path, 1, {}, {"x": object()})
    assert _names(tmp_path) == []


# ---- crashes while writing ----------------------------------------------------------------------

_CALLS = ("open", "write", "fsync", "close", "replace")


class _Disk:
    """Counts the calls that change the disk, and makes the nth of them fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fail_at: int, error: BaseException) -> None:
        self.calls = 0
        self.fail_at = fail_at
        self.error = error
        for name in _CALLS:
            monkeypatch.setattr(os, name, self._counted(name, getattr(os, name)))

    def _counted(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            if self.calls != self.fail_at:
                return function(*args, **kwargs)
            if name == "close":
                function(*args, **kwargs)  # a failing close closes
            if name == "write":
                function(args[0], bytes(args[1])[:5])  # a full disk takes a part
            raise self.error

        return call


def _calls_of_one_write(tmp_path: Path) -> int:
    folder = tmp_path / "count"
    write(folder, 0, {}, {})
    with pytest.MonkeyPatch.context() as patch:
        disk = _Disk(patch, 0, OSError())
        write(folder, 1, {}, STATE)
    return disk.calls


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()], ids=str
)
def test_a_failure_at_any_call_leaves_the_old_checkpoint_and_no_other(
    error: BaseException, tmp_path: Path
) -> None:
    total = _calls_of_one_write(tmp_path)
    assert total >= len(_CALLS)
    for nth in range(1, total + 1):
        folder = tmp_path / str(nth)
        old = write(folder, 1, {}, STATE)
        with pytest.MonkeyPatch.context() as patch:
            disk = _Disk(patch, nth, error)
            with pytest.raises(type(error)):
                write(folder, 2, {}, {"x": np.ones(1000)})
        assert read(old.path, old.digest).state["name"] == "x"
        rest = [name for name in _names(folder) if name != old.path.name]
        renamed = nth > total - 2  # what fails then is the folder's fsync or close
        assert len(rest) == (1 if renamed else 0), (nth, disk.calls, rest)
        for name in rest:
            assert read(folder / name).state["x"].sum() == 1000


def test_no_descriptor_is_left_open_after_a_failure(tmp_path: Path) -> None:
    total = _calls_of_one_write(tmp_path)
    write(tmp_path, 1, {}, STATE)
    before = _descriptors()
    for nth in range(1, total + 1):
        with pytest.MonkeyPatch.context() as patch:
            _Disk(patch, nth, OSError(errno.EIO, "I/O error"))
            with pytest.raises(OSError, match="I/O error"):
                write(tmp_path, 2, {}, STATE)
    assert _descriptors() == before


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_everything_is_on_the_disk_before_the_name_and_the_name_before_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    write(tmp_path, 0, {}, {})
    for name in _CALLS:
        monkeypatch.setattr(os, name, _noted(name, getattr(os, name), events))
    write(tmp_path, 1, {}, STATE)
    assert list(dict.fromkeys(events)) == [
        "open folder",
        "open file",
        "write file",
        "fsync file",
        "close file",
        "replace",
        "fsync folder",
        "close folder",
    ]


def _noted(name: str, function: Callable[..., Any], events: list[str]) -> Callable[..., Any]:
    def call(first: Any, *rest: Any, **named: Any) -> Any:
        descriptor = first if isinstance(first, int) else None
        if name == "replace":
            events.append(name)
        elif descriptor is not None:
            events.append(f"{name} {_kind(descriptor)}")
        result = function(first, *rest, **named)
        if name == "open":
            events.append(f"{name} {_kind(result)}")
        return result

    return call


def _kind(descriptor: int) -> str:
    return "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"


def test_a_disk_without_room_for_twice_as_much_is_left_alone(
    saved: Saved, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Space:
        f_frsize, f_bavail = 1, 2 * saved.size

    monkeypatch.setattr(os, "statvfs", lambda _: Space)
    assert write(tmp_path, 7, HEADER, STATE) == saved
    Space.f_bavail -= 1
    with pytest.raises(OSError, match="No space left on device"):
        write(tmp_path, 8, HEADER, STATE)
    assert _names(tmp_path) == [saved.path.name]


def test_a_folder_that_a_killed_process_made_is_put_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "trials" / "0"
    folder.mkdir(parents=True)
    synced: list[Path] = []
    fsync = os.fsync

    def note(file: int) -> None:
        synced.append(Path(f"/proc/self/fd/{file}").readlink())
        fsync(file)

    monkeypatch.setattr(os, "fsync", note)
    write(folder, 1, {}, {})
    assert {folder, folder.parent, tmp_path} <= set(synced)
    synced.clear()
    write(folder, 2, {}, {})
    assert folder.parent not in synced


def test_short_writes_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = os.write
    monkeypatch.setattr(os, "write", lambda file, piece: whole(file, piece[:7]))
    saved = write(tmp_path, 1, {}, STATE)
    assert read(saved.path, saved.digest).state["name"] == "x"


def test_a_kill_in_the_middle_leaves_a_temporary_file_that_is_recognised(
    saved: Saved, tmp_path: Path
) -> None:
    code = (
        "import os; from pathlib import Path; from trainables.checkpoint import file as c\n"
        "os.fsync = lambda file: os.kill(os.getpid(), 9)\n"
        f"c.write(Path({str(tmp_path)!r}), 1, {{}}, {{'x': 1}}, epoch=5)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == -9
    (left,) = set(_names(tmp_path)) - {saved.path.name}
    match = disk.TEMP_PATTERN.fullmatch(left)
    assert match is not None
    assert match["epoch"] == "5"
    assert stat.S_IMODE((tmp_path / left).stat().st_mode) == 0o600


def test_a_link_under_the_temporary_name_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("secrets.token_hex", lambda size: "0" * 2 * size)
    victim = tmp_path / "victim"
    victim.write_text("mine")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / f".tmp-0-{os.getpid()}-{'0' * 16}").symlink_to(victim)
    with pytest.raises(FileExistsError):
        write(folder, 1, {}, {})
    assert victim.read_text() == "mine"


# ---- damaged bytes ------------------------------------------------------------------------------


def _refused(path: Path, digest: str | None = None) -> CheckpointError:
    """The error of `read`, after checking that `verify` does not accept what `read` refuses."""
    with pytest.raises(CheckpointError) as caught:
        read(path, digest)
    assert type(caught.value) in (MissingCheckpoint, CorruptCheckpoint, WrongFormat)
    assert "\n" not in str(caught.value)
    assert len(caught.value.reason) < 500
    return caught.value


@pytest.fixture
def small(tmp_path: Path) -> bytes:
    """A small checkpoint with one array section."""
    return write(tmp_path, 1, {"t": 1}, {"x": np.arange(70.0), "y": [1, "a"]}).path.read_bytes()


def test_truncation_at_every_byte_is_refused(small: bytes, tmp_path: Path) -> None:
    path = tmp_path / "best.swck"
    for length in range(len(small)):
        path.write_bytes(small[:length])
        with pytest.raises((CorruptCheckpoint, WrongFormat)):
            read(path)
        with pytest.raises((CorruptCheckpoint, WrongFormat)):
            verify(path)


def test_a_flipped_bit_in_every_byte_is_refused(small: bytes, tmp_path: Path) -> None:
    path = tmp_path / "best.swck"
    for position in range(len(small)):
        damaged = bytearray(small)
        damaged[position] ^= 1 << position % 8
        path.write_bytes(damaged)
        with pytest.raises((CorruptCheckpoint, WrongFormat)):
            read(path)
        with pytest.raises((CorruptCheckpoint, WrongFormat)):
            verify(path)


def test_bytes_after_the_end_are_refused(small: bytes, tmp_path: Path) -> None:
    path = tmp_path / "best.swck"
    path.write_bytes(small + b"\0")
    assert "SHA-256" in str(_refused(path))


def test_the_digest_asked_for_must_be_the_files(saved: Saved, tmp_path: Path) -> None:
    other = write(tmp_path, 8, HEADER, STATE)
    assert other.digest in str(_refused(saved.path, other.digest))
    with pytest.raises(CorruptCheckpoint):
        verify(saved.path, other.digest)


def test_a_file_under_anothers_name_is_refused(saved: Saved, tmp_path: Path) -> None:
    other = write(tmp_path, 7, HEADER, {"x": 1})
    saved.path.replace(other.path)
    assert "not the one in its name" in str(_refused(other.path))
    with pytest.raises(CorruptCheckpoint, match="not the one in its name"):
        verify(other.path)


def test_a_step_other_than_the_names_is_refused(saved: Saved) -> None:
    renamed = saved.path.rename(saved.path.with_name(f"ckpt-0000000008-{saved.digest}.swck"))
    assert "the step is 7" in str(_refused(renamed))


def test_a_whole_file_under_any_other_name_is_read(saved: Saved, tmp_path: Path) -> None:
    assert read(saved.path.rename(tmp_path / "best.swck"), saved.digest).header["step"] == 7


# ---- headers made to do harm; their digests are right -------------------------------------------


def test_the_crafted_files_are_good_before_they_are_spoilt(tmp_path: Path) -> None:
    path = tmp_path / "best.swck"
    path.write_bytes(crafted())
    assert read(path).state == {}
    path.write_bytes(with_entry(b'"x":' + b"[" * 31 + b"]" * 31))
    assert read(path).state == {}
    path.write_bytes(two())
    assert np.array_equal(read(path).state["a"], np.zeros(2))


@pytest.mark.parametrize("content", FILES.values(), ids=FILES.keys())
def test_a_bad_file_with_a_right_digest_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "best.swck"
    path.write_bytes(sealed(content[:-32]) if content.startswith(b"SWCK") else content)
    message = str(_refused(path))
    assert "\x1b" not in message
    assert "\u202e" not in message


def test_a_newer_format_is_refused_with_both_versions(tmp_path: Path) -> None:
    path = tmp_path / "best.swck"
    path.write_bytes(crafted(format=3, min_reader=2))
    with pytest.raises(WrongFormat, match="format 2, but this version of sweep reads format 1"):
        read(path)


def test_a_newer_format_that_old_readers_can_read_is_read(tmp_path: Path) -> None:
    path = tmp_path / "best.swck"
    path.write_bytes(crafted(format=3, min_reader=1))
    assert read(path).state == {}


# ---- what is no file ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["none.swck", "file/x.swck", "x" * 300, "nul\0", "\ud800"])
def test_what_is_not_there_is_missing(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    error = _refused(tmp_path / name)
    assert type(error) is MissingCheckpoint


def test_links_pipes_folders_sockets_and_devices_are_refused(saved: Saved, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(saved.path)
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        for name in ("link", "fifo", "folder", "socket", "/dev/zero", "/dev/null"):
            assert type(_refused(tmp_path / name)) is CorruptCheckpoint, name


def test_a_huge_file_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "huge.swck"
    with path.open("wb") as file:
        file.truncate(10 * 10**9)
    assert "at most" in str(_refused(path))


def test_a_file_that_cannot_be_read_is_corrupt(
    saved: Saved, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "readv", fail)
    assert "Input/output error" in str(_refused(saved.path))


def test_a_file_that_shrinks_while_it_is_read_is_corrupt(
    saved: Saved, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "readv", lambda *_: 0)
    assert type(_refused(saved.path)) is CorruptCheckpoint


def test_memory_that_runs_out_is_an_error_of_this_checkpoint(
    saved: Saved, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(container, "digest_of", fail)
    with pytest.raises(UnreadableCheckpoint, match="not enough memory"):
        read(saved.path)


def test_verifying_does_not_read_the_state(tmp_path: Path) -> None:
    path = tmp_path / "best.swck"
    path.write_bytes(
        crafted(b"\x80\x04x.", sections=[section(sha256=hashlib.sha256(b"\x80\x04x.").hexdigest())])
    )
    assert verify(path)["step"] == 1
    _refused(path)
