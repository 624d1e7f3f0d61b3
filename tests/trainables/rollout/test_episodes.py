"""Complete episodes: never cut, each with advantages over itself, kept while they are in flight."""

import copy
import logging
import os
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.support.trainers import PLAIN, differences, final_state, make, run
from tests.support.vector_envs import Altered
from trainables.algorithms.dqn import DQN
from trainables.algorithms.ppo import PPO
from trainables.envs.vector.base import Step
from trainables.errors import ConfigError, WorkerError
from trainables.learners.returns import generalized_advantages, next_values
from trainables.rollout.batch import Fragment, Sample
from trainables.rollout.samplers.fragments import Sampler
from trainables.rollout.workers.remote.recovery import checked
from trainables.rollout.workers.remote.worker_set import ChildWorkers
from trainables.rollout.workers.worker_set import LocalWorkers
from trainables.trainable import TrialContext

HERE = "tests.support.environments"
WHOLE: dict[str, Any] = {
    "batch_mode": "complete_episodes",
    "train_batch_size": None,
    "evaluation_interval": None,
}
COUNTING: dict[str, Any] = {
    **PLAIN,
    **WHOLE,
    "env": f"{HERE}:Counting",
    "env_config": {"length": 5},
}


def sampler_of(trainer: PPO) -> Sampler:
    assert isinstance(trainer.workers, LocalWorkers)
    sampler = trainer.workers.worker._sampler
    assert isinstance(sampler, Sampler)
    return sampler


def altered(alter: Callable[[int, Step], Step], **settings: Any) -> tuple[PPO, Sample]:
    trainer = make({**COUNTING, **settings})
    sampler = sampler_of(trainer)
    sampler.envs = Altered(sampler.envs, alter)
    (sample,) = trainer.workers.sample()
    return trainer, sample


def episodes_in(fragment: Fragment) -> list[slice]:
    """Rows of each episode of a fragment (L, 1)."""
    ends = np.flatnonzero((fragment.terminated | fragment.truncated)[:, 0]) + 1
    return [slice(a, b) for a, b in zip([0, *ends[:-1]], ends, strict=True)]


@pytest.mark.slow
def test_B1_reads_go_on_until_the_target_is_reached_and_no_episode_is_cut() -> None:
    trainer = make(COUNTING)
    (sample,) = trainer.workers.sample()
    (fragment,) = sample.fragments
    assert fragment.observations[:, 0, 0].tolist() == [0, 1, 2, 3, 4] * 6
    assert np.flatnonzero(fragment.truncated[:, 0]).tolist() == [4, 9, 14, 19, 24, 29]
    assert [episode.length for episode in sample.episodes] == [5] * 6
    value_of_5 = trainer.inference.actor.values(np.array([[5.0]], dtype=np.float32))[0]
    np.testing.assert_allclose(fragment.final_values[4::5, 0], value_of_5, rtol=1e-6)
    trainer.stop()


def test_B1_rows_that_are_no_steps_do_not_count_towards_the_target() -> None:
    native = {"env": "tests.support.vectors:counting_next_step", "native_vector_env": True}
    trainer = make({**COUNTING, **native, "num_envs_per_worker": 1, "train_batch_size": 30})
    for _ in range(2):
        (sample,) = trainer.workers.sample()
        assert [episode.length for episode in sample.episodes] == [5] * 6
        assert sample.count == 30
    trainer.stop()


def test_B1_truncated_fragments_have_exactly_the_steps_that_were_asked_for() -> None:
    trainer = make({**COUNTING, "batch_mode": "truncate_episodes", "train_batch_size": 48})
    (sample,) = trainer.workers.sample()
    assert [fragment.logp.shape for fragment in sample.fragments] == [(12, 2), (12, 2)]
    trainer.stop()


def test_B1_rows_in_which_a_native_vector_only_starts_an_episode_are_no_steps() -> None:
    native = {"env": "tests.support.vectors:counting_next_step", "native_vector_env": True}
    plain = {"batch_mode": "truncate_episodes", "train_batch_size": 24, "env_level": "C"}
    trainer = make({**COUNTING, **native, **plain})
    (sample,) = trainer.workers.sample()
    (fragment,) = sample.fragments
    # 12 rows of 2 environments; after the 5 steps of an episode comes 1 that only starts the next.
    assert fragment.autoreset.tolist() == [[row in (5, 11)] * 2 for row in range(12)]
    assert sample.count == 20
    before = trainer.progress.timesteps
    assert trainer.train()["timesteps_total"] - before == 20
    trainer.stop()


