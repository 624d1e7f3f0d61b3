"""A ledger in PostgreSQL: every command, secrets, and a server that fails."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from sweep.cli.main import main
from sweep.core.errors import DamagedLedger, StorageError, SweepLocked
from sweep.history.events import Closed, Created, End, Goal, Opened, Row, Status, TermBegan
from sweep.ledger import lease, postgres, storage, tables, upgrade
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.ledger.requests import Answer, Requests, Verb, answer_writer
from sweep.operations.upkeep import ledger_check
from tests.support import sweeps
from tests.support.command_line import Here, start, write_spec
from tests.support.postgres import PASSWORD, Server

#: What is typed of a finished sweep `demo` in this order, its exit code, and what is answered.
COMMANDS = (
    ("ls", 0, "demo   finished"),
    ("status demo", 0, "9 of 9 trials"),
    ("results demo", 0, "demo: loss, best on a new seed first"),
    ("results demo --csv", 0, "settings/lr"),
    ("best demo", 0, "# trial 1 of demo"),
    ("show demo 5", 0, "trial 5 of demo"),
    ("explain demo 5", 0, "promoted"),
    ("curves demo", 0, "loss"),
    ("report demo", 0, "demo"),
    ("verify demo", 0, "demo is intact"),
    ("run {spec} --pool inline", 2, "the sweep 'demo' exists already"),
    ("stop demo 5", 2, "trial 5 has ended"),
    ("pause demo", 2, "no driver is running"),
    ("clone demo 1", 0, "no driver is running; `sweep resume demo` starts one"),
    ("set demo --trials 10", 0, "no driver is running; `sweep resume demo` starts one"),
    ("resume demo --pool inline", 0, "10 of 10 trials"),
    ("best demo --test-seeds 2 --pool inline", 0, "seeds"),
    ("sync demo", 0, "no trackers"),
    ("gc demo", 0, "demo: freed"),
    ("verify demo --repair", 0, "demo is intact"),
    ("export-model demo", 2, "export"),
    ("rm demo --yes", 0, "demo"),
    ("ls", 0, "no sweeps"),
)


def test_the_server_of_a_ledger_is_recalled_as_it_was_given(tmp_path: Path) -> None:
    path, url = tmp_path / "sweep.postgresql", "postgresql+psycopg://127.0.0.1:1/sweeps"
    postgres.write_pointer(path, url, "0" * 32)
    assert storage.url_of(path) == url
    assert storage.url_of(path.with_suffix(".db")) is None


def schemas(server: Server, url: str) -> list[str]:
    query = "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'sweep%' ORDER BY 1"
    with server.admin(url.rpartition("/")[2]) as connection:
        return [name for (name,) in connection.execute(query)]


def test_every_command_works_as_with_a_file(
    here: Here, tmp_path: Path, server: Server, storage_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    spec = write_spec(tmp_path)
    code, out, err = here("run", spec, "--pool", "inline", "--storage", storage_url)
    assert (code, err) == (0, "")
    assert not (here.root / "demo" / "sweep.db").exists()
    assert len(schemas(server, storage_url)) == 1
    for command, expected, answer in COMMANDS:
        code, out, err = here(*command.format(spec=spec).split())
        assert code == expected, (command, out, err)
        assert answer in out + err, (command, out, err)
        assert PASSWORD not in out + err
    assert schemas(server, storage_url) == []


# ---- secrets, and servers of others --------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql+psycopg://me:{PASSWORD}@127.0.0.1/sweeps",
        f"postgresql+psycopg://me:/{PASSWORD}/@127.0.0.1/sweeps",
        f"postgresql+psycopg://me:{PASSWORD}?@127.0.0.1/sweeps",
        f"postgresql://127.0.0.1/sweeps?user=me&pass%77ord={PASSWORD}",
        f"postgresql://127.0.0.1/sweeps?user=me&password={PASSWORD}",
        f"postgresql://127.0.0.1/sweeps?sslPassword={PASSWORD}",
        f"postgresql://127.0.0.1/sweeps?password=x@{PASSWORD}",
    ],
)
def test_a_password_in_the_url_is_refused_and_shown_nowhere(
    here: Here, tmp_path: Path, url: str
) -> None:
    spec = write_spec(tmp_path)
    code, out, err = here("run", spec, "--pool", "inline", "--storage", url)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    for word in ("~/.pgpass", "PGPASSFILE", "?passfile=FILE", "~/.pg_service.conf"):
        assert word in err
    assert PASSWORD not in err
    assert not here.root.exists() or not list(here.root.iterdir())


@pytest.mark.parametrize(
    "url",
    [
        *("mysql://127.0.0.1/sweeps", "sweeps", "postgresql+asyncpg://127.0.0.1/sweeps"),
        f"postgresql+psycopg://me:?{PASSWORD}/@127.0.0.1/sweeps",
        f"postgresql://127.0.0.1/sweeps?pasword={PASSWORD}%",
        f"postgresql://127.0.0.1/sweeps?pasword=x@{PASSWORD}%",
    ],
)
def test_what_names_no_database_is_refused(here: Here, tmp_path: Path, url: str) -> None:
    code, out, err = here("run", write_spec(tmp_path), "--pool", "inline", "--storage", url)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert "expected postgresql+psycopg://HOST[:PORT]/DATABASE" in err
    assert PASSWORD not in err


def test_the_password_stands_nowhere_in_the_sweep(
    tmp_path: Path, server: Server, storage_url: str
) -> None:
    folder = sweeps.make(tmp_path / "sweeps", trials=2, storage=storage_url)
    sweeps.run(folder)
    for path in folder.root.rglob("*"):
        assert path.is_dir() or PASSWORD.encode() not in path.read_bytes(), path
    with storage.open_database(folder.ledger).reading() as connection:
        tables = connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname LIKE 'sweep%'"
        )
        for (table,) in tables.fetchall():
            assert PASSWORD not in repr(connection.execute(f"SELECT * FROM {table}").fetchall())  # noqa: S608
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PGPASSFILE", "/dev/null")
        with pytest.raises(StorageError) as refusal:
            Ledger(folder.ledger)
    assert PASSWORD not in str(refusal.value)


def test_no_server_is_asked_that_somebody_else_has_named(
    tmp_path: Path, here: Here, storage_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = sweeps.make(here.root, trials=2, trackers=[], storage=storage_url)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "another"))
    with monkeypatch.context() as patch:
        patch.setattr(psycopg.Connection, "connect", None)  # who asks it fails
        code, out, err = here("status", "demo")
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert f"`sweep trust {folder.ledger}`" in err
    assert main(["trust", str(folder.ledger)]) == 0
    assert here("status", "demo")[0] == 0
    folder.ledger.write_text(folder.ledger.read_text().replace("127.0.0.1", "127.0.0.2"))
    assert here("status", "demo")[0] == 2


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE VIEW {schema}.extra AS SELECT 1",
        "ALTER TABLE {schema}.events ENABLE ROW LEVEL SECURITY",
        "CREATE RULE one AS ON INSERT TO {schema}.events DO INSTEAD NOTHING",
    ],
)
def test_a_schema_that_computes_when_it_is_read_is_no_ledger(
    tmp_path: Path, server: Server, storage_url: str, statement: str
) -> None:
    folder = sweeps.make(tmp_path, trials=2, storage=storage_url)
    (schema,) = schemas(server, storage_url)
    with server.admin(storage_url.rpartition("/")[2]) as connection:
        connection.execute(statement.format(schema=schema).encode())
    with pytest.raises(DamagedLedger, match="which sweep does not create"):
        Ledger(folder.ledger)
    assert [damage.part for damage in ledger_check.check(folder.ledger)] == ["ledger"]


# ---- a server that fails -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def breakable(server: Server) -> Iterator[Server]:
    """A second server."""
    with contextlib.closing(Server()) as made:
        made.start()
        yield made


@pytest.fixture
def own_server(breakable: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server that a test may break."""
    monkeypatch.setenv("PGPASSFILE", str(breakable.passfile))
    yield breakable
    breakable.stop(signal.SIGQUIT)
    breakable.start()


