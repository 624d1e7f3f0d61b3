"""Which parts are examined: this machine always, services where they are named or a sweep has them.

All are looked at at once, each for a bounded time; nothing that is written stays but a signing key,
where there was none and one is to be compared.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from sweep import pools
from sweep.driver import sync
from sweep.errors import UsageError
from sweep.history.events import TermBegan
from sweep.ledger import folder as folders
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.ledger.signed import REMOTE
from sweep.operations.doctor import machine, services
from sweep.operations.doctor.finding import Finding, Look, look_at
from sweep.slices import store

#: Part → what it is called in the answer, where it is read from a sweep's folder.
_SHOWN = {
    "storage": "database",
    "checkpoints": "checkpoints",
    "tracking_uri": "mlflow",
    "address": "ledger",
}
_VERIFY = "`sweep verify NAME` says what is wrong with the sweep itself"


@dataclass(frozen=True)
class Services:
    """Addresses of the services; an empty one is not used."""

    address: str = ""
    """Of the cluster's scheduler, behind the pool's name: ``dask@ADDRESS``."""
    storage: str = ""
    checkpoints: str = ""
    tracking_uri: str = ""


def examine(root: Path, name: str | None, named: Services, patience_s: float) -> list[Finding]:
    """Look at this machine, at the services that are named, and at those of the sweep `name`.

    Args:
        root: the folder of all sweeps.
        name: a sweep; None: none.
        named: what a person says counts before what the sweep has.
        patience_s: seconds that each part has to answer.

    Raises:
        UnknownName: there is no such sweep.
    """
    found: list[Finding] = []
    if name is not None:
        named = _used_by(folders.find(root, name), named, found, patience_s)
    looks = machine.looks(root)
    if named.storage:
        looks.append(services.database(named.storage))
    if named.checkpoints:
        looks.append(services.checkpoints(named.checkpoints, patience_s))
    if named.address:
        looks.append(services.cluster(named.address, root, patience_s))
    if named.tracking_uri:
        looks.append(services.tracking(named.tracking_uri))
    return [*look_at(looks, patience_s), *found]


def _used_by(folder: Folder, named: Services, found: list[Finding], patience_s: float) -> Services:
    """The services of a sweep; what its files say that cannot be followed is `found`."""
    used: dict[str, str] = {}
    for part, said in (
        ("storage", _storage),
        ("checkpoints", lambda of: store.of(of).url),
        ("tracking_uri", _tracking_uri),
        ("address", _address),
    ):
        if not getattr(named, part):
            look = Look(_SHOWN[part], partial(_keep, used, part, said, folder), _VERIFY)
            found += look_at([look], patience_s)
    return replace(named, **used)


def _keep(
    used: dict[str, str], part: str, said: Callable[[Folder], str], folder: Folder
) -> list[Finding]:
    used[part] = said(folder)
    return []


def _storage(folder: Folder) -> str:
    if folder.ledger.suffix != REMOTE:
        return ""
    from sweep.ledger import postgres

    return postgres.read_pointer(folder.ledger).url


def _tracking_uri(folder: Folder) -> str:
    tracked = sync.read_tracking(folder)
    if tracked is not None and not tracked.own:
        raise UsageError(
            f"{folder.tracking_uri}: somebody else has set its server, which is not asked with "
            f"your credentials; `sweep sync {folder.in_commands}` makes it yours"
        )
    return "" if tracked is None else tracked.uri


def _address(folder: Folder) -> str:
    """Its pool, if that is on a cluster."""
    with contextlib.closing(Ledger(folder.ledger)) as ledger:
        newest = ledger.newest(TermBegan.kind)
    chosen = newest.pool if isinstance(newest, TermBegan) else ""
    return chosen if pools.is_clustered(chosen) else ""