def test_P15_rows_of_episodes_in_flight_wait_for_the_next_sample() -> None:
    """Every episode comes whole, whichever samples it was collected in."""
    trainer = make({**WHOLE, "num_envs_per_worker": 3, "normalize_rewards": False})
    lengths: list[int] = []
    for _ in range(6):
        (sample,) = trainer.workers.sample()
        (fragment,) = sample.fragments
        rows = [part.stop - part.start for part in episodes_in(fragment)]
        assert rows == [episode.length for episode in sample.episodes]
        assert sum(rows) >= 3 * 16
        lengths += rows
    in_flight = sampler_of(trainer).get_state()["in_flight"]["lengths"]
    counted = trainer.workers.worker._sampler.episodes  # type: ignore[attr-defined]
    assert in_flight.tolist() == counted.lengths.tolist()
    assert in_flight.any()
    assert len(set(lengths)) > 5
    trainer.stop()


def test_P15_advantages_of_each_episode_are_those_of_the_episode_alone() -> None:
    trainer = make(WHOLE)
    (sample,) = trainer.workers.sample()
    (fragment,) = sample.fragments
    batch = trainer.learning_rows([fragment])
    gamma, lambda_ = trainer.settings.gamma, trainer.settings.lambda_
    parts = episodes_in(fragment)
    assert len(parts) > 1
    for part in parts:
        alone = {name: column[part] for name, column in fragment.arrays.items()}
        following = next_values(
            alone["values"], np.zeros(1), alone["final_values"], alone["truncated"]
        )
        ends = (alone["terminated"], alone["truncated"])
        expected = generalized_advantages(
            alone["rewards"], alone["values"], following, ends, (gamma, lambda_)
        )
        assert batch.advantages[part].tobytes() == expected.advantages[:, 0].tobytes()
        assert batch.returns[part].tobytes() == expected.returns[:, 0].tobytes()
    trainer.stop()


def test_W16_a_batch_holds_at_least_train_batch_size_steps_and_all_are_learnt_from() -> None:
    trainer = make({**WHOLE, "train_batch_size": 100, "sgd_minibatch_size": 32})
    results = run(trainer, 3)
    sizes = [one["timesteps_this_iter"] for one in results]
    assert all(100 <= size < 100 + 3 * 500 for size in sizes)
    assert len(set(sizes)) > 1
    assert results[-1]["timesteps_total"] == sum(sizes)
    assert all("policy_loss" in one["learner"] for one in results)
    trainer.stop()


def test_W16_another_mode_is_refused_with_the_allowed_ones() -> None:
    with pytest.raises(ConfigError, match="'truncate_episodes' or 'complete_episodes'"):
        make({"batch_mode": "episodes"})


def test_W16_what_is_in_flight_decides_the_future() -> None:
    trainer = make(WHOLE)
    run(trainer, 2)
    saved = copy.deepcopy(trainer.get_state())
    expected = run(trainer, 2)
    rows = saved["trainable"]["data"]["workers"][0]["sampler"]["in_flight"]["rows"]
    assert len(rows["logp"])
    rows["logp"] += 0.5
    trainer.set_state(saved)
    assert differences(expected, run(trainer, 2)) != []
    trainer.stop()


def test_W16_a_restored_trial_without_exact_environments_drops_what_was_in_flight() -> None:
    config = {**COUNTING, "env": f"{HERE}:Hidden", "env_config": {}, "train_batch_size": 20}
    trainer = make(config)
    run(trainer, 1)
    assert sampler_of(trainer).get_state()["in_flight"]["lengths"].tolist() == [0, 0]
    sampler = sampler_of(trainer)
    for _ in range(3):
        sampler._advance(trainer.workers.worker._stream, [])  # type: ignore[attr-defined]
    state = copy.deepcopy(trainer.get_state())
    other = make(config)
    other.set_state(state)
    in_flight = sampler_of(other).get_state()["in_flight"]
    assert in_flight["lengths"].tolist() == [0, 0]
    assert len(in_flight["rows"]["logp"]) == 0
    assert run(other, 1)[0]["episodes_this_iter"] == 4
    trainer.stop()
    other.stop()


def test_E4_a_faulty_episode_comes_whole_and_is_not_learnt_from() -> None:
    def fails(number: int, step: Step) -> Step:
        if number != 8:
            return step
        rewards = np.array([0.0, step.rewards[1]])
        return step._replace(rewards=rewards, faults={0: ValueError("the world ended")})

    trainer, sample = altered(fails)
    (fragment,) = sample.fragments
    batch = trainer.learning_rows([fragment])
    assert [episode.length for episode in sample.episodes if episode.faulty] == [3]
    assert (~fragment.valid).sum() == 3
    assert len(batch) == fragment.logp.size - 3
    trainer.stop()


