"""kill -9 at every kind of place: the resumed sweep equals the one that was never killed.

`test_kills` kills at instants that nobody chose.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import mlflow
import optuna
import psutil
import pytest
from optuna.storages import RDBStorage
from sqlalchemy.pool import NullPool

from sweep.driver.tracking import sync
from sweep.history.events import Closed, End, Status
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.trackers import Comparable
from tests.support import sweeps
from tests.support.quadratic import expected_loss
from tests.support.waiting import wait_until
from trainables.core import rng
from trainables.core.failpoints import PLACES

SWEEP = Path(sys.executable).parent / "sweep"
#: Place → how often a sweep passes it at least; kills are drawn from these.
PASSES = {
    "decided": 5,
    "submitted": 12,
    "stepping": 20,
    "checkpoint half written": 15,
    "checkpoint whole": 15,
    "recorded": 15,
    "published": 2,
}
#: Places that a worker passes; the others are the driver's.
IN_WORKER = {"stepping", "checkpoint half written", "checkpoint whole"}
#: The driver's places → the first time at which there are workers to kill.
FIRST_WITH_WORKERS = {"decided": 2, "submitted": 1, "recorded": 2, "published": 1}
#: Slow enough for a kill to land inside a slice; the curve is known.
SPEC = """
name: demo
trials: 9
trainable: tests.support.quadratic:Quadratic
metric: loss
mode: min
config: {{noise: 0.1, step_s: 0.01}}
space: {{lr: {{loguniform: [0.001, 0.9]}}}}
stop: {{training_iteration: 9}}
scheduler: {{name: asha, grace_period: 1, reduction_factor: 3}}
trackers: [{trackers}]
seed: 7
{more}
"""
DETERMINISTIC = "deterministic: {batch: 4}"


def draw_kills() -> list[tuple[str, int]]:
    """The same draw in every run: (place, how many times it is passed before the kill)."""
    stream = rng.generator(20260101, "kills")
    return [(place, int(stream.integers(1, PASSES[place], endpoint=True))) for place in PLACES]


KILLS = draw_kills()
#: Places at which this driver is killed in the slow tests; other tests here kill it at the others.
FIRST = {"decided", "stepping", "checkpoint half written", "recorded"}


def kills(places: set[str]) -> list[Any]:
    """Return the cases of all places, of which those that are not in `places` are proofs."""
    return [
        pytest.param(place, count, marks=[] if place in places else [pytest.mark.proof])
        for place, count in KILLS
    ]


class Runner:
    """The command line, as a person would use it."""

    def __init__(self, root: Path) -> None:
        root.mkdir(exist_ok=True)
        self.root = root
        self.folder = Folder(root / "sweeps", "demo")

    def run(self, spec: str, failpoint: str | None = None, pool: str = "loky") -> int:
        (self.root / "space.yaml").write_text(spec)
        return self._call(["run", "space.yaml", "--jobs", "2", "--pool", pool], failpoint)

    def resume(self, pool: str = "loky") -> int:
        return self._call(["resume", "demo", "--jobs", "2", "--pool", pool], None)

    def evaluate_finally(self, failpoint: str | None = None) -> int:
        return self._call(["best", "demo", "--test-seeds", "3", "--jobs", "2"], failpoint)

    def _call(self, arguments: list[str], failpoint: str | None) -> int:
        environment: dict[str, str] = {**os.environ, "PYTHONPATH": str(Path.cwd())}
        counter = self.root / "count"
        if failpoint is not None:
            counter.unlink(missing_ok=True)
            environment |= {"SWEEP_FAILPOINT": failpoint, "SWEEP_FAILPOINT_FILE": str(counter)}
        done = subprocess.run(
            [SWEEP, *arguments],
            cwd=self.root,
            env=environment,
            capture_output=True,
            timeout=240,
            check=False,
        )
        if done.returncode not in (0, 130, -signal.SIGKILL):
            raise AssertionError(done.stderr.decode())
        return done.returncode


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """The sweep that nobody killed."""
    runner = Runner(tmp_path_factory.mktemp("straight"))
    assert runner.run(SPEC.format(trackers="optuna", more=DETERMINISTIC)) == 0
    return runner.folder


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    yield Runner(tmp_path)
    wait_until(lambda: not processes_of(tmp_path))  # the reaper ends after its driver


def processes_of(root: Path) -> list[psutil.Process]:
    """Processes whose working directory is `root`, whoever their parent is now."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.cwd() == str(root) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("place", "count"), kills(FIRST))
def test_a_killed_driver_is_resumed_as_if_nothing_had_happened(
    runner: Runner, straight: Folder, place: str, count: int
) -> None:
    victim = "parent" if place in IN_WORKER else "self"
    code = runner.run(
        SPEC.format(trackers="optuna", more=DETERMINISTIC), f"{place}:{count}:{victim}"
    )
    assert code == -signal.SIGKILL
    wait_until(lambda: not processes_of(runner.root))
    if not runner.folder.ledger.exists():
        pytest.fail("the sweep was killed before it existed")
    assert runner.resume() == 0
    assert sweeps.decisions(runner.folder) == sweeps.decisions(straight)
    assert_left_clean(runner.folder)
    assert_optuna_agrees(runner.folder)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["submitted", pytest.param("recorded", marks=pytest.mark.proof)])
