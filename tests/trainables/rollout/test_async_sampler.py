"""Sampling in a thread of its own."""

import copy
import gc
import threading
from collections.abc import Iterator
from typing import Any, ClassVar, cast

import numpy as np
import pytest

from tests.support.environments import Counting, Waits
from tests.support.trainers import PLAIN, make, run
from tests.support.waiting import wait_until
from trainables.algorithms.ppo import PPO
from trainables.errors import ConfigError, EnvError, WorkerError
from trainables.rollout.samplers.background import RESULTS, AsyncSampler
from trainables.rollout.workers.worker import RolloutWorker
from trainables.rollout.workers.worker_set import LocalWorkers

HERE = "tests.support.environments"
ASYNC: dict[str, Any] = {
    "sample_async": True,
    "observation_filter": "ConcurrentMeanStdFilter",
    "train_batch_size": None,
    "evaluation_interval": None,
    "env": f"{HERE}:Counting",
    "env_config": {"length": 7},
}


pytestmark = pytest.mark.usefixtures("threads_answer_in_time")


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


@pytest.mark.slow
def test_P3_a_daemon_thread_fills_a_queue_of_5_and_waits(trainer: PPO) -> None:
    source = source_of(trainer)
    assert not source.alive
    trainer.train()
    assert getattr(source._thread, "daemon", False)
    wait_until(lambda: len(source._results) == RESULTS and source._is_paused)
    episodes = len(source._episodes)
    with source.paused():
        pass
    assert (len(source._results), len(source._episodes)) == (5, episodes)
    trainer.train()
    wait_until(lambda: len(source._results) == RESULTS and source._is_paused)


def test_P3_results_in_the_queue_are_not_written_again(trainer: PPO) -> None:
    source = source_of(trainer)
    trainer.train()
    wait_until(lambda: len(source._results) == RESULTS and source._is_paused)
    starts = [source.get_data().fragments[0].observations[0, 0, 0] for _ in range(4)]
    wait_until(lambda: len(source._results) == RESULTS and source._is_paused)
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
    wait_until(lambda: len(source._results) == RESULTS and source._is_paused)
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
    with pytest.raises(WorkerError, match=r"returned nothing within 0.05 s"):
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


class Closes(Counting):
    """Says in which thread it is closed."""

    closed: ClassVar[list[threading.Thread]] = []
    raises: ClassVar[bool] = False

    def close(self) -> None:
        self.closed.append(threading.current_thread())
        if self.raises:
            raise ConnectionError("nothing to close")


CLOSING = {"env": f"{__name__}:Closes", "env_config": {}, "env_level": "C"}


@pytest.mark.slow
@pytest.mark.parametrize("callbacks", [None, "tests.support.callbacks:Measures"])
def test_B16_the_thread_of_a_forgotten_trainer_ends_and_closes_the_environments(
    callbacks: str | None,
) -> None:
    trainer = make({**ASYNC, **CLOSING, "num_envs_per_worker": 2, "callbacks": callbacks})
    trainer.train()
    Closes.closed.clear()  # those that were made to be looked at
    thread: Any = source_of(trainer)._thread
    assert thread.is_alive()
    del trainer
    gc.collect()
    thread.join(60.0)
    assert not thread.is_alive()
    assert Closes.closed == [thread] * 2


