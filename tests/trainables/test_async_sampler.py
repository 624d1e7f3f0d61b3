"""Sampling in a thread of its own."""

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.support.environments import Waits
from tests.support.trainers import make, run
from tests.support.waiting import wait_until
from trainables.algorithms.ppo import PPO
from trainables.errors import ConfigError, EnvError, WorkerError
from trainables.rollout.async_sampler import RESULTS, AsyncSampler
from trainables.rollout.worker import RolloutWorker
from trainables.rollout.worker_set import LocalWorkers

HERE = "tests.support.environments"
ASYNC: dict[str, Any] = {
    "sample_async": True,
    "observation_filter": "ConcurrentMeanStdFilter",
    "train_batch_size": None,
    "evaluation_interval": None,
    "env": f"{HERE}:Counting",
    "env_config": {"length": 7},
}


def worker_of(trainer: PPO) -> RolloutWorker:
    assert isinstance(trainer.workers, LocalWorkers)
    return trainer.workers.worker


def source_of(trainer: PPO) -> AsyncSampler:
    source = worker_of(trainer)._async
    assert source is not None
    return source


@pytest.fixture(name="trainer")
def made() -> Iterator[PPO]:
    trainer = make(ASYNC)
    yield trainer
    trainer.stop()


def test_P3_a_daemon_thread_fills_a_queue_of_5_and_waits(trainer: PPO) -> None:
    source = source_of(trainer)
    assert not source.alive
    trainer.train()
    assert getattr(source._thread, "daemon", False)
    wait_until(lambda: len(source._results) == RESULTS and source._rests)
    episodes = len(source._episodes)
    with source.paused():
        pass
    assert (len(source._results), len(source._episodes)) == (5, episodes)
    trainer.train()
    wait_until(lambda: len(source._results) == RESULTS and source._rests)


def test_P3_results_in_the_queue_are_not_written_again(trainer: PPO) -> None:
    source = source_of(trainer)
    trainer.train()
    wait_until(lambda: len(source._results) == RESULTS and source._rests)
    starts = [source.get_data().fragments[0].observations[0, 0, 0] for _ in range(4)]
    wait_until(lambda: len(source._results) == RESULTS and source._rests)
    assert len({float(start) for start in starts}) > 1


@pytest.mark.parametrize("kind", ["MeanStdFilter", f"{HERE}:Counting"])
def test_P3_a_filter_that_is_not_made_for_threads_is_refused_by_its_name(kind: str) -> None:
    with pytest.raises(ConfigError, match="ConcurrentMeanStdFilter") as caught:
        make({**ASYNC, "observation_filter": kind})
    assert (caught.value.place, caught.value.value) == ("observation_filter", kind)


