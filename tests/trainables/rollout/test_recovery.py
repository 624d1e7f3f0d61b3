import logging
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.trainers import differences, final_state, make
from tests.support.trainers import run as run_with_config
from trainables.algorithms.ppo import PPO
from trainables.core.processes.child import ChildProcess
from trainables.errors import EnvError, WorkerError
from trainables.rollout.batch import Sample
from trainables.rollout.workers.remote.recovery import RecoveryConfig, checked
from trainables.rollout.workers.remote.worker_set import ChildWorkers

TWO: dict[str, Any] = {"num_workers": 2, "train_batch_size": None, "evaluation_interval": None}
FAILING = "tests.support.failing_workers:Failing"
#: Steps of one worker in one iteration; one of its three environments makes 16 of them.
SHARE = 3 * 16
#: In the third iteration, with two more to come in the test.
IN_THE_MIDDLE = 37
#: Parts of a state that say what happens to the environment and where it leaves its marker.
OF_THE_MISHAP = ("/what/", "/marker/", "/1/remembered: ")


def failing(what: str, marker: Path | str = "", **settings: Any) -> PPO:
    """Worker 1 fails in the middle of its third iteration; always, where there is no marker."""
    at = settings.pop("at", IN_THE_MIDDLE)
    index = settings.pop("index", 1)
    env_config = {"what": what, "at": at, "marker": str(marker), "index": index}
    return make({**TWO, "env": FAILING, "env_config": env_config, **settings})


def run(trainer: PPO, iterations: int) -> list[dict[str, Any]]:
    """Results without the settings: those of recovery differ between runs that are equal."""
    results = run_with_config(trainer, iterations)
    return [{key: value for key, value in one.items() if key != "config"} for one in results]


def children(trainer: PPO) -> ChildWorkers:
    assert isinstance(trainer.workers, ChildWorkers)
    return trainer.workers


def curve_and_state(trainer: PPO, iterations: int = 4) -> list[Any]:
    try:
        return [run(trainer, iterations), final_state(trainer)]
    finally:
        trainer.stop()


