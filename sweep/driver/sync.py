"""Where a sweep's runs are tracked, and how the trackers get what they miss without a driver."""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from sweep import trackers
from sweep.driver.outbox import Outbox
from sweep.errors import BadConfig, StorageError, UsageError, without_password
from sweep.ledger import hold
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.spec import SweepSpec
from sweep.trackers import Tracker, TrackerContext
from sweep.views import reading
from trainables.checkpoint import disk, signing
from trainables.errors import SigningError, UntrustedCheckpoint

# -------------------------------------------------------------------------------------------------
# Where a sweep's runs are tracked, if not in the file of its root: checked, kept, recalled.
#
# The URI stands beside the ledger for the next driver, since it may hold a password. It is signed
# with the key of the person who set it: what only looks asks no server that somebody else has
# named, as that would be sent one's own credentials.

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
    """Write the URI to `path`, which nobody else may read, signed by who runs this.

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
        StorageError: the disk refused.
    """
    found = recall(folder)
    if found is None or found.own:
        return
    try:
        keep(folder.tracking_uri, found.uri)
    except OSError as error:
        raise StorageError(f"{folder.tracking_uri}: {error.strerror or error}") from error


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


# -------------------------------------------------------------------------------------------------
# Sends what a sweep's trackers miss, with no driver beside it: the outbox alone.


class Sent(NamedTuple):
    """What became of one tracker's copy."""

    tracker: str
    events: int
    """How many events it was sent."""
    missing: int
    """How many it still misses."""


def where(folder: Folder) -> TrackerContext:
    """The sweep as its trackers see it."""
    tracked = recall(folder)
    with contextlib.closing(Ledger(folder.ledger)) as ledger:
        return TrackerContext(
            folder,
            ledger.sweep_id,
            ledger.name,
            ledger.created_at,
            reading.spec_of(ledger),
            reading.objective(ledger),
            tracking_uri=None if tracked is None else tracked.uri,
            uri_is_own=tracked is None or tracked.own,
            paths=tuple(ledger.provenance["paths"]),
            versions=ledger.provenance["versions"],
        )


def made(where: TrackerContext, only_installed: bool = False) -> dict[str, Tracker]:
    """The trackers that the sweep's spec names, by name.

    With `only_installed` no code runs that a sweep's folder names: those of a path are left out.
    """
    named = [n for n in where.spec.trackers if not only_installed or trackers.KIND.is_installed(n)]
    paths = () if only_installed else where.paths
    return {name: trackers.find(name, paths)(where) for name in named}


def left_out(where: TrackerContext) -> dict[str, str]:
    """Tracker → why `made` leaves it out where only what is installed is run."""
    why = "it is no installed tracker, and `sweep resume` alone runs what a sweep's folder names"
    return {name: why for name in where.spec.trackers if not trackers.KIND.is_installed(name)}


def send(folder: Folder, say: Callable[[str], None], patience_s: float) -> list[Sent]:
    """Send everything that is missing, holding the sweep; waits `patience_s` at most.

    Raises:
        SweepLocked: a driver holds the sweep, and sends it itself.
    """
    with hold.hold(folder, say) as held:
        adopt(folder)  # to send there is to choose it
        return send_held(folder, held.term, say, patience_s)


def send_held(
    folder: Folder, term: int, say: Callable[[str], None], patience_s: float
) -> list[Sent]:
    """`send`, for who holds the sweep in `term`."""
    here = where(folder)
    before = behind(here)
    for name, why in left_out(here).items():
        say(f"{name} is sent nothing: {why}")
    Outbox(folder.ledger, made(here, only_installed=True), say, term).close(patience_s)
    after = behind(here)
    return [Sent(name, after[name][0] - before[name][0], after[name][1]) for name in before]


def behind(where: TrackerContext) -> dict[str, tuple[int, int]]:
    """Tracker → how many events it was sent, and how many not yet."""
    with contextlib.closing(Ledger(where.folder.ledger)) as ledger:
        sent = {name: ledger.published(name) for name in where.spec.trackers}
        return {name: (k, ledger.last - k) for name, k in sent.items()}
