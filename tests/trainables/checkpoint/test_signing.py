"""Who wrote a checkpoint: what may run code comes back only from a key or a digest that is ours."""

import hashlib
import json
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainables.checkpoint import signing
from trainables.checkpoint.file import Saved, read, write
from trainables.checkpoint.signing import Opaque, Trust
from trainables.checkpoint.state import pack, unpack
from trainables.errors import (
    CorruptCheckpoint,
    SigningError,
    StateError,
    TrainableError,
    UntrustedCheckpoint,
)
from trainables.trainable import Trainable

STATE = {"files": {"model.bin": Opaque(b"\x80\x04whatever")}, "n": 1}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person without a key."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "sweep"


def _become_somebody_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "elsewhere"))


def _header(path: Path) -> dict[str, Any]:
    content = path.read_bytes()
    length = struct.unpack_from("<I", content, 6)[0]
    header: dict[str, Any] = json.loads(content[10 : 10 + length])
    return header


def _rewritten(saved: Saved, header: dict[str, Any]) -> Path:
    """The file with another header, its digest right."""
    content = saved.path.read_bytes()
    length = struct.unpack_from("<I", content, 6)[0]
    data = content[-(-(10 + length) // 64) * 64 : -32]
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    head = content[:6] + struct.pack("<I", len(text)) + text
    body = head + bytes(-len(head) % 64) + data
    path = saved.path.with_name("forged.swck")
    path.write_bytes(body + hashlib.sha256(body).digest())
    return path


# ---- the key ------------------------------------------------------------------------------------


def test_the_key_is_made_once_and_is_its_owners_alone(home: Path) -> None:
    first = signing.user_trust()
    assert signing.user_trust() == first
    assert len(first.key) == 32
    assert (home / "key").stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in home.iterdir()) == ["key"]


def test_a_trust_does_not_show_its_key() -> None:
    trust = signing.user_trust()
    assert trust.key.hex() not in f"{trust!r}{trust.name}"
    assert repr(trust.key) not in repr(trust)


def test_a_key_that_others_can_read_is_refused(home: Path) -> None:
    signing.user_trust()
    (home / "key").chmod(0o644)
    with pytest.raises(SigningError, match="chmod 600"):
        signing.user_trust()
    assert signing.user_trust_if_possible() is None


def test_a_key_that_is_a_link_or_too_short_is_refused(home: Path, tmp_path: Path) -> None:
    signing.user_trust()
    (home / "key").rename(tmp_path / "key")
    (home / "key").symlink_to(tmp_path / "key")
    with pytest.raises(SigningError, match="a link"):
        signing.user_trust()
    (home / "key").unlink()
    (home / "key").touch(0o600)
    with pytest.raises(SigningError, match="0 bytes instead of 32"):
        signing.user_trust()


def test_without_a_folder_for_it_the_message_says_what_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    with pytest.raises(SigningError, match="XDG_CONFIG_HOME"):
        write(tmp_path, 1, {}, STATE)
    assert write(tmp_path, 1, {}, {"n": 1}).path.exists()


# ---- signatures ---------------------------------------------------------------------------------


def test_plain_data_is_not_signed_and_needs_no_key(home: Path, tmp_path: Path) -> None:
    saved = write(tmp_path, 1, {}, {"weights": np.zeros(1000), "bytes": b"x" * 1000})
    assert "mac" not in _header(saved.path)
    assert read(saved.path).state["bytes"] == b"x" * 1000
    assert not home.exists()


def test_opaque_bytes_come_back_to_whom_they_belong(tmp_path: Path) -> None:
    saved = write(tmp_path, 1, {}, STATE)
    assert read(saved.path).state == STATE
    assert read(saved.path, trust=signing.user_trust()).state == STATE
    key = signing.user_trust().key
    assert key not in saved.path.read_bytes()
    assert key.hex().encode() not in saved.path.read_bytes()


@pytest.mark.parametrize("data", [b"", b"x", b"x" * 5000])
def test_opaque_bytes_of_any_length_come_back(data: bytes, tmp_path: Path) -> None:
    assert read(write(tmp_path, 1, {}, {"f": Opaque(data)}).path).state == {"f": Opaque(data)}


def test_somebody_elses_are_refused_and_the_message_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = write(tmp_path, 1, {}, STATE)
    theirs = signing.user_trust()
    _become_somebody_else(monkeypatch, tmp_path)
    with pytest.raises(UntrustedCheckpoint, match="sweep trust") as refusal:
        read(saved.path)
    message = str(refusal.value)
    assert theirs.name in message
    assert signing.user_trust().name in message
    assert "exported model" in message
    assert "\n" not in message


def test_a_checkpoint_that_a_person_trusts_is_accepted_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = write(tmp_path, 1, {}, STATE), write(tmp_path, 2, {}, STATE)
    _become_somebody_else(monkeypatch, tmp_path)
    signing.trust_checkpoints([one.digest])
    signing.trust_checkpoints(["f" * 64])
    assert read(one.path).state == STATE
    with pytest.raises(UntrustedCheckpoint):
        read(other.path)


def test_the_trust_of_whoever_asks_travels_and_is_the_one_that_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = Trust(b"k" * 32)
    saved = write(tmp_path, 1, {}, STATE, trust=mine)
    assert read(saved.path, trust=mine).state == STATE
    assert read(saved.path, trust=Trust(b"j" * 32, frozenset({saved.digest}))).state == STATE
    for other in (None, Trust(b"j" * 32)):
        with pytest.raises(UntrustedCheckpoint):
            read(saved.path, trust=other)


@pytest.mark.parametrize(
    "changes",
    [
        {"trial": 2},
        {"step": 3},
        {"sweep": "another"},
        {"mac": "0" * 64},
        {"mac": None},
        {"mac": 1},
        {"mac": "ä"},
        {"key": "0" * 16},
        {"extra": 1},
    ],
    ids=str,
)
def test_nothing_of_a_signed_header_can_be_changed(changes: dict[str, Any], tmp_path: Path) -> None:
    saved = write(tmp_path, 1, {"sweep": "s", "trial": 1}, STATE)
    assert read(_rewritten(saved, _header(saved.path))).state == STATE
    with pytest.raises(UntrustedCheckpoint):
        read(_rewritten(saved, {**_header(saved.path), **changes}))


def test_a_signature_cannot_be_taken_away(tmp_path: Path) -> None:
    saved = write(tmp_path, 1, {}, STATE)
    header = _header(saved.path)
    del header["mac"]
    with pytest.raises(UntrustedCheckpoint, match="is not signed"):
        read(_rewritten(saved, header))


def test_a_signed_header_cannot_be_put_before_other_bytes(tmp_path: Path) -> None:
    saved = write(tmp_path, 1, {}, STATE)
    other = write(tmp_path, 1, {}, {"files": {"model.bin": Opaque(b"\x80\x04EVIL....")}, "n": 1})
    with pytest.raises(CorruptCheckpoint, match="SHA-256"):
        read(_rewritten(other, _header(saved.path)))


def test_unpacking_asks_before_it_hands_out() -> None:
    packed = pack({"f": Opaque(b"x")})
    assert packed.opaque

    def refuse() -> None:
        raise UntrustedCheckpoint("file", "no")

    with pytest.raises(UntrustedCheckpoint):
        unpack(packed.pickled, packed.arrays, "file", refuse)
    assert not pack({"f": b"x"}).opaque


# ---- trainables ---------------------------------------------------------------------------------


class WritesFiles(Trainable):
    def setup(self, config: dict[str, Any]) -> None:
        self.n = 0

    def step(self) -> dict[str, Any]:
        self.n += 1
        return {"n": self.n}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        (Path(checkpoint_dir) / "deep").mkdir()
        (Path(checkpoint_dir) / "deep" / "n.txt").write_text(str(self.n))

    def load_checkpoint(self, checkpoint: Any) -> None:
        self.n = int((Path(checkpoint) / "deep" / "n.txt").read_text())


class Thing:
    """No plain data, and it says when it is loaded."""

    loaded = 0

    def __init__(self, n: int) -> None:
        self.n = n

    def __setstate__(self, state: dict[str, Any]) -> None:
        Thing.loaded += 1
        self.__dict__ = state


class Pickles(WritesFiles):
    unsafe_pickle = True

    def save_checkpoint(self, checkpoint_dir: str) -> Any:
        return {"thing": Thing(self.n), "function": lambda: self.n}

    def load_checkpoint(self, checkpoint: Any) -> None:
        self.n = checkpoint["thing"].n


class NoLongerPickles(Pickles):
    unsafe_pickle = False


def _saved(kind: type[WritesFiles], folder: Path) -> Path:
    trainable = kind()
    trainable.train()
    trainable.train()
    return trainable.save(folder)


@pytest.mark.parametrize("kind", [WritesFiles, Pickles])
def test_files_and_pickles_are_signed_and_come_back(
    kind: type[WritesFiles], tmp_path: Path
) -> None:
    path = _saved(kind, tmp_path)
    assert "mac" in _header(path)
    again = kind()
    again.restore(path)
    assert (again.n, again.iteration) == (2, 2)


@pytest.mark.parametrize("kind", [WritesFiles, Pickles])
def test_somebody_elses_files_and_pickles_are_not_even_looked_at(
    kind: type[WritesFiles], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _saved(kind, tmp_path)
    _become_somebody_else(monkeypatch, tmp_path)
    before, again = Thing.loaded, kind()
    with pytest.raises(UntrustedCheckpoint):
        again.restore(path)
    assert (Thing.loaded, again.n) == (before, 0)


def test_a_pickle_is_loaded_only_by_a_class_that_opts_in(tmp_path: Path) -> None:
    path, before = _saved(Pickles, tmp_path), Thing.loaded
    with pytest.raises(StateError, match="unsafe_pickle = True"):
        NoLongerPickles().restore(path)
    assert Thing.loaded == before


def test_without_opting_in_what_is_no_data_is_refused_by_path(tmp_path: Path) -> None:
    with pytest.raises(StateError, match=r"^state\.trainable\.data\.thing: .*Thing"):
        NoLongerPickles().save(tmp_path)


def test_what_cannot_be_pickled_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with os.scandir(tmp_path) as stream:
        monkeypatch.setattr(Pickles, "save_checkpoint", lambda *_: {"stream": stream})
        with pytest.raises(TrainableError, match="cannot be pickled"):
            Pickles().save(tmp_path)
