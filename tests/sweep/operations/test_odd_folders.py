"""Sweep folders in which odd things lie: nothing is followed, waited for, written or asked."""

import errno
import json
import os
import re
import socket
import sqlite3
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest

from sweep.core.errors import StorageError
from sweep.driver.tracking import sync
from sweep.history.events import Status
from sweep.ledger import folder as folders
from sweep.ledger import tables
from sweep.ledger.folder import Folder
from sweep.operations.upkeep import ledger_check
from sweep.views import lookup, progress
from tests.support import sweeps, trials
from tests.support.command_line import Here

LOOKS = [("ls",), ("status", "demo"), ("verify", "demo")]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A sweep that is over, with a copy in Optuna's tables."""
    made = sweeps.make(tmp_path / "sweeps", trackers=["optuna"], trials=3)
    sweeps.run(made)
    sweeps.copy_to_optuna(made)
    return made


@pytest.fixture
def here(folder: Folder, capsys: pytest.CaptureFixture[str]) -> Here:
    return Here(capsys, folder.root)


def looked_at(here: Here) -> list[str]:
    """What the commands that look say, without how long ago the sweep was used."""
    return [re.sub(r"\d+ (second|minute)s?", "", str(here(*command))) for command in LOOKS]


def link_to_a_database(path: Path) -> None:
    elsewhere = path.with_name("elsewhere.db")
    with closing(sqlite3.connect(elsewhere)) as database, database:
        database.execute("CREATE TABLE wallet (coins)")
    path.symlink_to(elsewhere)


@pytest.mark.slow
@pytest.mark.parametrize("make", [link_to_a_database, os.mkfifo, Path.mkdir])
@pytest.mark.parametrize(
    "name", ["sweep.db", "optuna.db", "optuna.db-wal", "tracking-uri", "run.lock", "../mlflow.db"]
)
def test_what_is_no_file_is_neither_followed_nor_waited_for(
    name: str, make: Callable[[Path], None], folder: Folder, here: Here
) -> None:
    path = folder.path / name
    path.unlink(missing_ok=True)
    make(path)
    before = digests(folder.root)
    for command in LOOKS:
        code, out, err = here(*command)
        assert code in (0, 2)
        assert "but sweep stores a file there; move it away" in out + err
        assert len(err.strip().splitlines()) <= 1
    assert here("resume", "demo")[0] == 2
    assert digests(folder.root) == before


@pytest.mark.parametrize("command", ["status", "verify", "sync", "resume"])
def test_a_link_in_the_place_of_the_spec_is_refused(
    command: str, folder: Folder, here: Here, tmp_path: Path
) -> None:
    folder.spec.unlink()
    folder.spec.symlink_to(tmp_path / "secret")
    code, out, err = here(command, "demo")
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert f"{folder.spec}: is a symbolic link, but sweep stores a file there; move it away" in err


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [".tmp-3-99999-aaaaaaaaaaaaaaaa", f"seg-{'a' * 64}", f"ckpt-0000000001-{'a' * 64}.swck"]
)
def test_a_folder_under_a_name_of_ours_is_left_alone(name: str, folder: Folder, here: Here) -> None:
    odd = folder.trial(0) / name
    odd.mkdir()
    assert here("verify", "demo")[0] == 0
    assert here("resume", "demo", "--trials", "4", "--pool", "inline")[0] == 0
    assert odd.is_dir()


def digests(root: Path) -> dict[str, str]:
    """What each file holds."""
    files = sorted(path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): sha256(path.read_bytes()).hexdigest() for path in files}


def test_looking_writes_nothing_whatever_the_journal_of_the_ledger_is(
    folder: Folder, here: Here
) -> None:
    for path in (folder.ledger, folder.optuna):
        with closing(sqlite3.connect(path)) as database:
            assert database.execute("PRAGMA journal_mode=DELETE").fetchone() == ("delete",)
    before = digests(folder.root)
    for command in (*LOOKS, ("results", "demo"), ("best", "demo"), ("show", "demo", "0")):
        assert here(*command)[0] == 0
    assert digests(folder.root) == before


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_a_folder_in_which_one_may_not_write_can_be_looked_at(
    journal: str, folder: Folder, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(sqlite3.connect(folder.ledger)) as database:
        assert database.execute(f"PRAGMA journal_mode={journal}").fetchone() == (journal,)
    expected = looked_at(here)
    may = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and may(path, mode))
    with closing(tables.connect_read_only(folder.ledger)) as database, pytest.raises(sqlite3.Error):
        database.execute("DELETE FROM events")
    assert looked_at(here) == expected
    assert not [path for path in folder.path.iterdir() if path.suffix in ("-wal", "-shm")]


def test_a_file_that_cannot_be_looked_into_is_not_called_damaged(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"disk I/O error|unable to open database file"):
        tables.find_damage(tmp_path)
    with pytest.raises(StorageError, match="unable to open database file"):
        ledger_check.check(tmp_path / "away" / "sweep.db")