def create(folder: Path, url: str) -> Ledger:
    return Ledger.create(folder / "sweep.db", "demo", '{"a":1}', {}, url)


def begin(ledger: Ledger) -> int:
    (record,) = ledger.append(None, [TermBegan("host", 1, trials=3)])
    return record.term


def created(number: int) -> Created:
    return Created(number, {"lr": 0.1}, {"lr": 0.1}, seen=1)


@pytest.mark.parametrize("written", [True, False])
def test_a_commit_of_which_nothing_is_heard_is_neither_lost_nor_done_twice(
    tmp_path: Path, storage_url: str, monkeypatch: pytest.MonkeyPatch, written: bool
) -> None:
    ledger = create(tmp_path, storage_url)
    requests = Requests(ledger.path)
    term = begin(ledger)
    execute = psycopg.Connection.execute
    cut: list[int] = []

    def cutting(self: Any, query: Any, *more: Any) -> Any:
        if query == "COMMIT" and cut:
            cut.pop()
            if written:
                execute(self, query)
            self.pgconn.finish()
            raise psycopg.OperationalError("the connection was cut")
        return execute(self, query, *more)

    monkeypatch.setattr(psycopg.Connection, "execute", cutting)
    cut.append(1)
    recorded = ledger.append(term, [created(0), created(1)])
    assert ledger.read()[1:] == recorded
    cut.append(1)
    assert requests.ask(Verb.STOP, {}) == 1
    assert [request.number for request in requests.pending()] == [1]
    cut.append(1)
    ledger.append(term, [], answer_writer({1: Answer(True, "done")}))
    for look in (requests.pending, lambda: ledger.read(after=3), lambda: ledger.check(term)):
        cut.append(1)
        assert not look()
    assert cut == []


