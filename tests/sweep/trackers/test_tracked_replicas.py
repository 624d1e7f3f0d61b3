"""What stands in MLflow and in Optuna's tables of trials with several seeds, row by row."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

import optuna
import pytest

from sweep import spec as specs
from sweep.driver.final_evaluation import FinalEvaluation, FinalEvaluator
from sweep.driver.start import launch
from sweep.driver.start.launch import Launch
from sweep.history.events import (
    Closed,
    Created,
    End,
    Goal,
    Moved,
    Opened,
    Recorded,
    Row,
    Status,
    TermEnded,
)
from sweep.history.history import History
from sweep.history.seeds import FIRST_TEST, is_test, seed_of
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.trackers import Tracker, TrackerContext, mlflow
from sweep.trackers import optuna as optuna_tracker
from sweep.trackers._shared.groups import Curve
from sweep.trackers._shared.mlflow_store import PARENT, connect
from sweep.views import reading
from tests.support import sweeps
from tests.support.events import SETTINGS, Story, row

pytestmark = pytest.mark.filterwarnings(
    "ignore:The ``noload`` loader strategy:sqlalchemy.exc.SADeprecationWarning"
)


@dataclass
class Run:
    """A run as it stands in MLflow's tables."""

    id: str
    name: str
    status: str
    tags: dict[str, str]
    params: dict[str, str]
    rows: dict[tuple[str, int], float]
    """(key, step) → value; each stands there once, but for a score, of which it is the newest."""


