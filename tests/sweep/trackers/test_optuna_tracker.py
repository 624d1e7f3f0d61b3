import json
import math
import os
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import optuna
import pytest
import sqlalchemy as sa
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState

from sweep.driver.tracking import sync
from sweep.history.events import Created, End, Recorded, Status
from sweep.ledger.ledger import Ledger
from sweep.spec.space import Space
from sweep.trackers._shared.optuna_storage import DRAFT, OUTDATED, Storage, place
from sweep.trackers.optuna import Tracker
from tests.support import sweeps
from tests.support.command_line import Here
from tests.support.events import Story, publish_with, row, rows
from tests.support.processes import run_python
from tests.support.shares import share_everything

STATES = {
    Status.WAITING: TrialState.WAITING,
    Status.RUNNING: TrialState.RUNNING,
    Status.PAUSED: TrialState.RUNNING,
    Status.COMPLETED: TrialState.COMPLETE,
    Status.PRUNED: TrialState.PRUNED,
    Status.STOPPED: TrialState.PRUNED,
    Status.FAILED: TrialState.FAIL,
}


@pytest.fixture
def story(tmp_path: Path) -> Story:
    root = tmp_path / "odd ?#%41{x} é"
    root.mkdir()
    return Story.create(root)


publish = partial(publish_with, Tracker)


def url(story: Story) -> str:
    """As docs/storage.md says it is given to Optuna's own commands."""
    folder = story.where.folder
    if server := os.environ.get("SWEEP_STORAGE"):
        return f"{server}?options=-csearch_path%3Dsweep_{story.where.sweep_id}_optuna"
    path = str(folder.optuna)
    return sa.URL.create("sqlite", database=path).render_as_string(hide_password=False)


def stored(story: Story) -> RDBStorage:
    """The study as Optuna opens it, with no connection that stays open."""
    return RDBStorage(url(story), engine_kwargs={"poolclass": sa.NullPool})


def load(story: Story) -> optuna.Study:
    return optuna.load_study(study_name="demo", storage=stored(story))


def names(story: Story) -> list[str]:
    return optuna.get_all_study_names(stored(story))


def values_of(trial: FrozenTrial) -> dict[int, float | None]:
    """Intermediate values; None for NaN, so that they compare."""
    return {s: None if math.isnan(v) else v for s, v in trial.intermediate_values.items()}


def assert_whole(story: Story) -> None:
    """The study holds the ledger's trials and metric values, and nothing else."""
    copied = load(story).get_trials(deepcopy=False)
    trials = story.history.trials
    assert [trial.number for trial in copied] == [trial.number for trial in trials]
    for trial, copy in zip(trials, copied, strict=True):
        results = story.ledger.results(trial.number)
        expected = {
            int(r.metrics["timesteps_total"]): float(r.metrics["info/score"]) for r in results
        }
        assert values_of(copy) == expected
        pruned = copy.values is not None and STATES[trial.status] is TrialState.PRUNED
        assert copy.state is (TrialState.COMPLETE if pruned else STATES[trial.status])
        assert copy.user_attrs["status"] == trial.status
        assert copy.user_attrs["settings"] == trial.searched
        assert copy.user_attrs["reason"] == trial.reason
    assert names(story) == ["demo"]


# ---- what stands there --------------------------------------------------------------------------