def test_a_pipeline_that_cannot_be_left_is_a_connection_that_broke(
    tmp_path: Path, storage_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = create(tmp_path, storage_url)
    term = begin(ledger)
    ledger.append(term, [created(0), Opened(0, 0, 0, Goal(), "why")])
    executemany = psycopg.Cursor.executemany
    cut = [1]

    def cutting(self: Any, *arguments: Any, **more: Any) -> None:
        executemany(self, *arguments, **more)
        if cut and cut.pop():  # as where a server is ended between two of its answers
            raw = self.connection.pgconn
            raw.enter_pipeline_mode()
            raw.send_query_params(b"SELECT 1", None)
            raw.exit_pipeline_mode()

    monkeypatch.setattr(psycopg.Cursor, "executemany", cutting)
    rows = (Row(1, {"episode_reward_mean": 1.0}),)
    recorded = ledger.append(
        term, [Closed(0, 0, 0, End.GOAL, Status.PAUSED, "waits", 0, saved=(), rows=rows)]
    )
    assert cut == []
    assert ledger.read(after=3) == recorded


def test_a_driver_that_lost_its_connection_and_its_term_writes_nothing(
    tmp_path: Path, server: Server, storage_url: str
) -> None:
    ledger, other = (
        create(tmp_path, storage_url),
        storage.open_database(tmp_path / "sweep.postgresql"),
    )
    term = begin(ledger)
    with server.admin() as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s",
            (storage_url.rpartition("/")[2],),
        )
    with other.writing() as writer:
        lease.take(writer)
    with pytest.raises(SweepLocked):
        ledger.append(term, [created(0)])
    assert [type(record.event) for record in ledger.read()] == [TermBegan]


@pytest.mark.parametrize(
    "default",
    [
        "default_transaction_isolation TO 'repeatable read'",
        "default_transaction_isolation TO 'serializable'",
        "default_transaction_read_only TO on",
    ],
)
def test_whatever_a_server_has_for_a_default_who_lost_its_term_while_it_waited_writes_nothing(
    tmp_path: Path, server: Server, storage_url: str, default: str
) -> None:
    database = storage_url.rpartition("/")[2]
    with server.admin() as connection:
        connection.execute(f"ALTER DATABASE {database} SET {default}".encode())
    ledger, other = (
        create(tmp_path, storage_url),
        storage.open_database(tmp_path / "sweep.postgresql"),
    )
    term = begin(ledger)
    with ThreadPoolExecutor(1) as threads:
        with other.writing() as writer:
            waits = threads.submit(ledger.append, term, [created(0)])
            query = "SELECT 1 FROM pg_stat_activity WHERE datname = %s AND wait_event_type = 'Lock'"
            with server.admin() as connection:
                while not (waits.done() or connection.execute(query, (database,)).fetchone()):
                    pass
            lease.take(writer)
        with pytest.raises(SweepLocked):
            waits.result()
    assert [type(record.event) for record in ledger.read()] == [TermBegan]