@pytest.mark.parametrize(
    ("tracker", "name", "told"),
    [("optuna", "optuna.db", "has no study demo"), ("mlflow", "mlflow.db", "has no experiment")],
)
def test_verify_makes_no_tables_where_a_copy_should_be(
    tracker: str, name: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = sweeps.make(tmp_path, trackers=[tracker], trials=1)
    sweeps.run(folder)
    path = folder.optuna if tracker == "optuna" else folder.mlflow
    assert path.name == name
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE wallet (coins)")
    with closing(sqlite3.connect(folder.ledger)) as ledger, ledger:
        ledger.execute("DELETE FROM published")
        ledger.execute("INSERT INTO published SELECT ?, max(k) FROM events", (tracker,))
    code, out, _ = Here(capsys, folder.root)("verify", "demo")
    assert code == 6
    assert told in out
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT name FROM sqlite_master").fetchall() == [("wallet",)]


def test_a_copy_that_was_damaged_while_it_was_behind_is_found_and_mended(
    folder: Folder, here: Here
) -> None:
    folder.optuna.write_bytes(b"no database" * 100)
    for suffix in ("-wal", "-shm"):
        folder.optuna.with_name(f"optuna.db{suffix}").unlink(missing_ok=True)
    with closing(sqlite3.connect(folder.ledger)) as ledger, ledger:
        assert ledger.execute("UPDATE published SET k = k - 2").rowcount == 1
    code, out, _ = here("verify", "demo")
    assert code == 6
    assert "file is not a database" in out
    assert here("verify", "demo", "--repair")[0] == 0
    assert here("verify", "demo")[0] == 0


# ---- servers ------------------------------------------------------------------------------------


@pytest.fixture
def calls() -> Iterator[tuple[int, list[bytes]]]:
    """The port of a server that answers nobody, and how requests to it began."""
    heard: list[bytes] = []
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def listen() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with closing(connection):
                    heard.append(connection.recv(1000))

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        yield server.getsockname()[1], heard
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


@pytest.mark.parametrize("own", [True, False])
def test_verify_asks_no_server_that_somebody_else_has_named(
    own: bool,
    calls: tuple[int, list[bytes]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "a-secret")
    port, heard = calls
    folder = sweeps.make(tmp_path, trackers=["mlflow"], trials=1)
    sweeps.run(folder)
    with closing(sqlite3.connect(folder.ledger)) as ledger, ledger:
        ledger.execute("DELETE FROM published")
        ledger.execute("INSERT INTO published SELECT 'mlflow', max(k) FROM events")
    uri = f"http://127.0.0.1:{port}"
    sync.write_tracking(folder.tracking_uri, uri)
    if not own:
        said = json.loads(folder.tracking_uri.read_text())
        folder.tracking_uri.write_text(json.dumps({**said, "mac": "0" * 64}))
    assert sync.read_tracking(folder) == (uri, own)
    _, out, _ = Here(capsys, folder.root)("verify", "demo")
    assert "mlflow was not compared" in out
    assert ("another user chose the MLflow server" in out) is not own
    assert any(b"a-secret" in request for request in heard) is own


def test_whoever_sends_to_a_server_that_somebody_else_has_named_makes_it_their_own(
    calls: tuple[int, list[bytes]], folder: Folder, here: Here
) -> None:
    uri = f"http://127.0.0.1:{calls[0]}"
    folder.tracking_uri.write_text(json.dumps({"uri": uri}))
    assert sync.read_tracking(folder) == (uri, False)
    assert here("sync", "demo", "--wait", "0")[0] == 0
    assert sync.read_tracking(folder) == (uri, True)


def test_a_disk_that_refuses_leaves_the_tracking_uri_as_it_was(
    folder: Folder, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = json.dumps({"uri": "http://127.0.0.1:1"})
    folder.tracking_uri.write_text(said)

    def full(_file: int, _piece: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("trainables.checkpoint.disk.write_all", full)
    code, _, err = here("sync", "demo", "--wait", "0")
    assert (code, "No space left on device; free some space on that disk" in err) == (4, True)
    assert folder.tracking_uri.read_text() == said


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"\xff\xfe", "contains no tracking URI"),
        (b"http://127.0.0.1:1", "contains no tracking URI"),
        (b"[" * 60000, "contains no tracking URI"),
        (b'{"uri": "/etc"}', "contains no URI that begins with http, https"),
    ],
)
def test_a_tracking_uri_that_is_none_is_refused_in_one_line(
    content: bytes, told: str, folder: Folder, here: Here
) -> None:
    folder.tracking_uri.write_bytes(content)
    for command in ("verify", "sync"):
        code, _, err = here(command, "demo")
        assert (code, len(err.splitlines())) == (2, 1)
        assert told in err


# ---- a trial's files ---------------------------------------------------------------------------


def link_to_a_secret(path: Path) -> None:
    secret = path.parents[3] / "secret"
    secret.write_text("hunter2")
    path.symlink_to(secret)


@pytest.mark.parametrize("make", [link_to_a_secret, os.mkfifo, Path.mkdir])
def test_a_log_that_is_no_file_is_neither_followed_nor_waited_for(
    make: Callable[[Path], None], folder: Folder, here: Here
) -> None:
    log = folder.trial(0) / "log.txt"
    log.unlink(missing_ok=True)
    make(log)
    code, out, err = here("show", "demo", 0, "--log")
    assert (code, out) == (2, "")
    assert "log.txt: " in err
    assert "but sweep stores a file there; move it away" in err


def test_a_log_in_a_trials_folder_that_is_a_link_is_not_read(folder: Folder, here: Here) -> None:
    moved = folder.root.parent / "moved"
    folder.trial(0).rename(moved)
    (moved / "log.txt").write_text("hunter2")
    folder.trial(0).symlink_to(moved)
    code, out, err = here("show", "demo", 0, "--log")
    assert (code, out) == (2, "")
    assert f"{folder.trial(0)}: is a symbolic link, but a trial's folder must be inside" in err


def test_only_the_end_of_a_large_log_is_read(folder: Folder, here: Here) -> None:
    log = folder.trial(0) / "log.txt"
    with log.open("wb") as file:
        file.truncate(3 * 2**30)
        file.seek(0, os.SEEK_END)
        file.write(b"\n" + b"".join(b"line %d\n" % number for number in range(5000)))
    tracemalloc.start()
    code, out, _ = here("show", "demo", 0, "--log")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    head, *shown = out.splitlines()
    assert code == 0
    assert shown == [f"line {number}" for number in range(3000, 5000)]
    left_out = log.stat().st_size - sum(len(line) + 1 for line in shown)
    assert head == f"({left_out} bytes before this are left out; they are in {log})"
    assert peak < 64 * 2**20


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (b"", ""),
        (b"one\ntwo", "one\ntwo"),
        (b"x" * (lookup.LOG_BYTES + 1), "x" * lookup.LOG_BYTES),
        (b"x" * lookup.LOG_BYTES + b"\n" + b"whole\n", "whole\n"),
        (b"a\n" * lookup.LOG_LINES, "a\n" * lookup.LOG_LINES),
        (b"b\n" + b"a\n" * lookup.LOG_LINES, "a\n" * lookup.LOG_LINES),
    ],
)
def test_lines_are_shown_whole_and_what_is_left_out_is_counted(
    written: bytes, shown: str, folder: Folder
) -> None:
    (folder.trial(0) / "log.txt").write_bytes(written)
    told = lookup.read_log(folder, lookup.read(folder).history.trials[0])
    left_out = len(written) - len(shown)
    assert told.startswith(f"({left_out} bytes before this are left out") == (left_out > 0)
    assert (told.partition("\n")[2] if left_out else told) == shown


