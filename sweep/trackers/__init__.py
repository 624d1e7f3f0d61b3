"""Trackers copy a sweep's history to other places, for people; one file each.

The loop that calls one, in a thread (`sweep.driver.tracking.outbox`):

    tracker = find("mlflow")(where)
    while records := ledger.read(after=published):
        tracker.publish(records)                     # raises: the same records come again later
        published = records[-1].k
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
    """The sweep to copy, and the destination."""

    folder: Folder
    """Folder of the sweep."""
    sweep_id: str
    """Unique ID; two sweeps may have one name."""
    name: str
    """Name of the sweep."""
    created_at: float
    """Time of creation in seconds since 1970 (UTC)."""
    spec: SweepSpec
    """Spec of the sweep."""
    objective: Objective
    """Objective by which trials are compared."""
    tracking_uri: str | None = None
    """URI of an MLflow server or database; None for the file of the sweep's root."""
    uri_is_own: bool = True
    """True if this user has set the URI; see `sweep.driver.tracking.sync`."""
    storage: str = ""
    """URL of the checkpoints' object storage; empty if they are only in the folder."""
    paths: tuple[str, ...] = ()
    """Folders in which the modules named by the sweep are searched."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Package → version with which the sweep was created."""
    first_spec: SweepSpec | None = None
    """Spec with which the sweep was created; None if it has not been changed."""

    def earlier_events(self, k: float) -> Iterator[list[Recorded]]:
        """Yield the events 1 to `k` (infinite for all) from the ledger, in order, in batches."""
        with closing(Ledger(self.folder.ledger)) as ledger:
            for records in iterate(ledger):
                yield [record for record in records if record.number <= k]
                if records[-1].number >= k:
                    return

    def history(self, k: float, shows_unsaved: bool = False) -> History:
        """Return the history up to event `k`, see `earlier_events`.

        With `shows_unsaved`, results that may be computed again count.
        """
        past = History(self.objective, shows_unsaved=shows_unsaved)
        for records in self.earlier_events(k):
            past.extend(records)
        return past


class Tracker(Protocol):
    """The protocol of a tracker; its main method is `publish`."""

    def __init__(self, context: TrackerContext) -> None:
        """Create the tracker quickly: open nothing and import nothing large."""
        ...

    def publish(self, records: Sequence[Recorded]) -> None:
        """Copy events, in the order of their numbers; after an exception they come again."""
        ...

    def close(self) -> None:
        """Close everything that `publish` opened."""
        ...


@runtime_checkable
class Comparable(Protocol):
    """A tracker whose copy `sweep verify` can compare with the ledger."""

    def unreadable(self) -> str:
        """Return why an existing copy cannot be read; empty if it can."""
        ...

    def differences(self) -> list[str]:
        """Return the differences of copy and ledger as texts; raises if it is unreachable."""
        ...

    def set_aside(self) -> None:
        """Remove the parts of the copy that sending all events again would not repair."""
        ...


KIND: plugins.Kind[Tracker] = plugins.Kind(
    "tracker", PACKAGE, Tracker, "Tracker", ("publish", "close")
)
find = KIND.find
