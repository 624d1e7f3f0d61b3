"""Tracking of a sweep: its address, the missing rows, and sending them without a driver."""

import contextlib
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from sweep import trackers
from sweep.core.errors import BadConfig, StorageError, UsageError, with_remedy, without_password
from sweep.driver.tracking.outbox import Outbox
from sweep.history.history import History
from sweep.ledger import hold, signed
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.slices import store
from sweep.spec import SweepSpec
from sweep.trackers import Tracker, TrackerContext
from sweep.views import reading

# -------------------------------------------------------------------------------------------------
# The tracking URI of a sweep, if it is not the file of its root: checked, stored, recalled.
#
# The URI is in a file beside the ledger for the next driver, since it may contain a password.

#: Schemes of tracking URIs that MLflow accepts.
SCHEMES = ("http", "https", "sqlite", "postgresql", "mysql", "mssql", "databricks")


class Tracking(NamedTuple):
    """The tracking URI in a sweep's folder, and if this user wrote it."""

    uri: str
    """MLflow's tracking URI."""
    is_signed: bool
    """True if the URI is signed with this user's key."""


def check(uri: str, spec: SweepSpec) -> None:
    """Raise BadConfig if a tracking URI is none of MLflow's, or the spec has no tracker for it."""
    shown = without_password(uri)
    if "mlflow" not in spec.trackers:
        problem = "has no effect, because the spec's trackers do not include mlflow"
        hint = "add mlflow to trackers, or leave --tracking-uri out"
        raise BadConfig("--tracking-uri", shown, hint=hint, problem=problem)
    if not _is_uri(uri):
        raise BadConfig("--tracking-uri", shown, f"a URI that begins with {', '.join(SCHEMES)}")


def write_tracking(path: Path, uri: str) -> None:
    """Write a tracking URI to `path`, signed with this user's key if that can be read or made.

    Raises OSError if the disk refused.
    """
    signed.write(path, {"uri": uri})


def sign_own(folder: Folder) -> None:
    """Sign the tracking URI in a sweep's folder with this user's key, which accepts its server.

    Nothing is done if there is none, or it is signed.

    Raises:
        UsageError: the file with it contains something else.
        StorageError: the disk refused.
    """
    found = read_tracking(folder)
    if found is None or found.is_signed:
        return
    try:
        write_tracking(folder.tracking_uri, found.uri)
    except OSError as error:
        raise StorageError(f"{folder.tracking_uri}: {with_remedy(error)}") from error


