"""Select and run the checks: of this machine, of named services, and of a sweep's services.

All checks run at once, each with a time limit. Everything that they write is removed, except a new
signing key if a cluster check needs one.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from sweep import pools
from sweep.core.errors import UsageError
from sweep.driver.tracking import sync
from sweep.history.events import TermBegan
from sweep.ledger import folder as folders
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.ledger.signed import REMOTE
from sweep.operations.doctor import machine, services
from sweep.operations.doctor.finding import Check, Finding, run_checks
from sweep.slices import store

#: Service in a sweep's folder → the part's name in findings.
_PART_NAMES = {
    "storage": "database",
    "checkpoints": "checkpoints",
    "tracking_uri": "mlflow",
    "address": "ledger",
}
#: Advice if a check of a sweep raises an error.
_VERIFY = "`sweep verify NAME` checks the sweep itself"


@dataclass(frozen=True)
class Services:
    """Addresses of the services that are checked; an empty text for a service that is not."""

    address: str = ""
    """Name of the pool with the address of the cluster's scheduler: ``dask@ADDRESS``."""
    storage: str = ""
    """URL of the ledger's PostgreSQL server."""
    checkpoints: str = ""
    """URL of the checkpoints' object storage."""
    tracking_uri: str = ""
    """URI of the MLflow server."""


def examine(root: Path, name: str | None, named: Services, patience_s: float) -> list[Finding]:
    """Check this machine, the services `named` by the user, and those of the sweep `name`, if any.

    A service in `named` replaces the sweep's own. Each check takes at most `patience_s` seconds.
    Failed checks become findings of level ``problem``; those about reading the sweep's files come
    last. Checks remove the files that they write, except a new signing key of the user. Raises
    UnknownName if the sweep does not exist, UsageError if its files are links.
    """
    findings: list[Finding] = []
    if name is not None:
        named = _add_services_of_sweep(folders.find(root, name), named, findings, patience_s)
    checks = machine.checks(root)
    if named.storage:
        checks.append(services.database(named.storage))
    if named.checkpoints:
        checks.append(services.checkpoints(named.checkpoints, patience_s))
    if named.address:
        checks.append(services.cluster(named.address, root, patience_s))
    if named.tracking_uri:
        checks.append(services.tracking(named.tracking_uri))
    return [*run_checks(checks, patience_s), *findings]


def _add_services_of_sweep(
    folder: Folder, named: Services, findings: list[Finding], patience_s: float
) -> Services:
    """Return `named` with the addresses in a sweep's files for the services that it lacks.

    The files are read one after another. For each that cannot be read within `patience_s` seconds,
    a problem is appended to `findings`, and its service stays empty.
    """
    used: dict[str, str] = {}
    for part, read in (
        ("storage", _storage),
        ("checkpoints", lambda of: store.of_sweep(of).url),
        ("tracking_uri", _tracking_uri),
        ("address", _address),
    ):
        if not getattr(named, part):
            check = Check(_PART_NAMES[part], partial(_keep, used, part, read, folder), _VERIFY)
            findings += run_checks([check], patience_s)
    return replace(named, **used)


def _keep(
    used: dict[str, str], part: str, read: Callable[[Folder], str], folder: Folder
) -> list[Finding]:
    """Store the address that `read` takes from the sweep's folder as ``used[part]``.

    Returns an empty list of findings, as a `Check` needs it.
    """
    used[part] = read(folder)
    return []


def _storage(folder: Folder) -> str:
    """Return the URL of the sweep's PostgreSQL server; empty if its ledger is a file."""
    if folder.ledger.suffix != REMOTE:
        return ""
    from sweep.ledger import postgres

    return postgres.read_pointer(folder.ledger).url


def _tracking_uri(folder: Folder) -> str:
    """Return the URI of the sweep's MLflow server; empty if it sends to none.

    Raises UsageError if the file with the URI was written by another user.
    """
    tracked = sync.read_tracking(folder)
    if tracked is not None and not tracked.is_signed:
        raise UsageError(
            f"{folder.tracking_uri}: was written by another user, so its server does not get "
            f"your credentials; to accept the server, run `sweep sync {folder.in_commands}`"
        )
    return "" if tracked is None else tracked.uri


def _address(folder: Folder) -> str:
    """Return the pool ``NAME@ADDRESS`` of the sweep's newest driver; empty if it is no cluster."""
    with contextlib.closing(Ledger(folder.ledger)) as ledger:
        newest = ledger.newest(TermBegan.kind)
    chosen = newest.pool if isinstance(newest, TermBegan) else ""
    return chosen if pools.is_clustered(chosen) else ""