def test_a_killed_driver_goes_on_as_well_where_its_ledger_is_in_postgresql(
    runner: Runner,
    straight: Folder,
    place: str,
    storage_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SWEEP_STORAGE", storage_url)
    test_a_killed_driver_is_resumed_as_if_nothing_had_happened(
        runner, straight, place, PASSES[place] // 2
    )
    assert runner.folder.ledger.name == "sweep.postgresql"


@pytest.mark.slow
@pytest.mark.parametrize(("place", "count"), kills(IN_WORKER - {"checkpoint whole"}))
def test_a_killed_worker_costs_only_its_own_trial_one_slice(
    runner: Runner, straight: Folder, place: str, count: int
) -> None:
    in_worker = place in IN_WORKER
    count = count if in_worker else max(count, FIRST_WITH_WORKERS[place])
    victim = "self" if in_worker else "worker"
    spec = SPEC.format(trackers="optuna", more=DETERMINISTIC)
    assert runner.run(spec, f"{place}:{count}:{victim}") == 0
    assert len((runner.root / "count").read_bytes()) >= count
    assert sweeps.decisions(runner.folder) == sweeps.decisions(straight)
    events = [record.event for record in Ledger(runner.folder.ledger).read()]
    lost = [e for e in events if isinstance(e, Closed) and e.end is End.LOST]
    assert len(lost) == 1 if in_worker else len(lost) <= 1
    assert_left_clean(runner.folder)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["stepping", pytest.param("recorded", marks=pytest.mark.proof)])
def test_without_batches_every_curve_is_still_the_uninterrupted_one(
    runner: Runner, place: str
) -> None:
    victim = "parent" if place in IN_WORKER else "self"
    spec = SPEC.format(trackers="optuna", more="limits: {slice_s: 0.03}")
    assert runner.run(spec, f"{place}:7:{victim}") == -signal.SIGKILL
    wait_until(lambda: not processes_of(runner.root))
    assert runner.resume() == 0
    past = sweeps.history(runner.folder)
    assert [trial.number for trial in past.trials] == list(range(9))
    for trial in past.trials:
        seed = rng.integer(7, "trial", trial.number, 0)
        rows = sweeps.curve(runner.folder, trial.number)
        assert [row.iteration for row in rows] == list(range(1, trial.iteration + 1))
        for row in rows:
            assert row.metrics["loss"] == expected_loss(trial.config, row.iteration, seed)


SEEDS = """
name: demo
trials: 4
trainable: tests.support.quadratic:Quadratic
metric: loss
mode: min
config: {noise: 2.0, step_s: 0.01}
space: {lr: {loguniform: [0.001, 0.9]}}
stop: {training_iteration: 4}
scheduler: {name: asha, reduction_factor: 2}
seeds: 3
deterministic: {batch: 4}
trackers: []
seed: 7
"""


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A sweep of trials with several seeds, and its final evaluation, that nobody killed."""
    runner = Runner(tmp_path_factory.mktemp("several"))
    assert (runner.run(SEEDS), runner.evaluate_finally()) == (0, 0)
    return runner.folder


def seed_by_seed(folder: Folder) -> list[tuple[int, int, Status, object, object]]:
    past = sweeps.history(folder)
    return [
        (
            replica.trial,
            replica.index,
            replica.status,
            sweeps.final_state(folder, replica),
            sweeps.curve(folder, replica.trial, replica.index),
        )
        for replica in [*past.replicas(*Status), *past.test_replicas(*Status)]
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("search", "final_evaluation"),
    [
        pytest.param("decided:3:self", "submitted:3:self", marks=pytest.mark.proof),
        ("stepping:15:parent", "checkpoint whole:9:parent"),
    ],
)
def test_trials_with_several_seeds_and_final_evaluations_are_resumed_bit_for_bit(
    runner: Runner, several: Folder, search: str, final_evaluation: str
) -> None:
    assert runner.run(SEEDS, search) == -signal.SIGKILL
    wait_until(lambda: not processes_of(runner.root))
    assert runner.resume() == 0
    assert runner.evaluate_finally(final_evaluation) == -signal.SIGKILL
    wait_until(lambda: not processes_of(runner.root))
    assert runner.evaluate_finally() == 0
    assert seed_by_seed(runner.folder) == seed_by_seed(several)
    assert_left_clean(runner.folder)


#: The same with seeds that join their trials on the rungs.
CLIMBING = SEEDS.replace("seeds: 3", "seeds: {1: 3}")


@pytest.mark.slow
def test_seeds_that_join_on_the_rungs_are_killed_and_resumed_to_the_bit(tmp_path: Path) -> None:
    straight = Runner(tmp_path / "straight")
    assert straight.run(CLIMBING) == 0
    whole = seed_by_seed(straight.folder)
    assert {index for _, index, *_ in whole} == {0, 1, 2}
    killed = Runner(tmp_path / "killed")
    assert killed.run(CLIMBING, "checkpoint whole:10:parent") == -signal.SIGKILL
    wait_until(lambda: not processes_of(killed.root))
    assert killed.resume() == 0
    assert seed_by_seed(killed.folder) == whole
    assert_left_clean(killed.folder)


@pytest.mark.slow
@pytest.mark.parametrize("count", [pytest.param(1, marks=pytest.mark.proof), 3])
def test_mlflow_misses_nothing_and_has_nothing_twice(runner: Runner, count: int) -> None:
    spec = SPEC.format(trackers="mlflow, optuna", more="")
    assert runner.run(spec, f"published:{count}:self") == -signal.SIGKILL
    wait_until(lambda: not processes_of(runner.root))
    assert runner.resume() == 0
    assert_mlflow_agrees(runner.folder)
    assert_optuna_agrees(runner.folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    "place", ["published:4:self", pytest.param("recorded:9:self", marks=pytest.mark.proof)]
)
def test_files_of_results_have_each_row_once_after_a_kill(runner: Runner, place: str) -> None:
    names = ("csv", "json", "tensorboard")
    spec = SPEC.format(trackers=", ".join(names), more="")
    assert runner.run(spec, place) == -signal.SIGKILL
    wait_until(lambda: not processes_of(runner.root))
    assert runner.resume() == 0
    made = sync.load_trackers(sync.tracker_context(runner.folder))
    assert set(made) == set(names)
    for tracker in made.values():
        assert isinstance(tracker, Comparable)
        assert tracker.differences() == []
    lines = [*runner.folder.logs.glob("*/result.json")]
    assert len(lines) == len(sweeps.history(runner.folder).trials)


@pytest.mark.slow
@pytest.mark.parametrize(("pool", "times"), [("loky", 2), ("inline", 1)])
def test_ctrl_c_once_or_twice_leaves_a_sweep_that_goes_on_as_if_nothing_had_happened(
    runner: Runner, pool: str, times: int
) -> None:
    spec = f"""
