"""The outbox: hands the ledger's events to the trackers, each once and in order, beside training.

    outbox = Outbox(folder.ledger, {"mlflow": tracker, "optuna": other}, say)
    outbox.notify()                      # after every event recorded; never waits
    behind = outbox.close(patience_s=20.0)

Each tracker has a sender thread with its own connection to the ledger, so that one that hangs
holds up nobody. What a tracker has is remembered in the ledger after it has it: killed at any
instant, the next outbox goes on from there. Times are seconds on the monotonic clock.
"""

import math
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

from sweep.errors import SweepLocked, without_password
from sweep.ledger.ledger import Ledger
from sweep.trackers import Tracker
from trainables.core import failpoints, rng
from trainables.errors import printable

#: Seconds for which events gather before they are sent: fewer, larger batches leave the processors
#: to training.
GATHER_S = 0.5
#: Events that are handed over at once.
BATCH = 200
#: Seconds before the first retry; doubled with each further one.
FIRST_RETRY_S = 0.5
#: Seconds between two retries at most.
LONGEST_RETRY_S = 60.0


class Outbox:
    """Sends everything that the ledger holds, and what is recorded from now on.

    Args:
        ledger_path: the ledger's file.
        trackers: name → tracker; the name is the one under which the ledger remembers.
        say: called once per outage, with one sentence, from a sender's thread.
        term: nothing is sent when this one is over; None: whichever it is.
    """

    def __init__(
        self,
        ledger_path: Path,
        trackers: Mapping[str, Tracker],
        say: Callable[[str], None],
        term: int | None = None,
    ) -> None:
        self._senders = [
            _Sender(ledger_path, name, tracker, say, term) for name, tracker in trackers.items()
        ]
        for sender in self._senders:
            sender.start()

    def notify(self) -> None:
        """Something was recorded."""
        for sender in self._senders:
            sender.notify()

    def close(self, patience_s: float) -> list[str]:
        """Wait until everything is sent, `patience_s` seconds at most.

        Returns:
            The trackers that still miss events, or may; the next outbox of this ledger sends them.
        """
        deadline = time.monotonic() + patience_s
        for sender in self._senders:
            sender.finish()
        for sender in self._senders:
            sender.join(max(0.0, deadline - time.monotonic()))
        for sender in self._senders:
            sender.give_up()
        return [sender.tracker_name for sender in self._senders if not sender.sent_all]


class _Sender(threading.Thread):
    """Keeps one tracker up to date."""

    def __init__(
        self,
        path: Path,
        name: str,
        tracker: Tracker,
        say: Callable[[str], None],
        term: int | None,
    ) -> None:
        super().__init__(name=f"outbox-{name}", daemon=True)
        self.tracker_name = name
        self.sent_all = False
        """True if the tracker has everything that was recorded before `finish`."""
        self._path = path
        self._tracker = tracker
        self._say = say
        self._term = term
        self._jitter = rng.generator(0, "outbox", name, str(path))
        self._news = threading.Event()
        self._news.set()
        self._finishing = threading.Event()
        self._given_up = threading.Event()

    # ---- called from other threads ----------------------------------------------------------

    def notify(self) -> None:
        """There may be something to send."""
        self._news.set()

    def finish(self) -> None:
        """Send what there is without waiting for more, then end."""
        self._finishing.set()
        self._news.set()

    def give_up(self) -> None:
        """End even if something could not be sent."""
        self._given_up.set()
        self._news.set()

    # ---- the thread -------------------------------------------------------------------------

    def run(self) -> None:
        """Send until `finish`; a failure is retried, never raised."""
        failures = 0
        while not self._given_up.is_set():
            finishing = self._finishing.is_set()
            try:
                self._send_all()
            except SweepLocked:
                break  # its new holder sends the rest
            except Exception as error:  # noqa: BLE001 a tracker may fail in any way; training goes on
                if self._given_up.is_set():
                    break
                failures += 1
                if failures == 1:
                    self._report(error)
                # `finish`, or `give_up` after it, ends the wait before the next try.
                ends = self._given_up if finishing else self._finishing
                ends.wait(longest_wait(failures) * self._jitter.uniform(0.5, 1.0))
                continue
            failures = 0
            if finishing:
                self.sent_all = True
                break
            self._news.wait()
            self._finishing.wait(GATHER_S)
        self._let_go()

    def _send_all(self) -> None:
        """Publish everything that the tracker does not have."""
        self._news.clear()
        with closing(Ledger(self._path)) as ledger:
            published = ledger.published(self.tracker_name)
            while not self._given_up.is_set():
                records = ledger.read(published, BATCH)
                if not records:
                    return
                if self._term is not None:
                    ledger.check(self._term)
                self._tracker.publish(records)
                published = records[-1].k
                ledger.set_published(self.tracker_name, published, self._term)
                failpoints.reach("published")

    def _report(self, error: Exception) -> None:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        why = printable(without_password(lines[0]))
        self._say(f"tracker {self.tracker_name}: {why}; it is tried again, and training goes on")

    def _let_go(self) -> None:
        try:
            self._tracker.close()
        except Exception as error:  # noqa: BLE001 nothing depends on how a tracker lets go
            self._report(error)


def longest_wait(failures: int) -> float:
    """Seconds until the next try at most: they double with each failure in a row."""
    return min(LONGEST_RETRY_S, FIRST_RETRY_S * math.pow(2.0, min(failures - 1, 20)))
