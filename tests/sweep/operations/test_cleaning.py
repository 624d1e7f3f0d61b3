"""gc and rm: what goes, what stays, and that a kill in between leaves a whole sweep or none."""

import os
import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sweep.core.errors import StorageError
from sweep.ledger import hold, lease, storage
from sweep.ledger.folder import Folder
from sweep.operations.upkeep import cleaning
from sweep.operations.upkeep.verify import verify
from sweep.slices.store import SweepStore
from sweep.trackers._shared import mlflow_store
from sweep.trackers._shared.mlflow_store import FileStore
from tests.support import sweeps
from tests.support.command_line import Here, write_spec
from trainables.checkpoint.remote import RemoteError

#: Every checkpoint is kept, and no trial is stopped early.
HOARDING = {
    "scheduler": "fifo",
    "checkpoint": {"every": 1, "keep_last": 20, "keep_best": 20},
    "trackers": [],
    "trials": 4,
}


def checkpoints(folder: Folder) -> list[Path]:
    return sorted(folder.path.glob("trials/*/ckpt-*"))


def interrupted(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_gc_leaves_the_best_checkpoints_of_the_best_trials(here: Here) -> None:
    folder = sweeps.make(here.root, **HOARDING)
    assert sweeps.run(folder) == "finished"
    before = checkpoints(folder)
    (row,) = here.json("gc", "demo", "--keep", 2, "--dry-run")
    assert (row["checkpoints"], checkpoints(folder)) == (len(before) - 2, before)
    size = sum(path.stat().st_size for path in before)
    assert here.json("gc", "demo", "--keep", 2) == [row]
    left = checkpoints(folder)
    assert size - sum(path.stat().st_size for path in left) == row["bytes"]
    best = here.json("results", "demo")["trials"][:2]
    assert left == sorted(folder.path / trial["checkpoint"]["file"] for trial in best)
    assert verify(folder).damages == ()
    assert here.json("gc", "demo", "--keep", 2)[0]["checkpoints"] == 0


def test_a_sweep_goes_on_after_gc_as_if_nothing_had_gone(here: Here, tmp_path: Path) -> None:
    halving = {"checkpoint": HOARDING["checkpoint"], "trackers": []}
    whole, folder = sweeps.make(tmp_path / "whole", **halving), sweeps.make(here.root, **halving)
    assert sweeps.run(whole) == "finished"
    assert sweeps.drive(folder, kill_at=9) == "killed"
    assert here.json("gc", "demo", "--keep", 0)[0]["checkpoints"] > 0
    assert sweeps.run(folder) == "finished"
    assert sweeps.decisions(folder) == sweeps.decisions(whole)
    for trial in range(9):
        assert sweeps.curve(folder, trial) == sweeps.curve(whole, trial)


def test_gc_deletes_what_killed_processes_left(here: Here) -> None:
    folder = sweeps.make(here.root, **HOARDING)
    assert sweeps.run(folder) == "finished"
    old = folder.path / "sweep.db.0001"
    old.write_bytes(b"12345")
    foreign = folder.path / "notes.txt"
    foreign.write_text("mine")
    ended = here.root / ".other.removed-0123abcd"
    made_now = here.root / ".third.new-0123abcd-999999998"
    left = here.root / f".fourth.new-0123abcd-{os.getpid()}"
    for draft in (ended, made_now, left):
        draft.mkdir()
    for draft in (ended, left):
        os.utime(draft, (0, 0))
    assert here("gc", "--dry-run")[0] == 0
    assert old.exists()
    assert ended.exists()
    code, out, _ = here("gc")
    assert (code, ".other.removed-0123abcd: freed" in out) == (0, True)
    assert not old.exists()
    assert not ended.exists()
    assert not left.exists()  # though a process of its number lives, as it does in each container
    assert made_now.exists()
    assert foreign.read_text() == "mine"


def test_what_was_left_is_swept_away_by_its_age_and_blocks_nothing(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.root.mkdir()
    numbers = (os.getpid(), 999999999)  # one that is a process here, and one that is none
    stale, fresh = (
        [here.root / f".demo.new-0123abc{n}-{pid}" for pid in numbers] for n in range(2)
    )
    for draft in (*stale, *fresh):
        draft.mkdir()
    for draft in stale:
        os.utime(draft, (0, 0))
    for _ in range(2):
        folder = sweeps.make(here.root, **HOARDING)
        with monkeypatch.context() as patch:
            patch.setattr(shutil, "rmtree", interrupted)
            with pytest.raises(KeyboardInterrupt):
                cleaning.remove(folder)
    assert [path.exists() for path in (*stale, *fresh)] == [False, False, True, True]


def test_what_is_being_removed_is_as_old_as_its_removal(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = sweeps.make(here.root, **HOARDING)
    look = cleaning.check_removable
    look(folder)

    def looking(its: Folder) -> None:
        look(its)
        os.utime(its.path, (0, 0))

    monkeypatch.setattr(cleaning, "check_removable", looking)
    monkeypatch.setattr(shutil, "rmtree", interrupted)
    with pytest.raises(KeyboardInterrupt):
        cleaning.remove(folder)
    assert here.json("gc") == []
    assert len(list(here.root.glob(".demo.removed-*"))) == 1


def test_what_killed_processes_left_elsewhere_stops_no_gc(here: Here) -> None:
    here.root.mkdir()
    far, near = here.root / ".a.removed-0123abcd", here.root / ".b.removed-0123abcd"
    for draft in (far, near):
        draft.mkdir()
    (far / "sweep.postgresql").write_text('{"url": "postgresql://127.0.0.1:1/x", "schema": "y"}')
    for draft in (far, near):
        os.utime(draft, (0, 0))
    code, out, err = here("gc")
    assert (code, f"{near.name}: freed" in out) == (0, True)
    assert (
        f"{far.name} was skipped: {far}/sweep.postgresql: this file does not name the database"
        in err
    )
    assert (far.exists(), near.exists()) == (True, False)


def test_a_sweep_that_is_driven_is_neither_cleaned_nor_removed(here: Here) -> None:
    folder = sweeps.make(here.root, **HOARDING)
    with folder.lock():
        assert here("rm", "demo", "--yes")[0] == 3
        assert here("gc", "demo")[0] == 3
        code, _, err = here("gc")
    assert (code, "demo was skipped" in err) == (0, True)
    assert folder.ledger.exists()


def test_a_sweep_whose_driver_died_with_its_machine_is_removed_as_it_is_told(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = sweeps.make(here.root, **HOARDING)
    with (
        closing(storage.open_database(folder.ledger)) as database,
        database.writing() as connection,
    ):
        lease.take(connection)
    monkeypatch.setattr(lease, "this_host", lambda: lease.Host("this", "booted since"))
    monkeypatch.setattr(hold, "LEASE_S", 0.3)
    code, _, err = here("rm", "demo", "--yes")
    told = f"if that process no longer exists, `sweep gc {folder.in_commands}` takes the sweep over"
    assert (code, told in err) == (3, True)
    assert here("gc", "demo")[0] == 0
    assert here("rm", "demo", "--yes")[0] == 0
    assert not folder.path.exists()


def test_no_sweep_of_several_is_removed_if_one_has_a_driver(here: Here) -> None:
    free, held = (sweeps.make(here.root, name=name, trackers=[]) for name in ("free", "held"))
    with held.lock():
        code, out, err = here("rm", "free", "held", "--yes")
    assert (code, out, "held is in use" in err) == (3, "", True)
    assert free.ledger.exists()
    assert here("rm", "free", "held", "--yes")[0] == 0
    assert not free.path.exists()


def test_a_sweep_that_cannot_be_read_keeps_no_other_from_being_cleaned(here: Here) -> None:
    sweeps.make(here.root, name="broken").ledger.write_bytes(b"no database")
    whole = sweeps.make(here.root, name="whole")
    code, out, err = here("gc")
    assert (code, "broken was skipped" in err, f"{whole.name}: freed" in out) == (0, True, True)
    assert here("gc", "broken")[0] != 0


def test_the_folder_of_a_killed_removal_stays_until_the_server_has_deleted_its_ledger(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = here.root / ".demo.removed-0123abcd"
    sweeps.make(here.root).path.rename(gone)
    os.utime(gone, (0, 0))

    @contextmanager
    def losing(_: Path) -> Iterator[None]:
        yield
        raise StorageError("the server was lost at COMMIT")

    with monkeypatch.context() as patch:
        patch.setattr(storage, "removing", losing)
        code, _, err = here("gc")
    assert (code, "was skipped: the server was lost" in err, gone.exists()) == (0, True, True)
    os.utime(gone, (0, 0))
    here("gc")
    assert not gone.exists()


def test_a_storage_that_fails_is_reported_and_keeps_no_other_sweep_from_being_cleaned(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost, whole = sweeps.make(here.root, name="lost"), sweeps.make(here.root, name="whole")
    unnamed_files, list_sizes = SweepStore.unnamed_files, SweepStore.list_sizes

    def refuse(store: SweepStore, list_files: Any, *given: Any) -> Any:
        if store.folder.name == lost.name:
            raise RemoteError("s3://bucket", "no such bucket")
        return list_files(store, *given)

    monkeypatch.setattr(SweepStore, "unnamed_files", lambda it, h: refuse(it, unnamed_files, h))
    monkeypatch.setattr(SweepStore, "list_sizes", lambda it: refuse(it, list_sizes))
    for options in ((), ("--dry-run",)):
        code, out, err = here("gc", *options)
        assert (code, f"{whole.name}: " in out) == (0, True)
        assert re.search(
            r"lost was skipped: .*lost: s3://bucket: no such bucket; remove the cause", err
        )
    with pytest.raises(StorageError, match="no such bucket"):
        cleaning.clean(lost, print, 0, dry_run=False)
    with pytest.raises(StorageError, match="no such bucket"):
        cleaning.remove(lost)
    assert lost.path.exists()


def test_rm_deletes_a_sweep_and_nothing_else(here: Here) -> None:
    folder, other = sweeps.make(here.root, **HOARDING), sweeps.make(here.root, name="other")
    code, _, err = here("rm", "demo")
    assert (code, "--yes" in err, folder.path.exists()) == (2, True, True)
    code, out, _ = here("rm", "demo", "--yes")
    assert (code, out.startswith("demo: freed")) == (0, True)
    assert not folder.path.exists()
    assert [path.name for path in sorted(here.root.iterdir())] == [other.name]


def test_runs_of_a_removed_sweep_stay_in_mlflow_unless_they_are_to_go(
    here: Here, tmp_path: Path
) -> None:
    for name in ("kept", "gone", "other"):
        spec = write_spec(tmp_path, name=name, trials=2, trackers=["mlflow"])
        assert here("run", spec, "--pool", "inline")[0] == 0
    code, _, err = here("rm", "kept", "--yes")
    said = "sweep: the MLflow runs of kept were kept; give --mlflow to delete them too\n"
    assert (code, err) == (0, said)
    sweeps.make(here.root, name="elsewhere", trackers=["csv"])
    assert here("rm", "elsewhere", "--yes")[2] == ""
    code, out, err = here("rm", "gone", "--yes", "--mlflow")
    assert (code, "; 3 runs deleted in MLflow" in out, err) == (0, True, "")
    query = (
        "SELECT experiments.name, runs.lifecycle_stage, count(*) FROM runs "
        "JOIN experiments USING (experiment_id) GROUP BY 1, 2"
    )
    with closing(sqlite3.connect(here.root / "mlflow.db")) as database:
        found = sorted(database.execute(query).fetchall())
    assert found == [("gone", "deleted", 3), ("kept", "active", 3), ("other", "active", 3)]


@pytest.mark.slow
def test_gc_marks_deleted_in_mlflow_what_belongs_to_nothing_here_any_more(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("gone", "kept"):
        spec = write_spec(tmp_path, name=name, trials=1, trackers=["mlflow"], seeds=2)
        assert here("run", spec, "--pool", "inline")[0] == 0
    kept = Folder(here.root, "kept")
    shutil.copytree(kept.path, tmp_path / "backup")
    assert here("resume", "kept", "--trials", 2, "--pool", "inline")[0] == 0
    shutil.rmtree(kept.path)
    shutil.copytree(tmp_path / "backup", kept.path)
    assert here("rm", "gone", "--yes")[0] == 0
    client = mlflow_store.client_of(mlflow_store.store_url(kept))
    runs = {run: name for name in ("gone", "kept") for run in _active(client, name)}
    assert len(runs) == 4 + 7
    begun = {run for run, name in runs.items() if name == "gone"}
    for run, registered in zip(sorted(begun), (True, False, False), strict=False):
        made = client.create_logged_model(client.get_run(run).info.experiment_id, "model", run)
        if registered:
            client.create_registered_model("mine")
            client.create_model_version("mine", str(tmp_path / made.model_id), run)
    assert here("gc", "--mlflow")[0] == 2
    assert here("gc", "kept", "--mlflow", "--yes")[0] == 2
    rows = [(row["name"], row["runs"]) for row in here.json("gc", "--mlflow", "--dry-run")]
    assert sorted(rows[1:]) == [("gone", 4), ("kept", 3)]
    assert len(_active(client, "gone")) == 4
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("click.confirm", lambda *_, **__: False)
    code, _, err = here("gc", "--mlflow")
    said = "gone is no longer on this disk, but MLflow still has 4 runs, 2 models of it"
    assert (code, said in err) == (0, True)
    assert len(_active(client, "gone")) == 4
    code, out, _ = here("gc", "--mlflow", "--yes")
    assert (code, "; 3 runs deleted in MLflow" in out) == (0, True)
    assert (len(_active(client, "gone")), len(_active(client, "kept"))) == (0, 4)
    experiment = client.get_experiment_by_name("gone")
    assert len(client.search_logged_models([experiment.experiment_id])) == 1
    assert [row["name"] for row in here.json("gc", "--mlflow", "--yes")] == ["kept"]


def _active(client: Any, name: str) -> list[str]:
    runs = client.search_runs([client.get_experiment_by_name(name).experiment_id])
    return [run.info.run_id for run in runs]


def test_gc_deletes_nothing_in_mlflow_beside_a_sweep_that_cannot_be_read(
    here: Here, tmp_path: Path
) -> None:
    spec = write_spec(tmp_path, trials=1, trackers=["mlflow"])
    assert here("run", spec, "--pool", "inline")[0] == 0
    Folder(here.root, "demo").ledger.write_bytes(b"no database")
    assert here("gc", "--mlflow", "--yes")[0] == 4
    client = mlflow_store.client_of(mlflow_store.store_url(Folder(here.root, "demo")))
    assert len(_active(client, "demo")) == 2


def test_a_sweep_whose_runs_cannot_be_deleted_stays(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = write_spec(tmp_path, trials=1, trackers=["mlflow"])
    assert here("run", spec, "--pool", "inline")[0] == 0

    def refuse(*_: object) -> None:
        raise OSError("the server is away")

    monkeypatch.setattr(FileStore, "delete", refuse)
    code, _, err = here("rm", "demo", "--yes", "--mlflow")
    assert (code, "could not be deleted: the server is away" in err) == (4, True)
    assert Folder(here.root, "demo").ledger.exists()


def test_rm_of_a_damaged_sweep_works(here: Here) -> None:
    folder = sweeps.make(here.root, **HOARDING)
    folder.ledger.write_bytes(b"no database")
    assert here("rm", "demo", "--yes")[0] == 0
    assert not folder.path.exists()


def test_a_kill_while_a_sweep_is_removed_leaves_nothing_of_its_name(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = sweeps.make(here.root, **HOARDING)
    monkeypatch.setattr(shutil, "rmtree", interrupted)
    with pytest.raises(KeyboardInterrupt):
        cleaning.remove(folder)
    assert not folder.path.exists()
    assert here.json("ls") == []


def test_a_link_in_the_place_of_a_sweep_is_not_followed(here: Here, tmp_path: Path) -> None:
    sweeps.make(tmp_path / "elsewhere", **HOARDING)
    here.root.mkdir()
    (here.root / "demo").symlink_to(tmp_path / "elsewhere" / "demo")
    assert here("rm", "demo", "--yes")[0] == 2
    assert (tmp_path / "elsewhere" / "demo" / "sweep.db").exists()