def test_on_a_share_the_file_needs_no_memory_of_one_machine(
    story: Story, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    share_everything(monkeypatch, tmp_path)
    story.tell(Created(0, {"lr": 0.1}, {}, 0))
    publish(story)
    with closing(sqlite3.connect(story.where.folder.optuna)) as database:
        assert database.execute("PRAGMA journal_mode").fetchone() == ("delete",)


@pytest.mark.usefixtures("either_database")
def test_the_study_holds_every_trial_under_its_number_with_its_curve_and_its_state(
    told: Story,
) -> None:
    publish(told)
    assert_whole(told)


def test_the_study_says_whose_copy_it_is(told: Story) -> None:
    publish(told)
    study = load(told)
    assert study.direction is optuna.study.StudyDirection.MAXIMIZE
    assert study.user_attrs == {
        "sweep_id": told.where.sweep_id,
        "metric": "info/score",
        "trainable": "tests.support.quadratic:Quadratic",
        "note": "a copy: written by sweep, read by you",
    }


def test_a_completed_trial_has_its_score_as_its_value_and_a_pruned_one_its_last_number(
    told: Story,
) -> None:
    publish(told)
    trials = load(told).get_trials()
    score = told.history.trials[0].score
    assert [trial.value for trial in trials] == [score, pytest.approx(2 - 1 / 3), None, 3.0, None]
    assert [trial.state.name for trial in trials][1::2] == ["COMPLETE", "COMPLETE"]
    assert [trial.user_attrs["status"] for trial in trials][1::2] == ["PRUNED", "STOPPED"]
    assert load(told).best_trial.number == 3


def test_optunas_plots_show_every_trial_that_ended_with_a_value(story: Story) -> None:
    """Their data, as each backend of plots gets it; of importances, that they tell apart."""
    from optuna.importance import get_param_importances
    from optuna.visualization import _edf, _optimization_history, _rank, _slice

    story.begin(trials=8)
    for number in range(8):
        story.start(number, lr=10.0 ** -(number / 4 + 1), layers=1 + number % 4)
        ends = Status.COMPLETED if number == 7 else Status.PRUNED
        story.close(number, ends, rows(number, 1, 1 + number % 2))
    publish(story)
    study, values = load(story), [trial.score for trial in story.history.trials]
    (history,) = _optimization_history._get_optimization_history_info_list([study], None, "", False)
    assert history.values_info.values == values
    assert all(len(s.x) == 8 for s in _slice._get_slice_plot_info(study, None, None, "").subplots)
    (edf,) = _edf._get_edf_info([study], None, "").lines
    assert {round(8 * y) for y in edf.y_values} == set(range(1, 9))
    assert len(_rank._get_rank_info(study, None, None, "").zs) == 8
    assert len(set(get_param_importances(study).values())) > 1


def test_a_pruned_trial_has_the_value_that_optuna_itself_would_give_it(story: Story) -> None:
    curves: list[list[float]] = [[], [1.0, 0.5], [2.0, math.nan], [1.0, math.inf]]
    own = optuna.create_study(direction="maximize")
    story.begin()
    for number, curve in enumerate(curves):
        trial = own.ask()
        for i, value in enumerate(curve, start=1):
            trial.report(value, i)
        own.tell(trial, state=TrialState.PRUNED)
        told = [row(number, i, **{"info/score": value}) for i, value in enumerate(curve, start=1)]
        story.start(number)
        story.close(number, Status.PRUNED, told)
    publish(story)
    copied = load(story).get_trials()
    assert [trial.values for trial in copied] == [trial.values for trial in own.get_trials()]
    assert Tracker(story.where).differences() == []


@pytest.mark.slow
def test_the_studys_metrics_have_their_names(told: Story) -> None:
    publish(told)
    assert load(told).metric_names == ["info/score"]


@pytest.mark.slow
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_a_trial_has_the_dates_of_the_ledger_whenever_it_is_copied_and_wherever(
    told: Story, monkeypatch: pytest.MonkeyPatch, zone: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", zone)
        time.tzset()
        assert_dates(told)
    time.tzset()


def assert_dates(told: Story) -> None:
    for k in range(1, len(told.records) + 1):
        publish(told, k, k)
    for trial, copy in zip(told.history.trials, load(told).get_trials(), strict=True):
        for date, seconds in (
            (copy.datetime_start, trial.started_at),
            (copy.datetime_complete, trial.ended_at),
        ):
            assert date == (None if seconds is None else datetime.fromtimestamp(seconds))


def test_a_bred_trial_has_its_parent_as_an_attribute_and_others_have_none(told: Story) -> None:
    told.breed(5, parent=0)
    told.close(5, Status.PAUSED, rows(5, 10, 12))
    publish(told)
    assert_whole(told)
    parents = [trial.user_attrs.get("parent") for trial in load(told).get_trials()]
    assert parents == [None, None, None, None, None, 0]


@pytest.mark.parametrize(
    ("choices", "shown"),
    [
        (["relu", "tanh"], ["relu", "tanh"]),
        ([1, 2.5, "2", False, None], [1, 2.5, "2", False, None]),
        (["[1]", [1]], None),
        ([[1], {"a": 2}, "[2]"], ["[1]", '{"a":2}', "[2]"]),
    ],
)
@pytest.mark.parametrize("kind", ["choice", "ordinal"])
def test_choices_stand_as_they_are_where_optuna_tells_them_apart(
    story: Story, kind: str, choices: list[Any], shown: list[Any] | None
) -> None:
    space = Space.parse({"x": {kind: choices}})
    story.where = replace(story.where, spec=story.where.spec.model_copy(update={"space": space}))
    story.begin()
    for number, value in enumerate(choices):
        story.tell(Created(number, {"x": value}, {"x": value}, seen=0))
    publish(story)
    trials = load(story).get_trials()
    expected = [json.dumps(c, separators=(",", ":")) for c in choices] if shown is None else shown
    found = [trial.params["x"] for trial in trials]
    assert [(type(one), one) for one in found] == [(type(one), one) for one in expected]
    assert [trial.user_attrs["settings"]["x"] for trial in trials] == choices
    assert Tracker(story.where).differences() == []


def test_lists_are_json_and_the_attribute_has_the_real_values(told: Story) -> None:
    publish(told)
    trials = load(told).get_trials()
    assert [trial.params["net"] for trial in trials[:3]] == ["[64,64]", None, True]
    assert [trial.user_attrs["settings"]["net"] for trial in trials[:3]] == [[64, 64], None, True]
    assert trials[0].user_attrs["checkpoint"] == "ckpt-9"


def test_a_trial_without_a_slice_waits_and_one_without_an_end_runs(story: Story) -> None:
    story.begin()
    story.tell(Created(0, {"lr": 0.1}, {"lr": 0.1}, seen=0))
    story.start(1)
    tracker = Tracker(story.where)
    tracker.publish(story.records)
    assert [trial.state.name for trial in load(story).get_trials()] == ["WAITING", "RUNNING"]
    seen = len(story.records)
    story.go_on(0)
    tracker.publish(story.records[seen:])
    assert load(story).get_trials()[0].state is TrialState.RUNNING
    tracker.close()


def test_a_completed_trial_without_a_score_has_failed_in_optunas_words(story: Story) -> None:
    story.begin()
    story.start(0)
    story.close(0, Status.COMPLETED, [row(0, 1, **{"info/score": "none"})], End.DONE)
    publish(story)
    (trial,) = load(story).get_trials()
    assert (trial.state, trial.value, values_of(trial)) == (TrialState.FAIL, None, {})


def test_nan_and_infinite_values_of_the_metric_are_kept(story: Story) -> None:
    story.begin()
    story.start(0)
    odd = (math.nan, math.inf, -math.inf)
    told = [row(0, i, **{"info/score": value}) for i, value in enumerate(odd, start=1)]
    story.close(0, Status.FAILED, told, End.CRASHED)
    tracker = Tracker(story.where)
    tracker.publish(story.records)
    tracker.publish(story.records)
    tracker.close()
    assert values_of(load(story).get_trials()[0]) == {100: None, 200: math.inf, 300: -math.inf}


# ---- while it is written ------------------------------------------------------------------------


def test_the_study_can_be_loaded_after_every_event(told: Story) -> None:
    tracker = Tracker(told.where)
    for record in told.records:
        tracker.publish([record])
        assert load(told).user_attrs["sweep_id"] == told.where.sweep_id
    tracker.close()
    assert_whole(told)


def test_a_batch_of_events_is_one_transaction(story: Story) -> None:
    """However many trials it is about: a reader sees all of it or nothing."""
    story.begin(trials=9)
    for number in range(9):
        story.start(number)
    publish(story)
    for number in range(8):
        story.close(number, Status.COMPLETED, rows(number, 1, 3), End.DONE)
    seen, commits = len(story.records), list[object]()
    tracker = Tracker(story.where)
    tracker.publish(story.records)
    story.close(8, Status.PRUNED, rows(8, 1, 3))
    story.start(9)
    heard = commits.append
    sa.event.listen(sa.Engine, "commit", heard)
    try:
        tracker.publish(story.records[seen:])
    finally:
        sa.event.remove(sa.Engine, "commit", heard)
        tracker.close()
    assert len(commits) == 1
    assert_whole(story)


def test_a_reader_in_the_midst_of_reading_holds_nobody_up(told: Story) -> None:
    publish(told, 1, 6)
    count = "SELECT count(*) FROM trials"
    with closing(sqlite3.connect(told.where.folder.optuna)) as reader:
        reader.execute("BEGIN")
        assert reader.execute(count).fetchone() == (2,)
        publish(told, 7)
        assert reader.execute(count).fetchone() == (2,)
    assert_whole(told)


@pytest.mark.slow
def test_a_revived_trial_runs_again_and_no_reader_ever_misses_the_study(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    story.begin()
    for trial in range(3):
        story.start(trial)
        story.close(trial, Status.PAUSED, rows(trial, 1, 3))
        story.move(trial, Status.PRUNED)
    story.end()
    tracker = Tracker(story.where)
    tracker.publish(story.records)
    assert [t.user_attrs["status"] for t in load(story).get_trials()] == ["PRUNED"] * 3
    seen = len(story.records)
    story.begin(trials=6)
    for trial in range(3):
        story.move(trial, Status.PAUSED)
    story.go_on(1)
    read: list[int] = []
    for name in ("create", "write", "replace"):
        monkeypatch.setattr(Storage, name, reading(getattr(Storage, name), story, read))
    tracker.publish(story.records[seen:])
    assert read
    assert set(read) == {3}
    assert_whole(story)
    seen = len(story.records)
    story.close(1, Status.COMPLETED, rows(1, 4, 9), End.DONE)
    tracker.publish(story.records[seen:])
    tracker.close()
    assert_whole(story)


def reading(method: Any, story: Story, read: list[int]) -> Any:
    """`method`, after which the study is read."""

    def call(*args: Any) -> Any:
        answer = method(*args)
        read.append(len(load(story).get_trials()))
        return answer

    return call


# ---- crashes ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 3])
def test_pieces_that_come_again_after_a_crash_leave_the_same_study(told: Story, size: int) -> None:
    count = len(told.records)
    for first in range(1, count + 1, size):
        publish(told, first, first + size - 1)  # the process dies before it can remember
        publish(told, first, min(count, first + 2 * size - 1))
    assert_whole(told)
    ids = [trial._trial_id for trial in load(told).get_trials()]
    publish(told)
    assert [trial._trial_id for trial in load(told).get_trials()] == ids
    assert_whole(told)


@pytest.mark.slow
@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("survives", range(2))
def test_a_failure_in_the_midst_of_publishing_leaves_nothing_out_and_nothing_twice(
    told: Story, monkeypatch: pytest.MonkeyPatch, survives: int, written: bool
) -> None:
    tracker = Tracker(told.where)
    with monkeypatch.context() as patch, pytest.raises(ConnectionError):
        fail_after(patch, survives, written)
        tracker.publish(told.records)
    tracker.publish(told.records)
    tracker.close()
    assert_whole(told)


@pytest.mark.slow
@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("survives", range(3))
def test_a_failure_while_the_copy_is_made_anew_leaves_a_whole_study(
    told: Story, monkeypatch: pytest.MonkeyPatch, survives: int, written: bool
) -> None:
    publish(told)
    seen = len(told.records)
    told.move(1, Status.PAUSED)
    tracker = Tracker(told.where)
    with monkeypatch.context() as patch, pytest.raises(ConnectionError):
        fail_after(patch, survives, written)
        tracker.publish(told.records[seen:])
    assert len(load(told).get_trials()) == 5
    tracker.publish(told.records[seen:])
    tracker.close()
    assert_whole(told)


def fail_after(patch: pytest.MonkeyPatch, survives: int, written: bool) -> None:
    """Let that many writes through, then fail before the next one, or when it is `written`."""
    left = [survives]

    def counted(method: Any) -> Any:
        def call(*args: Any) -> Any:
            left[0] -= 1
            if left[0] < 0 and not written:
                raise ConnectionError
            answer = method(*args)
            if left[0] < 0:
                raise ConnectionError
            return answer

        return call

    for name in ("create", "write", "replace"):
        patch.setattr(Storage, name, counted(getattr(Storage, name)))


@pytest.mark.usefixtures("either_database")
def test_what_a_crash_left_behind_is_swept_up(told: Story) -> None:
    publish(told, 1, 6)
    storage = Storage(place(told.where.folder))
    for leftover in (DRAFT, OUTDATED):
        storage.create(leftover.format("demo"), ["maximize"], {})
    storage.close()
    publish(told, 7)
    assert_whole(told)


@pytest.mark.usefixtures("either_database")
def test_what_a_power_cut_took_from_the_copy_is_written_again(told: Story) -> None:
    publish(told)
    engine = sa.create_engine(url(told))
    with engine.begin() as connection:
        connection.execute(sa.text("DELETE FROM trial_intermediate_values WHERE step > 200"))
    engine.dispose()
    seen = len(told.records)
    told.close(4, Status.PAUSED, rows(4, 1, 2))
    publish(told, seen + 1)
    assert_whole(told)


@pytest.mark.usefixtures("either_database")
def test_iterations_that_are_run_again_stand_there_as_in_the_ledger(story: Story) -> None:
    story.begin()
    story.start(0)
    story.close(0, Status.PAUSED, rows(0, 1, 4), End.CRASHED)
    tracker = Tracker(story.where)
    tracker.publish(story.records)
    seen = len(story.records)
    story.go_on(0)
    again = [row(0, 3, **{"info/score": 7.0})]  # it went another way, and less far
    story.close(0, Status.FAILED, again, End.CRASHED, source=2)
    tracker.publish(story.records[seen:])
    tracker.close()
    assert_whole(story)


def test_events_can_be_published_from_any_thread(told: Story) -> None:
    tracker = Tracker(told.where)
    halves: list[list[Recorded]] = [told.records[:8], told.records[8:]]
    for half in halves:
        thread = threading.Thread(target=tracker.publish, args=(half,))
        thread.start()
        thread.join()
    tracker.close()
    assert_whole(told)


def test_optunas_best_trial_breaks_no_constraint(tmp_path: Path) -> None:
    limits = {"constraints": {"loss": ">= 0.2"}, "scheduler": "fifo", "deterministic": None}
    folder = sweeps.make(tmp_path, **limits)
    sweeps.run(folder)
    sweeps.copy_to_optuna(folder)
    trials = sweeps.history(folder).trials
    least = min(trials, key=lambda trial: trial.score or 0.0)
    storage = RDBStorage(
        sa.URL.create("sqlite", database=str(folder.optuna)).render_as_string(False),
        engine_kwargs={"poolclass": sa.NullPool},
    )
    study = optuna.load_study(study_name="demo", storage=storage)
    best = sweeps.history(folder).highest  # Optuna goes by the scores
    assert best is not None
    assert not least.feasible
    assert study.best_trial.number == best.number
    assert study.trials[least.number].constraints == {"loss": least.violations[0]}


def test_a_study_is_made_without_a_word_of_optunas(tmp_path: Path) -> None:
    code = """
import optuna
from sweep.trackers._shared import optuna_copy
print(optuna.logging.get_verbosity() == optuna.logging.WARNING)
"""
    assert run_python(code, cwd=tmp_path) == "True\n"


def test_a_renamed_sweep_finds_its_study_among_others_in_the_file(tmp_path: Path) -> None:
    with closing(Storage(tmp_path / "studies.db")) as storage:
        storage.create("another", ["maximize"], {"sweep_id": "b"})
        own = storage.create("before", ["maximize"], {"sweep_id": "a"})
        storage.rename("after", "a")
        assert storage.find("after") == own
        storage.rename("another", "a")  # a name that is taken
        assert storage.find("after") == own


# ---- on the server of the ledger ----------------------------------------------------------------


def test_the_study_of_a_ledger_on_a_server_lies_there_too(
    tmp_path: Path, storage_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    here = Here(capsys, tmp_path / "sweeps")
    folder = sweeps.make(here.root, trials=3, trackers=["optuna"], storage=storage_url)
    sweeps.run(folder)
    sync.send(folder, lambda _said: None, 600.0)
    assert not folder.optuna.exists()
    with closing(Ledger(folder.ledger)) as ledger:
        schema = f"sweep_{ledger.sweep_id}_optuna"
    address = f"{storage_url}?options=-csearch_path%3D{schema}"
    command = [str(Path(sys.executable).with_name("optuna")), "trials", "--study-name", "demo"]
    words = ["--storage", address, "--format", "json"]  # Optuna's own command
    shown = subprocess.run([*command, *words], check=True, capture_output=True, cwd=tmp_path)
    assert len(json.loads(shown.stdout)) == 3
    assert here("verify", "demo")[1].startswith("demo is intact")
    engine = sa.create_engine(address, poolclass=sa.NullPool)
    for damage in ("DELETE FROM trial_values", f"DROP SCHEMA {schema} CASCADE"):
        with engine.begin() as connection:
            connection.execute(sa.text(damage))
        code, out, _ = here("verify", "demo")
        assert (code, "optuna" in out) == (6, True), out
        code, out, _ = here("verify", "demo", "--repair")
        assert (code, "optuna was sent" in out) == (0, True), out
        assert here("verify", "demo")[0] == 0
    assert here("rm", "demo", "--yes")[0] == 0
    with engine.connect() as connection:
        left = "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'sweep%'"
        assert connection.execute(sa.text(left)).scalar() == 0


@pytest.mark.usefixtures("either_database")
def test_a_step_may_be_larger_than_the_numbers_that_optuna_thought_of(story: Story) -> None:
    story.begin()
    story.start(0)
    far = row(0, 3, timesteps_total=3_000_000_000)
    story.close(0, Status.PAUSED, [far])
    publish(story)
    assert list(values_of(load(story).trials[0])) == [3_000_000_000]


def test_a_study_that_was_begun_in_a_file_goes_on_there(
    tmp_path: Path, storage_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = sweeps.make(tmp_path, trials=2, trackers=["optuna"], storage=storage_url)
    with monkeypatch.context() as earlier:
        earlier.setattr(
            "sweep.trackers._shared.optuna_storage._schema_on_server", lambda _folder: None
        )
        sweeps.run(folder)
        sync.send(folder, lambda _said: None, 600.0)
    sweeps.run(folder, trials=4)
    sync.send(folder, lambda _said: None, 600.0)
    study = optuna.load_study(study_name="demo", storage=f"sqlite:///{folder.optuna}")
    assert len(study.trials) == 4
