"""A ledger's tables over the releases: one line of revisions, walked by who holds the sweep."""

import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from sweep.core.errors import StorageError, UsageError
from sweep.ledger import lease, tables, upgrade
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.operations.upkeep import ledger_check
from sweep.operations.upkeep.ledger_check import Remedy
from tests.support import sweeps
from tests.support.command_line import Here, environment, write_spec
from tests.support.processes import run_python
from trainables.core.failpoints import UPGRADE_PLACES

#: A revision that adds a table, and a column to a copy of a table that takes its place.
NEXT = """
import sqlalchemy as sa
from alembic import op

from trainables.core import failpoints

revision = "0002"
down_revision = "0001"


def upgrade():
    op.create_table("notes", sa.Column("number", sa.Integer, primary_key=True))
    failpoints.reach("halfway")
    with op.batch_alter_table("results", recreate="always") as results:
        results.add_column(sa.Column("host", sa.String, nullable=True))
"""
COMMAND = """
import sys
from pathlib import Path
from sweep.ledger import upgrade
from sweep.cli.main import main
upgrade.SCRIPTS = Path(sys.argv[1])
sys.exit(main(sys.argv[2:]))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A finished sweep of today."""
    made = sweeps.make(tmp_path / "sweeps", trials=3, trackers=[])
    sweeps.run(made)
    return made


@pytest.fixture
def next_scripts(tmp_path: Path) -> Path:
    """The revisions of a release to come."""
    scripts = tmp_path / "migrations"
    scripts.mkdir()
    for script in upgrade.SCRIPTS.glob("*.py"):
        (scripts / script.name).write_text(script.read_text())
    (scripts / "r0002_notes.py").write_text(NEXT)
    return scripts


