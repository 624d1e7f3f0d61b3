import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from sweep import trackers
from sweep.core import plugins
from sweep.core.errors import UnknownName
from sweep.driver.tracking import outbox
from sweep.driver.tracking.outbox import Outbox
from sweep.history.events import Recorded, Status
from tests.support.events import Story, rows
from tests.support.processes import run_python

PATIENCE_S = 120.0


class Collector:
    """A tracker in memory, which fails the first times that it is asked to."""

    def __init__(self, failures: int = 0) -> None:
        self.batches: list[list[int]] = []
        self.closed = False
        self.thread = ""
        self._failures = failures

    @property
    def received(self) -> list[int]:
        return [k for batch in self.batches for k in batch]

    def publish(self, records: Sequence[Recorded]) -> None:
        self.thread = threading.current_thread().name
        if self._failures > 0:
            self._failures -= 1
            raise ConnectionError("server \x1b[31mdown\nsecond line")
        self.batches.append([record.number for record in records])

    def close(self) -> None:
        self.closed = True


class Hanging(Collector):
    """A tracker that waits in `publish` until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = threading.Event()
        self.let_go = threading.Event()

    def publish(self, records: Sequence[Recorded]) -> None:
        self.entered.set()
        self.let_go.wait(PATIENCE_S)
        super().publish(records)


@pytest.fixture
def story(tmp_path: Path) -> Story:
    return Story.create(tmp_path)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "FIRST_RETRY_S", 0.01)


def open_box(
    story: Story, say: Callable[[str], None] = lambda _text: None, **boxes: Collector
) -> Outbox:
    return Outbox(story.ledger.path, boxes, say)


def numbers(story: Story) -> list[int]:
    return [record.number for record in story.records]


# ---- sending ------------------------------------------------------------------------------------


def test_every_event_is_handed_over_once_in_order_and_remembered(told: Story) -> None:
    one, two = Collector(), Collector()
    box = open_box(told, one=one, two=two)
    assert box.close(PATIENCE_S) == []
    assert one.received == two.received == numbers(told)
    assert told.ledger.published("one") == told.ledger.published("two") == len(told.records)
    assert one.closed
    assert (one.thread, two.thread) == ("outbox-one", "outbox-two")


def test_what_is_recorded_later_is_sent_after_a_notice(told: Story) -> None:
    sent = threading.Event()

    class Last(Collector):
        def publish(self, records: Sequence[Recorded]) -> None:
            super().publish(records)
            if told.records[-1].number in self.received:
                sent.set()

    tracker = Last()
    box = open_box(told, it=tracker)
    assert sent.wait(PATIENCE_S)
    sent.clear()
    told.close(4, Status.PAUSED, rows(4, 1, 2))
    box.notify()
    assert sent.wait(PATIENCE_S)
    assert box.close(PATIENCE_S) == []
    assert tracker.received == numbers(told)


def test_events_of_a_moment_are_sent_together(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "GATHER_S", PATIENCE_S)
    story.begin()
    tracker = Hanging()
    box = open_box(story, it=tracker)
    assert tracker.entered.wait(PATIENCE_S)  # it has the first event, the rest comes meanwhile
    for trial in range(5):
        story.start(trial)
        box.notify()
    tracker.let_go.set()
    assert box.close(PATIENCE_S) == []
    assert tracker.batches == [[1], list(range(2, 12))]


def test_the_next_outbox_goes_on_where_the_last_one_remembered(told: Story) -> None:
    told.ledger.set_published("it", 7)
    tracker = Collector()
    assert open_box(told, it=tracker).close(PATIENCE_S) == []
    assert tracker.received == numbers(told)[7:]


def test_large_backlogs_are_handed_over_in_batches(
    told: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "BATCH", 4)
    tracker = Collector()
    assert open_box(told, it=tracker).close(PATIENCE_S) == []
    assert {len(batch) for batch in tracker.batches[:-1]} == {4}
    assert tracker.received == numbers(told)


def test_a_tracker_that_is_given_up_between_two_batches_does_not_count_as_complete(
    told: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "BATCH", 4)

    class Slow(Collector):
        def publish(self, records: Sequence[Recorded]) -> None:
            super().publish(records)
            sender.give_up()

    tracker = Slow()
    sender = outbox._Sender(told.ledger.path, "it", tracker, lambda _text: None, None)
    sender.finish()
    sender.run()
    assert tracker.received == numbers(told)[:4]
    assert not sender.sent_all


# ---- failures -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("impatient")
def test_of_a_server_that_cannot_be_reached_the_cause_is_said_without_the_request(
    told: Story,
) -> None:
    class Refused(Collector):
        def publish(self, records: Sequence[Recorded]) -> None:
            try:
                socket.create_connection(("127.0.0.1", 1))
            except OSError as error:
                raise ValueError("GET /by-name failed with HTTPConnectionPool(...)") from error

    said: list[str] = []
    assert open_box(told, said.append, it=Refused()).close(5.0) == ["it"]
    words = "tracker it: its server cannot be reached: Connection refused; sweep tries again, and"
    assert said[0].startswith(words)


@pytest.mark.usefixtures("impatient")
def test_a_failure_is_said_once_in_one_line_and_tried_again(told: Story) -> None:
    said: list[str] = []
    tracker = Collector(failures=4)
    assert open_box(told, said.append, it=tracker).close(PATIENCE_S) == []
    assert tracker.received == numbers(told)
    (line,) = said
    assert line.startswith("tracker it: server \\x1b[31mdown; ")
    assert line.isprintable()


@pytest.mark.usefixtures("impatient")
def test_after_a_failure_the_same_events_come_again_and_none_is_left_out(told: Story) -> None:
    class Forgetful(Collector):
        """Takes a batch, fails, and is right when it gets the same one again."""

        def publish(self, records: Sequence[Recorded]) -> None:
            super().publish(records)
            if len(self.batches) % 2:
                raise TimeoutError("no answer")

    tracker = Forgetful()
    assert open_box(told, it=tracker).close(PATIENCE_S) == []
    assert tracker.batches == [numbers(told)] * 2


def test_a_tracker_that_hangs_holds_up_neither_the_others_nor_the_caller(told: Story) -> None:
    hanging, free = Hanging(), Collector()
    box = open_box(told, slow=hanging, free=free)
    assert hanging.entered.wait(PATIENCE_S)
    box.notify()
    assert box.close(1.0) == ["slow"]
    assert free.received == numbers(told)
    assert told.ledger.published("slow") == 0
    hanging.let_go.set()


def test_a_tracker_that_always_fails_is_named_when_patience_ends(told: Story) -> None:
    broken = Collector(failures=10**9)
    box = open_box(told, broken=broken, fine=Collector())
    assert box.close(0.5) == ["broken"]


def test_one_that_fails_after_it_was_given_up_is_not_said_to_be_tried_again(told: Story) -> None:
    left = threading.Event()

    class Late(Hanging):
        def close(self) -> None:
            left.set()

    late, said = Late(), list[str]()
    late._failures = 1
    box = open_box(told, said.append, late=late)
    assert late.entered.wait(PATIENCE_S)
    assert box.close(0.0) == ["late"]
    late.let_go.set()
    assert left.wait(PATIENCE_S)
    assert (said, late.received) == ([], [])


def test_whoever_waits_for_a_retry_tries_at_once_when_the_outbox_closes(
    told: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "FIRST_RETRY_S", 10 * PATIENCE_S)
    failed = threading.Event()
    tracker = Collector(failures=1)
    box = open_box(told, lambda _text: failed.set(), it=tracker)
    assert failed.wait(PATIENCE_S)
    assert box.close(PATIENCE_S) == []
    assert tracker.received == numbers(told)


def test_a_ledger_that_cannot_be_read_for_a_while_stops_nothing(
    told: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "FIRST_RETRY_S", 0.01)
    away = told.ledger.path.with_name("away.db")
    told.ledger.close()
    told.ledger.path.rename(away)
    said = threading.Event()
    tracker = Collector()
    box = open_box(told, lambda _text: said.set(), it=tracker)
    assert said.wait(PATIENCE_S)
    away.rename(told.ledger.path)
    assert box.close(PATIENCE_S) == []
    assert tracker.received == numbers(told)


def test_retries_come_later_and_later_up_to_a_minute() -> None:
    waits = [outbox.longest_wait(failures) for failures in (1, 2, 3, 7, 8, 10_000)]
    assert waits == [0.5, 1.0, 2.0, 32.0, 60.0, 60.0]


def test_nothing_is_sent_after_the_outbox_was_closed(told: Story) -> None:
    tracker = Collector()
    box = open_box(told, it=tracker)
    box.close(PATIENCE_S)
    sent = list(tracker.received)
    told.close(4, Status.PAUSED, rows(4, 1, 2))
    box.notify()
    assert box.close(PATIENCE_S) == []
    assert tracker.received == sent


# ---- the trackers that there are ----------------------------------------------------------------


def test_trackers_are_found_by_the_names_of_their_files() -> None:
    assert {"mlflow", "optuna"} <= set(plugins.names(trackers.PACKAGE))
    assert trackers.find("optuna").__module__ == "sweep.trackers.optuna"
    with pytest.raises(UnknownName, match="did you mean 'mlflow'"):
        trackers.find("mlfow")


def test_a_tracker_imports_nothing_heavy_before_it_publishes() -> None:
    code = """
import sys
from sweep import trackers
from sweep.core import plugins
from sweep.driver.tracking import outbox
for name in plugins.names(trackers.PACKAGE):
    trackers.find(name)(None).close()
sys.exit(bool({"mlflow", "optuna", "torch"} & set(sys.modules)))
"""
    run_python(code)