def test_P12_a_step_whose_info_disables_training_is_not_learnt() -> None:
    def excluded(number: int, step: Step) -> Step:
        return step._replace(infos={1: {"training_enabled": number != 2}})

    trainer, sample = altered(excluded)
    (fragment,) = sample.fragments
    assert np.flatnonzero(~fragment.valid[:, 0]).tolist() == [6]
    trainer.stop()


def test_P17_at_a_soft_horizon_rows_are_given_away_and_their_value_goes_on() -> None:
    def soft(number: int, step: Step) -> Step:
        return step._replace(metric_ends=np.array([number == 3, False]))

    trainer, sample = altered(soft)
    first, rest = sample.fragments
    assert first.observations[:, 0, 0].tolist() == [0, 1, 2]
    assert not (first.truncated | first.terminated).any()
    value_of_3 = trainer.inference.actor.values(np.array([[3.0]], dtype=np.float32))[0]
    np.testing.assert_allclose(first.last_values, [[value_of_3]], rtol=1e-6)
    # environment 0 goes on where it stood; environment 1 comes whole
    assert rest.observations[:7, 0, 0].tolist() == [3, 4, 0, 1, 2, 3, 4]
    assert [episode.length for episode in sample.episodes[:3]] == [3, 2, 5]
    delta = first.rewards[-1, 0] + trainer.settings.gamma * value_of_3 - first.values[-1, 0]
    advantages = trainer.learning_rows([first]).advantages
    np.testing.assert_allclose(advantages[-1], delta, rtol=1e-5)
    trainer.stop()


@pytest.mark.slow
@pytest.mark.parametrize("n_step", [1, 3])
def test_P17_a_replay_is_given_the_rows_of_a_soft_horizon_whose_value_goes_on(n_step: int) -> None:
    env = {"env": COUNTING["env"], "env_config": {"length": 50}, "num_envs_per_worker": 2}
    edge = {**WHOLE, "horizon": 4, "soft_horizon": True, "rollout_fragment_length": 4}
    trainer = DQN({**env, **edge, "n_step": n_step, "gamma": 0.5}, TrialContext(seed=1))
    run(trainer, 3)
    rows = trainer.replay.sample(200)
    assert len(trainer.replay) == 3 * 8 - (n_step - 1)  # the latest wait for what follows
    seen, following = rows["observations"][:, 0], rows["new_obs"][:, 0]
    np.testing.assert_array_equal(following, np.minimum(seen + n_step, seen // 4 * 4 + 4))
    np.testing.assert_allclose(
        rows.get("discounts", np.float32(0.5)), 0.5 ** (following - seen), rtol=1e-6
    )
    assert not rows["terminated"].any()
    trainer.stop()


@pytest.mark.slow
def test_P8_steps_that_wait_for_an_endless_episode_are_warned_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = {**COUNTING, "env_config": {"length": 3000}}
    with caplog.at_level(logging.WARNING):
        trainer = make(config)
        trainer.workers.sample()
        trainer.workers.sample()
    (record,) = [one for one in caplog.records if "unfinished" in one.getMessage()]
    assert "worker 0 holds 3072 steps of 2 unfinished" in record.getMessage()
    assert "horizon" in record.getMessage()
    trainer.stop()


@pytest.mark.slow
def test_T9_a_replaced_child_goes_on_with_its_episodes_in_flight() -> None:
    config = {**WHOLE, "num_workers": 2}
    undisturbed = make(config)
    expected: list[Any] = [run(undisturbed, 4), final_state(undisturbed)]
    undisturbed.stop()
    trainer = make({**config, "recreate_failed_workers": True})
    assert isinstance(trainer.workers, ChildWorkers)
    first = run(trainer, 2)
    os.kill(trainer.workers.pids()[1], signal.SIGKILL)
    results: list[Any] = [first + run(trainer, 2), final_state(trainer)]
    for one in (*results[0], *expected[0]):
        del one["config"]
    assert differences(results, expected) == []

    worker = trainer.workers._children[0]
    sample = trainer.workers.sample()[0]
    assert checked(sample, worker.spec) is sample
    few = Sample([], sample.episodes, sample.deltas, sample.recent)
    with pytest.raises(WorkerError, match="0 steps; expected at least 48"):
        checked(few, worker.spec)
    trainer.stop()