@pytest.fixture
def released(folder: Folder, next_scripts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program is the one of that release from now on; the sweep was made before."""
    monkeypatch.setattr(upgrade, "SCRIPTS", next_scripts)


@pytest.fixture
def here(folder: Folder, capsys: pytest.CaptureFixture[str]) -> Here:
    return Here(capsys, folder.root)


def dump(path: Path) -> list[str]:
    """Everything in a ledger but who holds it."""
    with closing(sqlite3.connect(path)) as database:
        return [line for line in database.iterdump() if 'INTO "lease"' not in line]


def events(folder: Folder) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(folder.ledger)) as database:
        return database.execute("SELECT * FROM events ORDER BY k").fetchall()


def revision(folder: Folder) -> str:
    with closing(tables.opened(folder.ledger)) as connection:
        return upgrade.read_revision(connection)


def table_names(folder: Folder) -> set[str]:
    with closing(sqlite3.connect(folder.ledger)) as database:
        names = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        return {name for (name,) in names}


# ---- the scripts ------------------------------------------------------------------------------


def test_the_scripts_make_exactly_the_tables_of_today(tmp_path: Path) -> None:
    upgrade.run_scripts(tmp_path / "new.db", lambda _connection: None)
    with closing(tables.opened(tmp_path / "new.db")) as connection:
        assert upgrade.read_revision(connection) == upgrade.known_revisions()[-1]
    created = Ledger.create(tmp_path / "created.db", "demo", "{}", {})
    assert shape(created.path) == shape(tmp_path / "new.db")


def shape(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Every table with its columns, and every index with what it is over, as SQLite sees them."""
    with closing(sqlite3.connect(path)) as database:
        found = database.execute("SELECT name, type FROM sqlite_master ORDER BY 1").fetchall()
        return {
            name: list(database.execute(f"PRAGMA {kind}_info('{name}')")) for name, kind in found
        }


@pytest.mark.slow
def test_a_new_sweep_does_not_wait_for_alembic(tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from sweep.ledger.ledger import Ledger
Ledger(Ledger.create(Path("sweep.db"), "demo", "{}", {}).path)
sys.exit("alembic" in sys.modules)
"""
    run_python(code, cwd=tmp_path)


# ---- an older ledger --------------------------------------------------------------------------


@pytest.mark.usefixtures("released")
def test_who_only_looks_at_an_older_ledger_is_told_what_to_do(folder: Folder, here: Here) -> None:
    for command in ("status", "show", "best", "results"):
        code, out, err = here(command, "demo", *([0] if command == "show" else []))
        assert (code, out) == (2, "")
        assert "has revision 0001 of an earlier version" in err
        assert f"`sweep verify {folder.in_commands} --repair`" in err
        assert len(err.splitlines()) == 1
    assert "earlier version" in here("ls")[2]
    assert revision(folder) == "0001"


@pytest.mark.usefixtures("released")
def test_resuming_brings_an_older_ledger_up_to_date_and_keeps_a_copy(
    folder: Folder, here: Here
) -> None:
    before = dump(folder.ledger)
    code, _, err = here("resume", "demo", "--trials", 4, "--pool", "inline")
    assert code == 0
    assert "sweep.db was upgraded from revision 0001 to 0002; sweep.db.0001 is a copy" in err
    assert "notes" in table_names(folder)
    assert dump(folder.path / "sweep.db.0001") == before
    assert [len(sweeps.curve(folder, trial)) > 0 for trial in range(4)] == [True] * 4
    assert here("verify", "demo")[0] == 0
    assert {path.name for path in folder.path.iterdir()} >= {"sweep.db", "sweep.db.0001"}
    assert not [path for path in folder.path.iterdir() if path.name.endswith(".new")]


@pytest.mark.usefixtures("released")
def test_verify_names_an_older_ledger_and_repairs_it(folder: Folder, here: Here) -> None:
    (damage,) = ledger_check.check(folder.ledger)
    assert (damage.part, damage.remedy) == ("schema", Remedy.UPGRADE)
    before = events(folder)
    assert here("verify", "demo")[0] == 6
    code, out, _ = here("verify", "demo", "--repair")
    assert code == 0
    assert "repaired: sweep.db was upgraded from revision 0001 to 0002" in out
    assert events(folder) == before
    assert here("verify", "demo")[0] == 0


@pytest.mark.usefixtures("released")
def test_nobody_upgrades_beside_a_driver(folder: Folder, here: Here) -> None:
    before = dump(folder.ledger)
    with folder.lock():
        assert here("resume", "demo")[0] == 3
        assert here("verify", "demo", "--repair")[0] == 3
    assert dump(folder.ledger) == before


@pytest.mark.slow
@pytest.mark.parametrize("place", [*UPGRADE_PLACES, "halfway"])
def test_an_upgrade_that_was_killed_leaves_the_old_ledger_whole(
    folder: Folder, here: Here, next_scripts: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = dump(folder.ledger)
    child = [sys.executable, "-c", COMMAND, str(next_scripts), "verify", "demo", "--repair"]
    variables = {
        "SWEEP_FAILPOINT": f"{place}:1:self",
        "SWEEP_FAILPOINT_FILE": str(folder.root / "count"),
    }
    killed = subprocess.run(
        child, cwd=folder.root.parent, env=environment() | variables, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    assert dump(folder.ledger) == before
    assert here("verify", "demo")[0] == 0  # with the program that made it
    monkeypatch.setattr(upgrade, "SCRIPTS", next_scripts)
    code, out, _ = here("verify", "demo", "--repair")
    assert (code, revision(folder)) == (0, "0002"), out
    assert dump(folder.path / "sweep.db.0001") == before


def test_a_script_that_fails_leaves_the_old_ledger_whole(
    folder: Folder, next_scripts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = dump(folder.ledger)
    script = next_scripts / "r0002_notes.py"
    script.write_text(NEXT + '    op.drop_table("nowhere")\n')
    monkeypatch.setattr(upgrade, "SCRIPTS", next_scripts)
    with pytest.raises(StorageError, match="no such table: nowhere; `sweep verify`"):
        upgrade.upgrade(folder.ledger, lease.read_file(folder.ledger).term)
    assert dump(folder.ledger) == before


def test_where_no_copy_can_be_made_nothing_is_upgraded(
    folder: Folder, next_scripts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upgrade, "SCRIPTS", next_scripts)
    (folder.path / "sweep.db.0001").mkdir()
    with pytest.raises(
        StorageError,
        match=r"cannot copy the ledger, which is unchanged, to .*sweep\.db\.0001: .*; ",
    ):
        upgrade.upgrade(folder.ledger, lease.read_file(folder.ledger).term)
    assert revision(folder) == "0001"


# ---- a newer one ------------------------------------------------------------------------------


def test_a_ledger_of_a_newer_program_is_refused_by_everyone(folder: Folder, here: Here) -> None:
    with closing(sqlite3.connect(folder.ledger)) as database, database:
        database.execute("UPDATE sweep_schema SET version_num = '0417'")
    with pytest.raises(
        UsageError,
        match="has revision 0417, but this version of sweep knows only revisions up to 0001",
    ):
        Ledger(folder.ledger)
    before = dump(folder.ledger)
    for words in (("resume", "demo"), ("status", "demo"), ("sync", "demo"), ("best", "demo")):
        code, out, err = here(*words)
        assert (code, out, len(err.splitlines())) == (2, "", 1)
        assert "use the version that wrote it, or a newer one" in err
    for option in ((), ("--repair",)):
        code, out, _ = here("verify", "demo", *option)
        assert code == 6
        assert "0417" in out
    assert dump(folder.ledger) == before


def test_a_new_sweep_takes_no_copy_of_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = write_spec(tmp_path, trials=1)
    assert Here(capsys, tmp_path / "sweeps")("run", spec, "--pool", "inline")[0] == 0
    assert not list((tmp_path / "sweeps" / "demo").glob("sweep.db.*"))