def test_a_writer_that_stands_still_holds_nobody_up(
    tmp_path: Path, storage_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "IDLE_S", 0.2)
    ledger, frozen = (
        create(tmp_path, storage_url),
        storage.open_database(tmp_path / "sweep.postgresql"),
    )
    term = begin(ledger)
    with pytest.raises(tables.Interrupted), frozen.writing() as writer:
        writer.execute("DELETE FROM events")
        ledger.append(term, [created(0)])  # which has the lock only when that one was cut off
    assert len(ledger.read()) == 2


def test_a_server_that_restarts_is_waited_for(tmp_path: Path, own_server: Server) -> None:
    ledger = create(tmp_path, own_server.database())
    term = begin(ledger)
    own_server.stop()
    starting = threading.Thread(target=own_server.start)
    late = threading.Timer(0.5, starting.start)
    late.start()
    ledger.append(term, [created(0)])
    late.join()
    starting.join()
    assert len(ledger.read()) == 2


def test_a_driver_that_stood_still_for_long_connects_again_before_it_gives_up(
    tmp_path: Path, own_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = create(tmp_path, own_server.database())
    term = begin(ledger)
    own_server.stop()
    own_server.start()
    monkeypatch.setattr(postgres, "PATIENCE_S", -1.0)  # over before anything is heard
    assert len(ledger.append(term, [created(0)])) == 1


def test_a_server_that_does_not_come_back_is_one_sentence(
    tmp_path: Path, own_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "PATIENCE_S", 0.0)
    ledger = create(tmp_path, own_server.database())
    term = begin(ledger)
    own_server.stop()
    with pytest.raises(tables.Unreachable, match=r"^the database postgresql") as refusal:
        ledger.append(term, [created(0)])
    assert refusal.value.exit_code == 4
    assert len(str(refusal.value).splitlines()) == 1


def test_a_server_that_hangs_is_given_up(
    tmp_path: Path, own_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "PATIENCE_S", 0.0)
    ledger = create(tmp_path, own_server.database())
    term = begin(ledger)
    monkeypatch.setattr(postgres, "HANG_S", 0.3)
    stopped = own_server.backends()
    for process in stopped:
        os.kill(process, signal.SIGSTOP)
    with pytest.raises(tables.Unreachable, match=r"has not answered for 0\.3 s"):
        ledger.append(term, [created(0)])
    for process in stopped:
        os.kill(process, signal.SIGCONT)


def test_a_server_whose_disk_is_full_loses_nothing(tmp_path: Path, own_server: Server) -> None:
    ledger = create(tmp_path, own_server.database())
    term = begin(ledger)
    own_server.stop()
    own_server.start(largest_file="4096")
    large = Created(0, {"lr": os.urandom(2**21).hex()}, {"lr": 0.1}, seen=1)
    with pytest.raises(StorageError, match=r"the database postgresql.* could not extend file"):
        ledger.append(term, [large])
    assert len(ledger.append(term, [created(0)])) == 1
    own_server.stop()
    own_server.start()
    assert len(ledger.append(term, [replace(large, trial=1)])) == 1
    assert len(ledger.read()) == 3


def test_a_server_without_a_place_is_waited_for_if_it_had_one_before(
    tmp_path: Path, own_server: Server
) -> None:
    url = own_server.database()
    ledger = create(tmp_path, url)
    ledger.close()
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(psycopg.OperationalError):
            for _ in range(99):
                stack.enter_context(own_server.admin())
        freed = threading.Timer(0.3, stack.close)
        freed.start()
        assert ledger.read() == []
        freed.join()


def test_an_older_server_is_refused(
    tmp_path: Path, storage_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "OLDEST", 99)
    with pytest.raises(
        StorageError, match=r"the server is PostgreSQL \d+, but 99 or newer is needed"
    ):
        create(tmp_path, storage_url)


@pytest.mark.parametrize(
    ("place", "why"),
    [("127.0.0.1:1/sweeps", "refused"), ("{server}/nowhere", 'database "nowhere" does not exist')],
)
def test_a_server_that_was_never_reached_is_one_line_at_once(
    here: Here, tmp_path: Path, server: Server, place: str, why: str, storage_url: str
) -> None:
    url = f"postgresql+psycopg://{place.format(server=storage_url.split('/')[2])}"
    code, out, err = here("run", write_spec(tmp_path), "--pool", "inline", "--storage", url)
    assert (code, out, len(err.splitlines())) == (4, "", 1)
    assert why in err
    assert not list(here.root.iterdir())


def test_two_writers_follow_each_other(tmp_path: Path, storage_url: str) -> None:
    ledgers = [create(tmp_path, storage_url), Ledger(tmp_path / "sweep.postgresql")]
    term = begin(ledgers[0])

    def write(index: int) -> None:
        for number in range(20):
            ledgers[index].append(term, [created(100 * index + number)])

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(write, range(2))) == [None, None]
    assert [record.number for record in ledgers[0].read()] == list(range(1, 42))


