from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from tests.support.environments import Counting
from tests.support.trainers import PLAIN, make, only_worker
from trainables.algorithms.dqn import DQN
from trainables.algorithms.ppo import PPO
from trainables.envs.spaces.observations import Rows
from trainables.errors import EnvError, NotFiniteError
from trainables.policies.filters import MeanStdFilter
from trainables.rollout.batch import Fragment
from trainables.trainer.trainer import Trainer

HERE = "tests.support.environments"


def fragment_of(config: dict[str, Any]) -> tuple[Fragment, Any]:
    trainer = make({**PLAIN, "env_level": "C", **config})  # nothing is measured
    sample = trainer.workers.sample()[0]
    return sample.fragments[0], trainer


def test_a_truncated_episode_stores_the_value_of_its_true_last_observation() -> None:
    fragment, trainer = fragment_of({"env": f"{HERE}:Counting", "env_config": {"length": 5}})
    assert fragment.observations[:, 0, 0].tolist() == [0, 1, 2, 3, 4] * 2 + [0, 1]
    assert np.flatnonzero(fragment.truncated[:, 0]).tolist() == [4, 9]
    assert not fragment.terminated.any()
    value_of_5 = trainer.inference.actor.values(np.array([[5.0]], dtype=np.float32))[0]
    np.testing.assert_allclose(fragment.final_values[[4, 9], 0], value_of_5, rtol=1e-6)
    assert not fragment.final_values[~fragment.truncated].any()
    value_of_2 = trainer.inference.actor.values(np.array([[2.0]], dtype=np.float32))[0]
    np.testing.assert_allclose(fragment.last_values[0], value_of_2, rtol=1e-6)


@pytest.mark.slow
def test_an_environment_that_reuses_its_array_is_bootstrapped_with_its_true_last_observation() -> (
    None
):
    fragment, trainer = fragment_of({"env": f"{HERE}:ReusesItsArray"})
    value_of_5 = trainer.inference.actor.values(np.array([[5.0]], dtype=np.float32))[0]
    np.testing.assert_allclose(fragment.final_values[[4, 9], 0], value_of_5, rtol=1e-6)


@pytest.mark.slow
def test_the_value_of_a_final_observation_is_taken_of_the_filtered_one() -> None:
    """The fragment ends with the episode, so the filter has seen all of it by then."""
    config = {"env": f"{HERE}:Counting", "env_config": {"length": 12}}
    fragment, trainer = fragment_of({**config, "observation_filter": "MeanStdFilter"})
    worker = trainer.workers.worker
    final = np.array([[12.0]], dtype=np.float32)
    filtered = worker._filters["observation"](final, update=False)
    expected = worker._actor.values(filtered)[0]
    assert not np.isclose(expected, worker._actor.values(final)[0])
    np.testing.assert_allclose(fragment.final_values[11, 0], expected, rtol=1e-5)


def test_every_observation_is_counted_once_by_the_filter() -> None:
    """Two environments times twelve steps, twice; the last observation waits for the next round."""
    config = {"env": f"{HERE}:Counting", "observation_filter": "MeanStdFilter"}
    trainer = make({**PLAIN, **config})
    trainer.train()
    trainer.train()
    observed = trainer.filters["observation"]
    assert isinstance(observed, MeanStdFilter)
    assert observed.row_count == 48


def test_the_return_that_scales_rewards_starts_anew_with_each_episode() -> None:
    config = {"env_config": {"length": 12}, "normalize_rewards": True}
    _, trainer = fragment_of({"env": f"{HERE}:Counting", **config})
    assert trainer.workers.worker._sampler._scaler.returns.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("algorithm", [PPO, DQN])
@pytest.mark.parametrize("truncates", [True, False])
def test_returns_that_scale_are_of_clipped_rewards_and_end_with_every_episode(
    algorithm: type[Trainer], truncates: bool
) -> None:
    sizes = {"num_envs_per_worker": 2, "rollout_fragment_length": 12, "train_batch_size": 24}
    env = {"env": f"{HERE}:Counting", "env_config": {"length": 5, "truncates": truncates}}
    scaled = {"normalize_rewards": True, "clip_rewards": 0.5, "gamma": 0.9}
    trainer = algorithm({**sizes, **env, **scaled, "env_level": "C"})
    trainer.workers.sample()
    stat: Any = only_worker(trainer)._filters["reward"]
    trainer.stop()
    running, returns = 0.0, list[float]()
    for step in range(12):
        running = 0.9 * running + 0.5
        returns.append(running)
        running = 0.0 if step % 5 == 4 else running
    assert stat.row_count == 24
    np.testing.assert_allclose([stat.mean, stat.std], [np.mean(returns), np.std(returns)])