def test_both_parts_of_a_rotated_log_are_named(folder: Folder) -> None:
    trial = folder.trial(0)
    (trial / "log.1.txt").write_text("earlier\n" * 2000)
    (trial / "log.txt").write_text("newest\n" * 2000)
    told = lookup.read_log(folder, lookup.read(folder).history.trials[0])
    both = f"{trial / 'log.1.txt'} and {trial / 'log.txt'}"
    assert (
        told == f"(16000 bytes before this are left out; they are in {both})\n" + "newest\n" * 2000
    )


def test_a_trials_folder_is_durable_and_that_of_all_trials_once_in_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(folders, "fsync", synced.append)
    ours = Folder(tmp_path, "ours")
    trials = ours.path / "trials"
    trials.mkdir(parents=True)  # by a process that may have died before it was durable
    for number in (0, 0, 1):
        ours.make_trial(number)
    assert synced == [trials, ours.path, trials]


@pytest.mark.parametrize("make", [link_to_a_secret, os.mkfifo, Path.mkdir])
@pytest.mark.parametrize("name", ["progress.json", "log.txt"])
def test_a_trial_writes_into_nothing_but_files(
    name: str, make: Callable[[Path], None], folder: Folder, here: Here
) -> None:
    odd = folder.make_trial(3) / name
    make(odd)
    assert here("resume", "demo", "--trials", "4")[0] in (0, 1)
    if odd.is_symlink():
        assert odd.read_text() == "hunter2"
    assert here("status", "demo")[0] == 0


@pytest.mark.parametrize("make", [link_to_a_secret, os.mkfifo, Path.mkdir])
def test_a_note_that_is_no_file_is_no_note(make: Callable[[Path], None], tmp_path: Path) -> None:
    folder = sweeps.make(tmp_path / "sweeps")
    make(folder.make_trial(0) / "progress.json")
    past = trials.history([trials.trial(0, Status.RUNNING)], 1)
    assert progress.read_notes(folder, past) == {}