NEXT = """
import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade():
    op.create_table("notes", sa.Column("number", sa.Integer, primary_key=True))
    op.add_column("results", sa.Column("host", sa.String, nullable=True))
"""


def test_an_older_ledger_is_upgraded_in_one_transaction_and_a_copy_is_kept(
    tmp_path: Path, here: Here, server: Server, storage_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = sweeps.make(here.root, trials=2, trackers=[], storage=storage_url)
    sweeps.run(folder)
    scripts = tmp_path / "migrations"
    shutil.copytree(upgrade.SCRIPTS, scripts, ignore=shutil.ignore_patterns("__pycache__"))
    (scripts / "r0002_notes.py").write_text(NEXT + '    op.drop_table("nowhere")\n')
    monkeypatch.setattr(upgrade, "SCRIPTS", scripts)
    assert "of an earlier version" in here("status", "demo")[2]
    assert here("resume", "demo", "--pool", "inline")[0] == 4
    assert ledger_check.check(folder.ledger)[0].part == "schema"  # as it was
    (scripts / "r0002_notes.py").write_text(NEXT)
    code, _, err = here("resume", "demo", "--trials", 3, "--pool", "inline")
    assert code == 0, err
    _, copy = schemas(server, storage_url)
    assert f"was upgraded from revision 0001 to 0002; schema {copy} is a copy" in err
    assert here("verify", "demo")[0] == 0
    assert here("rm", "demo", "--yes")[0] == 0
    assert schemas(server, storage_url) == []


def test_drivers_of_several_sweeps_share_a_server(tmp_path: Path, storage_url: str) -> None:
    spec = write_spec(tmp_path)
    alone = sweeps.make(tmp_path / "alone", trackers=[])
    sweeps.run(alone)
    words = ("run", spec, "--pool", "inline", "--storage", storage_url, "--name")
    names = ("one", "two", "three")
    drivers = [start(*words, name, cwd=tmp_path) for name in names]
    for driver in drivers:
        assert driver.wait(300) == 0
        driver.communicate()
    for name in names:
        assert sweeps.decisions(Folder(tmp_path / "sweeps", name)) == sweeps.decisions(alone)


def test_what_psycopg_warns_of_is_not_said_to_who_types() -> None:
    said = (
        "import logging, sweep.ledger.postgres\n"
        "logging.getLogger('psycopg').warning('error ignored terminating a pipeline')"
    )
    ran = subprocess.run(
        [sys.executable, "-c", said], capture_output=True, check=True, cwd=Path(__file__).parents[3]
    )
    assert (ran.stdout, ran.stderr) == (b"", b"")