def read_tracking(folder: Folder) -> Tracking | None:
    """Return the tracking URI in a sweep's folder; None if MLflow's file in the root is used.

    Raises UsageError if the file holds something else.
    """
    path = folder.tracking_uri
    if not path.exists():
        return None
    try:
        content = signed.read(path)
        uri = str(content["uri"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(f"{path}: this file contains no tracking URI; move it away") from error
    if not _is_uri(uri):
        raise UsageError(
            f"{path}: this file contains no URI that begins with {', '.join(SCHEMES)}; move it away"
        )
    return Tracking(uri, signed.is_own(content, path))


def _is_uri(text: str) -> bool:
    """Return whether a text begins with a scheme of `SCHEMES`."""
    return text.partition(":")[0].partition("+")[0] in SCHEMES


# -------------------------------------------------------------------------------------------------
# Attachments of a finished sweep for MLflow in addition to its rows: another entry of the outbox.
#
# The entry is a file beside the ledger, written before the ledger records the sweep's end. The
# ledger records what was sent, as for trackers. Models are made by code that the sweep names, so
# the entry is signed: other commands than the driver make models only from code that this user has
# run.

#: Name under which the ledger records the sent attachments.
ATTACHMENTS = "mlflow's attachments"


def write_attachments_entry(
    ledger: Ledger, folder: Folder, spec: SweepSpec, history: History
) -> None:
    """Write the signed file that makes the sweep's models and report due for MLflow.

    It names the code that may make the models, so that `sweep sync` can send them later. Nothing is
    written unless MLflow is one of the sweep's trackers. Called when a sweep is about to finish.

    Raises OSError if the disk refused.
    """
    if "mlflow" in spec.trackers:
        digest = _code_digest(ledger, spec, history)
        _write_entry(folder, ledger.sweep_id, wants_all_models(folder, ledger.sweep_id), digest)


def want_all_models(folder: Folder) -> None:
    """Request in the sweep's folder that MLflow gets all trials' models, not only the best one's.

    Until the sweep finishes, this forgets which code may make the models. Raises StorageError if
    the disk refused.
    """
    with contextlib.closing(Ledger(folder.ledger)) as ledger:
        try:
            _write_entry(folder, ledger.sweep_id, True, "")
        except OSError as error:
            raise StorageError(f"{folder.attachments}: {with_remedy(error)}") from error


def _write_entry(folder: Folder, sweep_id: str, all_models: bool, made_of: str) -> None:
    """Write the signed file of `write_attachments_entry`; `made_of` is the digest of the code."""
    models = "all" if all_models else "best"
    signed.write(folder.attachments, {"sweep": sweep_id, "models": models, "made_of": made_of})


def wants_all_models(folder: Folder, sweep_id: str) -> bool:
    """Return whether `want_all_models` was called for this sweep, by the attachments file.

    Its signature is not checked. Returns False if it is missing, damaged or of another sweep.
    """
    return _read_entry(folder, sweep_id).get("models") == "all"


def may_make_models(folder: Folder, history: History) -> bool:
    """Return whether this user's driver has run the code by which the sweep's models are made.

    The signed file of `write_attachments_entry` says so, with the present `_code_digest`.
    """
    with contextlib.closing(Ledger(folder.ledger)) as ledger:
        digest = _code_digest(ledger, reading.spec_of(ledger), history)
        entry = _read_entry(folder, ledger.sweep_id)
    return entry.get("made_of") == digest and signed.is_own(entry, folder.attachments)


def _read_entry(folder: Folder, sweep_id: str) -> dict[str, object]:
    """Return the content of the file of `write_attachments_entry`, without checking its signature.

    Its keys are ``sweep`` (the ID), ``models`` (``best`` or ``all``) and ``made_of`` (the digest of
    the code; empty if it is not known yet).
    Returns {} if the file is missing, damaged or of another sweep.
    """
    try:
        said = signed.read(folder.attachments)
    except (OSError, ValueError, TypeError, RecursionError):
        return {}
    return said if said.get("sweep") == sweep_id else {}


def _code_digest(ledger: Ledger, spec: SweepSpec, history: History) -> str:
    """Return a hex digest of sweep ID and all names of code: trainable, paths, trials' settings."""
    digest = hashlib.sha256()
    names = [ledger.sweep_id, spec.trainable, list(ledger.provenance["paths"])]
    for part in (names, *(trial.config for trial in history.trials)):
        digest.update(json.dumps(part).encode() + b"\n")
    return digest.hexdigest()


def attachments_due(context: TrackerContext) -> int:
    """Return the number of the event up to which MLflow lacks models and report.

    It is 0 if nothing is to be sent: all was sent, the sweep has not finished or does not use
    MLflow, or MLflow is neither the root's own file nor a server that this user has accepted.
    """
    if "mlflow" not in context.spec.trackers or not context.folder.attachments.is_file():
        return 0
    uri = context.tracking_uri
    if not context.uri_is_own or not (uri is None or uri.startswith("http")):
        return 0  # attachments go only to the root's own file, and to servers that this user chose
    with contextlib.closing(Ledger(context.folder.ledger)) as ledger:
        k = ledger.finished_at()
        return k if ledger.published(ATTACHMENTS) < k else 0


# -------------------------------------------------------------------------------------------------
# Sending a sweep's missing rows to its trackers without a driver: the outbox alone.


class Sent(NamedTuple):
    """The number of events that one tracker was sent, and still lacks."""

    tracker: str
    """Name of the tracker."""
    events: int
    """Number of events that were sent now."""
    missing: int
    """Number of events that the tracker still lacks."""


def tracker_context(folder: Folder) -> TrackerContext:
    """Read spec, objective, MLflow's URI and other facts that trackers need from a sweep's files.

    The sweep's name is that of its folder, which may be a copy with the original's ledger.
    Raises UsageError if the file with its tracking URI contains something else.
    """
    tracked = read_tracking(folder)
    with contextlib.closing(Ledger(folder.ledger)) as ledger:
        return TrackerContext(
            folder,
            ledger.sweep_id,
            folder.name,  # a copied folder has the original's ledger, and tracker copies of its own
            ledger.created_at,
            reading.spec_of(ledger),
            reading.objective(ledger),
            tracking_uri=None if tracked is None else tracked.uri,
            uri_is_own=tracked is None or tracked.is_signed,
            storage=store.storage_url(folder),
            paths=tuple(ledger.provenance["paths"]),
            versions=ledger.provenance["versions"],
            first_spec=reading.original_spec(ledger),
        )


def load_trackers(context: TrackerContext, only_installed: bool = False) -> dict[str, Tracker]:
    """Create the trackers that the sweep's spec names, which imports them; returns name → tracker.

    With `only_installed`, trackers given by a path are left out, so that no code from the sweep's
    folder runs; without, its paths are appended to `sys.path` for trackers that are not built in.
    Raises UnknownName or UsageError if one does not exist or cannot be imported.
    """
    named = [
        n for n in context.spec.trackers if not only_installed or trackers.KIND.is_installed(n)
    ]
    paths = () if only_installed else context.paths
    return {name: trackers.find(name, paths)(context) for name in named}


def uninstalled_trackers(context: TrackerContext) -> dict[str, str]:
    """Return name → reason, in words, of the trackers that are not installed but given by a path.

    `load_trackers` omits them with `only_installed`.
    """
    why = (
        "this tracker is given as a path to Python code, and only `sweep resume` imports such code"
    )
    return {name: why for name in context.spec.trackers if not trackers.KIND.is_installed(name)}


def send(folder: Folder, say: Callable[[str], None], patience_s: float) -> list[Sent]:
    """Send all events that the sweep's trackers lack, for up to `patience_s` seconds.

    Holds the sweep meanwhile. Only installed trackers are sent anything; others are named by `say`,
    which is called with messages for the user. Another person's tracking URI is accepted and signed
    by this. Returns an entry for each tracker. Raises SweepLocked if a driver has the sweep, which
    sends the events itself.
    """
    with hold.hold(folder, say) as held:
        sign_own(folder)  # sending to a URI accepts it
        return send_held(folder, held.term, say, patience_s)


def send_held(
    folder: Folder, term: int, say: Callable[[str], None], patience_s: float
) -> list[Sent]:
    """Send all events that the installed trackers lack, for a caller that holds the sweep.

    Returns an entry for each tracker of the spec, also for those that are sent nothing. `term` is
    the term of the caller's hold. `say` is called with messages for the user. `patience_s` is the
    longest time to wait, in seconds.
    """
    here = tracker_context(folder)
    before = count_missing_events(here)
    for name, why in uninstalled_trackers(here).items():
        say(f"{name} is sent nothing: {why}")
    Outbox(folder.ledger, load_trackers(here, only_installed=True), say, term).close(patience_s)
    after = count_missing_events(here)
    return [Sent(name, after[name][0] - before[name][0], after[name][1]) for name in before]


def count_missing_events(context: TrackerContext) -> dict[str, tuple[int, int]]:
    """Return tracker → number of events that it has, and number that it lacks."""
    with contextlib.closing(Ledger(context.folder.ledger)) as ledger:
        sent = {name: ledger.published(name) for name in context.spec.trackers}
        return {name: (k, ledger.last - k) for name, k in sent.items()}