@pytest.fixture(scope="module")
def grouped(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A sweep with three seeds a trial, and a final evaluation of its best two."""
    return swept(tmp_path_factory.mktemp("grouped"), seeds=3)


@pytest.fixture(scope="module")
def climbed(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    root = tmp_path_factory.mktemp("climbed")
    plan = {1: 2, 3: 3}
    return swept(root, seeds=plan, scheduler="asha", config={"noise": 2.0})


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return swept(tmp_path_factory.mktemp("alone"))


def swept(root: Path, **changes: Any) -> Folder:
    stop = {"training_iteration": 3}
    folder = sweeps.make(root, trials=4, stop=stop, searcher="random", **changes)
    sweeps.run(folder)
    with launch.open_context(
        Launch(folder, 1, "inline", final_evaluation=FinalEvaluation(2, 2))
    ) as (
        parts,
        _,
    ):
        FinalEvaluator(parts, lambda _: None).run()
    return folder


def where(folder: Folder) -> TrackerContext:
    with closing(Ledger(folder.ledger)) as ledger:
        spec = specs.from_json(ledger.spec)
        objective = reading.history(ledger).objective
        return TrackerContext(folder, ledger.sweep_id, "demo", ledger.created_at, spec, objective)


def records(folder: Folder) -> list[Recorded]:
    return Ledger(folder.ledger).read()


def publish(tracker: type[Tracker], folder: Folder, size: int) -> None:
    """In pieces of that many events, each by a process that has just started, each twice."""
    known = records(folder)
    for start in range(0, len(known), size):
        for _ in range(2):
            with closing(tracker(where(folder))) as begun:
                begun.publish(known[start : start + size])


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MLflow's tables without a run: making them takes seconds."""
    folder = sweeps.make(tmp_path_factory.mktemp("tables"))
    connect(where(folder)).close()
    with closing(sqlite3.connect(folder.mlflow)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return folder.mlflow


def copied(folder: Folder, tables: Path, root: Path, size: int) -> dict[str, Run]:
    """The runs of the sweep in a new database; MLflow keeps one open that it has seen."""
    moved = Folder(root / "moved", folder.name)
    shutil.copytree(folder.path, moved.path)
    shutil.copy(tables, moved.mlflow)
    publish(mlflow.Tracker, moved, size)
    return runs(moved)


def runs(folder: Folder) -> dict[str, Run]:
    """Name → run; every run stands there once."""
    with closing(sqlite3.connect(folder.mlflow)) as database:
        found = [
            Run(
                run,
                name,
                status,
                dict(_of(database, "SELECT key, value FROM tags", run)),
                dict(_of(database, "SELECT key, value FROM params", run)),
                _rows(_of(database, "SELECT key, step, value, timestamp FROM metrics", run)),
            )
            for run, name, status in database.execute("SELECT run_uuid, name, status FROM runs")
        ]
    names = [run.tags.get("sweep.run", run.tags.get("sweep.trial", "")) for run in found]
    assert len(set(names)) == len(names)
    return dict(zip(names, found, strict=True))


def _of(database: sqlite3.Connection, query: str, run: str) -> list[Any]:
    return database.execute(f"{query} WHERE run_uuid = ?", (run,)).fetchall()


def _rows(found: list[Any]) -> dict[tuple[str, int], float]:
    once = [(key, step) for key, step, _value, _time in found if not key.endswith("score")]
    assert len(set(once)) == len(once)
    return {(key, step): value for key, step, value, _ in sorted(found, key=itemgetter(3))}


def losses(run: Run) -> dict[int, float]:
    return {step: value for (key, step), value in run.rows.items() if key == "loss"}


def ledgers(folder: Folder, trial: int, replica: int) -> dict[int, Any]:
    rows = Ledger(folder.ledger).results(trial, replica)
    return {10 * row.iteration: row.metrics["loss"] for row in rows}


def scores_as_they_came(folder: Folder) -> dict[tuple[str, int], float]:
    """(trial, steps) → score when a trial last came to rest there."""
    return {(str(n), steps): score for _, n, steps, score in _rests(folder)}


def scored(folder: Folder) -> list[tuple[int, int]]:
    """Event and trial of each score that differs from the one before it."""
    newest: dict[int, tuple[int, float]] = {}
    found = []
    for k, number, *score in _rests(folder):
        if newest.get(number) != (now := (int(score[0]), score[1])):
            newest[number] = now
            found.append((k, number))
    return found


def _rests(folder: Folder) -> Iterator[tuple[int, int, int, float]]:
    """Event, trial, steps and score wherever a trial came to rest."""
    past = History(where(folder).objective)
    for record in records(folder):
        past.extend([record])
        event = record.event
        if isinstance(event, Closed | Moved) and not is_test(event.replica):
            trial = past.trials[event.trial]
            if (
                trial.milestones
                and trial.milestones[-1].event == record.number
                and trial.score is not None
            ):
                yield record.number, trial.number, 10 * trial.iteration, trial.score


def assert_whole(folder: Folder, found: dict[str, Run]) -> None:
    """Every seed and test has its rows, and every trial its scores; nothing else is there."""
    past = sweeps.history(folder)
    expected = {"", *(str(trial.number) for trial in past.trials)}
    for trial in past.trials:
        for replica in [*trial.replicas, *trial.test_replicas]:
            test = is_test(replica.index)
            index = replica.index - FIRST_TEST if test else replica.index
            name = f"{trial.number}.test{index}" if test else f"{trial.number}.{index}"
            expected.add(name)
            run = found[name]
            assert losses(run) == ledgers(folder, trial.number, replica.index)
            assert run.tags[PARENT] == found[str(trial.number)].id
            assert run.tags["sweep.seed_index"] == str(index)
            assert run.tags["sweep.seed"] == str(seed_of(7, trial.number, replica.index))
            assert run.tags["sweep.status"] == replica.status
            assert ("sweep.test" in run.tags) is test
        scores = {
            (number, step): value
            for number in (str(t.number) for t in past.trials)
            for (key, step), value in found[number].rows.items()
            if key == "score"
        }
    assert set(found) == expected
    assert scores == scores_as_they_came(folder)


@pytest.mark.slow
@pytest.mark.parametrize("size", [1000, 3])
def test_each_seed_has_a_run_below_its_trials_which_has_their_aggregate(
    grouped: Folder, tables: Path, tmp_path: Path, size: int
) -> None:
    found = copied(grouped, tables, tmp_path, size)
    assert_whole(grouped, found)
    for trial in sweeps.history(grouped).trials:
        run = found[str(trial.number)]
        seeds = [ledgers(grouped, trial.number, index) for index in range(3)]
        together = {step: sum(s[step] for s in seeds) / 3 for step in seeds[0]}
        assert losses(run) == pytest.approx(together)
        assert run.tags["sweep.seeds"] == "3"
        assert "sweep.seed" not in run.tags
        assert run.params["lr"] == str(trial.searched["lr"])
        assert run.status == "FINISHED"
        assert run.name.startswith("pruned ") is (trial.status is Status.PRUNED)


def test_an_iteration_of_a_trial_is_as_late_as_the_last_of_its_seeds(
    grouped: Folder, tables: Path, tmp_path: Path
) -> None:
    found = copied(grouped, tables, tmp_path, 5)
    query = "SELECT key, step, timestamp, timestamp FROM metrics"
    with closing(sqlite3.connect(tmp_path / "moved" / "mlflow.db")) as database:
        times = {name: _rows(_of(database, query, run.id)) for name, run in found.items()}
    for trial in sweeps.history(grouped).trials:
        seeds = [times[f"{trial.number}.{index}"] for index in range(3)]
        latest = {place: max(s[place] for s in seeds) for place in seeds[0] if place[0] == "loss"}
        assert latest.items() <= times[str(trial.number)].items()
        assert len(set(latest.values())) == len(latest)


@pytest.mark.slow
def test_seeds_on_the_rungs_come_once_and_the_rows_that_came_first_stand(
    climbed: Folder, tables: Path, tmp_path: Path
) -> None:
    found = copied(climbed, tables, tmp_path, 4)
    assert_whole(climbed, found)
    several = [t for t in sweeps.history(climbed).trials if len(t.replicas) > 1]
    assert several
    for trial in several:
        first = ledgers(climbed, trial.number, 0)
        assert losses(found[str(trial.number)])[10] == first[10]
        assert found[str(trial.number)].tags["sweep.seeds"] == str(len(trial.replicas))


def test_a_score_is_sent_whatever_the_times_of_those_before_it(
    climbed: Folder, tables: Path, tmp_path: Path
) -> None:
    """As many milliseconds after the creation as the second one's event has stands the first."""
    dated = Folder(tmp_path, climbed.name)
    shutil.copytree(climbed.path, dated.path)
    trials = [trial for _, trial in scored(climbed)]
    again = next(trial for trial in trials if trials.count(trial) > 1)
    first, second, *_ = (k for k, trial in scored(climbed) if trial == again)
    with closing(sqlite3.connect(dated.ledger)) as database, database:
        database.execute("UPDATE sweep SET created_at = 1000.0")
        database.execute("UPDATE events SET at = 1000 + 0.001 * k * ? / ?", (second, first))
    assert_whole(dated, copied(dated, tables, tmp_path, 4))


def test_a_trials_newest_score_is_that_of_all_seeds_that_joined_it(
    climbed: Folder, tables: Path, tmp_path: Path
) -> None:
    """By it MLflow's page lists the trials best first."""
    copied(climbed, tables, tmp_path, 1000)
    query = (
        "SELECT tags.value, latest_metrics.value FROM latest_metrics JOIN tags USING (run_uuid) "
        "WHERE latest_metrics.key = 'score' AND tags.key = 'sweep.trial'"
    )
    with closing(sqlite3.connect(tmp_path / "moved" / "mlflow.db")) as database:
        found = dict(database.execute(query).fetchall())
    assert found == {str(t.number): t.score for t in sweeps.history(climbed).trials}


def test_a_trial_of_one_seed_has_one_run_and_its_tests_are_below_it(
    alone: Folder, tables: Path, tmp_path: Path
) -> None:
    found = copied(alone, tables, tmp_path, 5)
    past = sweeps.history(alone)
    tested = [trial for trial in past.trials if trial.test_replicas]
    names = {f"{trial.number}.test{index}" for trial in tested for index in range(2)}
    assert set(found) == {"", *(str(trial.number) for trial in past.trials), *names}
    for trial in past.trials:
        run = found[str(trial.number)]
        assert losses(run) == ledgers(alone, trial.number, 0)
        assert run.tags["sweep.seed_index"] == "0"
    ended = [r for r in records(alone) if isinstance(r.event, TermEnded)]
    assert found[""].status == "FINISHED"
    assert len(ended) == 1


@pytest.mark.slow
@pytest.mark.parametrize("size", [1000, 3])
def test_optunas_copy_has_the_aggregate_and_the_seeds_scores(grouped: Folder, size: int) -> None:
    assert_study_agrees(grouped, size)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_completed_seed_keeps_its_value_in_the_curve_of_its_trial(
    tmp_path: Path, order: tuple[int, int]
) -> None:
    """Its trial's score counts that value, so a curve that ended before would contradict it."""
    told = Story.create(tmp_path)
    told.begin()
    told.tell(Created(0, SETTINGS, SETTINGS, 0, replicas=2))
    told.tell(*(Opened(0, seed, 0, Goal(900.0, top=900.0), "a slot was free") for seed in order))
    rows = [[row(0, 1), row(0, 2)], [row(1, 1), row(1, 2), row(1, 3)]]  # scores 0, 0.5; 1, 1.5, 5/3
    for seed in order:
        done = (Status.COMPLETED, "a stopping criterion was met")
        told.tell(Closed(0, seed, 0, End.DONE, *done, rows=tuple(rows[seed])))
    expected = pytest.approx([0.5, 1.0, (0.5 + 5 / 3) / 2])

    past, curve = History(told.where.objective), Curve(told.where.objective)
    joint: list[Row] = []
    for record in told.records:
        past.extend([record])
        if isinstance(record.event, Closed):
            joint += curve.extend(past.trials[0], record.event)
    assert [one.iteration for one in joint] == [1, 2, 3]
    assert [one.metrics["info/score"] for one in joint] == expected
    assert joint[-1].metrics["info/score"] == pytest.approx(past.trials[0].score)

    with closing(optuna_tracker.Tracker(told.where)) as begun:
        begun.publish(told.records)
    study = optuna.load_study(study_name="demo", storage=f"sqlite:///{told.where.folder.optuna}")
    assert list(study.trials[0].intermediate_values) == [100, 200, 300]
    assert list(study.trials[0].intermediate_values.values()) == expected


@pytest.mark.slow
def test_optunas_copy_follows_seeds_on_the_rungs(climbed: Folder) -> None:
    assert_study_agrees(climbed, 4)


def assert_study_agrees(folder: Folder, size: int) -> None:
    folder.optuna.unlink(missing_ok=True)
    publish(optuna_tracker.Tracker, folder, size)
    study = optuna.load_study(study_name="demo", storage=f"sqlite:///{folder.optuna}")
    for copy, trial in zip(study.trials, sweeps.history(folder).trials, strict=True):
        values = copy.intermediate_values
        completed = trial.status is Status.COMPLETED
        assert copy.value == (trial.score if completed else values[max(values)])
        scores = [replica.score_at() for replica in trial.replicas]
        assert copy.user_attrs.get("scores", scores) == scores
        assert ("scores" in copy.user_attrs) is (len(scores) > 1)
        seeds = [ledgers(folder, trial.number, replica.index) for replica in trial.replicas]
        together = {step // 10: sum(s[step] for s in seeds) / len(seeds) for step in seeds[0]}
        assert copy.intermediate_values == pytest.approx(together)