@pytest.fixture(scope="module")
def undisturbed() -> list[Any]:
    """The curve and the final state of a trainer none of whose workers fails."""
    return curve_and_state(failing("nothing"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "settings", "told"),
    [
        ("kill", {}, "died; exit code -9"),
        ("hang", {"sample_timeout_s": 10.0}, "hangs: no answer within 10.0 s (sample_timeout_s)"),
        pytest.param("raise", {}, "ZeroDivisionError: the world ended", marks=pytest.mark.proof),
        ("garbage", {}, "returned garbage instead of a sample: a str"),
        pytest.param(
            "noise", {}, "returned garbage: its answer cannot be read", marks=pytest.mark.proof
        ),
    ],
)
def test_T9_the_curve_with_a_replaced_child_is_the_uninterrupted_one(
    what: str,
    settings: dict[str, Any],
    told: str,
    undisturbed: list[Any],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    marker = tmp_path / "failed"
    with caplog.at_level(logging.WARNING):
        trainer = failing(what, marker, recreate_failed_workers=True, **settings)
        disturbed = curve_and_state(trainer)
    assert marker.exists()
    (record,) = [one for one in caplog.records if one.name.startswith("trainables")]
    assert "rollout worker 1 (pid" in record.getMessage()
    assert "is replaced, 1 of at most 1000 times" in record.getMessage()
    assert record.exc_info is not None
    error = record.exc_info[1]
    assert told in str(error)
    if what in ("hang", "raise"):
        where = error.__cause__ if isinstance(error, EnvError) else error
        assert "failing_workers.py" in str(where), "where in the child it happened"
    found = differences(disturbed, undisturbed)
    assert [one for one in found if not any(name in one for name in OF_THE_MISHAP)] == []
    assert [one["num_healthy_workers"] for one in disturbed[0]] == [2, 2, 2, 2]


@pytest.mark.slow
def test_T9_the_original_traceback_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    trainer = failing("raise", ignore_worker_failures=True)
    with caplog.at_level(logging.WARNING):
        run(trainer, 3)
    trainer.stop()
    assert "rollout worker 1 (pid" in caplog.text
    assert 'failing_workers.py", line' in caplog.text
    assert "ZeroDivisionError: the world ended" in caplog.text


@pytest.mark.slow
def test_T9_a_replaced_child_goes_on_with_the_global_streams_of_the_lost_one() -> None:
    chancy = {**TWO, "env": "tests.support.environments:GlobalChance"}
    undisturbed = curve_and_state(make(chancy), 3)
    trainer = make({**chancy, "recreate_failed_workers": True})
    first = run(trainer, 2)
    os.kill(children(trainer).pids()[0], signal.SIGKILL)
    results = first + run(trainer, 1)
    disturbed = [results, final_state(trainer)]
    trainer.stop()
    assert differences(disturbed, undisturbed) == []


def kill_while_learning(trainer: PPO, index: int) -> Callable[..., dict[str, float]]:
    learn, pid = trainer.learn, children(trainer).pids()[index]

    def killing(fragments: Any) -> dict[str, float]:
        if still_there(pid):
            os.kill(pid, signal.SIGKILL)
        return learn(fragments)

    return killing


def still_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_T9_a_child_that_dies_between_its_sample_and_the_weights_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    undisturbed = curve_and_state(make(TWO))
    trainer = make({**TWO, "recreate_failed_workers": True})
    first = run(trainer, 2)
    before = children(trainer).pids()
    monkeypatch.setattr(trainer, "learn", kill_while_learning(trainer, 1))
    results = first + run(trainer, 2)
    after = children(trainer).pids()
    assert (before[0] == after[0], before[1] == after[1]) == (True, False)
    disturbed = [results, final_state(trainer)]
    trainer.stop()
    assert differences(disturbed, undisturbed) == []


@pytest.mark.slow
def test_T9_a_child_that_dies_before_a_save_or_after_a_restore_is_replaced(tmp_path: Path) -> None:
    undisturbed = curve_and_state(make(TWO))
    trainer = make({**TWO, "recreate_failed_workers": True})
    first = run(trainer, 2)
    os.kill(children(trainer).pids()[0], signal.SIGKILL)
    path = trainer.save(tmp_path)
    trainer.stop()
    again = make({**TWO, "recreate_failed_workers": True})
    again.restore(path)
    os.kill(children(again).pids()[1], signal.SIGKILL)
    results = first + run(again, 2)
    disturbed = [results, final_state(again)]
    again.stop()
    assert differences(disturbed, undisturbed) == []


@pytest.mark.parametrize("recreate", [False, True])
def test_T9_no_request_is_made_for_the_sake_of_recovery(
    recreate: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    send = ChildProcess.send

    def counting(self: ChildProcess, method: str, *args: Any) -> None:
        asked.append(method)
        send(self, method, *args)

    trainer = make({**TWO, "recreate_failed_workers": recreate})
    monkeypatch.setattr(ChildProcess, "send", counting)
    trainer.train()
    trainer.stop()
    sample = "sample_with_state" if recreate else "sample"
    asked_of_each = ["set_global_vars", sample, "take_metrics", "sync"]
    assert asked == [method for method in asked_of_each for _ in range(2)]


@pytest.mark.slow
def test_T9_without_either_setting_the_error_says_which_would_go_on() -> None:
    trainer = failing("noise", at=3)
    with pytest.raises(WorkerError, match="returned garbage") as caught:
        trainer.train()
    trainer.stop()
    assert "ignore_worker_failures: true continues without this worker" in str(caught.value)
    assert "recreate_failed_workers: true replaces it" in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize(("most", "replacements"), [(1, 1), (1000, 3)])
def test_T10_recovery_that_fails_again_and_again_ends_with_the_first_cause(
    most: int, replacements: int
) -> None:
    trainer = failing("raise", at=3, recreate_failed_workers=True, max_worker_restarts=most)
    words = rf"worker 1 failed again after {replacements} replacement\(s\).*recovery has failed"
    with pytest.raises(WorkerError, match=words) as caught:
        trainer.train()
    trainer.stop()
    chain: BaseException | None = caught.value
    while chain is not None and "failed again" in str(chain):
        chain = chain.__cause__
    assert "ZeroDivisionError: the world ended" in str(chain)


@pytest.mark.slow
def test_T12_every_result_counts_the_healthy_workers_and_T25_survivors_go_on(
    tmp_path: Path,
) -> None:
    trainer = failing("kill", tmp_path / "failed", ignore_worker_failures=True)
    results = run(trainer, 4)
    trainer.stop()
    assert [one["num_healthy_workers"] for one in results] == [2, 2, 1, 1]
    assert [one["timesteps_this_iter"] for one in results] == [2 * SHARE, 2 * SHARE, SHARE, SHARE]
    assert [one["timesteps_total"] for one in results] == [96, 192, 240, 288]


@pytest.mark.slow
def test_T25_a_restored_trainer_goes_on_with_the_survivors_of_the_saved_one(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"ignore_worker_failures": True}
    trainer = failing("kill", tmp_path / "failed", **settings)
    run(trainer, 3)
    path = trainer.save(tmp_path)
    undisturbed = curve_and_state(trainer, 2)
    again = failing("kill", tmp_path / "failed", **settings)
    again.restore(path)
    assert differences(curve_and_state(again, 2), undisturbed) == []


@pytest.mark.slow
def test_T25_with_no_worker_left_the_error_names_what_to_set() -> None:
    trainer = failing("kill", at=3, index=-1, ignore_worker_failures=True)
    with pytest.raises(WorkerError, match=r"none of 2 rollout worker.* is left") as caught:
        trainer.train()
    assert "recreate_failed_workers: true" in str(caught.value)
    with pytest.raises(WorkerError, match=r"none of 2 rollout worker.* is left"):
        trainer.train()
    trainer.stop()


def test_T25_a_child_that_cannot_be_replaced_any_more_is_left_out_if_so_set() -> None:
    both: dict[str, Any] = {"ignore_worker_failures": True, "recreate_failed_workers": True}
    trainer = failing("raise", "", at=3, max_worker_restarts=1, **both)
    assert [one["num_healthy_workers"] for one in run(trainer, 2)] == [1, 1]
    trainer.stop()


def test_T25_a_sample_of_the_wrong_shape_is_garbage() -> None:
    trainer = make(TWO)
    worker = children(trainer)._children[0]
    sample = trainer.workers.sample()[0]
    assert checked(sample, worker.spec) is sample
    short = Sample([], sample.episodes, sample.deltas, sample.recent)
    with pytest.raises(
        WorkerError, match=r"returned garbage.*0 fragments with 0 steps; expected 48"
    ):
        checked(short, worker.spec)
    trainer.stop()


@pytest.mark.parametrize(
    ("in_a_row", "restarts", "allowed"),
    [(0, 0, True), (2, 4, True), (3, 3, False), (0, 5, False)],
)
def test_T10_replacements_are_three_in_a_row_and_as_many_in_all_as_set(
    in_a_row: int, restarts: int, allowed: bool
) -> None:
    config = RecoveryConfig(recreate_failed_workers=True, max_worker_restarts=5)
    assert config.allows(in_a_row, restarts) is allowed
    assert not RecoveryConfig(max_worker_restarts=5).allows(in_a_row, restarts)
