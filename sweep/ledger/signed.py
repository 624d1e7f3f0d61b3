"""Small JSON files of a sweep's folder that are signed by the person who wrote them.

They say where something of the sweep lies or what is due. Nobody else may read them, and what only
looks at a sweep follows only one's own word: a server that somebody else has named would be sent
one's own credentials.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sweep.errors import UsageError
from trainables.checkpoint import disk, signing
from trainables.errors import SigningError, UntrustedCheckpoint

#: Suffix of the one that says on which server a ledger lies.
REMOTE = ".postgresql"
#: Longest file, bytes.
_MOST = 65536


def keep(path: Path, said: Mapping[str, Any]) -> None:
    """Write `said` to `path`, signed by who runs this; a kill leaves it as it was.

    Raises:
        OSError: the disk refused.
    """
    trust = signing.local_if_possible()
    content = json.dumps(said if trust is None else signing.sign(said, trust)).encode()
    with disk.open_folder(path.parent) as folder:
        disk.publish(folder, path.name, len(content), [content], 0)
        disk.sync(folder)


def read(path: Path) -> dict[str, Any]:
    """Return the contents of a file.

    Raises:
        OSError: it cannot be read.
        ValueError, TypeError, RecursionError: it holds something else.
    """
    with path.open("rb") as file:
        return dict(json.loads(file.read(_MOST)))


def is_own(said: Mapping[str, Any], path: Path) -> bool:
    """Return whether the person who runs this, or one with the same key, wrote the contents."""
    try:
        signing.check(said, signing.local(), path)
    except (UntrustedCheckpoint, SigningError):
        return False
    return True


def is_accepted(said: Mapping[str, Any], path: Path) -> bool:
    """Return whether a file may be followed: it is this user's own, or this user has trusted it."""
    return is_own(said, path) or is_trusted(path)


def identify(path: Path) -> tuple[str, dict[str, Any]]:
    """The digest of a file that somebody else signed, by which it is trusted, and what it says.

    Raises:
        UsageError: it is no such file.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_MOST)
        return hashlib.sha256(content).hexdigest(), dict(json.loads(content))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise UsageError(f"{path}: is no file of a sweep ({error})") from error


def is_trusted(path: Path) -> bool:
    """Return whether the person who runs this has trusted this very file."""
    try:
        return identify(path)[0] in signing.local().digests
    except SigningError:
        return False
