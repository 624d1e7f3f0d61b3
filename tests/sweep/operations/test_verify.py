"""Each thing that can be damaged, damaged on purpose in a real sweep with real copies."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sweep import trackers
from sweep.core.errors import StorageError, SweepLocked
from sweep.driver.tracking import sync
from sweep.history.events import End, Status
from sweep.ledger.folder import Folder
from sweep.operations.upkeep import repair as repairing
from sweep.operations.upkeep.ledger_check import Remedy
from sweep.operations.upkeep.repair import Mended
from sweep.operations.upkeep.verify import Verification, verify
from sweep.trackers import Comparable
from tests.support import sweeps
from tests.support.command_line import Here
from tests.support.events import Story, row, rows, tell_everything

# MLflow 3.17 uses a loader that SQLAlchemy 2.1 deprecates; it says so when its tables are imported.
pytestmark = pytest.mark.filterwarnings(
    "ignore:The ``noload`` loader strategy:sqlalchemy.exc.SADeprecationWarning"
)

PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of a finished sweep, copied to MLflow and Optuna."""
    root = tmp_path_factory.mktemp("whole")
    folder = sweeps.make(root, trials=5, trackers=["mlflow", "optuna"])
    assert sweeps.run(folder) == "finished"
    assert [sent.missing for sent in sync.send(folder, print, PATIENCE_S)] == [0, 0]
    for database in (folder.ledger, folder.optuna, folder.mlflow):
        execute(database, "PRAGMA wal_checkpoint(TRUNCATE)")
    return root


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Folder:
    root = tmp_path / "odd ?#%41{x} é"
    shutil.copytree(whole, root)
    return Folder(root, "demo")


def execute(database: Path, *statements: str) -> list[Any]:
    with closing(sqlite3.connect(database)) as connection, connection:
        return [connection.execute(statement).fetchall() for statement in statements][-1]


def told(found: Verification) -> list[tuple[str, str, Remedy]]:
    return [(damage.part, damage.place, damage.remedy) for damage in found.damages]


def repair(folder: Folder) -> Mended:
    mended = repairing.repair(folder, print)
    assert verify(folder) == mended.verification
    return mended


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def newest(folder: Folder, trial: int) -> Path:
    saved = sweeps.history(folder).trials[trial].replicas[0].newest_checkpoint
    assert saved is not None
    return folder.trial(trial) / saved.file


@pytest.mark.slow
def test_a_whole_sweep_has_nothing_to_tell(folder: Folder) -> None:
    found = verify(folder)
    assert (told(found), found.notes) == ([], ())
    assert found.checkpoints >= 5


def test_an_objective_that_is_called_score_is_no_trials_score_in_mlflow(tmp_path: Path) -> None:
    folder = sweeps.make(
        tmp_path, trials=1, scheduler="fifo", objectives={"score": "max"}, trackers=["mlflow"]
    )
    assert sweeps.run(folder) == "finished"
    assert [sent.missing for sent in sync.send(folder, print, PATIENCE_S)] == [0]
    assert verify(folder).damages == ()
    query = "SELECT key, count(*) FROM metrics WHERE key LIKE '%score' GROUP BY key ORDER BY key"
    assert execute(folder.mlflow, query) == [
        ("expected_score", 1),
        ("results/score", 9),
        ("score", 1),
    ]


def test_looking_changes_no_file(folder: Folder) -> None:
    def contents() -> dict[str, bytes]:
        files = (path for path in folder.root.rglob("*") if path.is_file())
        return {str(path): path.read_bytes() for path in files if "-shm" not in path.name}

    verify(folder)
    before = contents()
    verify(folder)
    assert contents() == before