name: demo
trials: 3
trainable: tests.support.mishaps:Interrupts
metric: loss
mode: min
config: {{noise: 0.1, times: {times}, child: {"true" if pool == "loky" else "false"},
  marker: "{runner.root}/interrupted"}}
space: {{lr: {{loguniform: [0.001, 0.9]}}}}
stop: {{training_iteration: 9}}
trackers: []
seed: 7
"""
    assert runner.run(spec, pool=pool) == 130
    assert {t.iteration for t in sweeps.history(runner.folder).trials} != {9}
    assert runner.resume(pool=pool) == 0
    for trial in sweeps.history(runner.folder).trials:
        seed = rng.integer(7, "trial", trial.number, 0)
        losses = [row.metrics["loss"] for row in sweeps.curve(runner.folder, trial.number)]
        assert losses == [expected_loss(trial.config, k, seed) for k in range(1, 10)]


def assert_left_clean(folder: Folder) -> None:
    """Every file of ours is named by the ledger, and every named file is there."""
    past = sweeps.history(folder)
    for replica in [*past.replicas(*Status), *past.test_replicas(*Status)]:
        named = {saved.file for saved in replica.checkpoints.values()}
        found = {p.name for p in folder.trial(replica.trial, replica.index).iterdir()}
        assert named == {name for name in found if name.endswith(".swck")}
        assert not [name for name in found if name.startswith(".tmp")]


def assert_optuna_agrees(folder: Folder) -> None:
    if server := os.environ.get("SWEEP_STORAGE"):
        with contextlib.closing(Ledger(folder.ledger)) as ledger:
            url = f"{server}?options=-csearch_path%3Dsweep_{ledger.sweep_id}_optuna"
    else:
        url = f"sqlite:///{folder.optuna}"
    storage = RDBStorage(url, engine_kwargs={"poolclass": NullPool})
    study = optuna.load_study(study_name="demo", storage=storage)
    words = {Status.COMPLETED: "COMPLETE", Status.PRUNED: "COMPLETE", Status.FAILED: "FAIL"}
    copied = [(t.number, t.state.name, t.params) for t in study.trials]
    expected = [(t.number, words[t.status], t.searched) for t in sweeps.history(folder).trials]
    assert copied == expected


def assert_mlflow_agrees(folder: Folder) -> None:
    client = mlflow.MlflowClient(f"sqlite:///{folder.mlflow}")
    experiment = client.get_experiment_by_name("demo")
    runs = {
        int(run.data.tags["sweep.trial"]): run
        for run in client.search_runs([experiment.experiment_id])
        if "sweep.trial" in run.data.tags
    }
    words: Mapping[Status, str] = {Status.COMPLETED: "FINISHED", Status.PRUNED: "FINISHED"}
    trials = sweeps.history(folder).trials
    assert sorted(runs) == [trial.number for trial in trials]
    for trial in trials:
        run = runs[trial.number]
        assert run.info.status == words[trial.status]
        losses = client.get_metric_history(run.info.run_id, "loss")
        rows = sweeps.curve(folder, trial.number)
        sent = sorted((metric.step, metric.value) for metric in losses)
        assert sent == [(row.metrics["timesteps_total"], row.metrics["loss"]) for row in rows]
