"""Small JSON files in a sweep's folder, signed by the person who wrote them.

They name a server, a storage or a task of the sweep. Only their owner may read them, and commands
that read a sweep follow only files of the current user: a server named by another person would
receive the user's credentials.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sweep.core.errors import UsageError
from trainables.checkpoint import disk, signing
from trainables.errors import SigningError, UntrustedCheckpoint

#: Suffix of the file that names the ledger's server.
REMOTE = ".postgresql"
#: Maximum size of such a file in bytes.
_MOST = 65536


def write(path: Path, contents: Mapping[str, Any]) -> None:
    """Write a mapping as JSON to `path`, atomically, signed with this user's key.

    A key file is made if there is none; if that fails, the mapping is written unsigned. Replaces
    an existing file. Raises OSError if the disk refused.
    """
    trust = signing.user_trust_if_possible()
    content = json.dumps(contents if trust is None else signing.sign(contents, trust)).encode()
    with disk.open_folder(path.parent) as folder:
        disk.publish(folder, path.name, len(content), [content], 0)
        disk.sync(folder)


def read(path: Path) -> dict[str, Any]:
    """Return the mapping in a signed JSON file, without checking its signature.

    Raises:
        OSError: the file cannot be read.
        ValueError, TypeError, RecursionError: it holds something else.
    """
    with path.open("rb") as file:
        return dict(json.loads(file.read(_MOST)))


def is_own(contents: Mapping[str, Any], path: Path) -> bool:
    """Return whether `contents`, read from `path`, carry a valid signature of this user's key.

    A key file is made if there is none.
    """
    try:
        signing.check(contents, signing.user_trust(), path)
    except (UntrustedCheckpoint, SigningError):
        return False
    return True


def is_accepted(contents: Mapping[str, Any], path: Path) -> bool:
    """Return whether this user signed or explicitly trusted a file, so that it may be followed.

    `contents` are those read from `path`. Raises UsageError if the user has not signed the file and
    it can no longer be read.
    """
    return is_own(contents, path) or is_trusted(path)


def identify(path: Path) -> tuple[str, dict[str, Any]]:
    """Return the SHA-256 of a file, by which `sweep trust` knows it, and the mapping in it.

    Raises UsageError if the file holds no JSON mapping or cannot be read.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_MOST)
        return hashlib.sha256(content).hexdigest(), dict(json.loads(content))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise UsageError(f"{path}: is not a file of a sweep ({error})") from error


def is_trusted(path: Path) -> bool:
    """Return whether this user has trusted exactly this content of a file with `sweep trust`.

    Raises UsageError if the file holds no JSON mapping or cannot be read.
    """
    try:
        return identify(path)[0] in signing.user_trust().digests
    except SigningError:
        return False
