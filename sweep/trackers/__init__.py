"""Trackers copy a sweep's history to other places, for people; one file each.

The loop that calls one, in a thread (`sweep.driver.tracking.outbox`):

    tracker = find("mlflow")(where)
    while records := ledger.read(after=published):
        tracker.publish(records)                     # raises: the same records come again later
        published = records[-1].number
    tracker.close()

A copy is a function of the history up to an event. After a crash a tracker may get some events
again: it must neither duplicate nor omit rows. Its state in memory can be rebuilt from its copy and
the ledger.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from sweep.core import plugins
from sweep.history.events import Recorded
from sweep.history.history import History
from sweep.history.objective import Objective
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger, iterate
from sweep.spec import SweepSpec

PACKAGE = __name__


@dataclass(frozen=True)
class TrackerContext:
    """Sweep that a tracker copies, and where to."""

    folder: Folder
    """Folder of the sweep."""
    sweep_id: str
    """Unique ID of the sweep; two sweeps may have one name."""
    name: str
    """Name of the sweep."""
    created_at: float
    """Time of creation in seconds since 1970 (UTC)."""
    spec: SweepSpec
    """Present spec of the sweep."""
    objective: Objective
    """Objective by which trials are compared."""
    tracking_uri: str | None = None
    """URI of an MLflow server or database; None for the file ``mlflow.db`` in the sweep's root."""
    uri_is_own: bool = True
    """True if this user has set the URI, so that the user's credentials may be sent there."""
    storage: str = ""
    """URL of the object storage of the sweep's checkpoints; empty if they are only in the
    folder."""
    paths: tuple[str, ...] = ()
    """Folders in which modules are looked for after all installed packages."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Name of a package → version with which the sweep was created."""
    first_spec: SweepSpec | None = None
    """Spec with which the sweep was created; None if it is still `spec`."""

    def earlier_events(self, k: float) -> Iterator[list[Recorded]]:
        """Yield the events with numbers from 1 to `k` from the ledger, in order, in lists.

        An infinite `k` yields all.
        """
        with closing(Ledger(self.folder.ledger)) as ledger:
            for records in iterate(ledger):
                yield [record for record in records if record.number <= k]
                if records[-1].number >= k:
                    return

    def history(self, k: float, shows_unsaved: bool = False) -> History:
        """Return the history of the sweep up to event number `k`, read from the ledger.

        With `shows_unsaved`, results that were lost with their slice, and will be computed again,
        count, too.
        """
        past = History(self.objective, shows_unsaved=shows_unsaved)
        for records in self.earlier_events(k):
            past.extend(records)
        return past


class Tracker(Protocol):
    """Base of all trackers, whose main method is `publish`; called in a thread of its own."""

    def __init__(self, context: TrackerContext) -> None:
        """Store the context; open nothing and import nothing large."""
        ...

    def publish(self, records: Sequence[Recorded]) -> None:
        """Copy these events, in the order of their numbers.

        The first call begins with the first event not copied yet. After an exception the same
        events come again, also in a later process, and must then change nothing twice.
        """
        ...

    def close(self) -> None:
        """Close everything that `publish` opened; a later `publish` opens it again."""
        ...


@runtime_checkable
class Comparable(Protocol):
    """Tracker whose copy `sweep verify` can compare with the ledger."""

    def unreadable(self) -> str:
        """Return a text on why the copy is missing or cannot be read.

        Empty if it can, and for a copy about which `differences` says it all.
        """
        ...

    def differences(self) -> list[str]:
        """Return the differences between the copy and the whole ledger, one text each.

        Raises an error of any kind if the copy cannot be reached.
        """
        ...

    def set_aside(self) -> None:
        """Remove those parts of the copy that would stay wrong if all events were sent again."""
        ...


KIND: plugins.Kind[Tracker] = plugins.Kind(
    "tracker", PACKAGE, Tracker, "Tracker", ("publish", "close")
)
find = KIND.find