def test_P2_a_sample_brings_the_episodes_of_all_results_since_the_last(trainer: PPO) -> None:
    source = source_of(trainer)
    assert source.get_metrics() == []
    first = source.get_data()
    assert first.episodes == []
    wait_until(lambda: len(source._results) == RESULTS and source._rests)
    ended = len(source._episodes)
    assert ended == 3 * ((6 * 16) // 7)
    following = source.next()
    assert len(following.episodes) == ended
    assert [fragment.logp.shape for fragment in following.fragments] == [(16, 3)]


def test_P4_what_the_thread_raises_is_raised_again_by_the_caller() -> None:
    trainer = make({**ASYNC, "env": f"{HERE}:Broken", "env_config": {"what": "raise"}})
    with pytest.raises(EnvError, match=r"worker 0, environment 0: .*the world ended"):
        trainer.train()
    with pytest.raises(WorkerError, match="worker 0: the sampling thread is dead"):
        trainer.train()
    trainer.stop()


def test_P4_a_thread_that_gives_nothing_is_not_waited_for_for_ever() -> None:
    trainer = make({**ASYNC, "env": f"{HERE}:Waits", "env_config": {}, "env_level": "C"})
    source = source_of(trainer)
    source._timeout_s = 0.05
    with pytest.raises(WorkerError, match=r"gave nothing within 0.05 s"):
        trainer.workers.sample()
    with pytest.raises(WorkerError, match=r"end of a step within 0.05 s"):
        trainer.workers.get_state()
    Waits.released.set()
    source._timeout_s = 60.0
    assert trainer.workers.sample()[0].count == 48
    trainer.stop()


def test_P4_stopping_ends_the_thread_whatever_it_does(trainer: PPO) -> None:
    trainer.train()
    thread: Any = source_of(trainer)._thread
    assert thread.is_alive()
    trainer.stop()
    assert not thread.is_alive()
    trainer.stop()


def test_P4_a_worker_in_a_child_samples_in_a_thread_too() -> None:
    trainer = make({**ASYNC, "num_workers": 2, "batch_mode": "complete_episodes"})
    results = run(trainer, 3)
    assert all(one["timesteps_this_iter"] >= 96 for one in results)
    trainer.stop()


def test_a_trial_that_samples_in_threads_says_that_it_is_not_bit_exact(trainer: PPO) -> None:
    assert trainer.exactness == "D not bit-exact"


def test_saving_sees_the_environments_between_two_steps(trainer: PPO) -> None:
    worker, source = worker_of(trainer), source_of(trainer)
    lanes: Any = worker.lanes
    trainer.train()
    for _ in range(20):
        source.get_data()  # the thread has room to go on
        state = worker.get_state()
        with source.paused():
            lengths = worker._sampler.episodes.lengths
            seen = worker._sampler.observations[:, 0]
            assert seen.tolist() == lengths.tolist()
            assert [unit.unwrapped.steps for unit in lanes.units] == seen.tolist()
        assert state["sampler"]["episodes"]["lengths"].tolist() == (
            state["sampler"]["observations"][:, 0].tolist()
        )


def test_every_observation_is_counted_once_whatever_the_threads_do(trainer: PPO) -> None:
    run(trainer, 5)
    worker = worker_of(trainer)
    with source_of(trainer).paused():
        lanes: Any = worker.lanes
        steps = sum(len(unit.unwrapped.sent) for unit in lanes.units)
        waiting = worker.get_filters()["observation"]["count"]
        merged: Any = trainer.filters["observation"]
        assert merged.counted + waiting == steps


@pytest.mark.parametrize("mode", ["truncate_episodes", "complete_episodes"])
def test_a_restored_trial_goes_on_with_the_right_counters(mode: str) -> None:
    trainer = make({**ASYNC, "batch_mode": mode})
    run(trainer, 3)
    saved = copy.deepcopy(trainer.get_state())
    before = trainer.progress.timesteps
    assert before >= 3 * 48
    following = run(trainer, 2)
    trainer.set_state(saved)  # the thread is there already
    other = make({**ASYNC, "batch_mode": mode})
    other.set_state(saved)
    for one in (trainer, other):
        assert one.progress.timesteps == before
        results = run(one, 2)
        expected = before + sum(result["timesteps_this_iter"] for result in results)
        assert results[-1]["timesteps_total"] == expected
        assert results[-1]["training_iteration"] == following[-1]["training_iteration"] == 5
        assert {result["episode_len_mean"] for result in results} == {7.0}
        one.stop()


def test_a_thread_that_died_is_followed_by_another_after_a_restore() -> None:
    trainer = make(ASYNC)
    run(trainer, 1)
    saved = copy.deepcopy(trainer.get_state())
    unit: Any = worker_of(trainer).lanes.units[0]  # type: ignore[attr-defined]
    step, unit.step = unit.step, lambda _: 1 / 0
    with pytest.raises(EnvError, match="ZeroDivisionError"):
        run(trainer, 10)
    unit.step = step
    trainer.set_state(saved)
    assert np.isfinite(run(trainer, 2)[-1]["learner"]["policy_loss"])
    trainer.stop()