@pytest.mark.parametrize("callbacks", [None, "tests.support.callbacks:KeepsItsWorker"])
def test_B16_a_forgotten_worker_without_a_thread_closes_its_environments(
    callbacks: str | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = make({**PLAIN, **CLOSING, "num_envs_per_worker": 1, "callbacks": callbacks})
    trainer.train()
    Closes.closed.clear()
    monkeypatch.setattr(Closes, "raises", True)
    del trainer
    gc.collect()
    assert Closes.closed == [threading.current_thread()]
    assert "nothing to close" in caplog.text


def test_B16_a_worker_that_was_closed_is_not_closed_again() -> None:
    trainer = make({**ASYNC, **CLOSING, "num_envs_per_worker": 1})
    trainer.train()
    Closes.closed.clear()
    trainer.stop()
    del trainer
    gc.collect()
    assert Closes.closed == [threading.current_thread()]


@pytest.mark.slow
def test_P4_a_worker_in_a_child_samples_in_a_thread_too() -> None:
    trainer = make({**ASYNC, "num_workers": 2, "batch_mode": "complete_episodes"})
    results = run(trainer, 3)
    assert all(one["timesteps_this_iter"] >= 96 for one in results)
    trainer.stop()


def test_a_trial_that_samples_in_threads_says_that_it_is_not_bit_exact(trainer: PPO) -> None:
    assert trainer.exactness == "D not bit-exact: a clock steers (sample_async)"


def test_saving_sees_the_environments_between_two_steps(trainer: PPO) -> None:
    worker, source = worker_of(trainer), source_of(trainer)
    envs: Any = worker.envs
    trainer.train()
    for _ in range(20):
        source.get_data()  # the thread has room to go on
        state = worker.get_state()
        with source.paused():
            lengths = worker._sampler.episodes.lengths
            seen = worker._sampler.observations[:, 0]
            assert seen.tolist() == lengths.tolist()
            assert [sub_env.unwrapped.steps for sub_env in envs.sub_envs] == seen.tolist()
        assert state["sampler"]["episodes"]["lengths"].tolist() == (
            state["sampler"]["observations"][:, 0].tolist()
        )


def test_every_observation_is_counted_once_whatever_the_threads_do(trainer: PPO) -> None:
    run(trainer, 5)
    worker = worker_of(trainer)
    with source_of(trainer).paused():
        envs: Any = worker.envs
        steps = sum(len(sub_env.unwrapped.sent) for sub_env in envs.sub_envs)
        waiting = worker.get_filters()["observation"]["count"]
        merged: Any = trainer.filters["observation"]
        assert merged.row_count + waiting == steps


def test_a_sample_is_logged_although_its_thread_has_begun_the_next_one(
    trainer: PPO, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = worker_of(trainer)
    make_sample = worker._make_sample

    def make_late(collected: Any) -> Any:
        sample = make_sample(collected)
        worker._sampler.recent.clear()  # as the next sample does at its beginning
        return sample

    monkeypatch.setattr(worker, "_make_sample", make_late)
    run(trainer, 2)


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
    sub_env: Any = worker_of(trainer).envs.sub_envs[0]  # type: ignore[attr-defined]
    step, sub_env.step = sub_env.step, lambda _: 1 / 0
    with pytest.raises(EnvError, match="ZeroDivisionError"):
        run(trainer, 10)
    sub_env.step = step
    trainer.set_state(saved)
    assert np.isfinite(run(trainer, 2)[-1]["learner"]["policy_loss"])
    trainer.stop()


BLACK_HOLE: dict[str, Any] = {**ASYNC, "fake_sampler": True, "blackhole_outputs": True}


def learnt_from(trainer: PPO) -> bytes:
    return worker_of(trainer).sample().fragments[0].actions.tobytes()


def test_P4_a_black_hole_drops_what_comes_after_the_first_batch_and_tells_its_episodes() -> None:
    trainer = make(BLACK_HOLE)
    source, envs = source_of(trainer), cast(Any, worker_of(trainer).envs)
    first = run(trainer, 1)[0]
    steps = 3 * 16 * 2 * (RESULTS + 1)  # many more than a queue would hold
    wait_until(lambda: sum(len(sub_env.unwrapped.sent) for sub_env in envs.sub_envs) > steps)
    wait_until(lambda: len(source._episodes) > 3 * 2 * RESULTS)  # some came with the first batch
    assert not source._results
    waiting = len(source._episodes)
    result = run(trainer, 1)[0]
    assert result["episodes_this_iter"] >= waiting
    assert result["timesteps_this_iter"] == first["timesteps_this_iter"] == 48
    assert result["fake_sampler"] is True
    assert learnt_from(trainer) == learnt_from(trainer)
    saved = copy.deepcopy(trainer.get_state())
    other = make(BLACK_HOLE)
    other.set_state(saved)
    assert learnt_from(other) == learnt_from(trainer)
    wait_until(lambda: other.train()["episodes_this_iter"] > 0)
    for one in (trainer, other):
        one.stop()


def test_P4_what_the_thread_of_a_black_hole_raises_is_raised_by_the_caller() -> None:
    trainer = make(BLACK_HOLE)
    run(trainer, 1)
    source: Any = source_of(trainer)
    sub_env: Any = worker_of(trainer).envs.sub_envs[0]  # type: ignore[attr-defined]
    sub_env.step = lambda _: 1 / 0
    wait_until(lambda: not source.alive)
    with pytest.raises(EnvError, match="ZeroDivisionError"):
        trainer.train()
    with pytest.raises(WorkerError, match="worker 0: the sampling thread is dead"):
        trainer.train()
    trainer.stop()


@pytest.mark.parametrize("black_hole", [False, True])
def test_B4_every_observation_beside_a_fake_sample_is_counted_once(black_hole: bool) -> None:
    trainer = make({**BLACK_HOLE, "blackhole_outputs": black_hole})
    source, worker = source_of(trainer), worker_of(trainer)
    envs: Any = worker.envs
    run(trainer, 1)
    if not black_hole:
        wait_until(lambda: len(source._results) == RESULTS and source._is_paused)
    run(trainer, 3)
    with source.paused():
        steps = sum(len(sub_env.unwrapped.sent) for sub_env in envs.sub_envs)
        merged: Any = trainer.filters["observation"]
        assert merged.row_count + worker.get_filters()["observation"]["count"] == steps
    trainer.stop()


def test_P4_a_black_hole_needs_another_batch_to_learn_from() -> None:
    with pytest.raises(ConfigError, match="there is no other batch") as caught:
        make({**ASYNC, "blackhole_outputs": True})
    assert caught.value.place == "blackhole_outputs"


def test_P4_a_queue_that_nobody_empties_is_told_of_and_waited_for(
    trainer: PPO, caplog: pytest.LogCaptureFixture
) -> None:
    trainer.train()
    source = source_of(trainer)
    wait_until(lambda: len(source._results) == RESULTS and source._is_paused)
    source._timeout_s = 0.05
    source.get_data()  # it is there already; the thread makes the next one, and waits anew
    wait_until(lambda: "the trainer has taken no samples for 0.05 s" in caplog.text)
    assert source.alive
    source._timeout_s = 60.0
    trainer.train()


@pytest.mark.slow
def test_a_memory_is_carried_and_restored_by_a_sampling_thread() -> None:
    config = {**ASYNC, "model": {"use_lstm": True, "lstm_cell_size": 8}}
    trainer = make(config)
    results = run(trainer, 3)
    assert all(np.isfinite(one["learner"]["policy_loss"]) for one in results)
    worker = worker_of(trainer)
    with source_of(trainer).paused():
        begun = worker._sampler.episodes.lengths == 0
        assert (np.abs(worker._sampler.memory).sum(axis=1) == 0).tolist() == begun.tolist()
        saved = copy.deepcopy(trainer.get_state())
    fragment = source_of(trainer).get_data().fragments[0]
    ended = fragment.terminated[:-1] | fragment.truncated[:-1]
    assert ended.any()
    assert not fragment.memory[1:][ended].any()
    assert fragment.memory[1:][~ended].any(axis=1).all()
    other = make(config)
    other.set_state(saved)
    np.testing.assert_array_equal(
        saved["trainable"]["data"]["workers"][0]["sampler"]["memory"],
        worker_of(other)._sampler.memory,
    )
    assert np.isfinite(run(other, 1)[0]["learner"]["policy_loss"])
    for one in (trainer, other):
        one.stop()
