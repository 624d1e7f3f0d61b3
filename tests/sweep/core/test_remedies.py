"""An error of a disk or database says what a person can do about it."""

import errno
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sweep.core.errors import StorageError, remedy, with_remedy
from sweep.ledger import tables
from sweep.ledger.folder import Folder
from sweep.operations.models import export, register
from sweep.operations.report import page
from sweep.operations.upkeep import cleaning
from tests.support import sweeps
from tests.support.command_line import Here
from trainables.checkpoint import disk


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (errno.ENOSPC, "No space left on device; free some space on that disk"),
        (errno.EROFS, "Read-only file system; use a disk that can be written to"),
        (errno.EACCES, "Permission denied; get permission to write there, or use another place"),
        (errno.ENOENT, "No such file or directory; create the folder that should contain it"),
        (errno.EIO, "Input/output error; remove the cause, then try again"),
    ],
)
def test_a_system_error_has_its_remedy(code: int, said: str) -> None:
    assert with_remedy(OSError(code, os.strerror(code))) == said


def test_a_remedy_is_not_told_twice_nor_made_up() -> None:
    told = "use up; raise the limit on open files with `ulimit -n 1024`, or give fewer --jobs"
    assert remedy(OSError(errno.EMFILE, told)) == ""
    assert remedy(OSError(errno.ENOENT, "to be read")) == ""
    assert with_remedy(OSError("odd")) == "odd; remove the cause, then try again"


def test_a_report_in_no_folder_says_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"away/page\.html: No such file .*; create the folder"):
        page.write(tmp_path / "away" / "page.html", "")


def test_what_is_no_regular_file_is_to_be_moved_away(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("elsewhere")
    for name in ("pipe", "link", "."):
        with pytest.raises(disk.NotRegular, match=r"not a regular file, but .*; move it away$"):
            disk.open_file(tmp_path / name, os.O_RDONLY)


def test_a_full_database_says_to_free_space(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with (
        pytest.raises(StorageError, match=r"a\.db: database or disk is full; free some space"),
        tables.translate_errors(path),
        closing(sqlite3.connect(path)) as database,
    ):
        database.execute("PRAGMA max_page_count = 1")
        database.execute("CREATE TABLE t (x)")


def test_a_database_in_use_says_whom_to_wait_for(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with (
        closing(sqlite3.connect(path)) as other,
        pytest.raises(
            StorageError, match=r"a\.db: database is locked; another process uses the database"
        ),
        tables.translate_errors(path),
        closing(sqlite3.connect(path, timeout=0)) as database,
    ):
        other.execute("BEGIN EXCLUSIVE")
        database.execute("CREATE TABLE t (x)")


def test_a_server_that_cannot_be_reached_is_to_be_looked_after(tmp_path: Path) -> None:
    postgres = pytest.importorskip("sweep.ledger.postgres")
    pointer = postgres.Pointer("postgresql://127.0.0.1:1/sweeps", f"sweep_{'0' * 32}")
    database = postgres.Database(tmp_path / "ledger", pointer, patient=False)
    with closing(database), pytest.raises(tables.Unreachable) as told, database.reading():
        pass
    assert str(told.value).endswith(
        "; check that the server is running and that you can log in, then try again"
    )


def test_runs_that_cannot_be_deleted_may_be_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = sweeps.make(tmp_path, trackers=["mlflow"])
    folder.mlflow.write_text("not a database, " * 100)
    code, _, err = Here(capsys, tmp_path)("rm", "demo", "--yes", "--mlflow")
    assert code == 4
    assert "demo was not deleted, because its MLflow runs could not be deleted: " in err
    assert err.endswith("repair MLflow, or keep the runs with `sweep rm` without --mlflow\n")
    assert folder.ledger.is_file()


def test_a_damaged_file_of_mlflow_is_to_be_moved_away(tmp_path: Path) -> None:
    Folder(tmp_path, "").mlflow.write_text("not a database, " * 100)
    with (
        pytest.raises(StorageError, match=r"mlflow\.db: .*; if the file is damaged, move it away"),
        cleaning._mlflow_client(tmp_path) as client,
    ):
        client.search_experiments()


def test_a_model_that_mlflow_does_not_take_stays_where_it_is(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def export_model(*given: Any) -> dict[str, Any]:
        given[3].mkdir()
        return {"trial": 0, "files": {"onnx": "x"}}

    def refuse(*_: object) -> str:
        raise OSError("the server is away")

    sweeps.make(here.root)
    monkeypatch.setattr(export, "export_model", export_model)
    monkeypatch.setattr(register, "find_run", lambda *_: "run")
    monkeypatch.setattr(register, "_register_version", refuse)
    out, words = tmp_path / "out", ("export-model", "demo", "--register", "mine")
    said = "mine was not registered: the server is away; repair MLflow, then export again"
    code, _, err = here(*words, "--out", out)
    assert (code, out.is_dir()) == (4, True)
    assert f"{said}; the model is in {out}, so give another --out\n" in err
    code, _, err = here(*words)
    assert (code, f"{said}\n" in err) == (4, True)
