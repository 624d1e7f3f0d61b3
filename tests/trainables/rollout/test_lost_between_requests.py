"""A process that is lost, stopped or left out between two requests: nothing is lost with it."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support.trainers import differences, final_state, make, run
from tests.support.waiting import wait_until
from trainables.algorithms.ppo import PPO
from trainables.envs.vector.remote import RemoteVectorEnv
from trainables.errors import ConfigError, EnvError, TrainableError, WorkerError
from trainables.rollout.workers.remote.worker_set import ChildWorkers
from trainables.rollout.workers.worker_set import LocalWorkers

TWO: dict[str, Any] = {"num_workers": 2, "train_batch_size": None, "evaluation_interval": None}
REMOTE: dict[str, Any] = {
    "num_envs_per_worker": 2,
    "train_batch_size": None,
    "evaluation_interval": None,
    "remote_worker_envs": True,
}
#: Weights that are several times as large as what a pipe holds.
LARGE = {"model": {"hidden": [512, 512]}}


def children(trainer: PPO) -> list[int]:
    assert isinstance(trainer.workers, ChildWorkers)
    return trainer.workers.pids()


def environments(trainer: PPO) -> list[int]:
    assert isinstance(trainer.workers, LocalWorkers)
    assert isinstance(trainer.workers.worker.envs, RemoteVectorEnv)
    return trainer.workers.worker.envs.pids


def end(pid: int) -> None:
    """Kill a child of this process, and wait until it is dead."""
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def rows(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Results without the settings, in which the runs differ on purpose."""
    return [{key: value for key, value in one.items() if key != "config"} for one in results]


def curve_and_state(trainer: PPO, iterations: int) -> list[Any]:
    """Of a trainer that is stopped after it."""
    try:
        return [rows(run(trainer, iterations)), final_state(trainer)]
    finally:
        trainer.stop()


def stopping_at_learning(trainer: PPO, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop the second child between its sample and the new weights, once."""
    learn, pid = trainer.learn, children(trainer)[1]

    def stopping(fragments: Any) -> dict[str, float]:
        if Path(f"/proc/{pid}").exists():
            os.kill(pid, signal.SIGSTOP)
            wait_until(lambda: ") T " in Path(f"/proc/{pid}/stat").read_text())
        return learn(fragments)

    monkeypatch.setattr(trainer, "learn", stopping)


@pytest.mark.proof
def test_a_child_that_is_stopped_while_large_weights_are_sent_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = {**TWO, **LARGE, "recreate_failed_workers": True, "sample_timeout_s": 10.0}
    undisturbed = curve_and_state(make(config), 3)
    trainer = make(config)
    first = rows(run(trainer, 1))
    before = children(trainer)
    stopping_at_learning(trainer, monkeypatch)
    second = rows(run(trainer, 1))
    assert [one == other for one, other in zip(before, children(trainer), strict=True)] == [
        True,
        False,
    ]
    results, state = curve_and_state(trainer, 1)
    assert differences([first + second + results, state], undisturbed) == []


@pytest.mark.proof
def test_a_child_that_takes_no_request_is_told_by_the_setting_that_cut_it_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trainer = make({**TWO, **LARGE, "sample_timeout_s": 10.0})
    run(trainer, 1)
    stopping_at_learning(trainer, monkeypatch)
    words = r"worker 1 .* it did not accept its request within 10.0 s \(sample_timeout_s\)"
    with pytest.raises(WorkerError, match=words):
        trainer.train()
    trainer.stop()


@pytest.mark.parametrize(
    "key",
    [
        "sample_timeout_s",
        "env_step_timeout_s",
        "collect_metrics_timeout",
        "data_parallel_timeout_s",
        "evaluation_timeout_s",
    ],
)
def test_seconds_that_nobody_can_wait_are_refused(key: str) -> None:
    assert PPO.check_config({**REMOTE, "env": "CartPole-v1", "num_workers": 1, key: 1e6}) is None
    with pytest.raises(ConfigError, match=f"{key}: 3000000.0 is not allowed"):
        PPO.check_config({**REMOTE, "env": "CartPole-v1", "num_workers": 1, key: 3e6})


@pytest.mark.slow
def test_E4_an_environment_that_dies_between_steps_is_saved_as_one_that_will_be_restarted(
    tmp_path: Path,
) -> None:
    config = {**REMOTE, "restart_failed_sub_environments": True}
    trainer = make(config)
    run(trainer, 1)
    end(environments(trainer)[1])
    path = trainer.save(tmp_path)
    undisturbed = curve_and_state(trainer, 2)
    assert undisturbed[0][0]["num_faulty_episodes"] == 1
    again = make(config)
    again.restore(path)
    assert differences(curve_and_state(again, 2), undisturbed) == []


def test_E4_without_restarts_an_environment_that_has_died_is_no_state(tmp_path: Path) -> None:
    trainer = make(REMOTE)
    run(trainer, 1)
    end(environments(trainer)[1])
    with pytest.raises(TrainableError, match=r"lost its process .* exit code -9"):
        trainer.save(tmp_path)
    with pytest.raises(EnvError, match=r"lost its process .* exit code -9"):
        trainer.train()
    trainer.stop()


@pytest.mark.slow
@pytest.mark.parametrize("level", ["A", "B"])
def test_E4_a_live_trainer_takes_back_a_state_from_before_its_environment_died(
    level: str, tmp_path: Path
) -> None:
    trainer = make({**REMOTE, "restart_failed_sub_environments": True, "env_level": level})
    run(trainer, 1)
    path = trainer.save(tmp_path)
    expected = rows(run(trainer, 2))
    end(environments(trainer)[0])
    trainer.restore(path)
    assert differences(rows(run(trainer, 2)), expected) == []
    trainer.stop()


@pytest.mark.slow
def test_T25_a_live_trainer_takes_back_the_worker_that_was_there_when_it_was_saved(
    tmp_path: Path,
) -> None:
    trainer = make({**TWO, "ignore_worker_failures": True})
    run(trainer, 1)
    path = trainer.save(tmp_path)
    expected = rows(run(trainer, 2))
    end(children(trainer)[0])
    assert run(trainer, 1)[0]["num_healthy_workers"] == 1
    trainer.restore(path)
    assert differences(rows(run(trainer, 2)), expected) == []
    trainer.stop()