# ---- checkpoints and files ----------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("how", ["flipped", "cut", "gone"])
def test_a_lost_checkpoint_is_named_and_a_resume_falls_back_after_its_repair(
    folder: Folder, how: str
) -> None:
    trials = sweeps.history(folder).trials
    number = next(one.number for one in trials if len(one.replicas[0].checkpoints) > 1)
    path = newest(folder, number)
    if how == "flipped":
        flip(path, path.stat().st_size // 2)
    elif how == "cut":
        path.write_bytes(path.read_bytes()[:-1])
    else:
        path.unlink()
    place = f"trials/{number}/{path.name}"
    assert told(verify(folder)) == [("checkpoints", place, Remedy.DROP)]
    mended = repair(folder)
    assert told(mended.verification) == []
    assert f"trial {number}: 1 lost checkpoints were dropped" in mended.repairs[0]
    assert not path.exists()
    assert newest(folder, number).exists()
    assert sweeps.run(folder, trials=6) == "finished"
    sync.send(folder, print, PATIENCE_S)
    assert told(verify(folder)) == []


def test_files_of_ours_that_no_row_names_are_found_and_foreign_ones_left_alone(
    folder: Folder,
) -> None:
    stray = folder.trial(1) / f"ckpt-0000000099-{'a' * 64}.swck"
    stray.write_bytes(b"x")
    foreign = folder.trial(1) / "notes.txt"
    foreign.write_text("mine")
    assert told(verify(folder)) == [("files", f"trials/1/{stray.name}", Remedy.SWEEP_UP)]
    assert told(repair(folder).verification) == []
    assert (stray.exists(), foreign.exists()) == (False, True)


def test_every_seed_of_a_trial_is_looked_at(folder: Folder) -> None:
    seeds = sweeps.make(folder.root, name="seeds", trials=2, seeds=2, trackers=["mlflow", "optuna"])
    assert sweeps.run(seeds) == "finished"
    sync.send(seeds, print, PATIENCE_S)
    assert told(verify(seeds)) == []
    saved = sweeps.history(seeds).trials[0].replicas[1].newest_checkpoint
    assert saved is not None
    (seeds.trial(0, 1) / saved.file).unlink()
    assert told(verify(seeds)) == [("checkpoints", f"trials/0.1/{saved.file}", Remedy.DROP)]
    assert told(repair(seeds).verification) == []


# ---- the ledger ---------------------------------------------------------------------------------


def test_statuses_that_differ_are_folded_from_the_events_again(folder: Folder) -> None:
    rows = execute(folder.ledger, "SELECT * FROM replicas ORDER BY 1, 2")
    execute(folder.ledger, "UPDATE replicas SET status = 'RUNNING' WHERE trial = 2")
    execute(folder.ledger, "DELETE FROM replicas WHERE trial = 3")
    assert told(verify(folder)) == [
        ("statuses", "trial 2", Remedy.STATUSES),
        ("statuses", "trial 3", Remedy.STATUSES),
    ]
    assert told(repair(folder).verification) == []
    assert execute(folder.ledger, "SELECT * FROM replicas ORDER BY 1, 2") == rows


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("DELETE FROM events WHERE k = 4", "events between them are missing"),
        ("UPDATE events SET epoch = 0 WHERE k = 5", "belongs to term 0"),
        ("UPDATE events SET body = '{' WHERE k = 5", "cannot be read"),
        ("UPDATE events SET kind = 'odd' WHERE k = 5", "cannot be read"),
        ("UPDATE sweep SET spec = '[]'", "its spec is not a mapping"),
        (
            "UPDATE events SET trial = 77, body = replace(body, '\"trial\":0', '\"trial\":77')"
            " WHERE kind = 'slice' AND trial = 0",
            "no event creates",
        ),
        ("UPDATE results SET metrics = '{' WHERE trial = 1 AND iteration = 1", "cannot be read"),
        ("INSERT INTO superseded VALUES (5, 0, 0, 1, '{')", "cannot be read"),
        ("DELETE FROM sweep", "0 sweeps"),
    ],
)
def test_damaged_events_are_told_and_nothing_is_derived_from_them(
    folder: Folder, statement: str, problem: str
) -> None:
    execute(folder.ledger, statement)
    damages = verify(folder).damages
    assert any(problem in damage.problem for damage in damages)
    assert all(damage.remedy is Remedy.NONE for damage in damages if damage.part == "ledger")
    assert repair(folder).verification.damages == damages


