"""The outbox: sends the ledger's events to the trackers, each once and in order, in the background.

    outbox = Outbox(folder.ledger, {"mlflow": tracker, "optuna": other}, say)
    outbox.notify()                      # after every event recorded; never waits
    behind = outbox.close(patience_s=20.0)

Each tracker has a sender thread with its own connection to the ledger, so a tracker that hangs
delays no other. The ledger records what a tracker has only after it was sent, so the next outbox
continues correctly after a kill at any instant. Times are in seconds on the monotonic clock.
"""

import math
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

from sweep.core.errors import SweepLocked, without_password
from sweep.ledger.ledger import Ledger
from sweep.trackers import Tracker
from trainables.core import failpoints, rng
from trainables.errors import printable

#: Seconds for which events are collected before sending: fewer, larger batches leave more processor
#: time to training.
GATHER_S = 0.5
#: Maximum number of events in a batch.
BATCH = 200
#: Seconds before the first retry; doubled for each further one.
FIRST_RETRY_S = 0.5
#: Maximum seconds between two retries.
LONGEST_RETRY_S = 60.0


class Outbox:
    """Sends all present and future events of the ledger to the trackers, each in its own thread.

    Args:
        ledger_path: path of the ledger, opened by each thread.
        trackers: name → tracker; the ledger records progress under this name.
        say: called once per outage with one sentence, from a sender's thread.
        term: sending stops when this term is over; None for no check.
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
        """Wake the senders, because events were recorded; returns at once."""
        for sender in self._senders:
            sender.notify()

    def close(self, patience_s: float) -> list[str]:
        """Wait up to `patience_s` seconds until everything is sent, and end the senders.

        Threads that have not finished then end after their present call of the tracker.

        Returns:
            The trackers that miss, or may miss, events; the next outbox sends these.
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
    """Thread that sends the ledger's events to one tracker, in order.

    Args:
        path: path of the ledger.
        name: name of the tracker, under which the ledger records its progress.
        say: called with one sentence when an outage begins.
        term: term of the driver; None outside a driver.
    """

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
        """True once the thread ends because the tracker has all events recorded before `finish`."""
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
        """Wake the thread, since there may be events to send."""
        self._news.set()

    def finish(self) -> None:
        """Let the thread end as soon as it has sent all events; a wait for a retry ends now."""
        self._finishing.set()
        self._news.set()

    def give_up(self) -> None:
        """Let the thread end after its present call of the tracker, whatever was not sent."""
        self._given_up.set()
        self._news.set()

    # ---- called in the thread ---------------------------------------------------------------

    def run(self) -> None:
        """Send events until `finish` or `give_up`, then close the tracker.

        The first error of the tracker in a row is shown, and sending is retried after a growing
        wait. Ends early if another process has taken the sweep. Sets `sent_all`.
        """
        failures = 0
        while not self._given_up.is_set():
            finishing = self._finishing.is_set()
            try:
                self._send_all()
            except SweepLocked:
                break  # the sweep's new holder sends the rest
            except Exception as error:  # noqa: BLE001 a tracker may raise any
                if self._given_up.is_set():
                    break
                failures += 1
                if failures == 1:
                    self._report(error)
                # The wait ends early at `finish`, or at `give_up` if already finishing.
                ends = self._given_up if finishing else self._finishing
                ends.wait(longest_wait(failures) * self._jitter.uniform(0.5, 1.0))
                continue
            failures = 0
            if finishing:
                self.sent_all = not self._given_up.is_set()  # else it may have stopped half way
                break
            self._news.wait()
            self._finishing.wait(GATHER_S)
        self._close_tracker()

    def _send_all(self) -> None:
        """Send all events that the tracker lacks, in batches; record each batch in the ledger.

        Stops between two batches after `give_up`. Raises SweepLocked if the term is over.
        """
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
                published = records[-1].number
                ledger.set_published(self.tracker_name, published, self._term)
                failpoints.reach("published")

    def _report(self, error: Exception) -> None:
        """Show the user why sending failed, in one line without passwords."""
        lines = str(error).strip().splitlines() or [type(error).__name__]
        reason = _network_error(error)
        why = f"its server cannot be reached: {reason}" if reason else lines[0]
        why = printable(without_password(why))
        self._say(f"tracker {self.tracker_name}: {why}; sweep tries again, and training continues")

    def _close_tracker(self) -> None:
        """Close the tracker, and show an error that this raises."""
        try:
            self._tracker.close()
        except Exception as error:  # noqa: BLE001 closing errors have no consequences
            self._report(error)


def longest_wait(failures: int) -> float:
    """Return the longest wait in seconds after `failures` (from 1) in a row.

    It is `FIRST_RETRY_S` at first, and doubles with each up to `LONGEST_RETRY_S`.
    """
    return min(LONGEST_RETRY_S, FIRST_RETRY_S * math.pow(2.0, min(failures - 1, 20)))


def _network_error(error: BaseException) -> str:
    """Return the operating system's words for the network error that caused `error`; "" if none.

    A client's own message about it names a request of which the user knows nothing.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ConnectionError | TimeoutError | socket.gaierror) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return ""
