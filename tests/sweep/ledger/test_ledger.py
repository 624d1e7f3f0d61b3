from pathlib import Path

import pytest

from sweep.core.errors import IllegalMove, StorageError, SweepLocked
from sweep.history.events import (
    Closed,
    Created,
    End,
    Event,
    Goal,
    Moved,
    Opened,
    Recorded,
    Row,
    Saved,
    Status,
    TermBegan,
    TermEnded,
)
from sweep.ledger import storage, tables
from sweep.ledger.ledger import Ledger, iterate

SPEC = '{"a":1}'


@pytest.fixture
def ledger(tmp_path: Path, either_database: str) -> Ledger:
    return Ledger.create(tmp_path / "odd % name {x}?#.db", "demo", SPEC, {"versions": {}})


def begin(ledger: Ledger) -> int:
    (record,) = ledger.append(None, [TermBegan("host", 1, trials=3)])
    return record.term


def created(number: int = 0) -> Created:
    return Created(number, {"lr": 0.1, "net": [64, 64]}, {"lr": 0.1}, seen=1)


def closed(rows: tuple[Row, ...], source: int = 0, number: int = 0) -> Closed:
    saved = (Saved(rows[-1].iteration, "d" * 64, "ckpt", 10, 0.5),)
    return Closed(0, 0, number, End.GOAL, Status.PAUSED, "waits", source, saved=saved, rows=rows)


def test_a_new_ledger_gives_back_what_it_was_made_with(ledger: Ledger) -> None:
    again = Ledger(ledger.path)
    assert (again.name, again.spec) == ("demo", SPEC)
    assert again.provenance == {
        "versions": {},
        "source": "",
        "processor": "",
        "paths": (),
        "time_attr": "training_iteration",
        "levels": (),
    }
    assert again.sweep_id == ledger.sweep_id
    assert len(again.sweep_id) == 32


def test_events_are_numbered_without_gaps_and_read_back_equal(ledger: Ledger) -> None:
    term = begin(ledger)
    rows = (Row(1, {"loss": 0.1 + 0.2, "done": False, "note": "x"}), Row(2, {"loss": float("inf")}))
    events: list[Event] = [created(), Opened(0, 0, 0, Goal(5.0, top=9.0), "why"), closed(rows)]
    written = ledger.append(term, events) + ledger.append(term, [TermEnded("finished")])
    read = ledger.read()
    assert [record.number for record in read] == [1, 2, 3, 4, 5]
    assert read[1:] == written
    assert ledger.read(after=3) == written[2:]


def test_reading_in_batches_gives_every_event_once(ledger: Ledger) -> None:
    term = begin(ledger)
    ledger.append(term, [created(number) for number in range(7)])
    batches: list[list[Recorded]] = list(iterate(ledger, batch=3))
    assert [[record.number for record in batch] for batch in batches] == [
        [1, 2, 3],
        [4, 5, 6],
        [7, 8],
    ]


def test_a_driver_whose_epoch_is_over_can_write_nothing(ledger: Ledger) -> None:
    old = begin(ledger)
    begin(ledger)
    with pytest.raises(SweepLocked):
        ledger.append(old, [created()])
    assert all(not isinstance(record.event, Created) for record in ledger.read())


def test_an_illegal_move_is_refused_and_nothing_of_its_transaction_stays(ledger: Ledger) -> None:
    term = begin(ledger)
    ledger.append(term, [created()])
    with pytest.raises(IllegalMove) as refusal:
        ledger.append(term, [created(1), Moved(0, Status.COMPLETED, "no")])
    assert (refusal.value.before, refusal.value.after) == ("WAITING", "COMPLETED")
    with storage.open_database(ledger.path).reading() as connection:
        assert connection.execute("SELECT status FROM replicas").fetchall() == [("WAITING",)]
    assert len(ledger.read()) == 2