def test_a_move_that_is_not_allowed_is_told(folder: Folder) -> None:
    (k,) = execute(folder.ledger, "SELECT min(k) FROM events WHERE kind = 'outcome'")[0]
    with closing(sqlite3.connect(folder.ledger)) as connection, connection:
        found = connection.execute("SELECT body FROM events WHERE k = ?", (k,)).fetchone()
        body = json.dumps({**json.loads(found[0]), "status": "WAITING"})
        connection.execute("UPDATE events SET body = ? WHERE k = ?", (body, k))
    first = verify(folder).damages[0]
    assert (first.part, first.place) == ("ledger", f"event {k}")
    assert "RUNNING may not become WAITING" in first.problem


def test_damaged_pages_of_the_ledger_are_told(folder: Folder) -> None:
    content = bytearray(folder.ledger.read_bytes())
    content[4096 : 4096 + 200] = b"\xff" * 200
    folder.ledger.write_bytes(content)
    assert {damage.part for damage in verify(folder).damages} == {"ledger"}


@pytest.mark.parametrize(
    ("statement", "place"),
    [
        ("DELETE FROM results WHERE trial = 1 AND iteration = 1", "trial 1"),
        ("UPDATE results SET k = 1 WHERE trial = 1 AND iteration = 1", "trial 1, iteration 1"),
    ],
)
def test_results_that_no_slice_has_or_that_are_missing_are_told(
    folder: Folder, statement: str, place: str
) -> None:
    execute(folder.ledger, statement)
    found = [damage for damage in verify(folder).damages if damage.part == "results"]
    assert found[0].place == place


# ---- the copies ---------------------------------------------------------------------------------

OPTUNA = [
    "DELETE FROM trial_intermediate_values WHERE trial_id = 2",
    "UPDATE trial_intermediate_values SET intermediate_value = 5 WHERE trial_id = 1",
    "UPDATE trial_params SET param_value = 0.5 WHERE trial_id = 1",
    "UPDATE trials SET state = 'FAIL' WHERE trial_id = 1",
    "UPDATE studies SET study_name = 'other'",
    "DELETE FROM trial_user_attributes WHERE trial_id = 1",
]
MLFLOW = [
    "DELETE FROM metrics WHERE key = 'loss' AND timestamp = (SELECT min(timestamp) FROM metrics)",
    "UPDATE metrics SET value = value + 1 WHERE key = 'loss'",
    "UPDATE params SET value = '0.5' WHERE key = 'lr'",
    "UPDATE runs SET status = 'RUNNING'",
    "DELETE FROM params WHERE key = 'lr'",
    "DELETE FROM params WHERE key = 'noise'",
    "UPDATE metrics SET timestamp = timestamp - 5000 WHERE key = 'loss'",
    "UPDATE tags SET value = 'other' WHERE key = 'sweep.id'",
    "INSERT INTO metrics SELECT key, value + 1, timestamp, run_uuid, step, is_nan FROM metrics "
    "WHERE key = 'loss'",
]


@pytest.mark.slow
@pytest.mark.parametrize("statement", OPTUNA)
def test_a_study_that_differs_is_made_equal_again(folder: Folder, statement: str) -> None:
    execute(folder.optuna, statement)
    assert {(part, remedy) for part, _, remedy in told(verify(folder))} == {("optuna", Remedy.SEND)}
    assert told(repair(folder).verification) == []


