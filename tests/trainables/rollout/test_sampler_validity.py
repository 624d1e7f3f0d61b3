"""Rows that are not learnt from: faulty episodes, and steps that their environment excludes."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.support.trainers import PLAIN, make
from tests.support.vector_envs import Altered
from trainables.algorithms.ppo import PPO
from trainables.envs.vector.base import Step
from trainables.rollout.batch import Fragment
from trainables.rollout.episodes.metrics import RolloutMetrics
from trainables.rollout.workers.worker_set import LocalWorkers

LENGTH = 12
CONFIG: dict[str, Any] = {
    **PLAIN,
    "env": "tests.support.environments:Counting",
    "env_config": {"length": 5},
    "rollout_fragment_length": LENGTH,
    "train_batch_size": 2 * LENGTH,
    "normalize_rewards": True,
}


def altered(alter: Callable[[int, Step], Step]) -> tuple[PPO, Fragment, list[RolloutMetrics]]:
    trainer = make(CONFIG)
    assert isinstance(trainer.workers, LocalWorkers)
    sampler = trainer.workers.worker._sampler
    sampler.envs = Altered(sampler.envs, alter)
    (sample,) = trainer.workers.sample()
    return trainer, sample.fragments[0], sample.episodes


def fails_in_its_eighth_step(number: int, step: Step) -> Step:
    if number != 8:
        return step
    observations = np.array(step.observations)
    observations[0] = 0.0
    rewards = np.array([0.0, step.rewards[1]])
    return step._replace(
        observations=observations, rewards=rewards, faults={0: ValueError("the world ended")}
    )


def test_E4_nothing_of_a_faulty_episode_is_learnt_and_its_siblings_are_untouched() -> None:
    trainer, fragment, episodes = altered(fails_in_its_eighth_step)
    assert np.flatnonzero(~fragment.valid[:, 0]).tolist() == [5, 6, 7]
    assert fragment.valid[:, 1].all()
    assert not fragment.final_values[7].any()
    assert fragment.truncated[:, 0].tolist() == [i in (4, 7, 9) for i in range(LENGTH)]
    assert [e for e in episodes if e.faulty] == [RolloutMetrics(2.0, 3, faulty=True)]
    batch = trainer.learning_rows([fragment])
    assert len(batch) == 2 * LENGTH - 3
    trainer.stop()


def test_E4_a_faulty_episode_is_counted_apart_and_in_no_mean() -> None:
    trainer, fragment, episodes = altered(fails_in_its_eighth_step)
    trainer.progress.count(0, fragment.logp.size, episodes, {})
    counted = trainer.collect_metrics()
    assert counted["num_faulty_episodes"] == 1
    assert counted["episodes_this_iter"] == 4
    assert counted["episode_len_mean"] == (5 + 2 + 5 + 5) / 4
    trainer.progress.begin_iteration()
    assert "num_faulty_episodes" not in trainer.collect_metrics()
    trainer.stop()


def test_P12_a_step_whose_info_disables_training_is_not_learnt() -> None:
    def excluded(number: int, step: Step) -> Step:
        told = {1: {"training_enabled": False}} if number in (2, 3) else {0: {"other": 1}}
        return step._replace(infos=told)

    trainer, fragment, _ = altered(excluded)
    assert fragment.valid[:, 0].all()
    assert np.flatnonzero(~fragment.valid[:, 1]).tolist() == [1, 2]
    trainer.stop()


def test_P17_a_soft_horizon_ends_an_episode_for_the_metrics_and_nothing_else() -> None:
    def soft(number: int, step: Step) -> Step:
        return step._replace(metric_ends=np.array([number == 3, False]))

    trainer, fragment, episodes = altered(soft)
    assert [e.length for e in episodes] == [3, 2, 5, 5, 5]
    assert np.flatnonzero(fragment.truncated[:, 0]).tolist() == [4, 9]
    assert fragment.valid.all()
    trainer.stop()


def test_an_iteration_without_a_row_to_learn_from_leaves_the_weights_as_they_are() -> None:
    def excluded(_: int, step: Step) -> Step:
        return step._replace(infos={env_index: {"training_enabled": False} for env_index in (0, 1)})

    trainer, fragment, _ = altered(excluded)
    before = trainer.policy.model.weights()
    assert trainer.learn([fragment]) == {}
    after = trainer.policy.model.weights()
    assert all(np.array_equal(before[name], after[name]) for name in before)
    trainer.stop()
