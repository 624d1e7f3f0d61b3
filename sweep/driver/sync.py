"""Tracking of a sweep: the places, the rows due there, and their way without a driver."""

import contextlib
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from sweep import trackers
from sweep.driver.outbox import Outbox
from sweep.errors import BadConfig, StorageError, UsageError, without_password
from sweep.history.history import History
from sweep.ledger import hold, signed
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.slices import store
from sweep.spec import SweepSpec
from sweep.trackers import Tracker, TrackerContext
from sweep.views import reading

# -------------------------------------------------------------------------------------------------
# Where a sweep's runs are tracked, if not in the file of its root: checked, kept, recalled.
#
# The URI stands beside the ledger for the next driver, since it may hold a password.

#: What MLflow takes a tracking URI to begin with.
SCHEMES = ("http", "https", "sqlite", "postgresql", "mysql", "mssql", "databricks")


class Tracking(NamedTuple):
    """A URI, and whose word it is."""

    uri: str
    own: bool
    """It was set by the person who runs this, or by one with the same key."""


def check(uri: str, spec: SweepSpec) -> None:
    """Refuse a URI to which nothing would be sent."""
    shown = without_password(uri)
    if "mlflow" not in spec.trackers:
        raise BadConfig("--tracking-uri", shown, "no URI, because trackers does not include mlflow")
    if not _is_uri(uri):
        raise BadConfig("--tracking-uri", shown, f"a URI of {', '.join(SCHEMES)}")


def keep(path: Path, uri: str) -> None:
    """Write the URI to `path`.

    Raises:
        OSError: the disk refused.
    """
    signed.keep(path, {"uri": uri})


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
    """Return the tracking that `keep` wrote; None if the runs are in the file of its root.

    Raises:
        UsageError: the file holds something else.
    """
    path = folder.tracking_uri
    if not path.exists():
        return None
    try:
        said = signed.read(path)
        uri = str(said["uri"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(f"{path}: contains no tracking URI; move the file away") from error
    if not _is_uri(uri):
        raise UsageError(f"{path}: contains no URI of {', '.join(SCHEMES)}; move the file away")
    return Tracking(uri, signed.is_own(said, path))


def _is_uri(text: str) -> bool:
    return text.partition(":")[0].partition("+")[0] in SCHEMES


# -------------------------------------------------------------------------------------------------
# What MLflow is given of a finished sweep beside its rows: an entry of the outbox, too.
#
# The entry is a file beside the ledger, written before the ledger says that the sweep is finished.
# What has been sent is remembered in the ledger, as of a tracker. A model is made by code that the
# sweep names, so the entry is signed: others than the driver make it only of what this person ran.

#: Under what name the ledger remembers it.
ATTACHMENTS = "mlflow's attachments"


def enter(ledger: Ledger, folder: Folder, spec: SweepSpec, history: History) -> None:
    """Write the entry of a sweep that is about to be finished, where MLflow is one of its trackers.

    Raises:
        OSError: the disk refused.
    """
    if "mlflow" in spec.trackers:
        digest = _made_of(ledger, spec, history)
        _enter(folder, ledger.sweep_id, wants_all_models(folder, ledger.sweep_id), digest)


def want_all_models(folder: Folder) -> None:
    """Have MLflow be given the models of all trials when the sweep is finished, not of the best.

    Raises:
        StorageError: the disk refused.
    """
    with contextlib.closing(Ledger(folder.ledger)) as ledger:
        try:
            _enter(folder, ledger.sweep_id, True, "")
        except OSError as error:
            raise StorageError(f"{folder.attachments}: {error.strerror or error}") from error


def _enter(folder: Folder, sweep_id: str, all_models: bool, made_of: str) -> None:
    models = "all" if all_models else "best"
    signed.keep(folder.attachments, {"sweep": sweep_id, "models": models, "made_of": made_of})


def wants_all_models(folder: Folder, sweep_id: str) -> bool:
    """Return whether all models of this sweep were asked for."""
    return _entry(folder, sweep_id).get("models") == "all"


def may_make_models(folder: Folder, history: History) -> bool:
    """Return whether this person's driver has run the code by which the sweep's models are made."""
    with contextlib.closing(Ledger(folder.ledger)) as ledger:
        digest = _made_of(ledger, reading.spec_of(ledger), history)
        entry = _entry(folder, ledger.sweep_id)
    return entry.get("made_of") == digest and signed.is_own(entry, folder.attachments)


def _entry(folder: Folder, sweep_id: str) -> dict[str, object]:
    """The entry of the sweep; empty if there is none."""
    try:
        said = signed.read(folder.attachments)
    except (OSError, ValueError, TypeError, RecursionError):
        return {}
    return said if said.get("sweep") == sweep_id else {}


def _made_of(ledger: Ledger, spec: SweepSpec, history: History) -> str:
    """The digest of everything in a ledger that names code by which a model is made."""
    digest = hashlib.sha256()
    names = [ledger.sweep_id, spec.trainable, list(ledger.provenance["paths"])]
    for part in (names, *(trial.config for trial in history.trials)):
        digest.update(json.dumps(part).encode() + b"\n")
    return digest.hexdigest()


def attachments_due(where: TrackerContext) -> int:
    """The number of the event up to which MLflow shall be given them; 0: nothing is due."""
    if "mlflow" not in where.spec.trackers or not where.folder.attachments.is_file():
        return 0
    uri = where.tracking_uri
    if not where.uri_is_own or not (uri is None or uri.startswith("http")):
        return 0  # files are sent to the root's own file, and to servers of this user
    with contextlib.closing(Ledger(where.folder.ledger)) as ledger:
        k = ledger.finished_at()
        return k if ledger.published(ATTACHMENTS) < k else 0


# -------------------------------------------------------------------------------------------------
# Sends what a sweep's trackers miss, with no driver beside it: the outbox alone.


class Sent(NamedTuple):
    """The state of one tracker's copy."""

    tracker: str
    events: int
    """The number of events that it was sent."""
    missing: int
    """The number of events that it still misses."""


def where(folder: Folder) -> TrackerContext:
    """The sweep as its trackers see it."""
    tracked = recall(folder)
    with contextlib.closing(Ledger(folder.ledger)) as ledger:
        return TrackerContext(
            folder,
            ledger.sweep_id,
            folder.name,  # a copied folder has the ledger's name and id, and copies of its own
            ledger.created_at,
            reading.spec_of(ledger),
            reading.objective(ledger),
            tracking_uri=None if tracked is None else tracked.uri,
            uri_is_own=tracked is None or tracked.own,
            storage=store.said(folder),
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
