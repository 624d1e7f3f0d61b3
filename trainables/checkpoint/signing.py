"""Signatures of checkpoints: bytes that may run code need the signature of a known key.

Most checkpoints hold plain data, which runs no code; they need no signature. But files that a
trainable writes itself, and pickles that it opts in to, are `Opaque`: they may do anything when
they are used. A checkpoint that holds them is signed (HMAC-SHA256 over its header, which contains
the digest of every section and the trial and step that it belongs to). They are returned only if
the signature is by this user's key, or if the user has declared this one checkpoint trusted.

    $XDG_CONFIG_HOME/sweep/key        32 random bytes, readable by their owner alone
    $XDG_CONFIG_HOME/sweep/trusted    digests of trusted checkpoints, one per line

The folder is ``~/.config/sweep`` if the variable is not set. A `Trust` is sent to workers with
their tasks; the key is never in a checkpoint, a log or a message.
"""

import contextlib
import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from trainables.checkpoint import disk
from trainables.core import strict_json
from trainables.errors import SigningError, UntrustedCheckpoint, printable

#: Length of a key, in bytes.
KEY_BYTES: Final = 32
#: Largest list of trusted digests, bytes.
MAX_LIST_BYTES: Final = 16 * 2**20
#: Pattern of a SHA-256 in hexadecimal digits.
_DIGEST = re.compile(r"[0-9a-f]{64}")
#: Permission bits of everybody but the owner.
_OTHERS = 0o077
#: Reason for which a file without an accepted signature is refused.
_MAY_RUN = (
    "holds files or pickles that may run code when they are restored. Ask its author for the "
    "exported model or, if you trust them, accept it: sweep trust FILE"
)
#: File, problem and advice of the error that there is no key.
_NO_KEY: Final = (
    "~/.config/sweep/key",
    "this machine has no such key, but checkpoints that may run code must be signed with it",
    "copy your key there, and make it readable only by you",
)


@dataclass(frozen=True)
class Opaque:
    """Bytes that may run code when they are used: allowed in signed checkpoints only."""

    data: bytes
    """The bytes."""


@dataclass(frozen=True)
class Trust:
    """A user's key, and the checkpoints that the user has declared trusted.

    Checkpoints with bytes that may run code are read only if signed by this key or declared
    trusted.
    """

    key: bytes = field(repr=False)
    """Key of this user, 32 bytes, which signs checkpoints and checks signatures.

    Empty if there is none: `sign` and `check` then raise SigningError.
    """
    digests: frozenset[str] = frozenset()
    """SHA-256 of further trusted checkpoint files, hexadecimal."""

    @property
    def name(self) -> str:
        """Public name of the key, 16 hexadecimal digits of a hash; empty without a key."""
        if not self.key:
            return ""
        return hashlib.sha256(b"sweep key name" + self.key).hexdigest()[:16]


# ---- signatures -------------------------------------------------------------------------------


def sign(header: Mapping[str, Any], trust: Trust) -> dict[str, Any]:
    """Return `header` with the key's name as ``key`` and its signature as ``mac``.

    Raises SigningError without a key.
    """
    if not trust.key:
        raise SigningError(*_NO_KEY)
    named = {**header, "key": trust.name}
    return {**named, "mac": _mac(trust.key, named)}


def check(header: Mapping[str, Any], trust: Trust, source: object) -> None:
    """Raise UntrustedCheckpoint unless `header` is signed by the key of `trust`.

    The trusted digests are not looked at. Raises SigningError if there is no key. `source` names
    the file in errors.
    """
    mac, signer = header.get("mac"), header.get("key")
    if not trust.key:
        raise SigningError(*_NO_KEY)
    if not isinstance(mac, str):
        raise UntrustedCheckpoint(source, f"is not signed, and {_MAY_RUN}")
    unsigned = {key: value for key, value in header.items() if key != "mac"}
    if not hmac.compare_digest(_mac(trust.key, unsigned).encode(), mac.encode()):
        whose = f"is signed by the key {printable(str(signer)[:16])}, not by your key {trust.name}"
        raise UntrustedCheckpoint(source, f"{whose}; it {_MAY_RUN}")


def _mac(key: bytes, header: Mapping[str, Any]) -> str:
    """Return the HMAC-SHA256 of `header` with this key, hexadecimal: its signature."""
    return hmac.new(key, strict_json.canonical(header), hashlib.sha256).hexdigest()