def test_results_after_the_checkpoint_that_a_trial_went_back_to_are_replaced(
    ledger: Ledger,
) -> None:
    term = begin(ledger)
    opened = Opened(0, 0, 0, Goal(), "")
    first = tuple(Row(i, {"loss": float(i)}) for i in (1, 2, 3))
    again = tuple(Row(i, {"loss": -float(i)}) for i in (2, 3, 4))
    ledger.append(term, [created(), opened, closed(first), opened, closed(again, source=1)])
    values = [(row.iteration, row.metrics["loss"]) for row in ledger.results(0)]
    assert values == [(1, 1.0), (2, -2.0), (3, -3.0), (4, -4.0)]


def test_an_event_is_read_as_it_was_after_its_trial_went_back(ledger: Ledger) -> None:
    term = begin(ledger)
    rows = tuple(Row(i, {"loss": 1.0 / i}) for i in (1, 2, 3))
    written = ledger.append(term, [created(), Opened(0, 0, 0, Goal(), "why"), closed(rows)])
    again = (Row(2, {"loss": 0.5}), Row(3, {"loss": 0.3}), Row(4, {"loss": 0.2}))
    for number, later in ((1, again), (2, again[1:])):
        source = later[0].iteration - 1
        events: list[Event] = [Opened(0, 0, number, Goal(), "why"), closed(later, source, number)]
        written += ledger.append(term, events)
    assert ledger.read()[1:] == written
    assert ledger.results(0) == [rows[0], *again]


def test_a_crash_inside_a_transaction_leaves_nothing_of_it(ledger: Ledger) -> None:
    term = begin(ledger)
    with pytest.raises(TypeError):
        ledger.append(term, [created(), Created(1, {"x": object()}, {}, 0)])
    assert len(ledger.read()) == 1


def test_what_trackers_have_is_remembered_for_each(ledger: Ledger) -> None:
    assert ledger.published("mlflow") == 0
    ledger.set_published("mlflow", 7)
    ledger.set_published("optuna", 3)
    ledger.set_published("mlflow", 9)
    assert (ledger.published("mlflow"), ledger.published("optuna")) == (9, 3)


def test_the_file_has_the_journal_of_its_disk_with_full_sync(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "sweep.db", "demo", SPEC, {})
    mode = tables.journal(ledger.path).lower()
    with tables.Database(ledger.path).reading() as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == (mode,)
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)


def test_a_file_that_is_no_ledger_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "sweep.db"
    path.write_text("not a database, " * 100)
    with pytest.raises(
        StorageError, match=r"sweep\.db: this is not a readable ledger .*; restore a copy"
    ):
        Ledger(path)


def test_what_the_database_reports_names_the_file(ledger: Ledger) -> None:
    term = begin(ledger)
    with storage.open_database(ledger.path).writing() as connection:
        connection.execute("DROP TABLE results")
    ledger.append(term, [created(), Opened(0, 0, 0, Goal(), "")])
    words = r"the database .*(no such table|does not exist).*; `sweep verify` lists"
    with pytest.raises(StorageError, match=words):
        ledger.append(term, [closed((Row(1, {}),))])


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        *((kind, "delete") for kind in ("nfs4", "cifs", "fuse.sshfs", "fuse.juicefs", "fuse")),
        *((kind, "delete") for kind in ("9p", "virtiofs", "fakeowner", "vboxsf", "pvfs2")),
        *((kind, "wal") for kind in ("ext4", "xfs", "zfs", "overlay", "fuse.fuse-overlayfs")),
    ],
)
def test_a_ledger_that_several_machines_share_needs_no_memory_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, mode: str
) -> None:
    mounts, root = tmp_path / "mountinfo", tmp_path / "a share"
    root.mkdir()
    point = str(root.resolve()).replace(" ", r"\040")
    mounts.write_text(
        "22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n"
        f"36 22 0:40 / {point} rw,relatime shared:2 - {kind} server:/export rw\n"
        f"37 22 0:41 / {point}-2 rw - tmpfs tmpfs rw\n"
    )
    monkeypatch.setattr(tables, "_MOUNTS", mounts)
    ledger = Ledger.create(root / "sweep.db", "demo", SPEC, {})
    begin(ledger)
    with tables.Database(ledger.path).reading() as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == (mode,)
    assert len(Ledger(ledger.path).read()) == 1