@pytest.mark.slow
@pytest.mark.parametrize("statement", MLFLOW)
def test_runs_that_differ_are_made_equal_again(folder: Folder, statement: str) -> None:
    execute(folder.mlflow, statement)
    assert {(part, remedy) for part, _, remedy in told(verify(folder))} == {("mlflow", Remedy.SEND)}
    assert told(repair(folder).verification) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlflow", "optuna"])
def test_a_copy_that_is_gone_is_made_anew(folder: Folder, name: str) -> None:
    path = {"mlflow": folder.mlflow, "optuna": folder.optuna}[name]
    path.unlink()
    assert told(verify(folder)) == [(name, "copy", Remedy.SEND)]
    assert told(repair(folder).verification) == []


def test_a_damaged_study_file_is_made_anew(folder: Folder) -> None:
    folder.optuna.write_bytes(b"no database" * 1000)
    assert told(verify(folder)) == [("optuna", "copy", Remedy.SEND)]
    assert told(repair(folder).verification) == []


def test_a_damaged_file_of_all_sweeps_is_left_to_a_person(folder: Folder) -> None:
    folder.mlflow.write_bytes(b"no database" * 1000)
    assert told(verify(folder)) == [("mlflow", "copy", Remedy.SEND)]
    with pytest.raises(StorageError, match="move it away"):
        repair(folder)


def test_a_copy_that_misses_events_is_not_compared(folder: Folder) -> None:
    execute(folder.ledger, "UPDATE published SET k = k - 1 WHERE tracker = 'optuna'")
    found = verify(folder)
    assert told(found) == []
    assert "optuna was not compared: the copy lacks 1 events" in found.notes[0]


def test_a_tracker_that_is_said_to_have_what_never_was_is_sent_everything(folder: Folder) -> None:
    execute(folder.ledger, "UPDATE published SET k = 9999 WHERE tracker = 'mlflow'")
    assert ("mlflow", "published", Remedy.SEND) in told(verify(folder))
    assert told(repair(folder).verification) == []


@pytest.mark.parametrize("name", ["mlflow", "optuna"])
def test_rows_that_were_run_again_with_other_values_are_no_damage(
    folder: Folder, name: str
) -> None:
    story = Story.create(folder.root, "story")
    tell_everything(story)
    tracker = trackers.find(name)(story.where)
    assert isinstance(tracker, Comparable)
    tracker.publish(story.records)
    story.close(4, Status.PAUSED, rows(4, 1, 2), end=End.CRASHED)
    tracker.publish(story.records[-1:])
    assert tracker.differences() == []
    story.go_on(4)
    again = [row(4, iteration, **{"info/loss": 0.5}) for iteration in (1, 2, 3)]
    story.close(4, Status.PAUSED, again, source=0)
    tracker.publish(story.records[-2:])
    assert tracker.differences() == []


# ---- the command --------------------------------------------------------------------------------


def test_the_command_says_what_is_wrong_with_code_6_and_0_when_all_is_whole(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    here = Here(capsys, folder.root)
    assert here("verify", "demo")[:2][0] == 0
    newest(folder, 2).unlink()
    code, out, _ = here("verify", "demo")
    assert code == 6
    assert "checkpoints" in out
    code, out, _ = here("verify", "demo", "--json")
    assert (code, json.loads(out)["damages"][0]["remedy"]) == (6, "drop")
    code, out, _ = here("verify", "demo", "--repair")
    assert code == 0
    assert "repaired: trial 2" in out
    assert here("verify", "demo")[0] == 0


def test_beside_a_driver_a_look_is_allowed_and_a_repair_is_code_3(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    here = Here(capsys, folder.root)
    execute(folder.ledger, "UPDATE replicas SET status = 'RUNNING' WHERE trial = 2")
    with folder.lock():
        found = verify(folder)
        assert told(found) == [("statuses", "trial 2", Remedy.STATUSES)]
        assert "a driver is running" in found.notes[0]
        with pytest.raises(SweepLocked):
            repair(folder)
        assert here("verify", "demo", "--repair")[0] == 3