# ---- this user's files ------------------------------------------------------------------------


def user_trust() -> Trust:
    """Return this user's key and trusted digests; makes a key file if there is none.

    Raises SigningError if the files cannot be read or written, or others can read them.
    """
    with _own_folder() as folder:
        disk.make_folder(folder, "key")
        return _trust_with(folder, _read(folder / "key", KEY_BYTES) or _new_key(folder))


def load_trust() -> Trust:
    """Return this user's key and trusted digests; without a key file, an empty `Trust`.

    For machines to which the user may not have copied the key: none is made. Raises SigningError if
    the files cannot be read, or others can read them.
    """
    with _own_folder() as folder:
        key = _read(folder / "key", KEY_BYTES)
        return Trust(b"") if key is None else _trust_with(folder, key)


def _trust_with(folder: Path, key: bytes) -> Trust:
    """Return `key` with the trusted digests listed in `folder`.

    Raises SigningError if the key has a wrong length, or others can read the list.
    """
    if len(key) != KEY_BYTES:
        raise SigningError(
            folder / "key", f"the key has {len(key)} bytes instead of {KEY_BYTES}", "remove it"
        )
    listed = _read(folder / "trusted", MAX_LIST_BYTES) or b""
    return Trust(key, frozenset(_DIGEST.findall(listed.decode("ascii", "replace"))))


def user_trust_if_possible() -> Trust | None:
    """Return what `user_trust` returns; None if it raises SigningError.

    That happens without a home folder, for example. A checkpoint that needs a signature raises the
    error later.
    """
    try:
        return user_trust()
    except SigningError:
        return None


def trust_checkpoints(digests: Iterable[str]) -> None:
    """Add SHA-256 digests of checkpoint files to this user's list of trusted ones.

    Makes a key file if there is none. Raises SigningError if key or list cannot be read or written.
    """
    listed = sorted(user_trust().digests | set(digests))
    text = "".join(f"{digest}\n" for digest in listed).encode()
    with _own_folder() as path, disk.open_folder(path) as folder:
        disk.publish(folder, "trusted", len(text), [text], 0)
        disk.sync(folder)


@contextlib.contextmanager
def _own_folder() -> Iterator[Path]:
    """Yield the folder of key and list, which may not exist.

    It is ``sweep`` in ``$XDG_CONFIG_HOME``, or else in ``~/.config``. An OSError inside the block,
    or a missing home folder, becomes SigningError.
    """
    folder = Path("~")
    try:
        folder = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "sweep"
        yield folder
    except (OSError, RuntimeError) as error:  # without a home it is a RuntimeError
        reason = getattr(error, "strerror", None) or str(error)
        raise SigningError(folder, reason, "set XDG_CONFIG_HOME to a folder of yours") from error


def _read(path: Path, limit: int) -> bytes | None:
    """Return the bytes of a file that this user alone owns and can read.

    Returns None if it does not exist; raises SigningError if others own it or can read it, it is no
    regular file, or larger than `limit` bytes.
    """
    try:
        with disk.open_regular_file(path) as (file, size):
            status = os.fstat(file)
            if status.st_uid != os.geteuid() or status.st_mode & _OTHERS:
                remedy = f"chmod 600 {path}, if it is yours"
                raise SigningError(
                    path, "it belongs to another user, or others can read it", remedy
                )
            if size > limit:
                raise SigningError(
                    path, f"the file has {size} bytes, but at most {limit} are allowed", "remove it"
                )
            return os.read(file, size)
    except FileNotFoundError:
        return None
    except disk.NotRegular:
        raise SigningError(
            path, "it is a link, folder, pipe or device, not a file", "remove it"
        ) from None


def _new_key(folder: Path) -> bytes:
    """Make and return a new key, or return the one that another process has just made."""
    draft = f".key-{os.getpid()}-{secrets.token_hex(8)}"
    with disk.open_folder(folder) as parent:
        disk.publish(parent, draft, KEY_BYTES, [secrets.token_bytes(KEY_BYTES)], 0)
        with contextlib.suppress(FileExistsError):
            os.link(draft, "key", src_dir_fd=parent, dst_dir_fd=parent)
        os.unlink(draft, dir_fd=parent)
        disk.sync(parent)
    return _read(folder / "key", KEY_BYTES) or b""
