"""Metrics that come too late count in a later iteration, once, whatever becomes of their worker."""

import os
import signal
from typing import Any

import pytest

from tests.support.trainers import SMALL, differences, make, run
from trainables.algorithms.ppo import PPO
from trainables.core.processes.child import ChildProcess
from trainables.rollout.workers.remote.worker_set import ChildWorkers

TWO: dict[str, Any] = {
    **SMALL,
    "num_workers": 2,
    "num_envs_per_worker": 1,
    "train_batch_size": 192,
    "rollout_fragment_length": 96,
    "evaluation_interval": None,
    "recreate_failed_workers": True,
}
ITERATIONS = 4


class Stopper:
    """Stops children as they are asked for their metrics, and ends that before they are told more.

    It acts in one iteration only; `ends` is the signal that does.
    """

    def __init__(self, trainer: PPO, patch: pytest.MonkeyPatch, ends: int = signal.SIGCONT) -> None:
        assert isinstance(trainer.workers, ChildWorkers)
        self.workers = trainer.workers
        self.ends = ends
        self.active = False
        self.stopped: set[int] = set()
        send = ChildProcess.send

        def sending(process: ChildProcess, method: str, *args: Any) -> None:
            if self.active and method == "take_metrics" and process.pid in self.workers.pids():
                os.kill(process.pid, signal.SIGSTOP)
                self.stopped.add(process.pid)
            send(process, method, *args)

        patch.setattr(ChildProcess, "send", sending)
        synchronise = trainer._synchronise

        def synchronising(samples: Any) -> None:
            self.end()
            synchronise(samples)

        patch.setattr(trainer, "_synchronise", synchronising)

    def begin(self) -> None:
        self.active, self.workers._metrics_timeout_s = True, 0.05

    def end(self) -> None:
        self.active, self.workers._metrics_timeout_s = False, 60.0
        for pid in self.stopped:
            os.kill(pid, self.ends)
        self.stopped = set()


@pytest.fixture(name="undisturbed", scope="module")
def ran() -> list[dict[str, Any]]:
    trainer = make(TWO)
    results = run(trainer, ITERATIONS)
    assert trainer.exactness == "A exact state"
    trainer.stop()
    return results


def rewards(results: list[dict[str, Any]]) -> list[float]:
    told = [one.get("hist_stats", {}).get("episode_reward", []) for one in results]
    return sorted(reward for one in told for reward in one)


def late_in_the_second(trainer: PPO, stopper: Stopper) -> list[dict[str, Any]]:
    first = run(trainer, 1)
    stopper.begin()
    return first + run(trainer, 1)


@pytest.mark.slow
def test_K6_metrics_that_come_too_late_count_in_the_next_iteration_once(
    undisturbed: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    trainer = make(TWO)
    results = late_in_the_second(trainer, Stopper(trainer, monkeypatch))
    assert (results[1]["num_late_metrics"], results[1]["episodes_this_iter"]) == (2, 0)
    assert "has not sent its metrics in time (collect_metrics_timeout)" in caplog.text
    assert trainer.exactness == "D not bit-exact"
    saved = trainer.get_state()
    results += run(trainer, ITERATIONS - 2)
    for ours, theirs in zip(results, undisturbed, strict=True):
        for key in ("learner", "timesteps_total", "timesteps_this_iter", "num_healthy_workers"):
            assert differences(ours[key], theirs[key], key) == []
    assert "num_late_metrics" not in results[2]
    assert rewards(results) == rewards(undisturbed)
    assert rewards(results[1:3]) == rewards(undisturbed[1:3])
    assert results[-1]["episodes_total"] == undisturbed[-1]["episodes_total"]
    again = make(TWO)
    again.set_state(saved)
    assert again.exactness == "D not bit-exact"
    assert differences(run(again, ITERATIONS - 2), results[2:]) == []
    for one in (trainer, again):
        one.stop()


@pytest.mark.slow
def test_K6_T9_late_metrics_of_a_child_that_dies_are_told_once_by_its_replacement(
    undisturbed: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make(TWO)
    stopper = Stopper(trainer, monkeypatch, ends=signal.SIGKILL)
    results = late_in_the_second(trainer, stopper)
    assert results[1]["num_late_metrics"] == 2
    results += run(trainer, 1)
    os.kill(stopper.workers.pids()[0], signal.SIGKILL)  # now its metrics have been told
    results += run(trainer, 1)
    assert rewards(results) == rewards(undisturbed)
    assert [one["learner"] for one in results] == [one["learner"] for one in undisturbed]
    trainer.stop()