def test_an_environment_that_made_no_step_keeps_what_came_before_its_next_one() -> None:
    fragment, trainer = fragment_of({"env": f"{HERE}:Counting"})
    sampler = trainer.workers.worker._sampler
    fragment.actions[0] = 1
    before = {"prev_actions": np.zeros(2, np.int64), "prev_rewards": np.zeros(2)}
    sampler._previous_row = before
    idle = np.array([False, True])
    sampler._sequence_columns(fragment, 0, np.full(2, 7.0), sampler.memory, idle)
    assert sampler._previous_row["prev_actions"].tolist() == [1, 0]
    assert sampler._previous_row["prev_rewards"].tolist() == [7.0, 0.0]
    trainer.stop()


def test_spaces_are_seeded_before_the_first_reset_and_in_evaluation() -> None:
    config = {**PLAIN, "env": f"{HERE}:DrawsFromItsSpace", "evaluation_interval": 1}
    one, two = make(config), make(config)
    first, second = one.train(), two.train()
    assert first["episode_reward_mean"] == second["episode_reward_mean"]
    assert first["evaluation"] == second["evaluation"]
    assert one.evaluate() == one.evaluate()


@pytest.mark.slow
def test_a_terminated_episode_is_kept_apart_from_a_truncated_one() -> None:
    env_config = {"length": 5, "truncates": False}
    fragment, _ = fragment_of({"env": f"{HERE}:Counting", "env_config": env_config})
    assert np.flatnonzero(fragment.terminated[:, 1]).tolist() == [4, 9]
    assert not fragment.truncated.any()
    assert not fragment.final_values.any()


def test_the_clipped_action_is_sent_and_the_chosen_one_is_stored() -> None:
    env_config = {"continuous": True}
    fragment, trainer = fragment_of({"env": f"{HERE}:Counting", "env_config": env_config})
    sent = np.stack(
        [sub_env.unwrapped.sent for sub_env in trainer.workers.worker.envs.sub_envs], axis=1
    )
    assert np.abs(fragment.actions).max() > 1.5
    np.testing.assert_allclose(sent, 0.1 * np.clip(fragment.actions, -1.0, 1.0), rtol=1e-6)


def test_unclipped_actions_are_sent_as_chosen_where_that_is_set() -> None:
    config = {"env_config": {"continuous": True}, "clip_actions": False}
    fragment, trainer = fragment_of({"env": f"{HERE}:Counting", **config})
    sent = np.stack(
        [sub_env.unwrapped.sent for sub_env in trainer.workers.worker.envs.sub_envs], axis=1
    )
    np.testing.assert_allclose(sent, np.float32(0.1) * fragment.actions, rtol=1e-6)


def test_numbers_of_the_environments_own_are_sent_as_chosen_where_that_is_set() -> None:
    as_they_are = {"clip_actions": False, "normalize_actions": False}
    config = {"env_config": {"continuous": True}, **as_they_are}
    fragment, trainer = fragment_of({"env": f"{HERE}:Counting", **config})
    sent = np.stack(
        [sub_env.unwrapped.sent for sub_env in trainer.workers.worker.envs.sub_envs], axis=1
    )
    np.testing.assert_array_equal(sent, fragment.actions)


def test_discrete_actions_start_where_the_space_starts() -> None:
    fragment, trainer = fragment_of({"env": f"{HERE}:Counting"})
    sent = np.stack(
        [sub_env.unwrapped.sent for sub_env in trainer.workers.worker.envs.sub_envs], axis=1
    )
    assert set(fragment.actions.reshape(-1).tolist()) == {0, 1, 2}
    np.testing.assert_array_equal(sent, fragment.actions + 1)


@pytest.mark.slow
def test_observations_of_any_shape_are_flattened() -> None:
    fragment, _ = fragment_of({"env": f"{HERE}:Walled"})
    assert fragment.observations.shape == (12, 2, 6)
    assert fragment.observations[1, 0].tolist() == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("clip", "expected"), [(True, -1.0), (0.5, -0.5), (None, None), (False, None)]
)
def test_rewards_are_clipped_for_the_learner_alone(clip: Any, expected: float | None) -> None:
    trainer = make(
        {
            **PLAIN,
            "env": "Pendulum-v1",
            "clip_rewards": clip,
            "rollout_fragment_length": 200,
            "train_batch_size": 400,
        }
    )
    sample = trainer.workers.sample()[0]
    rewards = sample.fragments[0].rewards
    assert sample.episodes[0].total_reward < -200
    if expected is None:
        assert rewards.min() < -2
    else:
        assert rewards.min() == expected


