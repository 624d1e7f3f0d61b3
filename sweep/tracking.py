"""Where a sweep's runs are tracked, if not in the file of its root: checked, kept, recalled.

The URI stands beside the ledger for whoever goes on, since it may hold a password. It is signed
with the key of whoever set it: what only looks asks no server that somebody else has named, as
that would be told one's own credentials.
"""

import json
from pathlib import Path
from typing import NamedTuple

from sweep.errors import BadConfig, OutsideError, UsageError, without_password
from sweep.folder import Folder
from sweep.spec import SweepSpec
from trainables import disk, signing
from trainables.errors import SigningError, UntrustedCheckpoint

#: What MLflow takes a tracking URI to begin with.
SCHEMES = ("http", "https", "sqlite", "postgresql", "mysql", "mssql", "databricks")
#: Longest file, bytes.
_MOST = 65536


class Tracking(NamedTuple):
    """A URI, and whose word it is."""

    uri: str
    own: bool
    """It was set by the person who runs this, or by one with the same key."""


def check(uri: str, spec: SweepSpec) -> None:
    """Refuse a URI to which nothing would be sent."""
    shown = without_password(uri)
    if "mlflow" not in spec.trackers:
        raise BadConfig("--tracking-uri", shown, "no URI, as trackers has no mlflow")
    if not _is_uri(uri):
        raise BadConfig("--tracking-uri", shown, f"a URI of {', '.join(SCHEMES)}")


def keep(path: Path, uri: str) -> None:
    """Write the URI to `path`, which nobody else may read, as the word of whoever runs this.

    A kill leaves it as it was.

    Raises:
        OSError: the disk refused.
    """
    trust = signing.local_if_possible()
    said = {"uri": uri} if trust is None else signing.sign({"uri": uri}, trust)
    content = json.dumps(said).encode()
    with disk.opened(path.parent) as folder:
        disk.publish(folder, path.name, len(content), [content], 0)
        disk.sync(folder)


def adopt(folder: Folder) -> None:
    """Make a URI that somebody else has set one's own.

    Raises:
        As `recall`.
        OutsideError: the disk refused.
    """
    found = recall(folder)
    if found is None or found.own:
        return
    try:
        keep(folder.tracking_uri, found.uri)
    except OSError as error:
        raise OutsideError(f"{folder.tracking_uri}: {error.strerror or error}") from error


def recall(folder: Folder) -> Tracking | None:
    """What `keep` wrote for a sweep; None: its runs are in the file of its root.

    Raises:
        UsageError: the file holds something else.
    """
    path = folder.tracking_uri
    if not path.exists():
        return None
    try:
        with path.open("rb") as file:
            said = json.loads(file.read(_MOST))
        uri = str(said["uri"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(f"{path}: holds no tracking URI; move it away") from error
    if not _is_uri(uri):
        raise UsageError(f"{path}: holds no URI of {', '.join(SCHEMES)}; move it away")
    return Tracking(uri, _is_own(said, path))


def _is_uri(text: str) -> bool:
    return text.partition(":")[0].partition("+")[0] in SCHEMES


def _is_own(said: dict[str, object], path: Path) -> bool:
    try:
        signing.check(said, signing.local(), path)
    except (UntrustedCheckpoint, SigningError):
        return False
    return True