class Uneven(Counting):
    """Rewards within and beyond ±1."""

    def step(self, action: Any) -> Any:
        observation, _, *rest = super().step(action)
        return observation, [0.25, -0.25, 0.0, 3.0, -3.0][self.steps - 1], *rest


@pytest.mark.slow
@pytest.mark.parametrize(
    ("clip", "expected"),
    [
        (True, [1.0, -1.0, 0.0, 1.0, -1.0]),
        (1.0, [0.25, -0.25, 0.0, 1.0, -1.0]),
        (False, [0.25, -0.25, 0.0, 3.0, -3.0]),
    ],
    ids=["sign", "bound", "neither"],
)
def test_K3_clip_rewards_true_is_the_sign_and_a_number_a_bound(
    clip: bool | float, expected: list[float]
) -> None:
    fragment, _ = fragment_of({"env": f"{__name__}:Uneven", "clip_rewards": clip})
    assert fragment.rewards[:5, 0].tolist() == expected


@pytest.mark.slow
def test_metrics_are_absent_until_an_episode_has_ended_and_then_summarise_the_window() -> None:
    trainer = make({**PLAIN, "env": f"{HERE}:Counting", "env_config": {"length": 20}})
    first = trainer.train()
    assert "episode_reward_mean" not in first
    assert first["episodes_total"] == 0
    second = trainer.train()
    assert second["episode_reward_mean"] == 20.0
    assert second["episode_len_mean"] == 20.0
    assert second["episodes_this_iter"] == 2
    assert second["timesteps_total"] == 48


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "error", "words"),
    [
        ("observation", NotFiniteError, "worker 0, environment 0: observation"),
        ("reward", NotFiniteError, "worker 0, environment 0: reward nan"),
        (
            "raise",
            EnvError,
            r"environment 0: step\(\) raised ZeroDivisionError: the world ended, at step 3",
        ),
    ],
)
def test_a_broken_environment_is_named_where_it_breaks(
    what: str, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        make({**PLAIN, "env": f"{HERE}:Broken", "env_config": {"what": what}}).train()


def test_an_observation_of_an_undeclared_size_is_refused() -> None:
    with pytest.raises(EnvError, match=r"shape \(4,\); expected 1 numbers, as the observation"):
        Rows(Box(-1, 1, (1,)), "worker 0")(np.zeros((2, 4)))


def test_native_vector_lanes_have_no_ghost_steps() -> None:
    trainer = make(
        {
            **PLAIN,
            "native_vector_env": True,
            "rollout_fragment_length": 100,
            "train_batch_size": 200,
        }
    )
    sample = trainer.workers.sample()[0]
    fragment = sample.fragments[0]
    ended = fragment.terminated | fragment.truncated
    assert ended.sum() == len(sample.episodes) > 3
    assert (fragment.rewards == 1.0).all()
    starts = fragment.observations[1:][ended[:-1]]
    assert (np.abs(starts) <= 0.05).all()
    lengths = np.diff([-1, *np.flatnonzero(ended[:, 0])])
    assert set(lengths) <= {episode.length for episode in sample.episodes}


def test_one_environment_is_sent_choices_as_it_counts_them() -> None:
    trainer = make({**PLAIN, "env": "tests.support.own_connectors:World", "num_envs_per_worker": 1})
    fragment = trainer.workers.sample()[0].fragments[0]
    steps = np.arange(len(fragment.valid)) % 5 + 1
    sent = (fragment.rewards[:, 0] - steps / 2) * 8
    np.testing.assert_allclose(sent, fragment.actions[:, 0] + 2)
    trainer.stop()


class Number(Counting):
    """Observes a number that is not a vector."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = Box(-np.inf, np.inf, (), np.float32)
        self.action_space = Discrete(2)

    def _observe(self) -> Any:
        return np.float32(self.steps)


@pytest.mark.parametrize("envs", [1, 2])
def test_an_observation_may_be_a_number(envs: int) -> None:
    fragment, trainer = fragment_of({"env": f"{__name__}:Number", "num_envs_per_worker": envs})
    assert fragment.observations[:, 0, 0].tolist() == [0, 1, 2, 3, 4] * 2 + [0, 1]
    trainer.stop()
